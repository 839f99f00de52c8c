"""The checks pass on a sound run and catch each way to be wrong."""

from __future__ import annotations

import pytest

from tests.report import conftest
from tests.report import leaks
from tf_privrob import report
from tf_privrob.report import consistency
from tf_privrob.report import results as results_lib

PRIVACY_ORDER, CLAIM, HISTORY, CLEAN, SIZE, STEPS, FALLS, CERTIFIED = range(8)
AUDITS, STATED, MEMBERSHIP, RADII = range(8, 12)


def _checks(path, files):
  folder = report.RunFolder(conftest.write_run(path, files))
  return consistency.checks(results_lib.read(folder))


def test_a_sound_run_raises_no_alarm(tmp_path, files):
  files["privacy.json"]["audited"] = 1.1
  checks = _checks(tmp_path, {**files, **leaks.files()})
  assert [check.status for check in checks] == ["pass"] * 12


def test_what_was_not_run_is_not_checked(tmp_path, files):
  checks = _checks(tmp_path, files)
  assert [check.status for check in checks[AUDITS:]] == ["not run"] * 4


def test_an_empty_folder_has_nothing_to_check(tmp_path):
  checks = consistency.checks(results_lib.read(report.RunFolder(tmp_path)))
  assert {check.status for check in checks} == {"not run"}


def _set(*path):
  """An edit of the files: the last argument goes where the others lead."""

  def edit(files):
    *keys, last, value = path
    node = files
    for key in keys:
      node = node[key]
    node[last] = value

  return edit


def _attack(index, *arguments):
  attack = conftest.attack(*arguments)
  return _set("metrics.json", "attacks", index, attack)


@pytest.mark.parametrize(
  ("index", "status", "edit"),
  [
    (PRIVACY_ORDER, "fail", _set("privacy.json", "audited", 2.99)),
    (CLAIM, "warn", _set("privacy.json", "proven", "dp_epsilon", 3.01)),
    (CLAIM, "warn", _set("privacy.json", "claimed", "dp_delta", 1e-6)),
    (CLAIM, "warn", _set("privacy.json", "proven", None)),
    (HISTORY, "warn", lambda files: conftest.prove(files, 2.9)),
    (
      CLEAN,
      "warn",
      _set("metrics.json", "clean", {"accuracy": 0.5, "count": 1000}),
    ),
    (SIZE, "warn", _attack(3, "pgd", "linf", 0.1, 190)),
    (STEPS, "warn", _attack(3, "pgd", "linf", 0.1, 165)),
    (
      FALLS,
      "warn",
      _set("metrics.json", "certified", "curve", 2, "accuracy", 0.72),
    ),
    # Another classifier: said, but no alarm.
    (CERTIFIED, "note", _attack(4, "pgd", "l2", 0.5, 10)),
  ],
)
def test_each_contradiction_is_caught(tmp_path, files, index, status, edit):
  edit(files)
  check = _checks(tmp_path, files)[index]
  assert check.status == status
  if status == "note":
    assert "smoothed classifier" in check.detail


def test_certain_radii_and_attacks_are_about_one_network(tmp_path, files):
  files["metrics.json"]["certified"].update(
    confidence=1.0, smoothing_stddev=None
  )
  check = _checks(tmp_path, files)[CERTIFIED]
  assert check.status == "pass"
  assert "smoothed" not in check.detail
  _attack(4, "pgd", "l2", 0.5, 10)(files)
  check = _checks(tmp_path, files)[CERTIFIED]
  assert check.status == "warn"
  assert "about the same network" in check.detail


def test_chance_raises_no_alarm(tmp_path, files):
  # 101 of 200 at size 0.1 against 103 at a larger size: within the intervals.
  files["metrics.json"]["attacks"].append(
    conftest.attack("pgd", "linf", 0.12, 103)
  )
  assert _checks(tmp_path, files)[SIZE].status == "pass"


def test_audit_of_a_model_without_a_bound_warns(tmp_path, files):
  files["privacy.json"].update(proven=None, audited=0.5)
  check = _checks(tmp_path, files)[PRIVACY_ORDER]
  assert check.status == "warn"
  assert "claimed (3, 1e-5), proven no finite bound known" in check.detail
  assert "audited >= 0.5" in check.detail


_SMALL = {"dp_epsilon": 0.3, "dp_delta": 1e-5}


def _audit(**changes):
  return _set("audit.json", "audits", 0, leaks.audit(**changes))


def _strategy(*arguments, **changes):
  entry = leaks.inference(*arguments, **changes)
  return _set("nonprivate/membership.json", "strategies", 0, entry)


@pytest.mark.parametrize(
  ("index", "status", "edit", "words"),
  [
    (AUDITS, "fail", _audit(proven=_SMALL), "refutes proven"),
    (AUDITS, "fail", _audit(claimed=_SMALL), "refutes claimed"),
    (AUDITS, "warn", _audit(proven=None), "below claimed, none proven"),
    (STATED, "warn", _set("privacy.json", "audited", None), "found >= 0.432"),
    (STATED, "warn", _set("privacy.json", "audited", 0.2), "found >= 0.432"),
    # Proven is dp_epsilon 1, 2 for a replaced example: (e^2 - 1) / (e^2 + 1)
    # = 0.762 is allowed.
    (MEMBERSHIP, "fail", _strategy(advantage=0.81), "surely above 0.770"),
    (MEMBERSHIP, "pass", _strategy(advantage=0.79), "advantage of 0.762"),
    # An oracle's interval is not one; with 1,000 each, 0.086 comes off.
    (MEMBERSHIP, "pass", _strategy("oracle", advantage=0.84), "0.840"),
    (MEMBERSHIP, "fail", _strategy("oracle", advantage=0.86), "above 0.774"),
    (MEMBERSHIP, "note", _set("privacy.json", "proven", None), "No privacy"),
    (
      RADII,
      "fail",
      lambda f: f.update({"certificate_audit.json": _radii(2)}),
      "a certificate is wrong",
    ),
    (
      RADII,
      "fail",
      lambda f: f.update({"certificate_audit.json": _radii(1, allowed=0.0)}),
      "a certificate is wrong",
    ),
    (
      RADII,
      "pass",
      lambda f: f.update({"certificate_audit.json": _radii(1)}),
      "within alpha",
    ),
    (
      RADII,
      "fail",
      lambda f: f.update({"certificate_audit.json": _radii(9, kind="claimed")}),
      "the claimed radii are refuted",
    ),
  ],
)
def test_each_refutation_is_caught(tmp_path, files, index, status, edit, words):
  files.update(leaks.files())
  files["privacy.json"]["audited"] = 0.5
  conftest.prove(files, 1.0)
  edit(files)
  check = _checks(tmp_path, files)[index]
  assert check.status == status
  assert words in check.detail


def _radii(violations, **changes):
  return leaks.certificate_audit(violations, **changes)
