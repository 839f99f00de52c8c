"""What a sixth attacker found: kernels that go by place in larger chunks.

Where TensorFlow broadcasts inside one kernel, it computes the end of a tile
otherwise than the rest. Rows of a small trial had no such end, and a kink hid
the bits of larger ones; releases before the steps had not been looked at.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.laws import recording
from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob import papers
from tf_privrob.data import batching
from tf_privrob.gradients import places
from tf_privrob.methods import hidden_noise
from tf_privrob.methods import relevance

_layers = tf.keras.layers
_SIDE = (50, 50)
_PIXEL, _POWER = 0.7819432, 0.8250288  # where places of 64 rows differ
_CONFIG = {
  "dp_epsilon": 1e3,
  "dp_delta": 1e-3,
  "accountant": "rdp",
  "batch_size": 128,
  "epochs": 1.0,
  "seed": 0,
  "noise_multiplier": 2.0,
  "l2_clip_norm": 0.01,
  "optimizer": "sgd",
  "learning_rate": 1.0,
}


def _powers(inputs):
  """Of two shapes, then a kink that makes one number of the last bit."""
  turned = _layers.Permute((2, 1))(inputs)
  top = _layers.Permute((2, 1))(_layers.MaxPooling1D(_SIDE[1])(turned))
  away = tf.math.abs(tf.math.subtract(tf.math.pow(inputs, top), _POWER))
  away = tf.clip_by_value(tf.math.multiply(away, 1e30), 0.0, 1.0)
  return _layers.GlobalMaxPooling1D()(_layers.Reshape((2500, 1))(away))


def _network():
  inputs = tf.keras.Input(_SIDE)
  return tf.keras.Model(
    inputs, _layers.Dense(2, use_bias=False)(_powers(inputs))
  )


def _shift(method, count):
  """How far one more image moves the sum of a step, over the sensitivity."""
  x, y = np.full((count, *_SIDE), _PIXEL, np.float32), np.arange(count) % 2
  outlet = recording.Recorder()
  method.simulate(count + 1, (0.0, 1.0), outlet=outlet)
  method.begin(x, y, (0.0, 1.0))
  rows = method.sampler.physical_batch_size
  start = [(v, v.numpy()) for v in method.network.trainable_variables]
  found = []
  for images, labels in (
    (x, y),
    (np.insert(x, 0, x[0], 0), np.insert(y, 0, 1)),
  ):
    for variable, value in start:
      variable.assign(value)
    outlet.noted = []
    places_of = np.arange(len(images))
    chunks = batching.gather_chunks(images, labels, places_of, rows)
    tf.function(method.train_step)(chunks)
    found.append(outlet.noted[0])
  first, second = found
  return np.linalg.norm(first.flat() - second.flat()) / first.sensitivity


def test_a_power_of_two_shapes_goes_row_by_row():
  """126 clip norms for 2,047 images; 2.99 for 63, as here."""
  config = methods.DPSGDConfig(**_CONFIG, sampler="full_batch")
  method = methods.DPSGD(_network(), config)
  with pytest.warns(UserWarning, match="another place"):
    assert _shift(method, 63) <= 1


def test_so_does_the_front_of_a_linear_method():
  """4 for 2,047 images where 1 was accounted, 2 for 63."""
  config = papers.HalfspacesConfig(
    dp_epsilon=8.0, dp_delta=1e-3, batch_size=64, seed=0
  )
  assert _shift(papers.Halfspaces(_network(), config), 63) <= 1 + 1e-6


def _rows(function, shape, size, trials=places.TRIALS):
  rows = np.random.default_rng(0).random((trials, *shape), np.float32)
  return places.differing(function, [rows], size)


def _dense_cross_entropy(logits):
  with tf.GradientTape() as tape:
    tape.watch(logits)
    targets = 0.9 * tf.one_hot(tf.zeros([len(logits)], tf.int32), 10) + 0.01
    losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
  return tape.gradient(losses, logits)


def test_ends_of_tiles_are_seen_at_the_real_size_only():
  """Of 512 rows, those at places 450 and 511 had other bits."""
  assert _rows(_dense_cross_entropy, (10,), 16) is None
  found = _rows(_dense_cross_entropy, (10,), 512, trials=40)
  assert found.startswith("SoftmaxCrossEntropyWithLogits")


def test_a_kink_hides_nothing():
  """The output tells no two places apart; a tensor on the way does."""

  def hidden(x):
    number = tf.range(len(x), dtype=tf.float32)[:, tf.newaxis]
    return 0.0 * tf.sign(x + 1e-3 * number)

  rows = [np.random.default_rng(0).random((2, 5), np.float32)]
  assert not places.differing_results(hidden, rows, 32)
  assert places.differing(hidden, rows, 32).startswith("AddV2")


def test_draws_are_no_difference_and_hide_none():
  def drawn(x, by_place):
    noise = tf.random.stateless_normal(x.shape, [1, 2])
    number = tf.range(len(x), dtype=tf.float32)[:, tf.newaxis]
    return tf.sin(x + noise) + (1e-3 * number if by_place else 0.0)

  assert _rows(lambda x: drawn(x, False), (5,), 32) is None
  assert _rows(lambda x: drawn(x, True), (5,), 32) is not None


def test_copies_may_stand_next_to_each_other_or_apart():
  assert _rows(lambda x: tf.exp(tf.repeat(x, 3, axis=0)), (5,), 16) is None
  assert _rows(lambda x: tf.exp(tf.concat([x, 2 * x], 0)), (5,), 16) is None
  assert _rows(lambda x: tf.exp(tf.stack([x, 2 * x])), (5,), 16) is None


def test_losses_of_the_library_do_not_go_by_place():
  """Label smoothing made 65 clip norms, targets of a denoiser 48."""
  objective = methods.WRM(norm="l2", label_smoothing=0.95)
  labels = tf.zeros([512], tf.int64)

  def slopes(logits):
    with tf.GradientTape() as tape:
      tape.watch(logits)
      losses = objective.cross_entropy(labels, logits)
    return losses, tape.gradient(losses, logits)

  assert _rows(slopes, (10,), 512, trials=40) is None


@pytest.mark.parametrize("name", ["Softmax", "Pow"])
def test_kernels_inside_loops_are_known_by_name(name):
  kernel = tf.nn.softmax if name == "Softmax" else lambda x: x ** x[:, :1]

  def looped(x, outside):
    x = kernel(x) if outside else x
    return tf.while_loop(
      lambda i, _: i < 3, lambda i, x: (i + 1, kernel(x)), (0, x)
    )

  spec = tf.TensorSpec([16, 5])
  for outside in (False, True):  # the graph itself is looked at by its bits
    traced = tf.function(lambda x, o=outside: looped(x, o))
    found = places.sum_by_place(traced.get_concrete_function(spec).graph)
    assert (found is None) is (outside and name == "Softmax")


def test_a_redistribution_does_not_depend_on_places():
  """2,895 times its sensitivity for 8,191 images: an average, hidden."""
  inputs = tf.keras.Input((6, 6, 10))
  hidden = _layers.Conv2D(10, 1, use_bias=False)(inputs)
  pooled = _layers.GlobalAveragePooling2D()(hidden)
  network = tf.keras.Model(inputs, _layers.Dense(2)(_layers.ReLU()(pooled)))
  private = papers.ReleasedRedistribution("private")
  config = papers.SoundSecureSGD.config_class(**_CONFIG, redistribution=private)
  place = papers.SoundSecureSGD(network, config).place
  row = np.random.default_rng(0).random((1, 6, 6, 10), np.float32)
  images, labels = np.repeat(row, 64, axis=0), np.zeros(64, np.int64)
  (found,) = hidden_noise.hidden_gradients(place, images, labels)
  assert len(np.unique(found, axis=0)) == 1


def test_relevances_do_not_depend_on_places():
  network = tf.keras.Sequential(
    [
      _layers.Input((6, 6, 10)),
      _layers.AveragePooling2D(6),
      _layers.Flatten(),
      _layers.Dense(3),
    ]
  )
  row = np.random.default_rng(0).random((1, 6, 6, 10), np.float32)
  found = relevance.LayerwiseRelevance(network)(np.repeat(row, 48, axis=0))
  assert len(np.unique(found, axis=0)) == 1


@pytest.mark.parametrize("order", [1, 2])
def test_clipped_rows_are_not_longer_by_rounding(order):
  """The sum of 20,000 rows moved by 1 + 1.9e-12 of what was accounted."""
  rows = np.random.default_rng(0).random((20_000, 7))
  clipped = relevance.clip(rows, 0.1, order)
  lengths = np.linalg.norm(clipped, order, axis=1)
  assert lengths.max() <= 0.1 * (1 - 5e-10)
  moved = clipped.sum(axis=0) - clipped[1:].sum(axis=0)
  assert np.linalg.norm(moved, order) <= 0.1


@pytest.mark.parametrize(
  "name",
  [
    "TF_SET_ONEDNN_FPMATH_MODE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
  ],
)
def test_short_products_by_the_environment_are_refused(monkeypatch, name):
  monkeypatch.setenv(name, "BF16")
  network = tf.keras.Sequential([_layers.Input((10,)), _layers.Dense(10)])
  with pytest.raises(ValueError, match=f"{name}=BF16"):
    gradients.ClippedGradients(lambda batch, seed: None, network, 1.0)
