"""Verdicts of audits, found again from their figures."""

from __future__ import annotations

import math

import pytest

from tests.report import leaks
from tf_privrob import binomial
from tf_privrob import records

SMALL = {"dp_epsilon": 0.4, "dp_delta": 1e-5}


@pytest.mark.parametrize(
  ("changes", "verdict"),
  [
    ({}, "below proven"),
    ({"claimed": SMALL}, "refutes claimed"),
    ({"claimed": SMALL, "proven": SMALL}, "refutes proven"),
    ({"proven": None}, "below claimed, none proven"),
    ({"proven": None, "claimed": None}, "no claim"),
    # (0.4, 1e-5)-DP is (0.4, 1e-3)-DP, but says nothing at dp_delta 1e-7.
    ({"proven": SMALL, "dp_delta": 1e-3}, "refutes proven"),
    (
      {"proven": SMALL, "dp_delta": 1e-7},
      "at a smaller dp_delta than proven: not comparable",
    ),
    # The worse of the file's own verdict and the figures counts.
    ({"verdict": "refutes proven"}, "refutes proven"),
    ({"verdict": "below proven", "claimed": SMALL}, "refutes claimed"),
  ],
)
def test_verdict_of_a_privacy_audit(changes, verdict):
  assert records.Audit.from_json(leaks.audit(**changes)).verdict == verdict


@pytest.mark.parametrize(
  ("violations", "changes", "verdict"),
  [
    (0, {}, "no violation"),
    # 1 of 100 at 0.001 each: P = 0.095, chance. 2: P = 0.005, not chance.
    (1, {}, "within alpha"),
    (2, {}, "violated"),
    (1, {"confidence": 1.0, "allowed": 0.0}, "violated"),
    (1, {"confidence": 1.0, "allowed": None}, "violated"),
    (1, {"confidence": None, "allowed": None}, "violated"),
    # Whatever a file says of its interval, one is too many.
    (
      1,
      {"confidence": 1.0, "allowed": 0.0, "interval": [0.0, 0.05]},
      "violated",
    ),
    (0, {"confidence": 1.0, "allowed": 0.0}, "no violation"),
    (1, {"verdict": "violated"}, "violated"),
    (2, {"verdict": "within alpha"}, "violated"),
  ],
)
def test_verdict_of_a_certificate_audit(violations, changes, verdict):
  entry = leaks.certificate_audit(violations, **changes)
  assert records.CertificateAudit.from_json(entry).verdict == verdict


def test_violations_within_alpha_are_those_that_chance_explains():
  for violations in range(1, 8):
    entry = leaks.certificate_audit(violations, allowed=0.01)
    found = records.CertificateAudit.from_json(entry)
    by_chance = binomial.interval(violations, 100)[0] <= 0.01
    assert (found.verdict == "within alpha") is by_chance


def test_radii_of_unknown_kind_are_claims():
  for kind in (None, "certified", "claimed"):
    entry = leaks.certificate_audit(kind=kind)
    assert not records.CertificateAudit.from_json(entry).proven
  assert records.CertificateAudit.from_json(leaks.certificate_audit()).proven


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"violations": 101}, r"0 <= violations <= count, received 101 and 100"),
    ({"violations": None}, r"violations >= 0, a whole number, received None"),
    ({"count": "many"}, r"count >= 0, a whole number, received 'many'"),
  ],
)
def test_counts_that_are_none_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    records.CertificateAudit.from_json({**leaks.certificate_audit(), **changes})


def _inflated(*counts):
  pairs = zip((1.1, 1.5, 3.0, 10.0), counts)
  return [{"factor": f, "violations": n} for f, n in pairs]


@pytest.mark.parametrize(
  ("changes", "detectable"),
  [
    ({}, 3.0),  # 1 of 100 at 0.001 each is chance, 55 are not
    ({"allowed": 0.0}, 1.5),
    ({"inflated": _inflated(0, 0, 0, 1)}, math.inf),
    ({"inflated": _inflated(0, 0, 0, 0), "allowed": 0.0}, math.inf),
    ({"inflated": None}, math.inf),
    # The worse of the file's own figure and ours counts.
    ({"detectable": 10.0}, 10.0),
    ({"detectable": 1.1}, 3.0),
    ({"detectable": None}, math.inf),
  ],
)
def test_what_an_audit_could_have_seen(changes, detectable):
  found = records.CertificateAudit.from_json(leaks.certificate_audit(**changes))
  assert found.detectable == detectable


@pytest.mark.parametrize(
  "inflated",
  [
    _inflated(0, 3, 2, 5),
    _inflated(0, 3, 5, 101),
    [{"factor": 3.0, "violations": 0}, {"factor": 1.1, "violations": 0}],
    [{"factor": 0.5, "violations": 0}],
  ],
)
def test_impossible_counts_of_inflated_radii_are_refused(inflated):
  with pytest.raises(
    ValueError, match="expected factors above 1 that increase"
  ):
    records.CertificateAudit.from_json(
      leaks.certificate_audit(inflated=inflated)
    )


def test_a_factor_without_a_count_is_refused():
  entry = leaks.certificate_audit(inflated=[{"factor": 2.0}])
  with pytest.raises(ValueError, match=r"inflated 1 violations >= 0"):
    records.CertificateAudit.from_json(entry)


@pytest.mark.parametrize("audited", [None, -1, "high", float("nan")])
def test_an_audit_without_a_figure_is_refused(audited):
  with pytest.raises(ValueError, match=r"expected audited >= 0"):
    records.Audit.from_json(leaks.audit(audited=audited))
