"""Parts of rows that the tables of `privacy_risks.membership` share."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.membership import published as published_rows
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import page as robust_training_page
from experiments.privacy_risks.training import (
  published as robust_training_published,
)

WHO = robust_training_page.WHO
COLUMNS = robust_training_published.COLUMNS
STRATEGIES = published_rows.STRATEGIES
NOT_RUN, NO_BOUND = "not run", "no bound"
UPPER = "oracle threshold, an upper estimate"
# What members and non-members are counted as.
POINTS = "members and non-members"


def shown(inference) -> str:
  """An inference accuracy and its interval, in percent."""
  if inference is None:
    return NOT_RUN
  low, high = inference["interval"]
  accuracy = 100 * inference["balanced_accuracy"]
  return f"{accuracy:.2f} ({100 * low:.1f} to {100 * high:.1f})"


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
  is_bound = column.startswith("ver-") or column == "I_V"
  has_bounds = trained["trainer"] in robust_training_cells.VERIFIED
  return NO_BOUND if is_bound and not has_bounds else NOT_RUN


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


def published_values(
  published, columns: Sequence[str], names: Sequence[str]
) -> list[str]:
  """Accuracies, then inference; what rests on estimates is called so."""
  percent = dict(zip(COLUMNS, published.accuracies))
  percent.update(zip(STRATEGIES, published.inference))
  made = []
  for column in (*columns, *names):
    text = f"{percent[column]:.2f}" if column in percent else "-"
    is_bound = column.startswith("ver-") or column == "I_V"
    if text != "-" and is_bound and published.estimated:
      text += " estimated"
    made.append(text)
  return made


def as_published(label: str, published) -> list[str]:
  """The first columns of a published row."""
  text = f"{label}, as published in Table {published.table}"
  return [text, "-", "-", "-"]
