"""Intervals of what an attack achieves, each with its name.

All hold for every distribution of scores and every number of points, with at
least the stated confidence; none is an approximation for large samples.
"""

from __future__ import annotations

import math

from tf_privrob import binomial

Interval = tuple[float, float]

FIXED = (
  "two Clopper-Pearson intervals with Bonferroni's correction; the threshold"
  " was chosen without these points"
)
UNIFORM = (
  "Dvoretzky-Kiefer-Wolfowitz, for the best of all thresholds at once: the"
  " threshold was chosen on these very points"
)
AREA = "McDiarmid's inequality, for every distribution of scores"


def balanced(
  caught: int, members: int, alarms: int, nonmembers: int, confidence: float
) -> Interval:
  """(TPR + 1 - FPR) / 2 at a threshold that these points did not choose.

  Each rate lies in its Clopper-Pearson interval of failure probability
  (1 - confidence) / 2, hence both do with the confidence asked for.
  """
  each = 1 - (1 - confidence) / 2
  tpr = binomial.interval(caught, members, each)
  fpr = binomial.interval(alarms, nonmembers, each)
  return (tpr[0] + 1 - fpr[1]) / 2, (tpr[1] + 1 - fpr[0]) / 2


def best(
  accuracy: float, members: int, nonmembers: int, confidence: float
) -> Interval:
  """max_tau (TPR + 1 - FPR) / 2, from its value on these very points.

  By Dvoretzky, Kiefer, Wolfowitz and Massart an empirical distribution of n
  points is off by at most sqrt(ln(2 / a) / (2 n)) everywhere at once, but for a
  probability a. With a = (1 - confidence) / 2 for members and for non-members,
  TPR - FPR is off by at most the sum, at all thresholds, and so is its maximum.
  """
  failure = (1 - confidence) / 2
  slack = sum(
    math.sqrt(math.log(2 / failure) / (2 * count))
    for count in (members, nonmembers)
  )
  return max(accuracy - slack / 2, 0.5), min(accuracy + slack / 2, 1.0)


def area(
  value: float, members: int, nonmembers: int, confidence: float
) -> Interval:
  """Area under the ROC curve.

  Another member changes it by at most 1 / n, another non-member by at most
  1 / m, hence (McDiarmid) P(|off| >= t) <= 2 exp(-2 t^2 / (1 / n + 1 / m)).
  DeLong's interval is narrower, but only asymptotically right.
  """
  spread = 1 / members + 1 / nonmembers
  slack = math.sqrt(math.log(2 / (1 - confidence)) * spread / 2)
  return max(value - slack, 0.0), min(value + slack, 1.0)
