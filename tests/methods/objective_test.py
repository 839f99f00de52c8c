"""Objectives in settings: one's own, in files, and in a resumed run."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tests.methods.objectives import robust_cases as cases
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods import registry
from tf_privrob.methods import settings


@tf.keras.saving.register_keras_serializable("objective_test")
@dataclasses.dataclass(frozen=True)
class Margin(methods.Objective):
  """A loss of one's own: the hinge of the margin."""

  floor: float = 1.0

  def row_losses(self, context, rows, labels, seed):
    del seed
    logits = context.network(rows, training=True)
    own = tf.gather(logits, labels, axis=1, batch_dims=1)
    others = logits - 1e9 * tf.one_hot(labels, logits.shape[1])
    margin = own - tf.reduce_max(others, axis=1)
    return tf.nn.relu(self.floor - margin), {"correct": margin > 0}


@dataclasses.dataclass(frozen=True)
class Unregistered(Margin):
  """The same, under no name."""


def _run(config, objective, folder=None, **kwargs):
  kind = methods.DPSGD if config is None else methods.Trainer
  config = config or methods.DPSGDConfig(**cases.SMALL, **cases.PRIVATE)
  method = kind(cases.network(), config, objective=objective)
  method.fit(*cases.arrays(), run_dir=folder, verbose=0, **kwargs)
  return method


@pytest.mark.parametrize("private", [True, False])
def test_an_objective_of_ones_own_trains_and_proves_nothing(private, tmp_path):
  config = None if private else methods.TrainingConfig(**cases.SMALL)
  method = _run(config, Margin(floor=0.5), tmp_path / "run")
  assert method.privacy_statement().proven is None
  described = json.loads((tmp_path / "run" / "config.json").read_text())
  assert described["method"] == ("dp_sgd" if private else "sgd")
  found = described["config"]["objective"]
  assert found == {"name": "objective_test>Margin", "floor": 0.5}
  loaded = models.load_model(tmp_path / "run" / "model.keras")
  assert loaded.config.objective == Margin(floor=0.5)
  x = cases.arrays()[0]
  np.testing.assert_array_equal(loaded(x), method(x))


def test_a_file_names_known_objectives_only(tmp_path):
  method = methods.DPSGD(cases.network(), objective=Unregistered())
  method.save(tmp_path / "model.keras")
  with pytest.raises(ValueError, match="objective='Unregistered'"):
    models.load_model(tmp_path / "model.keras")


@pytest.mark.parametrize("name", registry.OBJECTIVES)
def test_settings_are_what_was_described(name):
  kind = registry.objective(name)
  assert registry.objective_name(kind) == name
  smoothed = methods.DPSGDConfig(objective=methods.Smooth(attack_eps=0.5))
  for config in (smoothed, *registry.presets("sgd").values()):
    told = json.loads(json.dumps(settings.described(config)))
    assert settings.restored(type(config), told) == config


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"objective": {"name": "os.system"}}, "objective='os.system'"),
    ({"objective": {"name": ["trades"]}}, r"objective=\['trades'\]"),
    ({"objective": {"name": "Custom>DPSGD"}}, "objective='Custom>DPSGD'"),
    ({"objective": {"beta": 1.0}}, "objective=None"),
    ({"objective": {"name": "trades", "bet": 1}}, "received 'bet'"),
    ({"objective": "trades"}, r"made by Objective\(...\)"),
    ({"objective": {"name": "ibp", "ramp": {"name": "x"}}}, "received 'name'"),
    ({"epochs": {"name": "trades"}}, "Expected one value for epochs"),
    ({"private": True}, "received 'private'"),
  ],
)
def test_what_a_file_may_not_say(values, message):
  with pytest.raises(ValueError, match=message):
    settings.restored(methods.DPSGDConfig, values)


def test_a_class_that_is_gone_is_one_sentence(tmp_path):
  from tf_privrob.models.files import known

  with pytest.raises(
    known.RefusedError, match="trained by DPSmooth of an earl"
  ):
    known.find("layer", "DPSmooth", None, "tf_privrob>DPSmooth")


def test_changes_reach_the_objective():
  config = methods.TrainingConfig(objective=methods.Trades())
  found = config.changed(epochs=2, beta=6.0)
  assert (found.epochs, found.objective.beta) == (2, 6.0)
  found = config.changed(objective=methods.IBP(), attack_eps=0.2)
  assert found.objective == methods.IBP(attack_eps=0.2)
  found = config.changed(attack_eps=0.2, first_eps=0.15)
  assert found.objective.ramp == methods.Ramp(first_eps=0.15)
  with pytest.raises(TypeError, match="no_such"):
    config.changed(no_such=1)


def test_a_run_is_not_resumed_for_another_objective(tmp_path):
  config = methods.TrainingConfig(**cases.SMALL)
  with pytest.raises(KeyboardInterrupt):
    _run(
      config, methods.Natural(), tmp_path, callbacks=[interrupt.StopAfter(2)]
    )
  with pytest.raises(privacy.LedgerError, match="objective"):
    _run(config, Margin(), tmp_path, resume=True)


def test_metrics_are_those_of_the_objective():
  x, y = cases.tensors(6)
  context = cases.prepared("natural").context
  losses, metrics = Margin().example_losses(context, x, y, tf.constant([0, 1]))
  logits = context.network(x).numpy()
  own = logits[np.arange(6), y]
  logits[np.arange(6), y] = -np.inf
  np.testing.assert_allclose(
    losses, np.maximum(1 - own + logits.max(1), 0), rtol=1e-5
  )
  assert set(metrics) == {"correct"}
  assert isinstance(context, objective_lib.Context)
