"""What an evaluation measured: intervals, claims, folders of old versions."""

from __future__ import annotations

import pytest

from tests.report import conftest
from tf_privrob import binomial
from tf_privrob import records


def test_interval_of_the_file_wins_and_is_computed_where_absent():
  given = records.Accuracy.from_json(
    {"accuracy": 0.5, "count": 10, "interval": [0.4, 0.6]}
  )
  assert given.interval == (0.4, 0.6)
  absent = records.Accuracy.from_json({"accuracy": 0.5, "count": 10})
  assert absent.interval == binomial.interval(5, 10)
  assert records.Accuracy.from_json({"accuracy": 0.5}).interval is None


_OFF = {"accuracy": 0.7, "count": 500, "interval": [0.118, 0.182]}


@pytest.mark.parametrize(
  "read",
  [
    lambda: records.Accuracy.from_json(_OFF),
    lambda: records.AttackResult.from_json({**_OFF, "attack_eps": 0.1}),
    lambda: records.Radii.from_json({"curve": [{**_OFF, "radius": 0.1}]}),
  ],
)
def test_an_accuracy_lies_in_its_interval(read):
  message = r"^expected accuracy in its interval \[0\.118, 0\.182\].*0\.7$"
  with pytest.raises(ValueError, match=message):
    read()


@pytest.mark.parametrize(
  "accuracy", [None, "0.5", 1.5, -0.1, float("nan"), True]
)
def test_accuracy_that_is_none_is_refused(accuracy):
  with pytest.raises(ValueError, match=r"expected accuracy in \[0, 1\]"):
    records.Accuracy.from_json({"accuracy": accuracy})


@pytest.mark.parametrize(
  ("kinds", "expected"),
  [
    ((), "proven"),
    (("proven",), "proven"),
    (("proven", "claimed"), "claimed"),
    (("unknown",), "claimed"),
  ],
)
def test_one_claimed_radius_makes_the_curve_a_claim(kinds, expected):
  entry = conftest.contents()["metrics.json"]["certified"]
  assert records.Radii.from_json(entry).of_rows(kinds).kind == expected


@pytest.mark.parametrize("kind", [None, "certified", "Proven"])
def test_radii_that_are_not_said_to_be_proven_are_claims(kind):
  entry = {**conftest.contents()["metrics.json"]["certified"], "kind": kind}
  assert records.Radii.from_json(entry).kind == "claimed"
  del entry["kind"]
  assert records.Radii.from_json(entry).kind == "claimed"


def test_a_result_takes_the_place_of_the_one_of_its_attack_and_size():
  weak = conftest.attack("pgd", "linf", 0.1, 150, steps=1)
  other = conftest.attack("pgd", "linf", 0.2, 99)
  asked = [{"name": "pgd", "norm": "linf", "attack_eps": 0.1, "steps": 40}]
  asked[0].update(count=200, seed=None)
  found = records.Metrics.from_json({"attacks": [weak, other], "asked": asked})
  assert found.missing == found.asked
  row = records.AttackResult.from_json({**weak, "steps": 40, "accuracy": 0.25})
  found = found.with_result(row)
  assert [row.accuracy for row in found.attacks] == [99 / 200, 0.25]
  assert found.missing == ()


def test_metrics_of_an_earlier_version_are_read_and_written_as_new():
  files = conftest.contents()["metrics.json"]
  before = {**files, "smoothed": files["certified"]}
  del before["certified"]
  found = records.Metrics.from_json(before)
  assert found == records.Metrics.from_json(files)
  assert "smoothed" not in found.to_json()
