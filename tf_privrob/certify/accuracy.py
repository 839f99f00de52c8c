"""From certificates to certified accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tf_privrob import binomial
from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify.smoothing import sequential


def certified_accuracy(
  certificates: Sequence[certificate.Certificate],
  radii: Sequence[float],
  failure_prob: float | None = None,
) -> list[dict[str, Any]]:
  """Fraction of inputs that are right, and provably stay so, at each radius.

  An input counts at radius r if its class is its label and its radius is at
  least r; abstentions count as errors. `interval` is the 95% Clopper-Pearson
  interval for the population that the inputs were drawn from.

  Each probabilistic row may be false with probability at most a = 1 -
  confidence, so the fraction itself may be too high. With `failure_prob` rho
  each entry has `lower_bound`: with probability at least 1 - rho over the
  certifier's draws, the true certified accuracy on these very inputs is at
  least that. The rows fail independently, so the number of false ones is at
  most the (1 - rho)-quantile of Binomial(m, a), which is subtracted. This is
  exact where Cohen et al. (2019) use Bernstein's inequality, and never below
  their value.

  Args:
    certificates: Rows of kind "proven", with labels, all of one norm.
    radii: Radii >= 0.
    failure_prob: rho, or None for no `lower_bound`.

  Returns:
    One dict per radius: radius, accuracy, interval and maybe lower_bound.

  Raises:
    ValueError: There is no row, or one that is claimed or has no label.
  """
  claimed = sum(row.kind != "proven" for row in certificates)
  if claimed:
    raise ValueError(
      f"Expected proven certificates only, received {claimed} claimed of"
      f" {len(certificates)}. A claimed radius is not certified: use"
      " claimed_accuracy, or leave those rows out."
    )
  curve = claimed_accuracy(certificates, radii)
  if failure_prob is not None:
    validate.open_probability(failure_prob=failure_prob)
    false_prob = max(1 - row.confidence for row in certificates)
    total = len(certificates)
    false = binomial.quantile(total, false_prob, 1 - failure_prob)
    for entry in curve:
      entry["lower_bound"] = max(0.0, entry["accuracy"] - false / total)
  return curve


def claimed_accuracy(
  certificates: Sequence[certificate.Certificate], radii: Sequence[float]
) -> list[dict[str, Any]]:
  """The same fractions for radii that nobody has proven.

  It counts rows of either kind, guarantees nothing, and is to be shown beside
  `certified_accuracy`, never in its place.
  """
  _check(certificates)
  total = len(certificates)
  sequential.check_radii(radii)
  curve = []
  for radius in map(float, radii):
    good = sum(row.correct and row.radius >= radius for row in certificates)
    curve.append(
      {
        "radius": radius,
        "accuracy": good / total,
        "interval": binomial.interval(good, total),
      }
    )
  return curve


def mean_certified_radius(
  certificates: Sequence[certificate.Certificate],
) -> float:
  """Mean radius, 0 for wrong rows: the area under the certified curve."""
  if any(row.kind != "proven" for row in certificates):
    raise ValueError(
      "Expected proven certificates only: a claimed radius is not certified."
    )
  _check(certificates)
  total = sum(row.radius for row in certificates if row.correct)
  return total / len(certificates)


def _check(certificates: Sequence[certificate.Certificate]) -> None:
  if not certificates:
    raise ValueError("Expected at least one certificate, received none.")
  missing = sum(row.label is None for row in certificates)
  if missing:
    raise ValueError(
      f"Expected a label in every certificate, received {missing} without."
      " Pass y when certifying."
    )
  norms = sorted({row.norm for row in certificates})
  if len(norms) > 1:
    raise ValueError(
      f"Expected certificates of one norm, received {norms}: their radii do"
      " not compare."
    )
