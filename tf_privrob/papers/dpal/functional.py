"""The functional mechanism as DPAL and AdLM use it: sensitivities and scales.

What is here is arithmetic: it reproduces the papers' numbers. It makes no claim
of its own: `docs/soundness.md` says which of the lemmas hold for what the
algorithms release (none of the noise scales is enough for DPAL's training).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tf_privrob import validate

SENSITIVITIES = ("paper", "released_code")


def reconstruction_sensitivity(
  input_shape: Sequence[int],
  hidden_shape: Sequence[int],
  kernel_shape: Sequence[int],
  sensitivity: str = "paper",
) -> float:
  """Delta_R of the first-order reconstruction objective (DPAL, Lemma 2).

  "paper": d (beta + 2), with all d input values and all beta hidden units.
  "released_code": d is the size of one patch and beta the number of positions
  of one feature map; the number of filters does not appear. For a dense layer
  the two agree.

  Args:
    input_shape: Shape of one example.
    hidden_shape: Shape of one example's first hidden layer.
    kernel_shape: [height, width, channels, filters], or [inputs, units].
    sensitivity: "paper" or "released_code".
  """
  validate.one_of(SENSITIVITIES, sensitivity=sensitivity)
  if sensitivity == "paper" or len(kernel_shape) == 2:
    return float(math.prod(input_shape) * (math.prod(hidden_shape) + 2))
  patch, positions = math.prod(kernel_shape[:-1]), math.prod(hidden_shape[:-1])
  return float(patch * (positions + 2))


def label_sensitivity(hidden_units: int) -> float:
  """Delta_L2 = 2 |h_pi| of the label term (DPAL, Lemma 5), for |h_pi| <= 1."""
  validate.positive_int(hidden_units=hidden_units)
  return 2.0 * hidden_units


def adlm_label_sensitivity(hidden_units: int, num_classes: int) -> float:
  """K (|h| + |h|^2 / 4): AdLM's sensitivity of the whole Taylor loss."""
  validate.positive_int(hidden_units=hidden_units, num_classes=num_classes)
  return num_classes * (hidden_units + hidden_units**2 / 4)


def adlm_input_sensitivity(
  hidden_shape: Sequence[int], kernel_shape: Sequence[int]
) -> float:
  """2 x positions x patch, the constant of AdLM's code for the first layer."""
  if len(kernel_shape) == 2:
    return 2.0 * math.prod(kernel_shape)
  return 2.0 * math.prod(hidden_shape[:-1]) * math.prod(kernel_shape[:-1])


def hidden_factor(
  sensitivity: float, batch_size: int, weight_norm: float
) -> float:
  """Gamma = 2 Delta_R / (m |theta_1|) (DPAL, Lemma 4).

  The paper takes the largest 1-norm of a column of theta_1; the released code
  the largest singular value of an initial theta_1 that it throws away.
  """
  validate.positive(sensitivity=sensitivity, weight_norm=weight_norm)
  validate.positive_int(batch_size=batch_size)
  return 2 * sensitivity / (batch_size * weight_norm)


def reduced_dp_epsilon(
  dp_epsilon: float, sensitivity: float, batch_size: int, weight_norm: float
) -> float:
  """The released code's eps_1' = eps_1 / (1 + 1/gamma + 1/gamma_x).

  gamma_x = Delta_R / m. The code draws all feature noise with eps_1', so that
  the three terms eps_1', eps_1'/gamma and eps_1'/gamma_x add up to eps_1.
  """
  validate.positive(dp_epsilon=dp_epsilon)
  gamma = hidden_factor(sensitivity, batch_size, weight_norm)
  return dp_epsilon / (1 + 1 / gamma + batch_size / sensitivity)


@dataclasses.dataclass(frozen=True)
class FunctionalNoise:
  """The scales of DPAL's three Laplace draws (Algorithm 1, line 3).

  Claim of the paper: with x + chi_1/m, h + 2 chi_2/m and the label coefficients
  h_pi y + chi_3/m, training is (dp_epsilon_features + dp_epsilon_labels)-DP for
  any number of steps. It is not: one draw is shared by all examples and steps.

  Attributes:
    reconstruction_sensitivity: Delta_R.
    label_sensitivity: Delta_L2.
    batch_size: m; the scales below hold for batches of exactly this size.
    dp_epsilon_features: eps_1.
    dp_epsilon_labels: eps_2.
    weight_norm: Norm of theta_1; it applies the released code's reduction of
      eps_1; None leaves eps_1 as it is (the paper).
  """

  reconstruction_sensitivity: float
  label_sensitivity: float
  batch_size: int
  dp_epsilon_features: float
  dp_epsilon_labels: float
  weight_norm: float | None = None

  def __post_init__(self):
    validate.positive(
      reconstruction_sensitivity=self.reconstruction_sensitivity,
      label_sensitivity=self.label_sensitivity,
      dp_epsilon_features=self.dp_epsilon_features,
      dp_epsilon_labels=self.dp_epsilon_labels,
    )
    validate.positive_int(batch_size=self.batch_size)
    if self.weight_norm is not None:
      validate.positive(weight_norm=self.weight_norm)

  @property
  def effective_dp_epsilon_features(self) -> float:
    """What the feature noise is drawn with: eps_1, or the code's eps_1'."""
    if self.weight_norm is None:
      return self.dp_epsilon_features
    return reduced_dp_epsilon(
      self.dp_epsilon_features,
      self.reconstruction_sensitivity,
      self.batch_size,
      self.weight_norm,
    )

  @property
  def input_scale(self) -> float:
    """The scale of chi_1 / m: Delta_R / (m eps_1)."""
    return self.reconstruction_sensitivity / (
      self.batch_size * self.effective_dp_epsilon_features
    )

  @property
  def hidden_scale(self) -> float:
    """The scale of 2 chi_2 / m."""
    return 2 * self.input_scale

  @property
  def label_scale(self) -> float:
    """The scale of chi_3 / m: Delta_L2 / (m eps_2)."""
    return self.label_sensitivity / (self.batch_size * self.dp_epsilon_labels)

  @property
  def claimed_dp_epsilon(self) -> float:
    """Eps_1 + eps_2: a claim, to be shown beside what is proven."""
    return self.dp_epsilon_features + self.dp_epsilon_labels
