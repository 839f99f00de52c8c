"""The privacy-loss distribution of one use of a Gaussian, sampled or not.

The same numbers as dp_accounting's, which asks for the loss at one point of the
grid after the other; here all points are asked at once, twenty times faster.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld import privacy_loss_mechanism

_Adjacency = privacy_loss_mechanism.AdjacencyType
_LARGE = 40.0  # of a loss


def gaussian(
  noise_multiplier: float, sampling_prob: float, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """Both directions, on a grid of this interval, with dots connected.

  Args:
    noise_multiplier: The standard deviation over the sensitivity, > 0.
    sampling_prob: The probability of taking part, in (0, 1].
    interval: Between two losses of the grid.
  """
  removed = _masses(
    Loss(noise_multiplier, sampling_prob=sampling_prob), interval
  )
  if sampling_prob == 1:
    return privacy_loss_distribution.PrivacyLossDistribution(removed)
  loss = Loss(
    noise_multiplier,
    sampling_prob=sampling_prob,
    adjacency_type=_Adjacency.ADD,
  )
  return privacy_loss_distribution.PrivacyLossDistribution(
    removed, _masses(loss, interval)
  )


def _masses(loss: Loss, interval: float) -> pld_pmf.PLDPmf:
  """Doroshenko et al. 2022, Algorithm 1, from the smallest loss to the largest.

  The profile falls; where rounding lets it rise, what lies before is lifted.
  """
  ends = loss.connect_dots_bounds()
  low = math.floor(ends.epsilon_lower / interval)
  high = math.ceil(ends.epsilon_upper / interval)
  profile = loss.get_delta_for_epsilon(np.arange(low, high + 1) * interval)
  profile = np.maximum.accumulate(profile[::-1])[::-1]
  return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
    interval, low, high, profile
  )


class Loss(privacy_loss_mechanism.GaussianPrivacyLoss):
  """The library's, with its profile at many points at once."""

  def get_delta_for_epsilon(self, epsilon: np.ndarray) -> np.ndarray:
    """P(loss > epsilon) less exp(epsilon) of the other side's, in [0, 1]."""
    epsilon = np.asarray(epsilon, np.float64)
    ends = self._ends(epsilon)
    other = np.exp(epsilon + self.mu_lower_log_cdf(ends))
    return np.clip(self.mu_upper_cdf(ends) - other, 0, 1)

  def _ends(self, epsilon: np.ndarray) -> np.ndarray:
    """The largest x whose loss is at least epsilon; infinite beyond them all.

    The loss without sampling is log(1 + (exp(epsilon) - 1) / q) where an
    example is removed, and epsilon + log(q / (1 - exp(epsilon) (1 - q))) where
    one is added: written so that neither a small q nor one near 1 cancels.
    """
    prob, loss = self.sampling_prob, epsilon
    with np.errstate(divide="ignore", over="ignore"):
      if prob < 1 and self.adjacency_type == _Adjacency.REMOVE:
        loss = np.log1p(np.maximum(np.expm1(epsilon) / prob, -1.0))
        beyond = np.log1p((prob - 1) * np.exp(-np.maximum(epsilon, _LARGE)))
        beyond += epsilon - math.log(prob)  # no exponential to overflow
        loss = np.where(epsilon > _LARGE, beyond, loss)
      elif prob < 1:
        left = np.maximum(prob - np.expm1(epsilon) * (1 - prob), 0.0)
        loss = epsilon + np.log(prob / left)
    middle = 0.5 if self.adjacency_type == _Adjacency.ADD else -0.5
    return middle - loss * self.standard_deviation**2
