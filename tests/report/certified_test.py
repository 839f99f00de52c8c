"""A curve of radii is shown where its rows give the same one."""

from __future__ import annotations

import dataclasses

import pytest

from tests.report import conftest
from tests.report import leaks
from tf_privrob import binomial
from tf_privrob import certify
from tf_privrob import files as files_lib
from tf_privrob import randomness
from tf_privrob import report
from tf_privrob.report import card
from tf_privrob.report import results as results_lib
from tf_privrob.report import scalars

_RADII = (0.0, 0.25, 0.5)
_SETTINGS = {"smoothing_stddev": 0.25, "num_estimation": 10_000}


def _row(index, radius, right=True, **changes):
  about = {
    "index": index,
    "label": 3,
    "prediction": 3 if right else certify.ABSTAIN,
    "radius": radius,
    "norm": "l2",
    "abstained": not right,
    "confidence": 0.999,
    "kind": "proven",
    "method": "randomised_smoothing",
    "model": "0123456789abcdef",
  }
  return certify.Certificate(**{**about, **changes})


_ROWS = [
  _row(0, 0.61),
  _row(1, 0.0, right=False),
  _row(2, 0.3, prediction=5),
  _row(3, 0.27),
]


@pytest.fixture
def run(tmp_path, files):
  """A run folder with the certificates of four inputs, and their curve."""
  files["metrics.json"]["certified"] = {
    **_SETTINGS,
    "kind": "proven",
    "norm": "l2",
    "method": "randomised_smoothing",
    "model": "0123456789abcdef",
    "num_selection": 100,
    "confidence": 0.999,
    "count": 4,
    "abstained": 1,
    "mean_radius": certify.mean_certified_radius(_ROWS),
    "curve": certify.certified_accuracy(_ROWS, _RADII),
    "seconds": 1.0,
  }
  files["certificate_audit.json"] = leaks.certificate_audit()
  path = conftest.write_run(tmp_path / "run", files)
  _write_rows(path, _ROWS)
  files_lib.write_json(path / "certificates.csv.json", {"settings": _SETTINGS})
  return path


def _write_rows(path, rows):
  lines = [certify.certificate.csv_fields()]
  lines += [row.to_csv_row() for row in rows]
  text = "".join(",".join(line) + "\n" for line in lines)
  (path / "certificates.csv").write_text(text)


def _change(path, edit):
  metrics = files_lib.read_json(path / "metrics.json")
  edit(metrics["certified"])
  files_lib.write_json(path / "metrics.json", metrics)


def _read(path):
  return results_lib.read(report.RunFolder(path))


def test_the_curve_of_the_rows_is_shown(run):
  found = _read(run)
  assert found.problems == ()
  assert found.smoothed.proven
  accuracies = [point.accuracy for point in found.smoothed.curve]
  assert accuracies == [0.5, 0.5, 0.25]
  assert found.certificate_audit.proven


def _point(**changes):
  return lambda entry: entry["curve"][2].update(changes)


@pytest.mark.parametrize(
  ("edit", "named"),
  [
    (lambda entry: entry.update(confidence=1), "confidence"),
    (lambda entry: entry.update(norm="linf"), "norm"),
    (lambda entry: entry.update(mean_radius=0.5), "mean_radius"),
    (lambda entry: entry.update(smoothing_stddev=0.5), "smoothing_stddev"),
    (lambda entry: entry.update(num_estimation=10**6), "num_estimation"),
    (lambda entry: entry.update(abstained=0), "abstained"),
    (lambda entry: entry.update(count=400), "count"),
    (lambda entry: entry.update(model=None, confidence=1), "confidence"),
    (lambda entry: entry.update(model="f" * 16), "model"),
    (_point(accuracy=1.0, interval=[1.0, 1.0]), "curve"),
    (_point(interval=[0.24, 0.26]), "curve"),
    (_point(radius=0.7), "curve"),
  ],
)
def test_a_curve_that_is_not_that_of_its_rows_is_not_shown(run, edit, named):
  _change(run, edit)
  found = _read(run)
  assert found.smoothed is None
  (problem,) = found.problems
  assert f"expected the {named} that the 4 rows" in problem
  assert not found.certificate_audit.proven


@pytest.mark.parametrize(
  ("rows", "named"),
  [
    ([_row(0, 6.1), *_ROWS[1:]], "mean_radius"),
    ([*_ROWS[:3], _row(3, 0.27, label=4)], "curve"),
    (_ROWS[:3], "count"),
    ([_row(4, 0.27, confidence=1.0), *_ROWS[:3]], "rows of one confidence"),
    ([_row(4, 0.27, norm="linf"), *_ROWS[:3]], "rows of one norm"),
    ([_row(4, 0.27, model="f" * 16), *_ROWS[:3]], "rows of one model"),
    ([], "rows of one model"),
  ],
)
def test_rows_that_do_not_make_the_curve_take_it_away(run, rows, named):
  _write_rows(run, rows)
  found = _read(run)
  assert found.smoothed is None
  (problem,) = found.problems
  assert named in problem
  assert "nothing certified is shown. Certify again" in problem


def test_a_curve_of_an_earlier_version_is_counted_as_well(run):
  """Neither intervals nor the model, settings or norm of the rows."""

  def older(entry):
    for name in ("model", "norm", "count", "mean_radius", "method"):
      del entry[name]
    for point in entry["curve"]:
      del point["interval"]

  _change(run, older)
  (run / "certificates.csv.json").unlink()
  assert _read(run).smoothed.proven
  _change(run, lambda entry: entry["curve"][0].update(accuracy=0.75))
  assert _read(run).smoothed is None


def test_without_rows_the_curve_stands_alone(run):
  (run / "certificates.csv").unlink()
  found = _read(run)
  assert found.smoothed.proven
  assert found.smoothed.curve[2].interval == binomial.interval(1, 4)


# Draws of a seed.


def _seeded(path, rows, condition):
  _write_rows(path, rows)
  _change(path, lambda entry: entry.update(condition=condition))
  return report.write(path)


def test_the_condition_of_a_seed_stands_wherever_radii_do(run):
  rows = [
    dataclasses.replace(row, condition=randomness.SEEDED) for row in _ROWS
  ]
  _seeded(run, rows, randomness.SEEDED)
  for name in ("report.html", "report.md", "report.json"):
    text = (run / name).read_text().lower()
    assert randomness.SEEDED in text, name
  summary = card.summary(_read(run))
  assert f"each, {randomness.SEEDED}" in summary
  names = scalars.figures(_read(run))
  beside = "_".join(randomness.SEEDED.split())
  assert f"report/certified_accuracy_{beside}" in names
  assert not [n for n in names if "certified" in n and beside not in n]


def test_a_condition_that_was_taken_out_of_the_metrics_is_missed(run):
  rows = [
    dataclasses.replace(row, condition=randomness.SEEDED) for row in _ROWS
  ]
  _seeded(run, rows, "")
  found = _read(run)
  assert found.smoothed is None
  assert "condition" in found.problems[0]


def test_no_condition_where_there_is_no_seed(run):
  report.write(run)
  for name in ("report.html", "report.md", "report.json"):
    assert randomness.SEEDED not in (run / name).read_text().lower()


@pytest.mark.parametrize("confidence", [0.999, 1.0])
def test_rows_of_an_earlier_version_had_a_seed(run, confidence):
  """It was 0 where nobody chose one, and no column said so."""
  rows = [dataclasses.replace(row, confidence=confidence) for row in _ROWS]
  _write_rows(run, rows)
  _change(run, lambda entry: entry.update(confidence=confidence))
  path = run / "certificates.csv"
  lines = [line.split(",") for line in path.read_text().splitlines()]
  path.write_text("".join(",".join(line[:-2]) + "\n" for line in lines))
  files_lib.write_json(
    run / "certificates.csv.json", {"settings": {**_SETTINGS, "seed": [0]}}
  )
  found = _read(run).smoothed
  assert found.condition == (randomness.SEEDED if confidence < 1 else "")
