import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import layers


def _vectors(count=60, size=5, seed=0):
  return np.random.default_rng(seed).normal(size=(count, size)).astype("f4")


def _kernel_error(num_features, factor=1.0, seed=1):
  """Root mean square error of inner products, for another length scale."""
  x = _vectors()
  z = layers.RandomFourierFeatures(num_features, 2.0, seed)(x).numpy()
  squares = ((x[:, None] - x) ** 2).sum(axis=-1)
  kernel = np.exp(-squares / (2 * (2.0 * factor) ** 2))
  return math.sqrt(np.mean((z @ z.T - kernel) ** 2))


def test_by_hand():
  layer = layers.RandomFourierFeatures(7, 1.5, seed=3)
  x = _vectors()
  found = layer(x).numpy()
  omega, phase = (weight.numpy().astype(float) for weight in layer.weights)
  assert omega.shape == (5, 7)
  expected = np.sqrt(2 / 7) * np.cos(x.astype(float) @ omega + phase)
  np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
  assert found.dtype == np.float32


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_frequencies_and_phases_have_their_laws(seed):
  layer = layers.RandomFourierFeatures(800, 2.0, seed)
  layer.build([None, 10])
  omega, phase = (weight.numpy() for weight in layer.weights)
  phase_law = stats.uniform(scale=2 * math.pi)
  assert stats.kstest(phase, phase_law.cdf).pvalue > 1e-3
  for factor in (2 / 3, 1, 3 / 2):
    right = stats.kstest(omega.ravel(), stats.norm(scale=0.5 * factor).cdf)
    assert right.pvalue > 1e-3 if factor == 1 else right.pvalue < 1e-6


def test_inner_products_approach_the_kernel_at_the_rate():
  errors = [_kernel_error(size) for size in (250, 4000, 64_000)]
  for coarse, fine in zip(errors[:-1], errors[1:]):
    assert 2.5 < coarse / fine < 6.5  # 4 = sqrt(16)
  assert errors[-1] < 0.006
  for factor in (2 / 3, 3 / 2):
    assert _kernel_error(64_000, factor) > 10 * errors[-1]


@pytest.mark.parametrize(("normalize", "bound"), [(True, 1), (False, 2**0.5)])
def test_norm_is_bounded_even_where_every_cosine_is_one(normalize, bound):
  layer = layers.RandomFourierFeatures(1000, normalize=normalize)
  layer.build([None, 5])
  layer.phases.assign(tf.zeros_like(layer.phases))
  z = layer(np.concatenate([np.zeros([1, 5], "f4"), _vectors()])).numpy()
  norms = np.linalg.norm(z.astype(np.float64), axis=1)
  assert norms.max() <= bound
  assert norms[0] > bound * (1 - 1e-6)  # the bound is tight
  plain = layers.RandomFourierFeatures(1000)(_vectors()).numpy()
  half = layers.RandomFourierFeatures(1000, normalize=True)(_vectors())
  np.testing.assert_allclose(plain, math.sqrt(2) * half.numpy(), rtol=1e-6)


def test_seed_decides_and_nothing_else():
  def draw(**changes):
    settings = {"num_features": 9, "length_scale": 1.0, "seed": 4, **changes}
    return layers.RandomFourierFeatures(**settings)(_vectors()).numpy()

  first = draw()
  tf.random.stateless_normal([3], [1, 2])
  np.testing.assert_array_equal(first, draw())
  assert np.abs(first - draw(seed=5)).max() > 0.1
  assert np.abs(first - draw(length_scale=2.0)).max() > 0.1


def test_nothing_is_trained():
  layer = layers.RandomFourierFeatures(4)
  layer(_vectors())
  assert layer.trainable_weights == []
  assert len(layer.non_trainable_weights) == 2


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_float16"])
def test_output_type_is_the_layers_own(policy):
  layer = layers.RandomFourierFeatures(4, dtype=policy)
  whole = np.round(_vectors())  # exact in half precision too
  found = layer(whole)
  assert found.dtype == layer.compute_dtype
  # One rounding of the values, none of the frequencies.
  np.testing.assert_allclose(
    found,
    layers.RandomFourierFeatures(4)(whole),
    rtol=5e-4 if policy == "mixed_float16" else 1e-7,
    atol=1e-7,
  )


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"num_features": 0}, "num_features=0"),
    ({"num_features": 2.5}, "num_features=2.5"),
    ({"length_scale": 0.0}, "length_scale=0.0 > 0"),
    ({"seed": 1.5}, "seed=1.5"),
    ({"seed": [1, 2]}, "whole number"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    layers.RandomFourierFeatures(**{"num_features": 3, **changes})


def test_images_are_refused():
  with pytest.raises(ValueError, match="Put a Flatten layer"):
    layers.RandomFourierFeatures(3)(tf.zeros([2, 4, 4, 1]))
