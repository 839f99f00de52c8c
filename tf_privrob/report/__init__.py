"""The report card: one self-contained page, its data, and five lines of text.

`write(run_dir)` reads a run folder and writes `report.html`, `report.md` and
`report.json` into it; `compare([...], out)` puts several runs side by side.
Whatever was not run is shown as not run, with the command that runs it; a
claimed guarantee is never shown without the proven and the audited one.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any

from tf_privrob import files
from tf_privrob.report import card
from tf_privrob.report import comparison
from tf_privrob.report import consistency
from tf_privrob.report import pages
from tf_privrob.report import results as results_lib
from tf_privrob.report import scalars
from tf_privrob.run_folder import PathLike
from tf_privrob.run_folder import RunFolder

__all__ = ["Report", "RunFolder", "compare", "write"]


@dataclasses.dataclass(frozen=True)
class Report:
  """Where the report was written, and its summary."""

  html: pathlib.Path
  json: pathlib.Path
  markdown: pathlib.Path
  summary: str


def write(run_dir: PathLike, tensorboard: bool = False) -> Report:
  """Writes `report.html`, `report.md` and `report.json` into a run folder.

  Args:
    run_dir: the folder of the run, or of a model of an experiment, which has
      a run folder inside; any part of it may be missing.
    tensorboard: whether to write the same figures as scalars to `tb/report`,
      and the settings for the HParams plugin; this imports TensorFlow.

  Returns:
    The paths and the summary of five lines.

  Raises:
    ValueError: if there is no such folder.
  """
  folder = results_lib.folder_of(run_dir)
  results = results_lib.read(folder)
  checks = consistency.checks(results)
  if tensorboard:
    scalars.write(folder, results)
  return _written(
    folder,
    "report",
    pages.html(results, checks),
    card.as_json(results, checks),
    pages.markdown(results, checks),
    card.summary(results),
  )


def compare(run_dirs: Iterable[PathLike], out: PathLike) -> Report:
  """Writes several runs side by side.

  Args:
    run_dirs: the folders of the runs, or of models of an experiment, which
      have a run folder inside.
    out: the page, such as `runs/compare.html`; a Markdown and a JSON file of
      the same name are written beside it.

  Returns:
    The paths, and what is not comparable, one sentence on each line.

  Raises:
    ValueError: for fewer than two runs, or one given twice or not there.
  """
  out = pathlib.Path(out)
  if out.suffix != ".html":
    raise ValueError(
      f"Expected out={str(out)!r} to end in .html; the Markdown and JSON files"
      " take its name."
    )
  runs = comparison.read(run_dirs)
  groups = comparison.groups(runs)
  return _written(
    RunFolder(out.parent),
    out.stem,
    pages.compare_html(runs, groups),
    comparison.as_json(runs, groups),
    pages.compare_markdown(runs, groups),
    "\n".join(comparison.differences(runs, groups)),
  )


def _written(
  folder: RunFolder,
  stem: str,
  page: str,
  payload: Any,
  markdown: str,
  summary: str,
) -> Report:
  """The files of a report; names of folders are shown in them as well."""
  payload = files.shown(files.to_jsonable(payload))
  return Report(
    html=folder.write_text(f"{stem}.html", files.shown(page)),
    json=folder.write_json(f"{stem}.json", payload),
    markdown=folder.write_text(f"{stem}.md", files.shown(markdown)),
    summary=files.shown(summary),
  )
