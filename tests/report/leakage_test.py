"""What proven privacy allows, and what membership.json is read as."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.report import leaks
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
  """(5) by hand, and by randomised response on two neighbours in a row."""
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


def test_interval_of_a_strategy_is_its_bound():
  found = leakage.parse({"strategies": [leaks.inference(advantage=0.16)]})
  assert found.headline.least_advantage == pytest.approx(0.12)


def test_bound_of_an_oracle_by_hand():
  entry = leaks.inference("oracle", advantage=0.5, members=200)
  (item,) = leakage.parse({"strategies": [entry]}).strategies
  off = 2 * math.sqrt(math.log(40) / 400)
  assert item.least_advantage == pytest.approx(0.5 - off)


def test_bound_of_an_oracle_holds_where_an_interval_does_not():
  """Scores that say nothing, 300 times: the best threshold looks good.

  A bound may be above 0 in 5% of the cases; more than 30 of 300 are beyond
  chance. An interval of the chosen threshold's rates, advantage - 1.96
  sqrt(1 / (2 n)), is above 0 in about exp(-1.96^2 / 2) = 15% (Smirnov).
  """
  rng = np.random.default_rng(3)
  size, wrong, naive = 100, 0, 0
  for scores in rng.normal(size=(300, 2 * size)):
    signs = np.where(np.argsort(scores) < size, 1, -1)
    advantage = float(np.cumsum(signs[::-1]).max()) / size
    item = leakage.Inference(
      "oracle",
      "benign_confidence",
      "oracle",
      balanced_accuracy=(1 + advantage) / 2,
      advantage=advantage,
      num_members=size,
      num_nonmembers=size,
    )
    wrong += item.least_advantage > 0
    naive += advantage > 1.96 * math.sqrt(0.5 / size)
  assert wrong <= 30 < naive


def test_headline_is_the_strongest_that_is_not_an_oracle():
  found = leakage.parse(leaks.membership())
  assert found.headline.label == "I_A, held-out threshold"
  oracle = leakage.parse({"strategies": [leaks.inference("oracle")]})
  assert oracle.headline.oracle


def test_a_rate_that_could_not_be_measured_keeps_its_note():
  first, second = leakage.parse(leaks.membership()).headline.points
  assert first.tpr is None
  assert first.note == "needs 10,000 non-members"
  assert second.tpr == 0.0231


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"balanced_accuracy": 1.2}, r"balanced_accuracy in \[0, 1\].*1\.2"),
    ({"advantage": -2}, r"advantage in \[-1, 1\], received -2"),
    ({"auc": "high"}, r"auc in \[0, 1\]"),
    ({"roc": {"fpr": [0.1], "tpr": []}}, r"as many fpr as tpr.*1 and 0"),
    ({"roc": {"fpr": [3], "tpr": [1]}}, r"roc fpr in \[0, 1\]"),
  ],
)
def test_a_figure_that_is_none_is_refused(change, message):
  with pytest.raises(ValueError, match=message):
    leakage.parse({"strategies": [{**leaks.inference(), **change}]})


def test_no_strategy_is_refused():
  with pytest.raises(ValueError, match=r"at least one of strategies"):
    leakage.parse({"strategies": []})
