"""The report card: one self-contained page, its data, and five lines of text.

`write(run_dir)` reads a run folder and writes `report.html` and `report.json`
into it. Whatever was not run is shown as not run, with the command that runs
it; a claimed guarantee is never shown without the proven and the audited one.
"""

from __future__ import annotations

import dataclasses
import pathlib

from tf_privrob.report import card
from tf_privrob.report import consistency
from tf_privrob.report import page
from tf_privrob.report import results as results_lib
from tf_privrob.run_folder import PathLike
from tf_privrob.run_folder import RunFolder

__all__ = ["Report", "RunFolder", "write"]


@dataclasses.dataclass(frozen=True)
class Report:
  """Where the report was written, and its five-line summary."""

  html: pathlib.Path
  json: pathlib.Path
  summary: str


def write(run_dir: PathLike) -> Report:
  """Writes `report.html` and `report.json` into a run folder.

  Args:
    run_dir: the folder of the run; any part of it may be missing.

  Returns:
    The two paths and the summary.

  Raises:
    ValueError: if there is no such folder.
  """
  folder = RunFolder(run_dir)
  if not folder.path.is_dir():
    raise ValueError(
      f"Expected a run folder, found none at {folder.path}. Train one first:"
      f" python -m experiments.train --run_dir={folder.path}"
    )
  results = results_lib.read(folder)
  checks = consistency.checks(results)
  return Report(
    html=folder.write_text("report.html", page.render(results, checks)),
    json=folder.write_json("report.json", card.as_json(results, checks)),
    summary=card.summary(results),
  )
