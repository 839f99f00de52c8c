"""What proven privacy allows membership inference to find."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tf_privrob import membership
from tf_privrob import privacy
from tf_privrob.report import leakage


@pytest.mark.parametrize(
  ("dp_epsilon", "dp_delta", "expected"),
  [
    (math.log(3), 0.0, 0.5),  # (3 - 1) / (3 + 1)
    (0.0, 0.0, 0.0),
    (0.0, 0.01, 0.01),  # total variation distance
    (math.log(3), 0.1, 0.55),  # (3 - 1 + 0.2) / 4
    (800.0, 1e-5, 1.0),  # e^800 overflows
  ],
)
def test_largest_advantage_by_hand(dp_epsilon, dp_delta, expected):
  budget = privacy.Budget(dp_epsilon, dp_delta)
  assert leakage.most_advantage(budget) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dp_epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("dp_delta", [0.0, 1e-5, 0.05])
def test_largest_advantage_is_that_of_the_best_allowed_test(
  dp_epsilon, dp_delta
):
  """(3) is the maximum over all FPR of what (1) and (2) allow."""
  budget = privacy.Budget(dp_epsilon, dp_delta)
  fpr = np.linspace(0, 1, 200_001)
  best = (leakage.most_tpr(budget, fpr) - fpr).max()
  assert leakage.most_advantage(budget) == pytest.approx(best, abs=2e-5)


def test_allowed_rates_by_hand_and_by_randomised_response():
  budget = privacy.Budget(math.log(3), 0.1)
  found = leakage.most_tpr(budget, [0.0, 0.1, 0.9])
  # e^dp_epsilon FPR + dp_delta; then 1 - (1 - FPR - dp_delta) / 3.
  np.testing.assert_allclose(found, [0.1, 0.4, 1.0], atol=1e-12)
  # Randomised response with odds 3 : 1 reaches (1/4, 3/4) and is ln 3-DP.
  pure = privacy.Budget(math.log(3), 0.0)
  assert leakage.most_tpr(pure, [0.25])[0] == pytest.approx(0.75)


def test_an_example_in_the_place_of_another_is_two_steps():
  """(4) by hand, and by randomised response on two neighbours in a row."""
  proven = privacy.Budget(math.log(3), 0.01)
  statement = privacy.PrivacyStatement(None, proven)
  found = leakage.replaced(statement)
  assert found.dp_epsilon == pytest.approx(math.log(9))
  assert found.dp_delta == pytest.approx(0.04)
  assert leakage.replaced(statement.replace(neighbouring="replace_one")) == (
    proven
  )
  assert leakage.replaced(statement.replace(proven=None)) is None
  assert leakage.replaced(None) is None
  large = statement.replace(proven=privacy.Budget(900.0, 1e-5))
  assert leakage.most_advantage(leakage.replaced(large)) == 1.0


@pytest.mark.parametrize("neighbouring", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("dp_epsilon", [0.0, 0.3, 3.0, 40.0])
def test_the_bound_is_that_of_the_membership_room(neighbouring, dp_epsilon):
  statement = privacy.PrivacyStatement(
    None, privacy.Budget(dp_epsilon, 1e-5), neighbouring=neighbouring
  )
  theirs = membership.advantage_bound(
    dp_epsilon, 1e-5, neighbouring, fixed_size=True
  )
  ours = leakage.most_advantage(leakage.replaced(statement))
  assert ours == pytest.approx(theirs.advantage, abs=1e-12)
