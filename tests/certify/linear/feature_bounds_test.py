from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import layers
from tf_privrob.certify import rounding
from tf_privrob.certify.linear import feature_bounds
from tf_privrob.certify.linear import linear_head
from tf_privrob.certify.norms import linear_norms

ORDER = {"l1": 1, "l2": 2, "linf": np.inf}
SMALL = {"size": 5, "orientations": 3, "scales": ((1.0, 3.0), (1.5, 5.0))}


def vectors(count=40, size=6, seed=0):
  return np.random.default_rng(seed).normal(size=(count, size))


def slopes(layer, x, y, norm):
  """How far features move, over how far inputs do."""
  moved = np.asarray(layer(x)) - np.asarray(layer(y))
  moved = np.linalg.norm(moved.reshape(len(x), -1), axis=1)
  change = np.asarray(x - y).reshape(len(x), -1)
  return moved / np.linalg.norm(change, ORDER[norm], axis=1)


@pytest.mark.parametrize("norm", certify.NORMS)
def test_one_random_feature_attains_its_constant(norm):
  layer = layers.RandomFourierFeatures(1, 0.7, seed=1, dtype="float64")
  layer.build([None, 6])
  omega = layer.frequencies.numpy()[:, 0].astype(float)
  phase = float(layer.phases.numpy()[0])
  steepest = (np.pi / 2 - phase) * omega / (omega @ omega)
  step = {
    "l2": omega / np.linalg.norm(omega),
    "linf": np.sign(omega),
    "l1": np.eye(6)[np.abs(omega).argmax()],
  }[norm]
  bound = certify.feature_bound(layer).lipschitz(norm)
  x, y = steepest + 1e-4 * step, steepest - 1e-4 * step
  found = slopes(layer, x[None], y[None], norm)
  assert found[0] == pytest.approx(bound, rel=1e-5)
  assert found[0] <= bound


@pytest.mark.parametrize("normalize", [False, True])
def test_random_features_by_svd(normalize):
  layer = layers.RandomFourierFeatures(50, 0.7, normalize=normalize)
  layer.build([None, 6])
  omega = layer.frequencies.numpy().astype(float)
  factor = np.sqrt((1 if normalize else 2) / 50)
  bound = certify.feature_bound(layer)
  assert bound.lipschitz("l2") == pytest.approx(
    factor * np.linalg.norm(omega, 2), rel=1e-6
  )
  columns = np.linalg.norm(omega, axis=1)
  assert bound.lipschitz("l1") == pytest.approx(
    factor * columns.max(), rel=1e-6
  )


@pytest.mark.parametrize("norm", certify.NORMS)
def test_random_features_never_move_further(norm):
  layer = layers.RandomFourierFeatures(50, 0.7, dtype="float64")
  x = vectors()
  near = x + 1e-3 * vectors(seed=1)
  bound = certify.feature_bound(_called(layer, x)).lipschitz(norm)
  assert slopes(layer, x, near, norm).max() <= bound
  assert slopes(layer, x, vectors(seed=2), norm).max() <= bound


def _called(layer, x):
  layer(x)
  return layer


def _steepest(layer, norm, shape, steps=40, seed=0):
  """The largest slope that gradient ascent finds from a textured image."""
  rng = np.random.default_rng(seed)
  x = tf.constant(10 * rng.normal(size=(1, *shape)))

  @tf.function
  def ascend(step):
    with tf.GradientTape() as tape:
      tape.watch(step)
      length = tf.norm(step, ORDER[norm])
      found = tf.norm(layer(x + 1e-3 * step / length) - layer(x)) / 1e-3
    grad = tape.gradient(found, step)
    return found, step + 0.5 * tf.norm(step) * grad / tf.norm(grad)

  best, step = 0.0, tf.constant(rng.normal(size=x.shape))
  for _ in range(steps):
    found, step = ascend(step)
    best = max(best, float(found))
  return best


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("strides", "pool"), [(1, 2), (2, 1)])
def test_scattering_never_moves_further(channels, strides, pool):
  layer = layers.Scattering(
    **SMALL, strides=strides, pool=pool, dtype="float64"
  )
  shape = (8, 8, channels)
  layer.build([None, *shape])
  bound = certify.feature_bound(layer, shape)
  found = _steepest(layer, "l2", shape)
  # Two thirds of the constant would be false (means lose some, so 1 is not
  # attained with pooling).
  assert (0.67 if pool == 1 else 0.5) < found / bound.lipschitz("l2") <= 1
  for norm in ("l1", "linf"):
    assert 0 < _steepest(layer, norm, shape, 10) <= bound.lipschitz(norm)


def test_channels_add_up_in_linf_only():
  layer = layers.Scattering(**SMALL)
  layer.build([None, 8, 8, 1])
  one = certify.feature_bound(layer, (8, 8, 1))
  four = certify.feature_bound(layer, (8, 8, 4))
  assert four.lipschitz("l2") == pytest.approx(one.lipschitz("l2"))
  assert four.lipschitz("l1") == pytest.approx(one.lipschitz("l1"))
  assert four.lipschitz("linf") == pytest.approx(2 * one.lipschitz("linf"))


@pytest.mark.parametrize("size", [3, 5, 8, 11])
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("plane", [(9, 9, 1), (10, 7, 1)])
def test_joined_filters_respond_as_they_do_apart(size, strides, plane):
  rng = np.random.default_rng(size)
  waves, low = (
    rng.normal(size=(size, size, 1, 4)),
    rng.normal(size=(7, 7, 1, 1)),
  )
  image = tf.constant(rng.normal(size=(1, *plane)))
  kernels = feature_bounds.joined_filters(waves, low, plane, strides)
  joined = [
    linear_norms.conv2d_map(kernel, plane, strides).apply(image)
    for kernel in kernels
  ]
  apart = [
    tf.nn.conv2d(image, kernel, strides, "SAME") for kernel in (waves, low)
  ]
  found, expected = (
    np.sort(np.concatenate([part.numpy() for part in parts], -1))
    for parts in (joined, apart)
  )
  np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["random", "scattering"])
def test_rounding_is_covered_and_not_idle(kind):
  def make(dtype):
    if kind == "random":
      return layers.RandomFourierFeatures(30, 0.5, dtype=dtype)
    return layers.Scattering(**SMALL, dtype=dtype)

  rng = np.random.default_rng(3)
  x = (100 * rng.normal(size=(20, 64))).astype("f4")
  if kind == "scattering":
    x = x.reshape(20, 8, 8, 1)
  single, double = make("float32"), make("float64")
  difference = single(x).numpy() - double(x.astype(float)).numpy()
  found = np.linalg.norm(difference.reshape(20, -1), axis=1)
  bound = certify.feature_bound(single, x.shape[1:])
  size = np.linalg.norm(x.reshape(20, -1).astype(float), axis=1)
  share = found / (bound.error + bound.error_slope * size)
  assert 1e-3 < share.max() <= 1


def test_layers_before_multiply_and_add_rounding():
  bound = feature_bounds.FeatureBound((1.0, 2.0, 3.0), 1e-3, 1e-4)
  rescale = tf.keras.layers.Rescaling(-4.0, 3.0)
  before = linear_head.Elementwise.identity((9,)).then(rescale)
  found = bound.after(before)
  for norm, constant in zip(certify.NORMS, (4.0, 8.0, 12.0)):
    assert found.lipschitz(norm) == pytest.approx(constant)
  growth = rounding.growth(3, 2.0**-24)
  slope = 2 * growth + 1e-4 * (1 + growth)
  assert found.error_slope == pytest.approx(4 * slope)
  assert found.error == pytest.approx(1e-3 + 9 * slope)  # |(3, ..., 3)| = 9


def test_growth_by_hand(monkeypatch):
  assert rounding.growth(1000, 2.0**-24) == pytest.approx(5.9608e-5, rel=1e-4)
  with pytest.raises(ValueError, match="fewer than"):
    rounding.growth(2**23, 2.0**-24)
  double = rounding.growth(10, rounding.FLOAT64)
  monkeypatch.setattr(rounding, "rounds_factors", lambda: True)
  assert rounding.growth(1, 2.0**-24) == pytest.approx(2**-10, rel=1e-3)
  assert rounding.growth(10, rounding.FLOAT64) == double


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: tf.keras.layers.Dense(3, name="d"), "Dense 'd', whose Lipschitz"),
    (lambda: layers.Scattering(name="s"), "built layer 's'"),
    (lambda: layers.RandomFourierFeatures(3, name="r"), "built layer 'r'"),
    (
      lambda: _called(
        layers.Scattering(name="s"), np.zeros([1, 8, 8, 1], "f4")
      ),
      "Pass input_shape",
    ),
    (
      lambda: _called(
        layers.RandomFourierFeatures(3, dtype="float16"), np.zeros([1, 2])
      ),
      "received float16",
    ),
  ],
)
def test_other_layers_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    certify.feature_bound(make())


def test_bad_norm():
  with pytest.raises(ValueError, match="Unknown norm='l7'"):
    feature_bounds.FeatureBound((1.0, 1.0, 1.0), 0.0, 0.0).lipschitz("l7")
