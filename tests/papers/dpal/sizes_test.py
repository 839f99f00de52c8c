"""The sizes that DPAL's formulas claim: by hand, and golden numbers."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob.papers.dpal import claimed_inference
from tf_privrob.papers.dpal import sizes

MUS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def _of_network(layer, kernel, input_shape):
  """The layer in a network, with this kernel."""
  tf.keras.Sequential([tf.keras.layers.Input(input_shape), layer])
  layer.kernel.assign(kernel)
  return layer


def dense(kernel):
  inputs, units = np.shape(kernel)
  return _of_network(tf.keras.layers.Dense(units), kernel, (inputs,))


def convolution(kernel, input_shape):
  layer = tf.keras.layers.Conv2D(kernel.shape[-1], 5, 2, "same")
  return _of_network(layer, kernel, input_shape)


# Formulas, by hand.


def test_kappa_and_phi_by_hand():
  """b = Delta_R / (m eps1) = 2, Delta_x = 5, Delta_h = 8, eps_r = 0.5."""
  assert sizes.kappa(0.5, 2.0, 5.0) == pytest.approx(0.2)
  assert sizes.phi(0.5, 4.0, 8.0) == pytest.approx(0.25)


@pytest.mark.parametrize(
  ("composition", "settings", "wanted"),
  [
    ("paper", {}, 0.2 + 0.25),
    ("harmonic", {}, 1 / (1 / 0.2 + 1 / 0.25)),
    ("released_v0", {}, 0.5 * 0.5 / (2 * (1 / 5 + 2 / 8))),
    ("released_v1", {}, 0.5 * 2 / (8 / 2 + 5)),
    ("released_v1", {"dp_eps": 0.005}, 200 * 0.5 * 2 / (8 / 2 + 5)),
  ],
)
def test_claimed_radius_by_hand(composition, settings, wanted):
  """As above, of mu = 0.5 and d^2 = 10."""
  found = sizes.claimed_radius(
    [0.2 * math.e, 0.3, 0.2],
    [0.2, 0.3, 0.4],
    composition,
    input_scale=2.0,
    num_positions=10,
    hidden_sensitivity=8.0,
    attack_eps=0.5,
    **settings,
  )
  np.testing.assert_allclose(found, [wanted, 0, 0], rtol=1e-12)


def test_released_v1_is_the_harmonic_composition():
  settings = {
    "input_scale": 1.7,
    "num_positions": 784,
    "hidden_sensitivity": 102.0,
    "attack_eps": 0.05,
  }
  found = [
    sizes.claimed_radius(0.9, 0.01, name, **settings)
    for name in ("harmonic", "released_v1", "paper")
  ]
  assert found[0] == pytest.approx(found[1], rel=1e-12)
  assert found[2] >= 4 * found[0]  # (kappa + phi)^2 >= 4 kappa phi


def test_equation_16_equals_a_search_over_eps_r():
  p1, p2, settings = 0.7, 0.04, {"input_scale": 1.7, "hidden_scale": 3.4}
  grid = np.arange(0, 3, 1e-5)
  allowed = grid[p1 > np.exp(2 * grid) * p2]
  claimed = sizes.kappa(allowed, 1.7, 39.0) + sizes.phi(allowed, 3.4, 102.0)
  found = sizes.claimed_radius(
    p1,
    p2,
    "paper",
    num_positions=39,
    hidden_sensitivity=102.0,
    attack_eps=1.0,
    **settings,
  )
  assert found == pytest.approx(claimed.max(), abs=2e-6)
  assert isinstance(found, float)


def test_sensitivities_by_hand():
  assert sizes.input_sensitivity(0.1, 784) == pytest.approx(78.4)
  layer = dense([[3.0, -4.0], [1.0, 1.0]])
  for rows in sizes.ROWS:  # of a dense layer they are the same
    found = sizes.paper_hidden_sensitivity(layer, 9, rows)
    assert found == pytest.approx(3 * 7)
  diagonal = np.diag([2.0, -5.0]).reshape(2, 1, 1, 2)
  found = sizes.released_hidden_sensitivity(diagonal, 196)
  assert found == pytest.approx(5 * 196)


# Golden: the released code's constants at MNIST, dp_epsilon 2, n = 2000.


def mnist(mu, **changes):
  values = {
    "input_scale": 1.71,
    "num_positions": 784,
    "hidden_sensitivity": 102.0,
    "attack_eps": mu,
    "bound": "clopper_pearson",
  }
  return claimed_inference.ClaimedInference(**{**values, **changes})


def xavier_kernel(seed=0):
  limit = math.sqrt(6 / (25 + 25 * 32))
  return np.random.RandomState(seed).uniform(-limit, limit, [5, 5, 1, 32])


def released_scale(largest):
  """b at eps1 = 1.9 for the largest singular value of the first layer."""
  gamma, gamma_x = 2 * 4950 / (2499 * largest), 4950 / 2499
  return 4950 / (2499 * 1.9) * (1 + 1 / gamma + 1 / gamma_x)


def test_the_constants_themselves():
  assert released_scale(0.52) == pytest.approx(1.71, abs=5e-3)
  assert 0.52 * 196 == pytest.approx(102, abs=0.5)
  hidden = sizes.released_hidden_sensitivity(xavier_kernel(), 196)
  assert hidden == pytest.approx(102, rel=0.06)  # another initialisation
  assert released_scale(hidden / 196) == pytest.approx(1.71, abs=0.02)


@pytest.mark.parametrize(
  ("mu", "wanted"),
  list(zip(MUS, (0.228, 0.164, 0.132, 0.121, 0.116, 0.112, 0.110))),
)
def test_best_case_of_equation_16(mu, wanted):
  found = mnist(mu).largest_radius(10)
  assert found == pytest.approx(wanted, abs=1e-3)
  assert (found >= mu) == (mu < 0.2)  # nothing can pass from 0.2 on


@pytest.mark.parametrize(
  ("mu", "wanted"),
  list(zip(MUS, (0.056, 0.039, 0.024, 0.018, 0.014, 0.011, 0.0097))),
)
def test_best_case_of_the_released_v1(mu, wanted):
  found = mnist(mu, composition="released_v1").largest_radius(10)
  assert found == pytest.approx(wanted, abs=6e-4)
  assert (found >= mu) == (mu < 0.1)


@pytest.mark.parametrize(
  ("mu", "wanted"),
  list(zip(MUS, (0.154, 0.111, 0.089, 0.082, 0.078, 0.076, 0.074))),
)
def test_what_the_released_v0_asks_for(mu, wanted):
  """ln(p1/p2) at which its size reaches mu: hardly more than a majority."""
  subject = mnist(mu, composition="released_v0")
  size_at_one = subject.radius(math.exp(2) * 0.1, 0.1)
  assert 2 * mu / size_at_one == pytest.approx(wanted, abs=6e-4)
  assert subject.radius(0.1 * math.exp(wanted + 1e-3), 0.1) >= mu
  assert subject.radius(0.1 * math.exp(wanted - 1e-3), 0.1) < mu


@pytest.mark.parametrize(
  ("rows", "hidden_units", "low", "high"),
  [
    ("kernel", 196, 0.40, 0.60),
    ("kernel", 6272, 0.08, 0.12),
    ("matrix", 196, 0.06, 0.08),
    ("matrix", 6272, 0.02, 0.03),
  ],
)
def test_best_case_with_the_papers_own_sensitivity(
  rows, hidden_units, low, high
):
  """At mu = 0.6; no reading of 'row' reaches it."""
  layer = convolution(xavier_kernel(), (28, 28, 1))
  layers = [layer] if rows == "matrix" else [layer, dense(_taps(layer).T)]
  for one in layers:
    hidden = sizes.paper_hidden_sensitivity(one, hidden_units, rows)
    found = mnist(0.6, hidden_sensitivity=hidden).largest_radius(10)
    assert low < found < high


def _taps(layer):
  return layer.kernel.numpy().reshape(-1, layer.filters)


def test_a_row_of_the_matrix_has_the_taps_of_all_positions():
  """784 x 6272: an input value meets nine taps of 32 filters, not one."""
  layer = convolution(xavier_kernel(), (28, 28, 1))
  basis = tf.reshape(tf.eye(784), [784, 28, 28, 1])
  matrix = tf.nn.conv2d(basis, layer.kernel, 2, "SAME").numpy()
  matrix = np.abs(matrix.reshape(784, 6272))
  taps = np.abs(_taps(layer)).reshape(5, 5, 32).sum(axis=2)
  assert taps[::2, ::2].sum() == pytest.approx(matrix.sum(axis=1).max())
  found = sizes.row_norm(layer, "matrix")
  assert found == pytest.approx(taps[::2, ::2].sum(), rel=1e-6)
  assert sizes.row_norm(layer) == pytest.approx(taps.max(), rel=1e-6)
  assert found > 7 * sizes.row_norm(layer)


# Algorithm 1: one mu decides.


@pytest.mark.parametrize(
  ("composition", "wanted"),
  [
    ("paper", (0.25 + math.sqrt(0.25**2 + 4 * 0.2)) / 2),
    ("harmonic", 2 / (4 + math.sqrt(4**2 + 4 / 0.2))),
    ("released_v1", 2 / (4 + math.sqrt(4**2 + 4 / 0.2))),
  ],
)
def test_the_largest_mu_by_hand(composition, wanted):
  """kappa = 0.2 / mu and phi = 0.25: isRobust up to 0.589, or 0.2."""
  settings = {
    "input_scale": 2.0,
    "num_positions": 5,
    "hidden_sensitivity": 8.0,
  }
  p1 = [0.2 * math.e, 0.3, 0.2]
  p2 = [0.2, 0.3, 0.4]
  found = sizes.claimed_radius(p1, p2, composition, **settings)
  np.testing.assert_allclose(found, [wanted, 0, 0], rtol=1e-12)
  for mu in (0.1 * wanted, 0.999 * wanted, 1.001 * wanted, 9 * wanted):
    size = sizes.claimed_radius(p1, p2, composition, attack_eps=mu, **settings)[
      0
    ]
    assert (size >= mu) == (mu <= wanted)


@pytest.mark.parametrize(
  ("draws", "wanted"), [(500, (0.078, 0.118)), (2000, (0.093, 0.144))]
)
def test_the_draws_decide_what_can_be_claimed_at_all(draws, wanted):
  """All agree: Hoeffding's margin is sqrt(ln(K / eta) / 2n), of 0.036 at 2,000.

  Clopper and Pearson leave 1 - (eta / K)^(1/n) to the other classes.
  """
  margins = {
    "hoeffding": math.sqrt(math.log(10 / 0.05) / (2 * draws)),
    "clopper_pearson": 1 - 0.005 ** (1 / draws),
  }
  for (bound, margin), expected in zip(margins.items(), wanted):
    reach = mnist(None, bound=bound, num_draws=draws).largest_radius(10)
    robust = math.log((1 - margin) / margin) / 2
    found = robust * 1.71 * (1 / (reach * 784) + 2 / 102)
    assert found == pytest.approx(reach, rel=1e-6)
    assert reach == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: _claimed("released_v0"), "Expected attack_eps"),
    (lambda: _claimed("papr"), "Did you mean 'paper'"),
    (lambda: sizes.input_sensitivity(0.0, 784), "attack_eps=0.0"),
    (
      lambda: sizes.row_norm(dense(np.eye(2)), "matri"),
      "Did you mean 'matrix'",
    ),
    (
      lambda: sizes.released_hidden_sensitivity(np.ones(3), 4),
      r"kernel \[..., filters\], received shape \(3,\)",
    ),
    (
      lambda: sizes.released_hidden_sensitivity(np.eye(2), 0),
      "positions=0",
    ),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def _claimed(composition):
  return sizes.claimed_radius(
    0.9,
    0.1,
    composition,
    input_scale=1.0,
    num_positions=1,
    hidden_sensitivity=1.0,
  )
