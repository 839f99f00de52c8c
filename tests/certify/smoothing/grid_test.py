"""Noise on a grid: the attack on float32, the slack, and its proof."""

import math

import mpmath
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.certify import noisy_models
from tf_privrob import certify
from tf_privrob import randomness
from tf_privrob.certify.smoothing import grid

SHIFT = 2.0**-8  # of each of 784 features: 0.11 in l2, 3.1 in l1


def reads_low_bits(x):
  """Class 1 where values just below powers of two have an even last bit.

  Float32 noise around -SHIFT always has one there: it comes from above the
  power of two, where numbers are twice as far apart. Around 0 half has.
  """
  x = tf.reshape(x, [tf.shape(x)[0], -1])
  even = tf.ones([tf.shape(x)[0]], tf.bool)
  for power in range(7):
    end = 2.0**-power
    units = x * 2.0 ** (power + 23)
    elsewhere = (x < end - SHIFT) | (x >= end)
    even &= tf.reduce_all(elsewhere | (units == tf.round(units)), axis=1)
  even = tf.cast(even, tf.float32)
  return tf.stack([1 - even, even], axis=1)


class ReadsLowBits(noisy_models.Cut):
  """The same behind noise at a hidden layer, h = x."""

  input_noise_shape = hidden_noise_shape = (784,)

  def after(self, h):
    return reads_low_bits(h)


def layer(position, law):
  stretch = 1.0 if position == "hidden" else None
  norm = "l2" if law == "gaussian" else "l1"
  return certify.SingleLayerCertificate(
    1.0,
    position,
    norm,
    operator_norm=stretch,
    distribution=law,
    num_estimation=1000,
  )


@pytest.mark.parametrize(
  ("certifier", "model"),
  [
    (certify.RandomizedSmoothing(1.0, num_estimation=1000), reads_low_bits),
    (layer("input", "gaussian"), ReadsLowBits()),
    (layer("hidden", "gaussian"), ReadsLowBits()),
    (layer("input", "laplace"), ReadsLowBits()),
    (layer("hidden", "laplace"), ReadsLowBits()),
  ],
  ids=["smoothing", "input", "hidden", "laplace input", "laplace hidden"],
)
def test_a_classifier_that_reads_low_bits_gets_no_contradiction(
  certifier, model
):
  """Voracek and Hein 2023: two classes, both certified beyond the middle."""
  x = np.zeros([2, 784], np.float32)
  x[1] = -SHIFT
  first, second = certifier.certify(model, x, seed=0)
  apart = np.linalg.norm(x[1], 2 if first.norm == "l2" else 1)
  assert (
    first.prediction == second.prediction
    or first.radius + second.radius <= apart
  )


def test_in_float32_it_does():
  """Why the noise is on a grid: the attack, on plain float32 sums."""
  noise = np.random.RandomState(0).randn(1000, 784).astype(np.float32)
  first, second = (
    reads_low_bits(tf.constant(noise + np.float32(shift))).numpy().mean(axis=0)
    for shift in (0, -SHIFT)
  )
  assert first[0] > 0.98
  assert second[1] == 1
  assert stats.norm.ppf(0.98) > 28 * SHIFT  # contradictory radii


@pytest.mark.parametrize("scale", [0.25, 0.3, 1.0, 7.0, 1e-3])
def test_grid_is_a_power_of_two_of_at_least_512_cells(scale):
  spacing = float(grid.GridNoise("gaussian", scale, (1,)).spacing)
  assert math.frexp(spacing)[0] == 0.5
  assert scale / 1024 < spacing <= scale / 512


@pytest.mark.parametrize("law", grid.LAWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_are_on_the_grid_wherever_the_value_is(law, dtype):
  value = np.array([0.1, -3.7, 255.0, 1e-30], dtype)
  scales = np.array([0.25, 1.0, 0.3, 8.0])
  noise = grid.GridNoise(law, scales, (4,))
  drawn = noise.draw(value, randomness.Key.of(0), 500)
  assert drawn.dtype == np.float32
  steps = drawn / noise.spacing
  np.testing.assert_array_equal(steps, np.rint(steps))
  assert (np.abs(drawn.mean(axis=0) - value) < 0.3 * scales).all()


def exact(words, law):
  """The numbers of these words, in 60 digits: normal ones come in pairs."""
  parts = [mpmath.mpf(int(word) >> 11) / 2**53 for word in words]
  if law == "laplace":
    sizes = [-mpmath.log1p(-part) for part in parts]
    return [
      -size if int(word) % 2 == 0 else size for size, word in zip(sizes, words)
    ]
  half = len(parts) // 2
  radii = [mpmath.sqrt(-2 * mpmath.log1p(-part)) for part in parts[:half]]
  angles = [2 * mpmath.pi * part - mpmath.pi for part in parts[half:]]
  cosines = [r * mpmath.cos(a) for r, a in zip(radii, angles)]
  return cosines + [r * mpmath.sin(a) for r, a in zip(radii, angles)]


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_numbers_are_as_exact_as_the_slack_assumes(monkeypatch, law):
  """Random words and the ends of the range, against 60 digits."""
  top = 2**64 - 1
  ends = [0, 1, top, top - 1, 1 << 11, top << 11 & top, 1 << 63, (1 << 63) - 1]
  pairs = [(a, b) for a in ends for b in ends]
  pairs += [
    tuple(pair)
    for pair in randomness.Key.of(3).words(800).reshape(-1, 2).tolist()
  ]
  words = np.array(pairs, np.uint64).T.ravel()
  monkeypatch.setattr(
    randomness.Key, "words", lambda self, count: words[:count]
  )
  found = getattr(randomness.Key.of(0), law)(len(words))
  with mpmath.workdps(60):
    wanted = exact(words, law)
    errors = [abs(mpmath.mpf(float(a)) - b) for a, b in zip(found, wanted)]
  # The slack allows 2^-43, of which the angle's bits and the sum take a part.
  assert float(max(errors)) < 2.0**-44


def variation(probabilities, cells):
  return 0.5 * np.abs(probabilities - cells).sum()


@pytest.mark.parametrize("law", ["normal", "laplace"])
@pytest.mark.parametrize("offset", [0.0, 0.37])
def test_few_bits_do_what_the_proof_says(law, offset):
  """All words of 11 bits: the distance to the real law, and its bound."""
  bits, cells = 11, 4
  uniform = np.arange(2**bits) / 2**bits
  if law == "normal":
    radius = np.sqrt(-2 * np.log1p(-uniform))
    numbers = np.outer(radius, np.cos(2 * np.pi * uniform)).ravel()
    cdf = stats.norm.cdf
    angle = 2 * np.pi * 2.0**-bits * radius.max()
  else:
    size = -np.log1p(-uniform)
    numbers, cdf, angle = np.concatenate([size, -size]), stats.laplace.cdf, 0.0
  steps = np.rint((numbers + offset) * cells)
  borders = np.arange(-60, 61)
  found = [(steps == border).mean() for border in borders]
  edges = (np.append(borders, 61) - 0.5) / cells - offset
  distance = variation(np.array(found), np.diff(cdf(edges)))
  levels = 2.0 ** (2 - bits) * (cells + 5)
  bound = 2.1 * angle * cells + (bits + 1) * levels + 2.0**-bits
  assert 0 < distance <= bound
  # The same formula at 53 bits and the finest grid is within the constant.
  assert 54 * 2.0**-51 * (1024 + 5) + 2.0**-53 < grid.TRUNCATION


def test_slack_grows_with_what_is_lost():
  noise = grid.GridNoise("gaussian", 0.25, (784,))
  plain = noise.slack(np.ones(784))
  assert 0 < plain < 3e-7
  assert noise.slack(1e6 * np.ones(784)) > 2 * plain
  assert noise.slack(np.ones(784), np.full(784, 1e-9)) > 1e-4
  assert noise.slack(np.ones(784), np.full(784, np.inf)) == 1.0


def test_hidden_values_without_a_bound_prove_nothing():
  class Unknown(ReadsLowBits):
    def hidden_values(self, x):
      hidden, error = super().hidden_values(x)
      return hidden, error + np.inf

  with pytest.raises(ValueError, match="whose rounding is known"):
    layer("hidden", "gaussian").certify(
      Unknown(), np.zeros([1, 784], "f"), seed=0
    )
