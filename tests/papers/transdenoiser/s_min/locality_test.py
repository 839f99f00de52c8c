"""What a pixel reaches: by hand, by trial, and where it is not known."""

import numpy as np
import pytest
import tensorflow as tf

from tests.gradients import loops
from tf_privrob import models
from tf_privrob.papers.transdenoiser.s_min import double
from tf_privrob.papers.transdenoiser.s_min import locality

_layers = tf.keras.layers


def _same(filters, size, activation=None, **more):
  return _layers.Conv2D(
    filters, size, padding="same", activation=activation, **more
  )


def _square(radius):
  return None if radius is None else ((radius, radius), (radius, radius))


# By hand.


def test_smooth_denoiser_by_hand():
  """3 x 3, 1 x 1, 3 x 3: the last convolution is linear."""
  found = locality.analyse(models.smooth_denoiser((9, 7, 1)))
  kinds = [step.kind for step in found.steps]
  pair = ["convolution", "elementwise"]
  assert kinds == ["input", *pair, *pair, "convolution", "sum"]
  assert found.shape == (9, 7, 1)
  assert found.forward == tuple(map(_square, [0, 1, 1, 1, 1, 2, 2]))
  assert found.back == tuple(map(_square, [2, 1, 1, 1, 1, 0, 0]))
  # No f'' after the second tanh.
  expected = [None, 1, 1, 1, None, None, None]
  assert found.second == tuple(map(_square, expected))
  assert found.window == 25


def test_three_nonlinear_layers_by_hand():
  """5 x 5, 3 x 3, 1 x 1, each with tanh: the change comes back through all."""
  model = loops.chain(
    (9, 9, 2), _same(3, 5, "tanh"), _same(3, 3, "tanh"), _same(2, 1, "tanh")
  )
  found = locality.analyse(model)
  assert found.forward == tuple(map(_square, [0, 2, 2, 3, 3, 3, 3]))
  assert found.back == tuple(map(_square, [3, 1, 1, 0, 0, 0, 0]))
  assert found.second == tuple(map(_square, [None, 4, 4, 3, 3, 3, None]))
  assert found.window == 81


def test_an_even_kernel_by_hand():
  """Output t of width 2 reads t and t + 1, of width 4 t - 1 to t + 2."""
  found = locality.analyse(loops.chain((8, 9, 1), _same(1, (2, 4))))
  assert found.forward[-1] == ((1, 0), (2, 1))
  assert found.back[0] == ((0, 1), (1, 2))
  dilated = loops.chain((8, 9, 1), _same(1, (2, 3), dilation_rate=(3, 2)))
  found = locality.analyse(dilated)
  assert found.forward[-1] == ((2, 1), (2, 2))
  assert found.back[0] == ((1, 2), (2, 2))


# By trial: nothing outside the window changes, something at each edge does.


def _model(*layers, skip=False):
  """Odd sizes; wide enough that no window meets the edge."""
  return loops.double(loops.chain((29, 27, 1), *layers, skip=skip))


_TRIED = {
  "odd": lambda: _model(_same(2, 3, "tanh"), _same(1, 5), skip=True),
  "three": lambda: _model(
    _same(2, 3, "tanh"), _same(2, (1, 2), "softplus"), _same(1, 3)
  ),
  "even": lambda: _model(
    _same(2, (2, 5), "tanh"), _same(2, (4, 3), "sigmoid"), _same(1, (3, 2))
  ),
  "dilated": lambda: _model(
    _same(2, 3, "tanh", dilation_rate=2),
    _same(2, (2, 3), "tanh", dilation_rate=(3, 1)),
    _same(1, (1, 2)),
    skip=True,
  ),
}


def _values(network, image):
  values = []
  for step in network.steps:
    sources = [values[source] for source in step.sources]
    if step.kind == "input":
      value = image
    elif step.kind == "sum":
      value = tf.add_n(sources)
    elif step.kind == "elementwise":
      value = step.function(sources[0])
    else:
      layer = step.layer
      rates = layer.dilation_rate
      value = tf.nn.convolution(
        sources[0], layer.kernel, 1, "SAME", dilations=rates
      )
      value += layer.bias
    values.append(value)
  return values


def _gradients(network, image, errors):
  """Of <errors, g(x)> by every step."""
  with tf.GradientTape() as tape:
    tape.watch(image)
    values = _values(network, image)
    total = tf.reduce_sum(values[-1] * errors)
  return tape.gradient(total, values)


def _box(changes, at):
  """The reach of what is not zero."""
  rows, columns = np.nonzero(np.abs(changes[0]).max(axis=-1))
  if not len(rows):
    return None
  return (
    (at[0] - rows.min(), rows.max() - at[0]),
    (at[1] - columns.min(), columns.max() - at[1]),
  )


def _holds(reach, box):
  return box is None or locality.union(reach, box) == reach


@pytest.mark.parametrize("name", _TRIED)
def test_the_windows_are_what_changes(name):
  model = _TRIED[name]()
  network = locality.analyse(model)
  at = (14, 13)
  image = tf.constant(loops.random((1, 29, 27, 1)))
  moved = image.numpy()
  moved[(0, *at)] += 0.5
  moved = tf.constant(moved)
  np.testing.assert_allclose(_values(network, image)[-1], model(image))
  errors = tf.constant(loops.random(image.shape, 1, 0.5))
  one = np.zeros(image.shape)
  one[(0, *at)] = 1
  first, second = _values(network, image), _values(network, moved)
  before = _gradients(network, image, errors)
  after = _gradients(network, moved, errors)
  steps = range(len(network.steps))
  found = {
    "forward": [second[i] - first[i] for i in steps],
    "back": _gradients(network, image, tf.constant(one)),
    "second": [after[i] - before[i] for i in steps],
  }
  for kind, changes in found.items():
    for index, reach in enumerate(getattr(network, kind)):
      if (kind, index) == ("second", 0):
        continue  # of no use, and not said
      box = _box(changes[index].numpy(), at)
      assert box == reach, (kind, index)
      for axis, side in np.ndindex(2, 2):  # a radius one too small is caught
        if reach is not None and reach[axis][side] > 0:
          small = [list(pair) for pair in reach]
          small[axis][side] -= 1
          assert not _holds(tuple(map(tuple, small)), box)


# What is taken and what is not.


def _branches():
  inputs = _layers.Input((6, 6, 2))
  left = _layers.Dropout(0.5)(_same(2, 3, "relu")(inputs))
  right = _layers.LeakyReLU()(_same(2, 1)(inputs))
  return tf.keras.Model(inputs, tf.add(left, right) + inputs)


@pytest.mark.parametrize(
  "model",
  [
    _branches,
    lambda: loops.chain((6, 6, 1), _same(2, 3, "gelu"), _same(1, 3)),
    lambda: tf.keras.Sequential([_layers.Input((6, 6, 1)), _same(1, 3)]),
  ],
)
def test_local_networks(model):
  assert locality.analyse(model()) is not None
  assert locality.analyse(double.in_double_precision(model())) is not None


def _with_number():
  inputs = _layers.Input((6, 6, 1))
  return tf.keras.Model(inputs, _same(1, 3)(inputs) + 1.0)


def _broadcast():
  inputs = _layers.Input((6, 6, 2))
  return tf.keras.Model(inputs, _same(1, 3)(inputs) + inputs)


def _product():
  inputs = _layers.Input((6, 6, 1))
  return tf.keras.Model(inputs, _same(1, 3)(inputs) * inputs)


class _Blur(_layers.Conv2D):
  def call(self, inputs):
    return super().call(inputs) - tf.reduce_mean(inputs)


_NOT_LOCAL = {
  "dense": lambda: loops.chain(
    (6, 6, 1), _layers.Flatten(), _layers.Dense(36), _layers.Reshape((6, 6, 1))
  ),
  "dense_on_channels": lambda: loops.chain((6, 6, 1), _layers.Dense(1)),
  "vector": lambda: loops.chain((6,), _layers.Dense(6)),
  "stride": lambda: loops.chain(
    (6, 6, 1), _same(2, 3, strides=2), _layers.UpSampling2D(2), _same(1, 3)
  ),
  "valid": lambda: loops.chain(
    (6, 6, 1), _layers.Conv2D(1, 3), _layers.Conv2DTranspose(1, 3)
  ),
  "transposed": lambda: loops.chain(
    (6, 6, 1), _layers.Conv2DTranspose(1, 3, padding="same")
  ),
  "groups": lambda: loops.chain((6, 6, 2), _same(2, 3, groups=2)),
  "depthwise": lambda: loops.chain(
    (6, 6, 1), _layers.DepthwiseConv2D(3, padding="same")
  ),
  "subclass": lambda: loops.chain((6, 6, 1), _Blur(1, 3, padding="same")),
  "norm_over_space": lambda: loops.chain(
    (6, 6, 1), _same(1, 3), _layers.LayerNormalization(axis=(1, 2, 3))
  ),
  "group_norm": lambda: loops.chain(
    (6, 6, 2), _same(2, 3), _layers.GroupNormalization(1)
  ),
  "pooling": lambda: loops.chain(
    (6, 6, 1), _same(1, 3), _layers.MaxPooling2D(2, 1, "same")
  ),
  "softmax": lambda: loops.chain((6, 6, 2), _same(2, 3, "softmax")),
  "lambda": lambda: loops.chain((6, 6, 1), _layers.Lambda(tf.tanh)),
  "nested": lambda: loops.chain(
    (6, 6, 1), loops.chain((6, 6, 1), _same(1, 3)), _same(1, 3)
  ),
  "number": _with_number,
  "broadcast": _broadcast,
  "product": _product,
}


@pytest.mark.parametrize("name", _NOT_LOCAL)
def test_what_is_not_known_to_be_local(name):
  assert locality.analyse(_NOT_LOCAL[name]()) is None
