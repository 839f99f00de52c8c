"""Parts of rows that the tables of `privacy_risks.membership` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from experiments.grid import page as grid_page
from experiments.grid import sheets
from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.training import page as robust_training_page

PUBLISHED = sheets.published(__file__)
WHO = robust_training_page.WHO
COLUMNS = robust_training_page.COLUMNS
STRATEGIES = ["I_B", "I_A", "I_V"]
UPPER = "oracle threshold, an upper estimate"
# What members and non-members are counted as.
POINTS = "members and non-members"


def published_of(dataset: str, trainer: str) -> sheets.Published | None:
  """What was published of this trainer on this data set; None: nothing.

  Accuracies stand beside the experiment of robust training.
  """
  for row in PUBLISHED:
    if (row.study, row.dataset, row.model) == ("main", dataset, trainer):
      known = robust_training_page.published_row(dataset, trainer)
      figures = {**known.figures, **row.figures}
      return dataclasses.replace(known, figures=figures)
  return None


def shown(inference) -> str:
  """An inference accuracy and its interval, in percent."""
  if inference is None:
    return grid_page.NOT_RUN
  return grid_page.with_interval(
    inference["balanced_accuracy"], inference["interval"]
  )


def accuracies(trained, infer, columns: Sequence[str]) -> list[str]:
  """Of a cell "infer", with intervals; or why there are none."""
  found = infer["accuracies"] if infer else {}
  return [
    robust_training_page.shown(found[column])
    if column in found
    else _absent(trained, column)
    for column in columns
  ]


def _absent(trained, column: str) -> str:
  """Why there is no figure."""
  is_bound = column in (*robust_training_page.BOUNDS, "I_V")
  if is_bound and not robust_training_page.has_bounds(trained):
    return robust_training_page.NO_BOUND
  return grid_page.NOT_RUN


def inferred(trained, infer, names, *kind: str) -> list[str]:
  """What strategies found, with intervals; or why there is nothing."""
  made = []
  for name in names:
    found = findings_lib.inferred(infer, name, *kind)
    made.append(shown(found) if found else _absent(trained, name))
  return made


def points(infer, name: str = "I_B") -> str:
  """How many there were."""
  found = findings_lib.inferred(infer, name)
  if found is None:
    return "-"
  return f"{found['num_members']:,} and {found['num_nonmembers']:,}"


def as_published(label: str, published: sheets.Published) -> list[str]:
  """The first columns of a published row."""
  where = published.table
  where = f"Table {where}" if where.isdigit() else where
  return [f"{label}, as published in {where}", "-", "-", "-"]
