"""Only what is proven is promised; what is refuted or not run is said."""

from __future__ import annotations

import re

import pytest

from tests.report import conftest
from tests.report import leaks
from tf_privrob import report
from tf_privrob.report import consistency
from tf_privrob.report import promises
from tf_privrob.report import results as results_lib


def _find(path, files):
  folder = report.RunFolder(conftest.write_run(path, files))
  results = results_lib.read(folder)
  return promises.find(results, consistency.checks(results))


@pytest.fixture
def everything(files):
  files.update(leaks.files())
  files["privacy.json"]["audited"] = 0.5
  return files


def test_a_sound_run_promises_what_is_proven(tmp_path, everything):
  found = _find(tmp_path, everything)
  private, robust = found.may
  assert "(2.99, 1e-5)-differentially private" in private
  assert "adding or removing any one training example" in private
  assert "to be read with its 1 caveat." in private
  assert "On 71.0% of 100 test examples" in robust
  assert "below 0.25" in robust
  assert "each with confidence 99.9%" in robust
  measured = " ".join(found.measured)
  for words in (
    "93.4% of 1,000",
    "pgd, left 50.5%",
    "dp_epsilon of at least 0.5",
    "I_A, held-out threshold, was right 60.5%",
    "broke none of them",
  ):
    assert words in measured
  # (1 + 0.99492) / 2, rounded up
  assert "the proven privacy allows 99.8%" in measured
  (only,) = found.must_not
  assert only.startswith("That a publication of training statistics under")


def test_an_empty_folder_promises_nothing(tmp_path):
  results = results_lib.read(report.RunFolder(tmp_path))
  found = promises.find(results, consistency.checks(results))
  assert found.may == (promises.NOTHING,)
  assert found.measured == ()
  (only,) = found.must_not
  for part in ("privacy statement", "clean accuracy", "radii", "membership"):
    assert part in only


def _privacy(**changes):
  return lambda files: files["privacy.json"].update(changes)


def _file(name, payload):
  return lambda files: files.update({name: payload})


@pytest.mark.parametrize(
  ("edit", "absent", "words"),
  [
    (_privacy(proven=None), "private", "no theorem is known to bound"),
    (
      _privacy(audited=2.99),
      "private",
      "an audit demonstrated more leakage than the proof",
    ),
    (
      _file("audit.json", {"audits": [leaks.audit(verdict="refutes proven")]}),
      "private",
      "One-run audit demonstrated more",
    ),
    (
      _file(
        "nonprivate/membership.json",
        {
          "strategies": [
            leaks.inference(advantage=1.0)
            | {"advantage_interval": [0.996, 1.0]}
          ]
        },
      ),
      "private",
      "infers membership better than the proof allows",
    ),
    (
      _file("certificate_audit.json", leaks.certificate_audit(5)),
      "alters its answer",
      "The certified radii: attacks within them changed 5 of 100",
    ),
  ],
)
def test_what_is_refuted_is_not_promised(
  tmp_path, everything, edit, absent, words
):
  edit(everything)
  found = _find(tmp_path, everything)
  assert absent not in " ".join(found.may)
  assert words in " ".join(found.must_not)


def test_claimed_radii_are_not_promised(tmp_path, everything):
  everything["metrics.json"]["certified"]["kind"] = "claimed"
  found = _find(tmp_path, everything)
  assert len(found.may) == 1
  assert "The claimed radii: no theorem known to us" in " ".join(found.must_not)
  assert "certified" not in " ".join([*found.may, *found.measured]).lower()


def test_a_claim_below_the_proof_is_named_as_unproven(tmp_path, everything):
  everything["privacy.json"]["claimed"]["dp_epsilon"] = 0.777
  found = _find(tmp_path, everything)
  assert "0.777" not in " ".join([*found.may, *found.measured])
  (named,) = [text for text in found.must_not if "0.777" in text]
  assert re.search(
    r"not proven \(claimed \(0\.777, 1e-5\), proven \(2\.99, 1e-5\), audited"
    r" >= 0\.5\)",
    named,
  )
  everything["privacy.json"]["audited"] = 0.8
  refuted = " ".join(_find(tmp_path, everything).must_not)
  assert "The claimed privacy: an audit refutes it" in refuted


def test_certainty_is_said_where_nothing_is_drawn(tmp_path, everything):
  everything["metrics.json"]["certified"]["confidence"] = 1.0
  robust = _find(tmp_path, everything).may[1]
  assert "the network itself is right" in robust
  assert robust.endswith("with certainty.")
