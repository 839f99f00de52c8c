"""Several runs side by side, and which of their figures may be compared.

Accuracies of two runs are comparable on the same data only; under attack, if
the same attacks of the same sizes were run; radii, if they are in the same
norm and both proven or both claimed; ROC curves, if they are of the same
strategy and score. Runs fall into groups by these rules. A curve is drawn
beside those of its own group and of no other.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Callable

from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.records.evaluation import CurvePoint
from tf_privrob.report import consistency
from tf_privrob.report import headlines
from tf_privrob.report import results as results_lib


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a comparison: its short name, results and checks."""

  name: str
  results: results_lib.Results
  checks: tuple[consistency.Check, ...]

  @property
  def measured(self) -> bool:
    """Whether anything of it can be compared at all."""
    results = self.results
    return bool(
      results.clean or results.attacks or results.smoothed or results.membership
    )

  @property
  def failed(self) -> tuple[str, ...]:
    """What is violated in it."""
    return tuple(c.title for c in self.checks if c.status == consistency.FAIL)

  @property
  def worst(self) -> records.AttackResult | None:
    """The attack that heads its report."""
    return headlines.headline_attack(self.results.attacks)

  @property
  def point(self) -> CurvePoint | None:
    """The radius that heads its report."""
    radii = self.results.smoothed
    return None if radii is None else headlines.headline_radius(radii)

  @property
  def radius_words(self) -> str:
    """What its radii may be called."""
    word = "certified"
    if not self.results.smoothed.proven:
      word = "claimed, not proven"
    if self.results.smoothed.condition:
      word += f", {self.results.smoothed.condition}"
    return f"{word}, refuted" if self.results.radii_refuted else word


@dataclasses.dataclass(frozen=True)
class Group:
  """Runs whose curves of one part may be drawn together."""

  part: str
  title: str
  key: tuple
  runs: tuple[Run, ...]


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


def data_key(results: results_lib.Results) -> tuple:
  """What must agree for two accuracies to be of the same test."""
  dataset = results.run.dataset
  return (results.dataset, dataset.num_test, dataset.value_range)


def groups(runs: Sequence[Run]) -> tuple[Group, ...]:
  """All groups of all parts, in the order of the runs."""
  found = []
  norms = dict.fromkeys(a.norm for run in runs for a in run.results.attacks)
  for norm in norms:
    found += _grouped(
      "attacked",
      f"Accuracy under {norm} attacks",
      runs,
      lambda run, norm=norm: _attack_key(run.results, norm),
    )
  found += _grouped("radius", "Accuracy against the radius", runs, _radius_key)
  found += _grouped("roc", "ROC curves of membership inference", runs, _roc_key)
  return tuple(found)


def _grouped(
  part: str,
  title: str,
  runs: Sequence[Run],
  key_of: Callable[[Run], tuple | None],
) -> list[Group]:
  members: dict[tuple, list[Run]] = {}
  for run in runs:
    key = key_of(run)
    if key is not None:
      members.setdefault(key, []).append(run)
  return [Group(part, title, k, tuple(item)) for k, item in members.items()]


def _attack_key(results: results_lib.Results, norm: str) -> tuple | None:
  """Data, norm and every (attack, size, steps, restarts) in that norm."""
  tried = tuple(
    sorted(
      {
        (a.name, a.attack_eps, a.steps or 0, a.restarts or 0)
        for a in results.attacks
        if a.norm == norm
      }
    )
  )
  return (data_key(results), norm, tried) if tried else None


def _radius_key(run: Run) -> tuple | None:
  smoothed = run.results.smoothed
  if smoothed is None:
    return None
  return (data_key(run.results), smoothed.norm, smoothed.kind)


def _roc_key(run: Run) -> tuple | None:
  chosen = roc_of(run)
  if chosen is None:
    return None
  size = None
  if not chosen.score.startswith("benign"):
    size = run.results.membership.attack_eps
  return (data_key(run.results), chosen.strategy, chosen.score, size)


def roc_of(run: Run) -> records.Inference | None:
  """The strategy whose curve stands for a run: the first that has one.

  Which one that is must not depend on how well it did, or each run would
  show another.
  """
  membership = run.results.membership
  if membership is None:
    return None
  drawn = [item for item in membership.strategies if item.roc.fpr]
  honest = [item for item in drawn if not item.oracle]
  return next(iter(honest or drawn), None)


def differences(runs: Sequence[Run], found: Sequence[Group]) -> tuple[str, ...]:
  """Sentences on what is not comparable; empty if everything is."""
  sentences = []
  by_data: dict[tuple, list[str]] = {}
  for run in sorted(runs, key=lambda run: not run.measured):
    key = data_key(run.results)
    if not run.measured:  # what it does not say cannot differ
      key = next((other for other in by_data if other[0] == key[0]), key)
    by_data.setdefault(key, []).append(run.name)
  if len(by_data) > 1:
    listed = "; ".join(
      f"{', '.join(names)}: {_data_words(key)}"
      for key, names in by_data.items()
    )
    sentences.append(
      f"Not comparable: the runs are over different data ({listed})."
    )
  reasons = {
    "attacked": "attacked with other attacks or other sizes",
    "radius": "given radii in other norms or of another kind",
    "roc": "tested by other strategies of membership inference",
  }
  seen: dict[tuple, list[Group]] = {}
  for group in found:
    norm = group.key[1] if group.part == "attacked" else ""
    seen.setdefault((group.part, norm, group.key[0]), []).append(group)
  for (part, norm, _), same in seen.items():
    if len(same) > 1:
      listed = " against ".join(
        ", ".join(run.name for run in group.runs) for group in same
      )
      inside = f" ({norm})" if norm else ""
      sentences.append(
        f"Not comparable: on the same data, these were {reasons[part]}{inside}:"
        f" {listed}."
      )
  return tuple(sentences)


def _data_words(key: tuple) -> str:
  name, count, bounds = key
  words = name
  if count is not None:
    words += f", {count:,} test examples"
  if bounds:
    words += f", values in {list(bounds)}"
  return words


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
      "condition": smoothed.condition,
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
