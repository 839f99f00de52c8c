"""What every method shares, by a method that does nothing but count."""

import dataclasses
from typing import Optional

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import checks
from tf_privrob.methods import method as method_lib
from tf_privrob.methods import plan as training_plan
from tf_privrob.methods import registry

pytestmark = pytest.mark.usefixtures("checked_once")


@dataclasses.dataclass(frozen=True)
class _Config:
  learning_rate: float = 0.1
  steps: int = 5
  checkpoint_every: int = 1
  seed: Optional[int] = None


@tf.keras.saving.register_keras_serializable("method_test")
class _Counting(method_lib.Method):
  """Adds 1 to the last bias at every step and notes what was called."""

  config_class = _Config

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self.calls = []
    self(tf.zeros([1, 4]))

  def make_optimizer(self, steps):
    self.calls.append(("optimizer", steps))
    return tf.keras.optimizers.SGD(self.config.learning_rate)

  def check_value_range(self, value_range):
    self.calls.append("range")
    checks.require_unit_range(value_range, "Counting")

  def check_data(self, x, y, value_range):
    self.calls.append(("check", len(x), len(y), value_range))

  def begin(self, x, y, value_range):
    self.calls.append(("begin", len(x), len(y), value_range))

  def plan(self, num_examples, input_shape=None):
    self.calls.append("plan")
    sampler = data.FixedBatchSampler(num_examples, 3, paired=False)
    return training_plan.FixedPlan(sampler, self.config.steps, 2)

  def prepare(self, plan, shape, value_range, num_classes):
    self.calls.append(("prepare", tuple(shape), num_classes))
    self.run_state = method_lib.RunState()
    self.optimizer.build(self.network.trainable_variables)

  def train_step(self, batch):
    x, _ = batch
    checks.require_batch_size(x, 3)
    bias = self.network.layers[-1].bias
    update = -tf.ones_like(bias) / self.config.learning_rate
    self.apply(self.outlet.without_noise([update]), [bias])
    return {"nonprivate/size": tf.cast(tf.shape(x)[0], tf.float32)}

  def ledger_parameters(self, plan):
    return {"sampler": plan.sampler.describe()}

  def spent_dp_epsilon(self, steps):
    return None

  def count_steps(self, steps, sessions):
    self._run_record.update(steps=steps, sessions=sessions)

  def statement(self):
    return privacy.PrivacyStatement(claimed=None, proven=None)


def _method(**changes):
  return _Counting(models.mlp((4,), 3, hidden=(2,)), _Config(**changes))


def _arrays(count=12, seed=0):
  rng = np.random.default_rng(seed)
  return rng.random((count, 4), "float32"), rng.integers(0, 3, count)


def _bias(method):
  return method.network.layers[-1].bias.numpy()


def _begun(method):
  return any(call[0] == "begin" for call in method.calls)


def test_fit_checks_then_plans_then_prepares_then_begins(tmp_path):
  method = _method()
  history = method.fit(*_arrays(), run_dir=tmp_path, verbose=0)
  assert method.calls == [
    "range",
    ("check", 12, 12, (0.0, 1.0)),
    "plan",
    ("optimizer", 5),
    ("prepare", (4,), 3),
    ("begin", 12, 12, (0.0, 1.0)),
    "plan",  # again: what began may have changed it
  ]
  np.testing.assert_array_equal(_bias(method), [5, 5, 5])
  assert (method.run_record["steps"], method.run_record["sessions"]) == (5, 1)
  assert history.history["nonprivate/size"] == [3.0, 3.0, 3.0]  # 2 + 2 + 1
  assert privacy.read_ledger(tmp_path / "ledger.jsonl").steps == 5


def _with(**changes):
  x, y = _arrays()
  return {"x": x, "y": y, **changes}


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (_with(value_range=(0.0, 2.0)), r"inputs in \[-1, 1\], which Counting's"),
    (_with(value_range=(-2.0, 1.0)), "Rescale the data set"),
    (_with(x=np.zeros((12, 5), "float32")), r"shape \(4,\), .* \(5,\)"),
    (_with(x=np.zeros((12, 4, 1), "float32")), "rank 2"),
    (_with(x=np.full((12, 4), np.inf, "float32")), "NaN or infinity"),
    (_with(y=np.full(12, 3)), r"labels in \[0, 3\)"),
    (_with(y=np.zeros(11, int)), "11 labels"),
    (
      _with(validation_data=(np.zeros((2, 3), "float32"), np.zeros(2, int))),
      r"x_test with examples of shape \(4,\)",
    ),
    (
      _with(validation_data=(np.zeros((2, 4), "float32"), np.zeros(3, int))),
      "3 labels in y_test",
    ),
    (_with(resume=True), "Expected run_dir with resume=True"),
  ],
)
def test_nothing_begins_before_everything_was_checked(arguments, message):
  method = _method()
  with pytest.raises(ValueError, match=message):
    method.fit(**arguments, verbose=0)
  assert not _begun(method)


def test_a_step_with_another_batch_size_is_refused():
  with pytest.raises(ValueError, match=r"batch_size=3, .* received 2"):
    checks.require_batch_size(tf.zeros([2, 4]), 3)


def test_users_optimizer_is_kept_and_the_configs_knows_the_steps():
  own = _method()
  own.compile(tf.keras.optimizers.Adam(0.3))
  own.fit(*_arrays(), verbose=0)
  assert isinstance(own.optimizer, tf.keras.optimizers.Adam)
  assert ("optimizer", 5) not in own.calls
  later = _method()
  later.compile(metrics=["mse"])
  history = later.fit(*_arrays(), validation_data=_arrays(5), verbose=0)
  assert later.calls[0] == ("optimizer", None)
  assert ("optimizer", 5) in later.calls
  assert any("mse" in name for name in history.history)


def test_several_steps_an_execution_are_refused():
  with pytest.raises(ValueError, match="paid for in the ledger"):
    _method().compile(steps_per_execution=2)


def test_softmax_is_refused():
  network = tf.keras.Sequential(
    [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(3, "softmax")]
  )
  with pytest.raises(ValueError, match=r"models\.as_logits"):
    _Counting(network)


def test_several_replicas_are_refused():
  class Two:
    num_replicas_in_sync = 2

  method = _method()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(tf.distribute, "get_strategy", Two)
    with pytest.raises(ValueError, match="one replica"):
      method.fit(*_arrays(), verbose=0)
  assert not _begun(method)


def test_dataset_brings_range_and_validation_data():
  dataset = data.from_arrays(
    "mine", *_arrays(), *_arrays(seed=1), num_classes=3, value_range=(0, 1)
  )
  method = _method()
  history = method.fit(dataset, verbose=0)
  assert len(history.history["val_accuracy"]) == 3
  assert method.calls[1][-1] == (0, 1)


def test_saved_and_loaded_without_the_seed(tmp_path):
  method = _method(seed=987, learning_rate=0.2)
  method.fit(*_arrays(), verbose=0)
  method.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  assert loaded.config == _Config(learning_rate=0.2, seed=None)
  assert loaded.run_record == method.run_record
  np.testing.assert_array_equal(_bias(loaded), _bias(method))
  for trained in (method, loaded):
    with pytest.raises(ValueError, match="trained for 5 steps"):
      trained.fit(*_arrays(), verbose=0)


def test_record_cannot_be_changed_from_outside():
  method = _method()
  method.fit(*_arrays(), verbose=0)
  method.run_record["steps"] = 0
  assert method.run_record["steps"] == 5


def test_resumed_run_counts_on(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _method().fit(
      *_arrays(),
      run_dir=tmp_path,
      callbacks=[interrupt.StopAfter(3)],
      verbose=0,
    )
  method = _method()
  method.fit(*_arrays(), run_dir=tmp_path, resume=True, verbose=0)
  np.testing.assert_array_equal(_bias(method), [5, 5, 5])
  assert (method.run_record["steps"], method.run_record["sessions"]) == (5, 2)


def test_seeds_of_steps_and_streams_never_meet():
  state, found = method_lib.RunState(), []
  for step in range(15):
    state.key.assign(randomness.Key.of(step).stateless_seed())
    found += [
      tuple(state.seed(*numbers).numpy())
      for numbers in ((), (0,), (1,), (0, 0), (0, 1), (1, 0))
    ]
  assert len(set(found)) == len(found) == 90


def test_averages_are_exchanged_and_come_back():
  method = _method()
  method.run_state = method_lib.RunState(method.network.trainable_variables)
  start = [w.copy() for w in method.network.get_weights()]
  for average in method.run_state.averages:
    average.assign(average + 1)
  method.swap_average()
  for a, b in zip(start, method.network.get_weights()):
    np.testing.assert_allclose(b, a + 1)
  method.swap_average()
  for a, b in zip(start, method.network.get_weights()):
    np.testing.assert_array_equal(a, b)


def test_input_shape_where_the_network_knows_it():
  assert checks.input_shape(models.mlp((4, 2), 3)) == (4, 2)

  class Subclassed(tf.keras.Model):
    def call(self, inputs):
      return inputs

  assert checks.input_shape(Subclassed()) is None


@pytest.mark.parametrize("name", methods.NAMES)
def test_every_preset_builds_its_method(name):
  """Settings decide on the class; each says what it is."""
  network = models.dpal_mnist((8, 8, 1), 3)
  if name == "transdenoiser":  # trains a denoiser before a classifier
    denoiser = models.smooth_denoiser((8, 8, 1))
    network = models.denoised_classifier(denoiser, network)
  if name == "halfspaces":
    network = models.linear((8, 8, 1), 3)
  if name in ("diffai", "dual", "ibp", "sgd"):  # layers whose bounds are known
    network = models.mlp((8, 8, 1), 3, hidden=(4,))
  kinds = set()
  default = methods.preset(name, None)
  assert default.seed is None  # noise that nobody can subtract
  presets = registry.presets(name).values()
  for settings in (default, *presets):
    if type(settings) is not type(default):
      continue  # another method of this name
    if getattr(settings, "copied_channels", False):
      continue  # needs images with channels
    found = methods.build(name, network, settings)
    assert isinstance(found, methods.Method)
    assert found.config is settings
    kinds.add(type(found))
  assert len(kinds) == 1


def test_unknown_methods_and_presets_are_refused():
  with pytest.raises(ValueError, match="Did you mean 'dpal'"):
    methods.build("dpa", models.mlp((4,), 3), papers.DPALConfig())
  with pytest.raises(ValueError, match="Did you mean 'mnist_sound'"):
    methods.preset("dpal", "mnist_sond")
