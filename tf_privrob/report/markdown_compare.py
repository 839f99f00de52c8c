"""The comparison of several runs as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tf_privrob.report import comparable
from tf_privrob.report import formats
from tf_privrob.report import markdown
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import promises

_HEAD = (
  "Run",
  "Method",
  "Data",
  "Privacy claimed",
  "Privacy proven",
  "Privacy audited",
  "Clean",
  "Under attack",
  "Radius",
  "Membership advantage (not covered by the guarantee)",
  "Violations",
)


def render(
  runs: Sequence[comparable.Run], found: Sequence[comparable.Group]
) -> str:
  """Returns the whole comparison."""
  failed = [
    f"{run.name}: {'; '.join(run.failed)}" for run in runs if run.failed
  ]
  unread = [
    f"{run.name}: {problem}" for run in runs for problem in run.results.problems
  ]
  parts = [markdown.bullets(comparable.differences(runs, found))]
  if failed:
    parts += ["Violated guarantees:", markdown.bullets(failed)]
  if unread:
    parts += ["Could not be read:", markdown.bullets(unread)]
  parts.append(markdown.table(_HEAD, map(_row, runs)))
  return markdown.document(f"{len(runs)} runs compared", parts)


def _row(run: comparable.Run) -> tuple:
  results = run.results
  membership, audit = results.membership, results.certificate_audit
  return (
    run.name,
    results.method,
    results.dataset,
    *markdown.privacy_cells(results.privacy),
    _accuracy(results.clean),
    _attacked(results),
    _radius(results),
    markdown.advantage(membership.headline) if membership else "not run",
    _violations(audit) if audit else "not run",
  )


def _violations(audit) -> str:
  found = f"{audit.violations} of {audit.count:,} {audit.kind}: {audit.verdict}"
  return "; ".join(filter(None, (found, audit.short_power)))


def _accuracy(result) -> str:
  if result is None:
    return "not run"
  bounds = markdown.interval(result.interval)
  return f"{formats.percent(result.accuracy)}{bounds}"


def _attacked(results) -> str:
  worst = metrics_lib.headline_attack(results.attacks)
  if worst is None:
    return "not run"
  size = formats.number(worst.attack_eps)
  return f"{_accuracy(worst)}, {worst.name} {worst.norm} {size}"


def _radius(results) -> str:
  smoothed = results.smoothed
  if smoothed is None:
    return "not run"
  word = "certified" if smoothed.kind == "proven" else "claimed, not proven"
  if promises.radii_refuted(results):
    word += ", refuted"
  point = metrics_lib.headline_radius(smoothed)
  size = formats.number(point.radius)
  return f"{_accuracy(point)}, {word}, {smoothed.norm} {size}"
