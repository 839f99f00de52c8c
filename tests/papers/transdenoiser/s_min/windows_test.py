"""Columns from windows against the loop and against the other ways."""

import numpy as np
import pytest
import tensorflow as tf

from tests.gradients import loops
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.papers.transdenoiser.s_min import double
from tf_privrob.papers.transdenoiser.s_min import locality
from tf_privrob.papers.transdenoiser.s_min import spreading
from tf_privrob.papers.transdenoiser.s_min import windows

_layers = tf.keras.layers


def _same(filters, size, activation=None, **more):
  return _layers.Conv2D(
    filters, size, padding="same", activation=activation, **more
  )


def _branches():
  """Two ways that meet, one layer twice, a sum that a convolution reads."""
  inputs = _layers.Input((5, 4, 2))
  twice = _same(2, (3, 2), "tanh")
  left = twice(twice(inputs))
  right = _layers.LeakyReLU()(_same(2, 1)(inputs))
  both = _same(2, 3)(left + right)
  outputs = _layers.Add()([both, inputs, both])
  return loops.filled(tf.keras.Model(inputs, outputs))


def _frozen():
  first, second = _same(3, 3, "tanh"), _same(2, 3, "tanh")
  model = loops.chain((5, 6, 1), first, second, _same(1, 3), skip=True)
  second.trainable = False
  return model


_MODELS = {
  "skip": lambda: loops.chain(
    (5, 7, 1), _same(3, 3, "tanh"), _same(1, 3), skip=True
  ),
  "several_layers": lambda: loops.chain(
    (6, 4, 1), _same(3, 3, "tanh"), _same(2, 1, "softplus"), _same(1, 3)
  ),
  "channels": lambda: loops.chain(
    (4, 5, 3), _same(2, 3, "sigmoid"), _same(3, 3), skip=True
  ),
  "even": lambda: loops.chain(
    (5, 4, 2), _same(3, (2, 4), "tanh"), _same(2, (4, 1), use_bias=False)
  ),
  "dilated": lambda: loops.chain(
    (7, 6, 1),
    _same(3, (3, 2), "swish", dilation_rate=(2, 3)),
    _layers.Dropout(0.5),
    _same(1, 3, dilation_rate=2),
    skip=True,
  ),
  "linear_between": lambda: loops.chain(
    (6, 5, 1), _same(2, 3), _same(2, 2), _layers.Activation("tanh"), _same(1, 3)
  ),
  "activation_last": lambda: loops.chain(
    (5, 5, 1), _same(2, 3, "relu"), _same(1, 3, "sigmoid")
  ),
  "smaller_than_a_window": lambda: loops.chain(
    (2, 3, 1), _same(3, 5, "tanh"), _same(1, 7, "tanh"), skip=True
  ),
  "one_linear": lambda: loops.chain((4, 5, 1), _same(1, 3)),
  "branches": _branches,
  "frozen": _frozen,
}


def _made(model, slices, how, **more):
  """With windows, or without, whatever is faster."""
  made = papers.PerturbationTransformation(
    model, slices, windows=how == "windows", **more
  )
  ways = {group.how == "windows" for group in made.groups()}
  assert ways == {how == "windows"}
  return made


def _by_layer(model):
  parts = {}
  for variable in model.trainable_variables:
    parts.setdefault(variable.name.split("/")[0], []).append(variable)
  return list(parts.values())


@pytest.mark.parametrize("name", _MODELS)
def test_windows_equal_the_loop_and_the_other_ways(name):
  model = _MODELS[name]()
  x = loops.random((4, *model.input_shape[1:])).astype("float32")
  slices = _by_layer(model)[::-1]
  coefficients = loops.random((4, len(slices)), 3)
  coefficients[1] = 0
  coefficients[2, -1] = 0
  expected = loops.expected(model, loops.naive(model, x), slices, coefficients)
  found = _made(model, slices, "windows").gram(x, coefficients)
  loops.assert_same(found, expected)
  others = _made(model, slices, "others").gram(x, coefficients)
  loops.assert_same(found, [matrix.numpy() for matrix in others])


@pytest.mark.slow
@pytest.mark.parametrize("max_elements", [1, 5000])
@pytest.mark.parametrize("name", ["several_layers", "channels"])
def test_chunks_do_not_change_the_result(name, max_elements):
  model = _MODELS[name]()
  x = loops.random((6, *model.input_shape[1:]))
  slices = [model.weights[:2], model.weights[2:]]
  coefficients = loops.random((6, 2), 3)
  whole = _made(model, slices, "windows").gram(x, coefficients)
  some = _made(model, slices, "windows", max_elements=max_elements)
  loops.assert_same(
    some.gram(x, coefficients), [matrix.numpy() for matrix in whole]
  )


def test_convolutions_of_windows_without_a_matrix(monkeypatch):
  monkeypatch.setattr(spreading, "_MATRIX_LIMIT", 0)
  model = _MODELS["dilated"]()
  x, ones = loops.random((2, 7, 6, 1)), np.ones([2, 1])
  slices = [model.weights]
  found = _made(model, slices, "windows").gram(x, ones)
  naive = loops.naive(model, x)
  loops.assert_same(found, loops.expected(model, naive, slices, ones))


@pytest.mark.slow
def test_the_columns_are_those_of_the_jacobian():
  """Not their products alone: pixel by pixel, in order."""
  model = _MODELS["channels"]()
  x = loops.random((2, 4, 5, 3))
  twin = double.in_double_precision(model)
  twin.set_weights([w.astype("float64") for w in model.get_weights()])
  network = locality.analyse(twin)
  for strip in (1, 2, 4):
    found = windows.columns(
      network, twin.trainable_variables, tf.constant(x), strip
    )
    assert found.shape == [4 // strip, 2, strip * 15, 113]
    columns = np.reshape(np.transpose(found, [1, 0, 2, 3]), [2, 60, 113])
    jacobians = np.transpose(loops.naive(model, x), [0, 2, 1])
    np.testing.assert_allclose(columns, jacobians, rtol=0, atol=1e-13)


def test_strips_and_examples_stay_near_the_limit():
  model = models.smooth_denoiser((28, 28, 1))
  network, variables = locality.analyse(model), model.trainable_variables
  assert windows.chunks(network, variables, 32, 2**20) == (2, 4)
  assert windows.chunks(network, variables, 33, 2**20) == (1, 4)
  assert windows.chunks(network, variables, 32, 2**23) == (16, 4)
  assert windows.chunks(network, variables, 32, 1) == (1, 1)


# Falsification.


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["forward", "back", "second"])
def test_a_window_one_too_small_is_refused(kind):
  model = double.in_double_precision(_MODELS["several_layers"]())
  network = locality.analyse(model)
  images = tf.constant(loops.random((1, 6, 4, 1)))
  variables = model.trainable_variables
  windows.columns(network, variables, images, 2)
  reaches = list(getattr(network, kind))
  for index, reach in enumerate(reaches):
    if reach in (None, locality.POINT):
      continue
    (up, down), sides = reach
    small = [*reaches]
    small[index] = ((up - 1, down), sides)
    if kind == "forward" and not _is_used(network, index):
      continue
    broken = network._replace(**{kind: tuple(small)})
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
      windows.columns(broken, variables, images, 2)


def _is_used(network, index):
  """The change of the errors is not: they are held fixed."""
  readers = [step for step in network.steps if index in step.sources]
  return any(step.kind in ("convolution", "elementwise") for step in readers)


def test_a_layer_taken_for_an_elementwise_one_gives_another_matrix(monkeypatch):
  """The parity above would see a network that is not local."""
  monkeypatch.setattr(locality, "_ELEMENTWISE_LAYERS", (_layers.Softmax,))
  model = loops.chain(
    (5, 4, 2), _same(2, 3), _layers.Softmax(), _same(2, 3), skip=True
  )
  x, ones = loops.random((2, 5, 4, 2)), np.ones([2, 1])
  found = _made(model, [model.weights], "windows").gram(x, ones)[0].numpy()
  naive = loops.naive(model, x)
  expected = loops.expected(model, naive, [model.weights], ones)[0]
  assert np.abs(found - expected).max() > 1e-3 * np.abs(expected).max()


# The choice.


def _ways(model, slices):
  made = papers.PerturbationTransformation(model, slices)
  return [group.how for group in made.groups()]


def test_windows_are_taken_where_they_are_smaller():
  smooth = models.smooth_denoiser((28, 28, 1))
  assert _ways(smooth, _by_layer(smooth)) == ["windows"]
  # 25 positions of a window: more than the pixels, or than the parameters.
  small = models.smooth_denoiser((5, 5, 1))
  assert _ways(small, _by_layer(small)) == ["columns"]
  few = loops.chain((9, 9, 1), _same(1, 3, "tanh"), _same(1, 3))
  assert _ways(few, [few.weights]) == ["rows"]
  # Behind a code narrower than the image there are fewer columns.
  code = loops.chain((9, 9, 2), _same(1, 1, "tanh"), _same(2, 3))
  halves = [code.weights[:2], code.weights[2:]]
  assert _ways(code, halves)[1] != "windows"
