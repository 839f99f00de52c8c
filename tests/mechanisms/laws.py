"""The laws that every additive mechanism obeys; a new one inherits them."""

from __future__ import annotations

import abc
import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate
from scipy import stats

from tf_privrob import mechanisms
from tf_privrob import randomness

_DRAWS = 20_000
_DP_DELTAS = (1e-2, 1e-5)


class MechanismLaws(abc.ABC):
  """Inherited by `Test<Mechanism>Laws`, which says what the noise should be.

  The reference law comes from SciPy, never from the mechanism itself.
  """

  @abc.abstractmethod
  def make(self) -> mechanisms.Mechanism:
    """A mechanism with sensitivity and scale other than 1."""

  @abc.abstractmethod
  def law(self, factor: float = 1.0):
    """The frozen SciPy law of one coordinate, its scale times `factor`."""

  @abc.abstractmethod
  def shift(self) -> float:
    """The worst change of one coordinate between neighbours."""

  def hockey_stick(self, dp_epsilon: float, factor: float = 1.0) -> float:
    """dp_delta by quadrature of (p - exp(dp_epsilon) q)+ on neighbours."""
    law, shift = self.law(factor), self.shift()
    spread = law.std()

    def excess(z):
      return max(0.0, law.pdf(z) - math.exp(dp_epsilon) * law.pdf(z - shift))

    grid = np.linspace(-40 * spread, 40 * spread + shift, 161)
    grid = np.sort(np.append(grid, [0.0, shift]))
    return sum(
      integrate.quad(excess, a, b, epsabs=1e-13, limit=200)[0]
      for a, b in zip(grid[:-1], grid[1:])
    )

  @pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
  def test_noise_has_the_right_law_and_no_other(self, dtype):
    draws = self.make().sample([_DRAWS], seed=7, dtype=dtype).numpy()
    assert stats.kstest(draws, self.law().cdf).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
      assert stats.kstest(draws, self.law(wrong).cdf).pvalue < 1e-6

  @pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
  def test_given_uniforms_make_the_same_law(self, dtype):
    mechanism = self.make()
    uniform = randomness.Key.of(0).uniform(mechanism.uniforms_needed(_DRAWS))
    draws = mechanism.from_uniform(uniform, [_DRAWS], dtype).numpy()
    assert stats.kstest(draws, self.law().cdf).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
      assert stats.kstest(draws, self.law(wrong).cdf).pvalue < 1e-6

  @pytest.mark.parametrize("shape", [[], [5], [2, 3, 1]])
  def test_sample_is_made_of_stateless_uniforms(self, shape):
    mechanism = self.make()
    size = mechanism.uniforms_needed(math.prod(shape))
    seed = tf.constant([3, 4], tf.int64)
    uniform = tf.random.stateless_uniform([size], seed, dtype=tf.float64)
    np.testing.assert_array_equal(
      mechanism.from_uniform(uniform, shape), mechanism.sample(shape, seed)
    )

  def test_the_ends_of_the_uniforms_give_finite_noise(self):
    mechanism = self.make()
    size = mechanism.uniforms_needed(4)
    for end in (0.0, 1 - 2.0**-53):
      noise = mechanism.from_uniform(np.full(size, end), [4], tf.float64)
      assert np.isfinite(noise).all()

  def test_uniforms_in_a_graph_with_unknown_shape_equal_eager(self):
    mechanism = self.make()
    draw = tf.function(
      mechanism.from_uniform,
      input_signature=[
        tf.TensorSpec([None], tf.float64),
        tf.TensorSpec([None], tf.int32),
      ],
    )
    uniform = randomness.Key.of(1).uniform(mechanism.uniforms_needed(15))
    np.testing.assert_allclose(
      draw(uniform, [5, 3]), mechanism.from_uniform(uniform, [5, 3]), rtol=1e-6
    )

  def test_too_few_or_coarse_uniforms_are_refused(self):
    mechanism = self.make()
    uniform = np.full(mechanism.uniforms_needed(6), 0.25)
    with pytest.raises(ValueError, match="dtype float64 in one axis"):
      mechanism.from_uniform(uniform.astype(np.float32), [6])
    with pytest.raises(ValueError, match="dtype float64 in one axis"):
      mechanism.from_uniform(uniform.reshape(2, -1), [6])
    with pytest.raises(tf.errors.InvalidArgumentError):
      mechanism.from_uniform(uniform[:-1], [6])

  def test_coordinates_are_independent(self):
    draws = self.make().sample([_DRAWS, 2], seed=8).numpy()
    for transform in (np.asarray, np.abs):
      correlation = stats.spearmanr(transform(draws)).statistic
      assert abs(correlation) < 4.5 / math.sqrt(_DRAWS)

  @pytest.mark.parametrize("dp_delta", _DP_DELTAS)
  def test_guarantee_is_exact_on_neighbours(self, dp_delta):
    dp_epsilon = self.make().dp_epsilon_at(dp_delta)
    assert self.hockey_stick(dp_epsilon) == pytest.approx(dp_delta, rel=1e-4)
    assert self.hockey_stick(dp_epsilon, 2 / 3) > 1.2 * dp_delta

  @pytest.mark.parametrize("dp_delta", _DP_DELTAS)
  def test_event_agrees_with_the_guarantee(self, dp_delta):
    mechanism = self.make()
    exact = mechanism.dp_epsilon_at(dp_delta)
    event = mechanism.event()
    pld = dp_accounting.pld.PLDAccountant().compose(event)
    rdp = dp_accounting.rdp.RdpAccountant().compose(event)
    assert pld.get_epsilon(dp_delta) == pytest.approx(exact, rel=1e-3)
    assert rdp.get_epsilon(dp_delta) >= exact
    assert event.noise_multiplier == pytest.approx(mechanism.noise_multiplier)

  def test_seed_decides(self):
    mechanism = self.make()
    first = mechanism.sample([64], seed=3)
    np.testing.assert_array_equal(first, mechanism.sample([64], seed=3))
    for other in (4, -3, 2**40 + 3, tf.constant([1, 3])):
      assert not np.any(first == mechanism.sample([64], seed=other))

  @pytest.mark.parametrize(
    "shape", [[], [0, 3], [5], [2, 3, 1], tf.TensorShape([4, 3])]
  )
  def test_shape_and_dtype(self, shape):
    for dtype in (tf.float16, tf.float32, tf.float64):
      noise = self.make().sample(shape, seed=1, dtype=dtype)
      assert noise.shape == tf.TensorShape(shape)
      assert noise.dtype == dtype

  def test_graph_with_unknown_batch_equals_eager(self):
    mechanism = self.make()
    x = tf.reshape(tf.range(12.0), [4, 3])
    add = tf.function(
      mechanism.add_noise,
      input_signature=[
        tf.TensorSpec([None, 3]),
        tf.TensorSpec([2], tf.int64),
      ],
    )
    seed = tf.constant([5, 6], tf.int64)
    noisy = add(x, seed)
    # XLA-free graphs may fuse the last addition: one rounding apart.
    np.testing.assert_allclose(noisy, mechanism.add_noise(x, seed), rtol=1e-6)
    np.testing.assert_allclose(
      noisy - x, mechanism.sample([4, 3], seed), atol=1e-5
    )

  @pytest.mark.parametrize("bad", [1.5, None, "1", True, [1, 2, 3], [1.0, 2.0]])
  def test_bad_seed(self, bad):
    with pytest.raises(ValueError, match="64-bit whole number or an integer"):
      self.make().sample([2], seed=bad)

  def test_integer_query_is_refused(self):
    with pytest.raises(ValueError, match="received dtype int32"):
      self.make().add_noise(tf.constant([1, 2]), seed=1)
    with pytest.raises(ValueError, match="dtype for noise, received int64"):
      self.make().sample([2], seed=1, dtype=tf.int64)

  @pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1", None])
  def test_every_field_is_validated(self, bad):
    mechanism = self.make()
    names = list(vars(mechanism))
    assert names
    for name in names:
      with pytest.raises(ValueError, match=f"Expected {name}=.* > 0"):
        type(mechanism)(**{**vars(mechanism), name: bad})

  @pytest.mark.parametrize("bad", [-0.1, 1.0, 1.5, math.nan])
  def test_bad_dp_delta(self, bad):
    with pytest.raises(ValueError, match="dp_delta"):
      self.make().dp_epsilon_at(bad)

  def test_is_frozen_and_hashable(self):
    mechanism = self.make()
    assert mechanism == self.make()
    assert hash(mechanism) == hash(self.make())
    with pytest.raises(AttributeError):
      setattr(mechanism, next(iter(vars(mechanism))), 9.0)
