"""One network of 2-2-2 units, worked out by hand for every domain.

x = (1, 0), attack_eps 1. Hidden values x1 + x2 and x1 - x2, both 1 +- 2, so
l = -1 and u = 3. Logits o0 = h1 + h2 + 1 and o1 = h1 - h2; the label is 0, and
o1 - o0 = -2 h2 - 1.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import bounds

X = np.array([[1.0, 0.0]], np.float32)
Y = np.array([0])
SHARE = 1 / (3 + 1 + 1e-4)  # t of "smooth"


def network():
  made = tf.keras.Sequential(
    [
      tf.keras.Input((2,)),
      tf.keras.layers.Dense(2, "relu"),
      tf.keras.layers.Dense(2),
    ]
  )
  made.set_weights(
    [
      np.array([[1.0, 1.0], [1.0, -1.0]]),
      np.zeros(2),
      np.array([[1.0, 1.0], [1.0, -1.0]]),
      np.array([1.0, 0.0]),
    ]
  )
  return made


@pytest.mark.parametrize(
  ("domain", "low", "high", "worst"),
  [
    # h in [0, 3]: o0 in [1, 7], o1 in [-3, 3]; -2 h2 - 1 <= -1 at h2 = 0.
    (bounds.Interval(), [1, -3], [7, 3], -1),
    # Upper end of o1 less the lower end of o0: 3 - 1.
    (bounds.Interval(elide=False), [1, -3], [7, 3], 2),
    # Both units are boxed to 1.5 +- 1.5: the intervals again.
    (bounds.HybridZonotope("box"), [1, -3], [7, 3], -1),
    (bounds.HybridZonotope("box", elide=False), [1, -3], [7, 3], 2),
    # h1 = 1.5 +- 0.5 + e1 + e2, h2 = 1.5 +- 0.5 + e1 - e2. o0 = 4 +- 1 + 2 e1,
    # o1 = 0 +- 1 + 2 e2. -2 h2 - 1 <= -4 + 1 + 2 + 2; on the outputs the free
    # radii 1 + 1 stand in place of 2 * 0.5.
    (bounds.HybridZonotope("switch"), [1, -3], [7, 3], 1),
    (bounds.HybridZonotope("switch", elide=False), [1, -3], [7, 3], 2),
    # beta = 0.5 + t and errors 1 - t: o0 = 4 +- (1 + 2t + 2 (1 - t)), and
    # -2 h2 - 1 <= -4 + 1 + 2t + 4 (1 - t).
    (bounds.HybridZonotope("smooth"), [1, -3], [7, 3], 1 - 2 * SHARE),
    # d = 3/4. o0: nu = (3/4, 3/4), nu_1 = (3/2, 0): 1 + 3/2 + 3/2 + 3/2 above,
    # 1 + 3/2 - 3/2 below. o1: nu = (3/4, -3/4), nu_1 = (0, 3/2): +-(3/2 + 3/4).
    # o1 - o0: nu = (0, -3/2), nu_1 = (-3/2, 3/2): -1 - 3/2 + 3.
    (bounds.Dual(intersect=False), [1, -2.25], [5.5, 2.25], 0.5),
    # The smaller of 1/2 and the interval's -1.
    (bounds.Dual(), [1, -2.25], [5.5, 2.25], -1),
  ],
)
def test_by_hand(domain, low, high, worst):
  found = domain.output_bounds(network(), X, 1.0)
  np.testing.assert_allclose(found, [[low], [high]], atol=1e-5)
  found = domain.worst_case_logits(network(), X, Y, 1.0)
  np.testing.assert_allclose(found, [[0, worst]], atol=1e-5)


def test_the_value_range_cuts_the_ball():
  # x1 in [0, 2], x2 in [0, 1]: h1 in [0, 3], h2 in [0, 2].
  low, high = bounds.Interval().output_bounds(network(), X, 1.0, (0.0, 2.0))
  np.testing.assert_allclose(low, [[1, 0 - 2]], atol=1e-6)
  np.testing.assert_allclose(high, [[1 + 3 + 2, 3 - 0]], atol=1e-6)
  # x1 in [0, 1] too: h1 in [0, 2], h2 in [0, 1].
  with pytest.warns(UserWarning, match="more than half of the value range"):
    high = bounds.Interval().output_bounds(network(), X, 1.0, (0.0, 1.0))[1]
  np.testing.assert_allclose(high, [[1 + 2 + 1, 2 - 0]], atol=1e-6)


def test_the_published_dual_can_be_worse_than_intervals():
  # -relu(z) on [-1, 1]: d = 1/2, nu = -1/2, hence at most 1/2.
  made = tf.keras.Sequential(
    [tf.keras.Input((1,)), tf.keras.layers.ReLU(), tf.keras.layers.Dense(1)]
  )
  made.set_weights([np.array([[-1.0]]), np.zeros(1)])
  x = np.zeros((1, 1), np.float32)
  dual, cut, plain = (
    float(domain.output_bounds(made, x, 1.0)[1][0, 0])
    for domain in (
      bounds.Dual(intersect=False),
      bounds.Dual(),
      bounds.Interval(),
    )
  )
  assert (dual, cut, plain) == (0.5, 0.0, 0.0)


def test_switch_need_not_grow_with_the_radius():
  # h = relu(x), x = 0.1 +- eps: centre 0.05 + eps/2, radius 3 eps/2 - 0.05.
  # z = 0.55 - h has its centre at 0 for eps = 1: below, the next ReLU gives
  # [l, u + |l|] with u + |l| near 2.9; above, it gives [0, u], u near 1.45.
  made = tf.keras.Sequential(
    [
      tf.keras.Input((1,)),
      tf.keras.layers.ReLU(),
      tf.keras.layers.Dense(1, "relu"),
    ]
  )
  made.set_weights([np.array([[-1.0]]), np.array([0.55])])
  x = np.full((1, 1), 0.1, np.float32)
  domain = bounds.HybridZonotope("switch")
  tops = [domain.output_bounds(made, x, eps)[1][0, 0] for eps in (0.99, 1.01)]
  np.testing.assert_allclose(tops, [2 * 1.435, -0.005 + 1.465], atol=1e-5)
