"""Several runs side by side: read, and as data."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from tf_privrob import run_folder
from tf_privrob.report import consistency
from tf_privrob.report import results as results_lib
from tf_privrob.report.comparable import differences
from tf_privrob.report.comparable import Group
from tf_privrob.report.comparable import Run


def read(run_dirs: Iterable[run_folder.PathLike]) -> tuple[Run, ...]:
  """Reads the runs, each under a short name of its own.

  Raises:
    ValueError: for fewer than two runs, one given twice, or a folder that is
      not there.
  """
  folders = [results_lib.folder_of(path) for path in run_dirs]
  if len(folders) < 2:
    raise ValueError(
      f"Expected at least 2 run folders to compare, received {len(folders)}."
      " For one run: python -m tf_privrob report --run_dir=..."
    )
  paths = [folder.path.resolve() for folder in folders]
  twice = {str(path) for path in paths if paths.count(path) > 1}
  if twice:
    raise ValueError(
      f"Expected each run folder once, received {', '.join(sorted(twice))}"
      " more than once."
    )
  found = [results_lib.read(folder) for folder in folders]
  return tuple(
    Run(name, results, consistency.checks(results))
    for name, results in zip(_names(paths), found)
  )


def _names(paths: Sequence[pathlib.Path]) -> list[str]:
  """As few last parts of each path as tell them all apart."""
  parts = [
    path.parts[:-1] if path.name == results_lib.NESTED else path.parts
    for path in paths
  ]
  for length in range(1, max(map(len, parts)) + 1):
    names = ["/".join(part[-length:]) for part in parts]
    if len(set(names)) == len(names):
      return names
  return [str(path) for path in paths]  # a run and a model around it


def as_json(runs: Sequence[Run], found: Sequence[Group]) -> dict[str, Any]:
  """The comparison for machines; every run with all three privacy figures."""
  return {
    "format": 1,
    "runs": [row(run) for run in runs],
    "groups": [
      {
        "part": group.part,
        "title": group.title,
        "key": group.key,
        "runs": [run.name for run in group.runs],
      }
      for group in found
    ],
    "not_comparable": differences(runs, found),
  }


def row(run: Run) -> dict[str, Any]:
  """One run's line; null where a part was not run."""
  results = run.results
  statement, smoothed = results.privacy, results.smoothed
  radius = None
  if smoothed is not None:
    radius = {
      "kind": smoothed.kind,
      "norm": smoothed.norm,
      "confidence": smoothed.confidence,
      "refuted": results.radii_refuted,
      **dataclasses.asdict(run.point),
    }
  best = results.membership.headline if results.membership else None
  audit = results.certificate_audit
  return {
    "name": run.name,
    "run_dir": results.run_dir,
    "method": results.method,
    "dataset": results.dataset,
    "network": results.network,
    "privacy": statement
    and {
      "claimed": statement.claimed,
      "proven": statement.proven,
      "condition": statement.condition,
      "audited": statement.audited,
      "violated": statement.violated,
    },
    "clean": results.clean,
    "attacked": run.worst,
    "radius": radius,
    "membership": best
    and {
      "label": best.label,
      "advantage": best.advantage,
      "advantage_interval": best.advantage_interval,
      "covered": False,
    },
    "violations": audit
    and {
      "violations": audit.violations,
      "count": audit.count,
      "kind": audit.kind,
      "verdict": audit.verdict,
      "detectable": audit.detectable,
    },
    "failed": run.failed,
    "problems": results.problems,
  }
