"""The certificate's forms, and what it refuses to say."""

import dataclasses
import json
import math

import pytest

from tf_privrob import certify
from tf_privrob.certify import certificate

PROVEN = certify.Certificate(
  index=7,
  label=3,
  prediction=3,
  radius=0.1 + 0.2,
  norm="l2",
  abstained=False,
  confidence=0.999,
  kind="proven",
  method="randomised_smoothing",
  seconds=1 / 3,
  num_draws=10_100,
)
ABSTAINED = dataclasses.replace(
  PROVEN, prediction=-1, radius=0.0, abstained=True, stopped="abandoned"
)
CLAIMED = dataclasses.replace(
  PROVEN, kind="claimed", method="dpal", norm="linf"
)
EXACT = dataclasses.replace(
  PROVEN, confidence=1.0, method="linear_margin", label=None, radius=math.inf
)
ROWS = [PROVEN, ABSTAINED, CLAIMED, EXACT]


@pytest.mark.parametrize("row", ROWS)
def test_json_and_csv_round_trips(row):
  text = json.dumps(row.to_json(), allow_nan=False)
  assert certify.Certificate.from_json(text) == row
  assert certify.Certificate.from_json(row.to_json()) == row
  assert certify.Certificate.from_csv_row(row.to_csv_row()) == row


def test_csv_states_whether_the_class_is_right():
  column = certificate.csv_fields().index("correct")
  cells = [row.to_csv_row()[column] for row in ROWS]
  assert cells == ["1", "0", "1", ""]


def test_correct():
  assert PROVEN.correct is True
  assert dataclasses.replace(PROVEN, label=4).correct is False
  assert ABSTAINED.correct is False
  assert EXACT.correct is None


def test_text_states_the_probability():
  text = str(PROVEN)
  assert "certified radius 0.3 in l2" in text
  assert "With probability at least 0.999" in text
  assert "every input within l2 distance 0.3" in text
  assert "Stopped" not in text
  assert "Without randomness" in str(EXACT)
  sure = dataclasses.replace(PROVEN, confidence=1 - 1e-9)
  assert "at least 0.999999999 " in str(sure)  # never rounded up to 1
  assert "abstains; no class and no radius" in str(ABSTAINED)
  assert "Stopped early after 10,100 draws" in str(ABSTAINED)


def test_a_claimed_radius_is_never_called_certified():
  text = str(CLAIMED)
  assert "claimed radius 0.3 in linf" in text
  assert "not proven" in text
  assert "certif" not in text


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"norm": "l3"}, "Unknown norm='l3'"),
    ({"kind": "prooven"}, "Did you mean 'proven'"),
    ({"stopped": "bored"}, "Unknown stopped"),
    ({"confidence": 0.0}, "0 < confidence"),
    ({"radius": math.nan}, "radius=nan >= 0"),
    ({"radius": -1.0}, "radius=-1.0 >= 0"),
    ({"prediction": -1}, "exactly when abstained"),
    ({"prediction": -1, "abstained": True}, "radius 0 for an abstention"),
  ],
)
def test_contradictions_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(PROVEN, **change)


def test_malformed_forms_are_refused():
  with pytest.raises(ValueError, match="16 hexadecimal digits or empty"):
    dataclasses.replace(PROVEN, model="my model")
  with pytest.raises(ValueError, match="Expected the fields"):
    certify.Certificate.from_json({"index": 1})
  with pytest.raises(ValueError, match="Expected 16 cells"):
    certify.Certificate.from_csv_row(["1"])
  row = PROVEN.to_csv_row()
  row[5] = "yes"
  with pytest.raises(ValueError, match="abstained='yes'"):
    certify.Certificate.from_csv_row(row)
