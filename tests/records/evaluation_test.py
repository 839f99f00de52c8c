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
  del entry["kind"]  # versions that knew of no claims
  assert records.Radii.from_json(entry).kind == "proven"


def test_metrics_of_an_earlier_version_are_read_and_written_as_new():
  files = conftest.contents()["metrics.json"]
  before = {**files, "smoothed": files["certified"]}
  del before["certified"]
  found = records.Metrics.from_json(before)
  assert found == records.Metrics.from_json(files)
  assert "smoothed" not in found.to_json()
