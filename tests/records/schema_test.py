"""Every record round-trips; whatever else a file holds is one sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st

from tf_privrob import records
from tf_privrob.records import schema

_KINDS = [getattr(records, name) for name in records.__all__]
_PLAIN = st.recursive(
  st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
  lambda inner: (
    st.lists(inner, max_size=2)
    | st.dictionaries(st.text(max_size=3), inner, max_size=2)
  ),
  max_leaves=4,
)


def _numbers(hint):
  bounds = getattr(hint, "__metadata__", (schema.Within(-1e6, 1e6),))[0]
  high = min(bounds.high, 1e6)
  if hint is int or getattr(hint, "__origin__", None) is int:
    return st.integers(int(bounds.low), int(high))
  return st.floats(bounds.low, high)


def _values(hint, name=""):
  """Values of a field, by its annotation."""
  if name == "dp_delta":
    return st.floats(0, 0.99)
  arguments = typing.get_args(hint)
  if type(None) in arguments:
    (inner,) = set(arguments) - {type(None)}
    return st.none() | _values(inner)
  if hint == schema.Interval:
    pair = st.tuples(st.floats(-1, 1), st.floats(-1, 1))
    return pair.map(sorted).map(tuple)
  if typing.get_origin(hint) is tuple:
    return st.lists(_values(arguments[0]), max_size=3).map(tuple)
  if dataclasses.is_dataclass(hint):
    return _records(hint)
  if typing.get_origin(hint) in (dict, Mapping):
    return st.dictionaries(st.text(max_size=3), _PLAIN, max_size=3)
  if hint is str:
    return st.text(max_size=5) | st.sampled_from(["proven", "violated"])
  if hint is bool:
    return st.booleans()
  return _PLAIN if hint is typing.Any else _numbers(hint)


def _made(kind, fields):
  try:
    return kind(**fields)
  except ValueError:  # figures that contradict each other
    return None


def _records(kind):
  hints = schema.hints_of(kind)
  fields = {
    field.name: _values(hints[field.name], field.name)
    for field in dataclasses.fields(kind)
  }
  made = st.fixed_dictionaries(fields).map(lambda found: _made(kind, found))
  return made.filter(lambda record: record is not None)


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
@settings(
  max_examples=40,
  deadline=None,
  suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_record_round_trips(kind, data):
  if kind is records.CertificateAudit:
    record = data.draw(_certificate_audits())
  elif kind is records.Epoch:
    figures = st.dictionaries(st.sampled_from("abc"), _PLAIN)
    record = records.Epoch(data.draw(st.floats(0, 9)), data.draw(figures))
  else:
    record = data.draw(_records(kind))
  text = json.dumps(record.to_json(), allow_nan=False)
  again = kind.from_json(json.loads(text))
  assert again == record
  assert again.to_json() == record.to_json()


@st.composite
def _certificate_audits(draw):
  """Counts and factors that may be."""
  counts = sorted(draw(st.lists(st.integers(0, 50), min_size=4, max_size=4)))
  hints = schema.hints_of(records.CertificateAudit)
  fields = {
    field.name: draw(_values(hints[field.name]))
    for field in dataclasses.fields(records.CertificateAudit)
    if field.name not in ("count", "violations", "inflated")
  }
  rows = zip(({"factor": 1.5}, {"factor": 3.0}), counts[1:])
  inflated = [{**row, "violations": count} for row, count in rows]
  kind = typing.get_args(hints["inflated"])[0]
  return records.CertificateAudit(
    count=counts[3],
    violations=counts[0],
    inflated=tuple(map(kind.from_json, inflated)),
    **fields,
  )


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None)
@given(payload=_PLAIN, name=st.integers(0, 50), wrong=_PLAIN)
def test_anything_else_is_one_sentence(kind, payload, name, wrong):
  keys = [schema.key_of(field) for field in dataclasses.fields(kind)]
  damaged = {keys[name % len(keys)]: wrong, keys[-1]: payload}
  for found in (payload, damaged):
    said, record = "expected", None
    try:
      record = kind.from_json(found)
    except ValueError as error:
      said = str(error)
    assert "\n" not in said
    assert said.lower().startswith("expected")
    assert record is None or isinstance(record, kind)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"accuracy": True}, r"expected accuracy in \[0, 1\], a number, .* True"),
    ({"count": 3.5}, "expected count >= 0, a whole number, received 3.5"),
    ({"count": -1}, "expected count >= 0, received -1"),
    ({"interval": [0.2]}, "expected interval to be two numbers that increase"),
    ({"interval": [0.9, 0.1]}, "expected interval to be two numbers"),
    ({"warnings": "masked"}, "expected warnings to be a list"),
    ({"warnings": [1]}, "expected warnings 1 to be text, received 1"),
    ({"name": ["pgd"]}, "expected name to be text"),
    ({"attack_eps": math.inf}, "expected attack_eps >= 0, a number"),
  ],
)
def test_a_field_that_is_damaged_is_named(change, message):
  entry = {"accuracy": 0.5, "attack_eps": 0.1, **change}
  with pytest.raises(ValueError, match=message):
    records.AttackResult.from_json(entry)


def test_whole_numbers_may_be_written_with_a_point():
  found = records.Accuracy.from_json({"accuracy": 1, "count": 200.0})
  assert found.count == 200
  assert isinstance(found.count, int)


def test_a_field_of_an_inner_record_is_named_with_its_place():
  row = {"accuracy": 0.5, "attack_eps": 0.1}
  with pytest.raises(ValueError, match=r"expected attacks 2 accuracy in"):
    records.Metrics.from_json({"attacks": [row, {**row, "accuracy": 7}]})


def test_keys_of_later_versions_are_no_fault():
  found = records.Accuracy.from_json({"accuracy": 0.5, "mood": "good"})
  assert found.to_json() == {"accuracy": 0.5, "count": None, "interval": None}


def test_numbers_are_what_json_knows():
  assert schema.as_number(3) == 3
  for other in (True, "3", math.nan, math.inf, None, [1]):
    assert schema.as_number(other) is None
