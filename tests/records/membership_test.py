"""What membership.json is read as, and the bounds of its strategies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.report import leaks
from tf_privrob import records


def test_interval_of_a_strategy_is_its_bound():
  found = records.Membership.from_json(
    {"strategies": [leaks.inference(advantage=0.16)]}
  )
  assert found.headline.least_advantage == pytest.approx(0.12)


def test_bound_of_an_oracle_by_hand():
  entry = leaks.inference("oracle", advantage=0.5, members=200)
  (item,) = records.Membership.from_json({"strategies": [entry]}).strategies
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
    item = records.Inference(
      strategy="oracle",
      balanced_accuracy=(1 + advantage) / 2,
      advantage=advantage,
      num_members=size,
      num_nonmembers=size,
    )
    wrong += item.least_advantage > 0
    naive += advantage > 1.96 * math.sqrt(0.5 / size)
  assert wrong <= 30 < naive


def test_headline_is_the_strongest_that_is_not_an_oracle():
  found = records.Membership.from_json(leaks.membership())
  assert found.headline.label == "I_A, held-out threshold"
  oracle = records.Membership.from_json(
    {"strategies": [leaks.inference("oracle")]}
  )
  assert oracle.headline.oracle


def test_a_rate_that_could_not_be_measured_keeps_its_note():
  first, second = records.Membership.from_json(
    leaks.membership()
  ).headline.points
  assert first.tpr is None
  assert first.note == "needs 10,000 non-members"
  assert second.tpr == 0.0231


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"balanced_accuracy": 1.2}, r"balanced_accuracy in \[0, 1\].*1\.2"),
    ({"advantage": -2}, r"advantage in \[-1, 1\], received -2"),
    ({"auc": "high"}, r"auc in \[0, 1\]"),
    ({"auc": 0.5}, r"auc in its interval \[0\.586, 0\.636\], received 0\.5"),
    ({"interval": [0, 0.5]}, r"balanced_accuracy in its interval \[0, 0\.5\]"),
    ({"advantage_interval": [-1, 0]}, r"advantage in its interval \[-1, 0\]"),
    (
      {"tpr_at_fpr": [{"fpr": 0.01, "tpr": 0.5, "interval": [0, 0.1]}]},
      r"tpr in its interval \[0, 0\.1\], received 0\.5",
    ),
    (
      {"advantage": 0.0, "advantage_interval": None},
      r"advantage 2 balanced_accuracy - 1, received 0 and 0\.58",
    ),
    ({"roc": {"fpr": [0.1], "tpr": []}}, r"as many fpr as tpr.*1 and 0"),
    ({"roc": {"fpr": [3], "tpr": [1]}}, r"roc fpr 1 in \[0, 1\]"),
  ],
)
def test_a_figure_that_is_none_is_refused(change, message):
  with pytest.raises(ValueError, match=message):
    records.Membership.from_json(
      {"strategies": [{**leaks.inference(), **change}]}
    )


def test_no_strategy_is_refused():
  with pytest.raises(ValueError, match=r"at least one of strategies"):
    records.Membership.from_json({"strategies": []})
