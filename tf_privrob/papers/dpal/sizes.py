"""The sizes that DPAL's formulas claim for an image (Eq. 12-16)."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.norms import keras_norms

ROWS = ("kernel", "matrix")
# How kappa and phi become one size, and the name in a certificate.
COMPOSITIONS = {
  "paper": "dpal_paper_sum",
  "harmonic": "dpal_harmonic",
  "released_v0": "dpal_released_v0",
  "released_v1": "dpal_released_v1",
}


def kappa(robust_epsilon, input_scale: float, input_sensitivity: float):
  """Size for which Lap(b) at the input is eps_r-DP: b / (Delta_r^x / eps_r)."""
  return np.asarray(robust_epsilon, float)[()] * input_scale / input_sensitivity


def phi(robust_epsilon, hidden_scale: float, hidden_sensitivity: float):
  """The same for Lap(2b) at the hidden layer: 2b / (Delta_r^h / eps_r)."""
  return (
    np.asarray(robust_epsilon, float)[()] * hidden_scale / hidden_sensitivity
  )


def input_sensitivity(attack_eps: float, num_positions: int) -> float:
  """Delta_r^x = mu d^2, d the side of the image: the l1 size of l_inf(mu).

  The paper and the released code count positions, not channels.
  """
  validate.positive(attack_eps=attack_eps)
  validate.positive_int(num_positions=num_positions)
  return float(attack_eps) * num_positions


def row_norm(layer: tf.keras.layers.Layer, rows: str = "kernel") -> float:
  """The largest 1-norm of a row of theta_1, in h = theta_1^T x.

  * "matrix": theta_1 is d x beta, and a row holds all weights that one input
    value meets, at every position: the norm of the layer from l_1 to l_1.
  * "kernel": theta_1 is the kernel as [patch, filters], as the released code
    has it for its singular value, and a row holds one tap. Of a convolution
    that is a part of a row of the matrix; of a dense layer it is the row.

  Args:
    layer: A Dense or Conv2D layer of a network.
    rows: One of ROWS.
  """
  validate.one_of(ROWS, rows=rows)
  if rows == "kernel":
    return float(np.abs(_matrix(layer.kernel.numpy())).sum(axis=1).max())
  shape = tuple(layer.input_shape[1:])
  return (
    keras_norms.linear_map(layer, shape).norms(quick=True).bound("l1", "l1")
  )


def paper_hidden_sensitivity(
  layer: tf.keras.layers.Layer, hidden_units: int, rows: str = "kernel"
) -> float:
  """Delta_r^h = sqrt(beta) ||theta_1||_inf, its largest 1-norm of a row.

  Args:
    layer: With theta_1.
    hidden_units: beta. The released code counts the positions of one map.
    rows: What a row is, see `row_norm`.
  """
  validate.positive_int(hidden_units=hidden_units)
  return math.sqrt(hidden_units) * row_norm(layer, rows)


def released_hidden_sensitivity(kernel: np.ndarray, positions: int) -> float:
  """Delta_r^h as coded: the largest singular value of theta_1 x positions.

  The code takes the weights of an initialisation it then throws away. Neither
  this nor the paper's value bounds an l1 change: `linear_norms` does.
  """
  validate.positive_int(positions=positions)
  return float(np.linalg.norm(_matrix(kernel), 2) * positions)


def claimed_radius(
  p1_lower,
  p2_upper,
  composition: str,
  *,
  input_scale: float,
  num_positions: int,
  hidden_sensitivity: float,
  hidden_scale: float | None = None,
  attack_eps: float | None = None,
  dp_eps: float = 1.0,
):
  """The size that one of four formulas claims; none of them is proven.

  With eps_r = ln(p1/p2)/2, the largest one that Eq. 13 allows, kappa and phi
  for attacks of size mu, Delta_x = mu d^2:

  * "paper": kappa + phi (Prop. 1, Eq. 16). False: noise of scale kappa
    Delta/eps_r is eps_r/kappa-DP for a change of size 1, not kappa eps_r, so
    that what adds up are the inverses.
  * "harmonic": 1 / (1/kappa + 1/phi), what Lemma 7 supports for the joint
    release, if the sensitivities are true l1 bounds and psi = 1.
  * "released_v0" (June 2020): mu eps_r / (b (1/Delta_x + 2/Delta_h)). It
    divides where Eq. 16 multiplies: less noise, larger claim.
  * "released_v1" (September 2020): (eps_r / dp_eps) b / (Delta_h/2 + Delta_x),
    the harmonic one times 1/dp_eps; some scripts pass dp_eps = 0.005.

  All of them are multiples of mu, yet are compared with mu itself: Algorithm 1
  says isRobust where size(mu) >= mu. Without a mu the result is the largest
  one for which it does, since size(mu) / mu falls ("released_v0": it grows, so
  that there is no such mu). With kappa_1 = mu kappa:

  * "paper": kappa_1 / mu + phi = mu at (phi + sqrt(phi^2 + 4 kappa_1)) / 2;
  * "harmonic": mu / kappa_1 + 1 / phi = 1 / mu at 2 / (1 / phi + sqrt(1 / phi^2
    + 4 / kappa_1)).

  Args:
    p1_lower: Lower bound of the top class's expected score, float or array.
    p2_upper: Upper bound of the runner-up's.
    composition: One of COMPOSITIONS.
    input_scale: b.
    num_positions: d^2, d the side of the image.
    hidden_sensitivity: Delta_r^h.
    hidden_scale: 2b by default; the released formulas have 2b built in.
    attack_eps: mu, or None for the largest.
    dp_eps: The code's dp_eps, for "released_v1" only.

  Returns:
    Sizes >= 0 of the shape of p1_lower; 0 where p1 <= p2.
  """
  check_mu(composition, attack_eps)
  validate.positive_int(num_positions=num_positions)
  validate.positive(
    input_scale=input_scale,
    hidden_sensitivity=hidden_sensitivity,
    dp_eps=dp_eps,
  )
  if hidden_scale is None or composition.startswith("released"):
    hidden_scale = 2 * input_scale
  validate.positive(hidden_scale=hidden_scale)
  robust_epsilon = score_bounds.robust_epsilon(p1_lower, p2_upper)
  if composition == "released_v0":
    at_input = input_scale / input_sensitivity(attack_eps, num_positions)
    rate = at_input + hidden_scale / hidden_sensitivity
    return attack_eps * robust_epsilon / rate
  if composition == "released_v1":
    robust_epsilon = robust_epsilon / dp_eps
  at_one = kappa(robust_epsilon, input_scale, num_positions)
  at_hidden = phi(robust_epsilon, hidden_scale, hidden_sensitivity)
  if composition == "paper":
    if attack_eps is not None:
      return at_one / attack_eps + at_hidden
    return (at_hidden + np.sqrt(at_hidden**2 + 4 * at_one)) / 2
  with np.errstate(divide="ignore"):
    inverse, inverse_hidden = np.divide(1, at_one), np.divide(1, at_hidden)
  if attack_eps is not None:
    return 1 / (attack_eps * inverse + inverse_hidden)
  return 2 / (inverse_hidden + np.sqrt(inverse_hidden**2 + 4 * inverse))


def check_mu(composition: str, attack_eps: float | None) -> None:
  """Refuses a mu that is none; one formula cannot do without."""
  validate.one_of(COMPOSITIONS, composition=composition)
  if attack_eps is not None:
    validate.positive(attack_eps=attack_eps)
  elif composition == "released_v0":
    raise ValueError(
      "Expected attack_eps, the mu of the attack, for"
      " composition='released_v0', received None."
    )


def _matrix(kernel: np.ndarray) -> np.ndarray:
  kernel = np.asarray(kernel, np.float64)
  if kernel.ndim < 2 or not kernel.size:
    raise ValueError(
      f"Expected a kernel [..., filters], received shape {kernel.shape}."
    )
  return kernel.reshape(-1, kernel.shape[-1])
