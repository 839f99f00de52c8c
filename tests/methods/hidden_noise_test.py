import numpy as np
import pytest
import tensorflow as tf

from tf_privrob.methods import hidden_noise
from tf_privrob.methods import noise_place

_layers = tf.keras.layers


def relu(x):
  """Keras' name, but scaled by the whole batch."""
  return tf.nn.relu(x) / (1e-6 + tf.reduce_max(x))


def _centred(x):
  return x - tf.stop_gradient(tf.reduce_mean(x, axis=0))


def _networks():
  """What comes after the first layer's kernel; all but the last two mix."""
  return {
    "mean": [_layers.Dense(5, "tanh"), _layers.Lambda(_centred)],
    "the cut layer's own activation": [_layers.Dense(5, relu)],
    "a later activation": [_layers.Dense(5, "tanh"), _layers.Dense(4, relu)],
    "row-wise": [_layers.Dense(5, "relu"), _layers.Dense(4, "tanh")],
    "row-wise, not known": [_layers.Dense(5, "tanh"), _layers.Lambda(tf.sin)],
  }


def _place(name):
  tf.keras.utils.set_random_seed(0)
  chain = [_layers.Input((6,)), *_networks()[name], _layers.Dense(3)]
  return hidden_noise.find(tf.keras.Sequential(chain))


def _arrays(count=9):
  rng = np.random.default_rng(0)
  x = rng.random((count, 6)).astype("float32")
  return x, np.arange(count) % 3


def _gradients(place, x, y, batch_size=4):
  found = hidden_noise.hidden_gradients(place, x, y, batch_size)
  return np.concatenate(list(found))


@pytest.mark.parametrize("name", list(_networks()))
def test_gradients_of_an_example_do_not_depend_on_the_others(name):
  place = _place(name)
  x, y = _arrays()
  before = _gradients(place, x, y)
  x[2], y[2] = 50.0, 0
  after = _gradients(place, x, y)
  others = np.arange(len(x)) != 2
  np.testing.assert_allclose(after[others], before[others], atol=1e-7)
  assert not np.array_equal(after[2], before[2])


@pytest.mark.parametrize("name", list(_networks()))
def test_gradients_are_those_of_each_example_alone(name):
  place = _place(name)
  x, y = _arrays()
  found = _gradients(place, x, y)
  for row in range(len(x)):
    hidden = tf.Variable(place.before(x[row : row + 1]))
    with tf.GradientTape() as tape:
      logits = place.after(hidden)
      loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        y[row : row + 1], logits
      )
    expected = tape.gradient(loss, hidden)[0]
    np.testing.assert_allclose(found[row], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["row-wise", "row-wise, not known"])
def test_every_example_is_a_batch_of_its_own(name, monkeypatch):
  sizes = []
  original = noise_place.NoisePlace.before

  def spy(place, images):
    sizes.append(images.shape[0])
    return original(place, images)

  monkeypatch.setattr(noise_place.NoisePlace, "before", spy)
  _gradients(_place(name), *_arrays())
  assert set(sizes) == {1}


class Remembering(_layers.Layer):
  """Adds what it saw last."""

  def build(self, shape):
    self.last = self.add_weight("last", shape[1:], trainable=False)

  def call(self, inputs):
    before = inputs + self.last
    self.last.assign(inputs[0])
    return before


def test_a_network_with_a_memory_is_refused():
  chain = [_layers.Input((6,)), _layers.Dense(5), Remembering()]
  place = hidden_noise.find(tf.keras.Sequential([*chain, _layers.Dense(3)]))
  with pytest.raises(ValueError, match="only reads its variables"):
    _gradients(place, *_arrays())


def test_no_examples_and_bad_batches():
  x, y = _arrays()
  with pytest.raises(ValueError, match="at least one example"):
    list(hidden_noise.hidden_gradients(_place("mean"), x[:0], y[:0]))
  with pytest.raises(ValueError, match="batch_size=0"):
    list(hidden_noise.hidden_gradients(_place("mean"), x, y, 0))
