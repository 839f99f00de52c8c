"""Main tables of `privacy_risks.membership`, from its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.membership import published as published_rows
from experiments.privacy_risks.membership import rows as rows_lib
from experiments.privacy_risks.membership import studies as membership_studies
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import page as robust_training_page

Results = findings_lib.Results
Table = grid_page.Table
_TABLES = {
  "yale_b": "Tables 2 and 8",
  "fashion_mnist": "Tables 3 and 9",
  "cifar10": "Table 4",
  "uci_har": "Table 12",
}


def tables(results: Results) -> list[Table]:
  """Findings first, trainings last."""
  names = dict.fromkeys(
    r["dataset"] for r in findings_lib.in_study(results, "main")
  )
  made = [findings_table(results)]
  for name in names:
    made += [
      _accuracy_table(name, results),
      _inference_table(name, results),
      _others_table(name, results),
    ]
  made += membership_studies.tables(results)
  return [*made, robust_training_page.training_table(results)]


def findings_table(results: Results) -> Table:
  """The paper's findings, with a verdict each."""
  rows = []
  for found in findings_lib.findings(results):
    tested = not found.note
    difference = found.larger - found.smaller
    rows.append(
      [
        found.claim,
        found.where,
        found.verdict,
        f"{found.larger:.4f}",
        f"{found.smaller:.4f}",
        f"{difference:+.4f}" if tested else "-",
        f"{found.error:.4f}" if tested else "-",
      ]
    )
  head = ["finding", "where", "verdict", "should be above", "should be below"]
  head += ["difference", "two standard errors"]
  title = "Findings of the paper, checked here"
  return Table(title, head, rows, numeric_from=3)


def _main(name: str, results: Results) -> list[Mapping[str, Any]]:
  """Trainings of a data set's main tables, in the order of the paper."""
  found = [
    trained
    for trained in findings_lib.in_study(results, "main")
    if trained["dataset"] == name
  ]
  order = list(robust_training_cells.LABELS)
  return sorted(found, key=lambda trained: order.index(trained["trainer"]))


# Tables 2, 3, 4, 8, 9 and 12.


def _title(name: str) -> str:
  return f"{_TABLES.get(name, 'No table of the paper')}, {name}"


def published_of(trained):
  """The row of the same trainer and data set; None: nothing."""
  return published_rows.row(trained["dataset"], trained["trainer"])


def _accuracy_table(name: str, results: Results) -> Table:
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        f"{trained['attack_eps']:.4g}",
        *rows_lib.accuracies(trained, infer, rows_lib.COLUMNS),
        rows_lib.points(infer),
        rows_lib.points(infer, "I_V"),
      ]
    )
    published = published_of(trained)
    if published:
      values = rows_lib.published_values(published, rows_lib.COLUMNS, ())
      row = rows_lib.as_published(trained["label"], published)
      rows.append([*row, "-", *values, "-", "-"])
  head = [*rows_lib.WHO, "radius", *rows_lib.COLUMNS, rows_lib.POINTS]
  head += ["verified members and non-members"]
  return Table(f"{_title(name)}: accuracy in %", head, rows)


def _inference_table(name: str, results: Results) -> Table:
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        *rows_lib.inferred(trained, infer, rows_lib.STRATEGIES),
        *rows_lib.inferred(trained, infer, rows_lib.STRATEGIES, "held_out"),
        rows_lib.points(infer),
        rows_lib.points(infer, "I_V"),
      ]
    )
    published = published_of(trained)
    if published:
      values = rows_lib.published_values(published, (), rows_lib.STRATEGIES)
      row = rows_lib.as_published(trained["label"], published)
      rows.append([*row, *values, *["-"] * 5])
  head = [*rows_lib.WHO, *rows_lib.STRATEGIES]
  head += [f"{name}, held-out threshold" for name in rows_lib.STRATEGIES]
  head += [rows_lib.POINTS, "of I_V"]
  title = f"{_title(name)}: inference accuracy in % ({rows_lib.UPPER})"
  return Table(title, head, rows)


def _others_table(name: str, results: Results) -> Table:
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        *rows_lib.inferred(
          trained, infer, rows_lib.STRATEGIES, "gap", "correct"
        ),
        *rows_lib.inferred(
          trained, infer, rows_lib.STRATEGIES, "oracle", "margin"
        ),
        *(_area(infer, name) for name in ("I_B", "I_A")),
        *(_low_fpr(infer, name) for name in ("I_B", "I_A")),
      ]
    )
  head = [*rows_lib.WHO, "gap, benign", "gap, attacked", "gap, verified"]
  head += [f"margin of {name}" for name in rows_lib.STRATEGIES]
  head += ["AUC of I_B", "AUC of I_A"]
  head += ["TPR of I_B at FPR 1 %", "TPR of I_A at FPR 1 %"]
  title = f"{_title(name)}: other strategies, inference accuracy in %"
  return Table(title, head, rows)


def _area(infer, name: str) -> str:
  found = findings_lib.inferred(infer, name)
  if found is None:
    return rows_lib.NOT_RUN
  low, high = found["auc_interval"]
  return f"{found['auc']:.3f} ({low:.3f} to {high:.3f})"


def _low_fpr(infer, name: str) -> str:
  found = findings_lib.inferred(infer, name)
  if found is None:
    return rows_lib.NOT_RUN
  for row in found["tpr_at_fpr"]:
    if abs(row["fpr"] - 0.01) < 1e-9:
      low, high = row["interval"]
      return f"{100 * row['tpr']:.1f} ({100 * low:.1f} to {100 * high:.1f})"
  return "too few non-members"
