"""What the membership experiment makes of its results, written by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.privacy_risks.membership import findings as membership_findings
from experiments.privacy_risks.membership import measure as membership_measure
from experiments.privacy_risks.membership import page as membership_page
from experiments.privacy_risks.membership import studies as membership_studies
from tf_privrob import membership as membership_lib


def _inference(accuracy, count=1000, **more):
  tpr, fpr = accuracy, 1 - accuracy
  return {
    "strategy": "oracle",
    "score": "benign_confidence",
    "balanced_accuracy": accuracy,
    "interval": [accuracy - 0.01, accuracy + 0.01],
    "tpr": tpr,
    "fpr": fpr,
    "num_members": count,
    "num_nonmembers": count,
    "auc": accuracy,
    "auc_interval": [accuracy - 0.01, accuracy + 0.01],
    "tpr_at_fpr": [],
    **more,
  }


def test_verdict_by_two_standard_errors():
  """At 0.5 of 2 x 1,000 points an error is sqrt(2 / 4000) / 2 = 0.01118."""
  compare = membership_findings.compare
  error = 2 * math.sqrt(2) * math.sqrt(2 * 0.25 / 1000) / 2
  found = compare("", "", _inference(0.5), _inference(0.5))
  assert found.error == pytest.approx(error)
  assert found.verdict == "within error"
  for first, second, verdict in (
    (0.57, 0.53, "holds"),
    (0.53, 0.57, "does not hold"),
    (0.54, 0.53, "within error"),
  ):
    found = compare("", "", _inference(first), _inference(second))
    assert found.verdict == verdict
  untested = compare("", "", _inference(0.9), _inference(0.5), "it is short")
  assert untested.verdict == "not tested: it is short"


_TRAINING = {
  "network": "mlp",
  "parameters": 1,
  "num_train": 1,
  "factor": 1.0,
  "dp_epsilon": None,
  "epochs": 1.0,
  "steps": 1,
  "trained_attack_eps": 0.1,
  "changes": {},
  "seconds": 1.0,
}


def _results(*models, paired=0.01):
  """Cells "train" and "infer" of models, as they are written."""
  results = {}
  for name, trainer, studies, fit, benign, attacked in models:
    common = {
      "model": name,
      "dataset": "faces",
      "trainer": trainer,
      "label": name,
      "attack_eps": 0.1,
      "studies": studies,
      "claimed": None,
      "proven": None,
      "audited": None,
    }
    results[f"{name}/train"] = {**common, "part": "train", **_TRAINING}
    right = {"accuracy": fit, "count": 1000, "interval": (fit, fit)}
    results[f"{name}/infer"] = {
      **common,
      "part": "infer",
      "accuracies": {
        column: right for column in ("train", "test", "adv-train", "adv-test")
      },
      "paired": {"I_A": paired},
      "strategies": [
        _inference(benign),
        _inference(attacked, score="adversarial_confidence"),
      ],
    }
  return results


def test_findings_of_main_models():
  results = _results(
    ("n", "natural", {"main": 0}, 0.0, 0.60, 0.52),
    ("p", "pgd", {"main": 0}, 0.95, 0.62, 0.70),
    ("t", "trades", {"main": 0}, 0.5, 0.70, 0.55),
  )
  found = membership_findings.findings(results)
  verdicts = {(f.claim[:9], f.where): f.verdict for f in found}
  assert verdicts == {
    ("I_B above", "faces, n"): "holds",
    ("I_A above", "faces, p"): "holds",
    ("I_A of a ", "faces, p"): "holds",
    ("I_A above", "faces, t"): "does not hold",
    ("I_A of a ", "faces, t"): "not tested: adv-train accuracy is 50.0 %",
  }


def test_two_scores_of_one_model_are_compared_point_by_point():
  """0.62 and 0.64 of 1,000 points: two errors are 0.04 if independent."""
  rows = [("p", "pgd", {"main": 0}, 0.95, 0.62, 0.64)]
  for paired, verdict in ((0.005, "holds"), (0.02, "within error")):
    (found,) = membership_findings.findings(_results(*rows, paired=paired))
    assert found.error == 2 * paired
    assert found.verdict == verdict


def test_paired_error_by_hand():
  """Two of four members and one of two others change their answer."""
  scores = [
    membership_lib.Scores("s", np.array(members), np.array(others))
    for members, others in (
      ([1.0, 1, 1, 0], [0.0, 0]),
      ([1.0, 0, 0, 0], [0.0, 1]),
    )
  ]
  pair = [(found, membership_lib.fixed(found, 0.5)) for found in scores]
  # d = (0, 1, 1, 0), variance 1/4; d = (0, -1), variance 1/4.
  expected = math.sqrt(0.25 / 4 + 0.25 / 2) / 2
  assert membership_measure.paired_error(*pair) == pytest.approx(expected)
  assert membership_measure.paired_error(pair[0], pair[0]) == 0


def test_findings_of_studies_compare_the_ends():
  results = _results(
    ("n", "natural", {"share": 0.0, "radius": 0.0}, 1, 0.55, 0.52),
    ("half", "pgd", {"share": 0.5}, 1, 0.99, 0.99),
    ("p", "pgd", {"share": 1.0, "radius": 0.1, "adaptation": 0}, 1, 0.6, 0.7),
    ("small", "pgd", {"radius": 0.05}, 1, 0.6, 0.75),
    ("a", "pgd", {"adaptation": 1}, 1, 0.6, 0.6),
  )
  found = {f.claim: f for f in membership_findings.findings(results)}
  share = found["leakage rises with the share of adversarial examples"]
  assert (share.larger, share.smaller, share.verdict) == (0.7, 0.52, "holds")
  # The natural model has no radius: 0.05 is the smallest.
  radius = found["leakage rises with the radius of training"]
  assert (radius.larger, radius.smaller) == (0.7, 0.75)
  assert radius.verdict == "does not hold"
  adapted = found["domain adaptation lowers leakage"]
  assert (adapted.larger, adapted.smaller) == (0.7, 0.6)
  assert adapted.where == "faces: p above a, I_A"


def test_a_radius_far_beyond_is_compared_with_that_of_training():
  accuracies = {0.0: 0.6, 0.1: 0.7, 0.15: 0.8, 0.3: 0.5}
  rows = [{"radius": r, **_inference(a)} for r, a in accuracies.items()]
  result = {
    "part": "radii",
    "dataset": "faces",
    "label": "PGD",
    "attack_eps": 0.1,
    "radii": rows,
  }
  (found,) = membership_findings.findings({"p/radii": result})
  assert (found.larger, found.smaller, found.verdict) == (0.7, 0.5, "holds")


def test_sensitivities_are_compared_by_their_means():
  results = {}
  for trainer, values in (("natural", [0.0, 0.1]), ("pgd", [0.5, 0.7])):
    results[trainer] = {
      "part": "left_out",
      "dataset": "faces",
      "trainer": trainer,
      "left_out": {"sensitivity": values},
      "kept": {"sensitivity": [0.0, 0.0]},
    }
  (found,) = membership_findings.findings(results)
  assert (found.larger, found.smaller) == pytest.approx((0.6, 0.05))
  # Standard errors 0.1 and 0.05 of the two means.
  assert found.error == pytest.approx(2 * math.hypot(0.1, 0.05))


def test_private_models_are_held_against_the_replaced_example():
  results = _results(("p", "pgd", {"private": 1.0}, 1, 0.9, 0.9))
  results["p/train"]["proven"] = {"dp_epsilon": 1.0, "dp_delta": 0.0}
  for found in results["p/infer"]["strategies"]:
    found.update(strategy="held_out", advantage=0.8)
    found["advantage_interval"] = [0.7, 0.9]
  (row,) = membership_studies.private_table(results).rows
  # tanh(1/2) and tanh(1), in percent and rounded up.
  assert "46.22" in row
  assert "76.16" in row
  assert "below what is allowed" in row
  for found in results["p/infer"]["strategies"]:
    found["advantage_interval"] = [0.77, 0.9]
  (row,) = membership_studies.private_table(results).rows
  assert "ABOVE what is proven" in row


def test_published_rows_stand_beside_measured_ones():
  results = _results(("p", "pgd", {"main": 0}, 1, 0.6, 0.7))
  for result in results.values():
    result["dataset"] = "uci_har"
  accuracy, inference = membership_page.tables({}, results)[1:3]
  assert accuracy.title.startswith("Table 12, uci_har")
  assert accuracy.rows[1][0] == "p, as published in Table 12"
  assert "73.84" in accuracy.rows[1]
  assert inference.rows[0][4:7] == [
    "60.00 (59.0 to 61.0)",
    "70.00 (69.0 to 71.0)",
    "no bound",
  ]
  assert inference.rows[1][4:7] == ["58.29", "60.13", "-"]


def test_figures_are_left_out_where_there_is_nothing_to_show():
  figures = list(membership_page.figures({}, {}))
  assert len(figures) == 8
  assert not any(figure.shows_any for figure in figures)
  record = {"settings": {"num_points": None, "num_swept": 5, "num_dual": 0}}
  notes = membership_page.notes(record, {})
  assert any("all training and all test examples" in note for note in notes)
