"""What two attackers with a fresh mind found, and what came of it.

Networks, callbacks, optimizers, seeds and resumed runs that were accepted with
a proven figure, although one example, or the data themselves, showed.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.soundness import small_runs
from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob import models
from tf_privrob.data import batching

_layers = tf.keras.layers
# What is asked here comes after the gradients were checked.
pytestmark = pytest.mark.usefixtures("checked_once")


def _fit(network=None, public_weights=None, fit=None, **changes):
  made = small_runs.method(network, public_weights, **changes)
  return small_runs.fit(made, **(fit or {}))


def _watched(method):
  """The exact sums that the method's outlet is given, as they come."""
  seen, real = [], method.outlet.gaussian

  def gaussian(sums, *rest):
    seen.append(np.concatenate([np.ravel(tensor) for tensor in sums]))
    return real(sums, *rest)

  method.outlet.gaussian = gaussian
  return seen


def _mixing(how):
  """Keras' own layers and operators, and yet a mean over the batch."""
  inputs = tf.keras.Input((6,))
  part = _layers.Dense(1)(inputs)
  if how == "nested list":  # [batch, 1] + [[[0]]] is [1, batch, 1]
    mean = _layers.GlobalAveragePooling1D()(tf.add(part, [[[0.0]]]))
  else:  # settled at the first call: [batch, 1] + [batch, 1, 1]
    add = _layers.Add()
    add([part, part])
    wide = _layers.Reshape((1, 1))(tf.multiply(part, 0.0))
    mean = _layers.GlobalAveragePooling1D()(add([part, wide]))
  return tf.keras.Model(
    inputs, _layers.Dense(3)(tf.multiply(inputs, tf.add(mean, 1.0)))
  )


@pytest.mark.parametrize("how", ["nested list", "reused layer"])
def test_operators_that_mix_the_batch_are_seen(how):
  """One row moved the sum by 117 and 96 clip norms."""
  assert gradients.not_row_wise(_mixing(how)) is not None


@pytest.mark.slow
def test_dropout_follows_the_secret_of_the_run():
  """By a public seed, a row fewer gave all others other draws: 15 C."""
  tf.random.set_seed(0)
  sums = []
  for _ in range(2):
    network = tf.keras.Sequential(
      [_layers.Input((6,)), _layers.Dropout(0.5, seed=7), _layers.Dense(3)]
    )
    method = methods.DPSGD(network, small_runs.CONFIG, public_weights="zeros")
    network.set_weights([np.zeros_like(w) for w in network.get_weights()])
    method.simulate(64)
    seen = _watched(method)
    method.set_step(np.random.default_rng().integers(2**62, size=2), 0)
    x, y = small_runs.arrays(16)
    method.train_step((x[None], y[None], np.ones([1, 16], "float32")))
    sums += seen
  assert np.abs(sums[0] - sums[1]).max() > 0


def test_very_large_sums_keep_what_one_row_adds():
  """In float32, 60,000 rows rounded a removed one to 1.03 C."""
  network = tf.keras.Sequential(
    [
      _layers.Input((2,)),
      _layers.Dense(2, use_bias=False, kernel_initializer="zeros"),
    ]
  )
  method = methods.DPSGD(
    network,
    dataclasses.replace(
      small_runs.CONFIG,
      sampler="full_batch",
      physical_batch_size=256,
      dp_delta=1e-6,
    ),
  )
  method.simulate(60_000)
  total = tf.function(method.nonprivate_sum)
  x = np.random.default_rng(0).uniform(0.6, 1.0, (60_000, 2)).astype("float32")
  x[0], y = 1.0, np.zeros(60_000, np.int64)
  sums = []
  for first in (0, 1):
    chosen = np.arange(first, len(x))
    sums.append(total(*batching.gather_chunks(x, y, chosen, 256))[0].numpy())
  assert np.linalg.norm(sums[0] - sums[1]) <= 1.0


def test_a_file_saved_by_a_callback_knows_its_weights(tmp_path):
  """Trained on without privacy, it was still called proven."""
  path = tmp_path / "middle.keras"
  keep = tf.keras.callbacks.ModelCheckpoint(str(path))
  _fit(fit={"callbacks": [keep]})
  loaded = models.load_model(path)
  assert loaded.privacy_statement().proven is not None
  kernel = loaded.network.layers[-1].kernel
  kernel.assign(2 * kernel)
  assert loaded.privacy_statement().proven is None


@pytest.mark.slow
@pytest.mark.parametrize(
  "changes", [{"noise_multiplier": 2.0}, {"learning_rate": 0.5}]
)
def test_one_seed_in_two_runs_is_not_one_noise(changes):
  """2 a - b of two runs with one secret seed was the exact sum."""

  def noise(**kwargs):
    config = dataclasses.replace(small_runs.CONFIG, seed=12345, **kwargs)
    method = methods.DPSGD(models.mlp((6,), 3, hidden=(), seed=0), config)
    method.fit(*small_runs.arrays(), verbose=0)
    return method.network.get_weights()[0]

  same = noise() - noise()
  assert np.abs(same).max() == 0
  start = models.mlp((6,), 3, hidden=(), seed=0).get_weights()[0]
  first, second = noise() - start, noise(**changes) - start
  assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.9


def test_an_optimizer_with_filled_slots_is_refused():
  """Its momentum was a row of the data: correlation 0.9999."""
  network = models.mlp((6,), 3, hidden=())
  optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
  optimizer.build(network.trainable_variables)
  optimizer.momentums[0].assign(1e4 * tf.ones_like(optimizer.momentums[0]))
  method = methods.DPSGD(network, small_runs.CONFIG)
  method.compile(optimizer=optimizer)
  with pytest.raises(ValueError, match="new optimizer"):
    method.fit(*small_runs.arrays(), verbose=0)


def test_a_resume_remembers_where_weights_came_from(tmp_path):
  """Declared public, they were "drawn by fit" after a resume."""
  declared = {"public_weights": "trained on ImageNet"}
  with pytest.raises(KeyboardInterrupt):
    _fit(
      **declared, fit={"run_dir": tmp_path, "callbacks": [small_runs.Stop()]}
    )
  with pytest.raises(ValueError, match="public_weights"):
    _fit(fit={"run_dir": tmp_path, "resume": True})
  # Other weights under the same name are no continuation either.
  with pytest.raises(ValueError, match="kept_weights"):
    _fit(**declared, fit={"run_dir": tmp_path, "resume": True})


def test_a_resume_remembers_what_callbacks_saw(tmp_path):
  shown = {"callbacks": [small_runs.Stop()], "nonprivate_logs": True}
  with pytest.raises(KeyboardInterrupt):
    _fit(fit={"run_dir": tmp_path, **shown})
  method = _fit(fit={"run_dir": tmp_path, "resume": True})
  assert "Callbacks saw" in str(method.privacy_statement())


def test_an_error_in_the_middle_proves_nothing():
  class Fails(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
      raise RuntimeError("one example too many")

  method = methods.DPSGD(models.mlp((6,), 3, hidden=()), small_runs.CONFIG)
  with pytest.raises(RuntimeError):
    method.fit(*small_runs.arrays(), callbacks=[Fails()], verbose=0)
  found = method.privacy_statement()
  assert found.proven is None
  assert "an error ended the training" in found.caveats[0]


@pytest.mark.parametrize("callbacks", [tf.keras.callbacks.Callback(), [print]])
def test_callbacks_are_looked_at_first(tmp_path, callbacks):
  with pytest.raises(ValueError, match="list of Keras callbacks"):
    _fit(fit={"callbacks": callbacks, "run_dir": tmp_path})
  assert not list(tmp_path.iterdir())


def test_metrics_that_do_not_fit_fail_before_anything_is_paid(tmp_path):
  method = methods.DPSGD(models.mlp((6,), 3, hidden=()), small_runs.CONFIG)
  method.compile(metrics=[tf.keras.metrics.AUC()])
  with pytest.raises(ValueError, match="loss and metrics"):
    method.fit(
      *small_runs.arrays(),
      validation_data=small_runs.arrays(20),
      run_dir=tmp_path,
      verbose=0,
    )
  assert not (tmp_path / "ledger.jsonl").exists()


def test_a_folder_that_moves_under_the_feet_is_found_again(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "other").mkdir()

  class Leave(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
      monkeypatch.chdir(tmp_path / "other")

  _fit(fit={"run_dir": "run", "callbacks": [Leave()]})
  assert not list((tmp_path / "other").iterdir())
  assert (tmp_path / "run" / "checkpoints" / "step-000000004.npz").exists()
