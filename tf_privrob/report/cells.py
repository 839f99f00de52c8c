"""Rows of the Markdown tables: plain text, which the templates escape."""

from __future__ import annotations

from tf_privrob import records
from tf_privrob.report import comparable
from tf_privrob.report import formats
from tf_privrob.report import views
from tf_privrob.report.verdicts import Check


def _interval(bounds) -> str:
  """An interval in parentheses, or nothing."""
  return "" if bounds is None else f" ({formats.interval(bounds)})"


def _accuracy(result) -> str:
  if result is None:
    return "not run"
  return f"{formats.percent(result.accuracy)}{_interval(result.interval)}"


def privacy(statement) -> tuple[str, str, str]:
  """Claimed, proven and audited; never one of them alone."""
  if statement is None:
    return ("not run",) * 3
  audited = "not run"
  if statement.audited is not None:
    audited = f">= {formats.dp_epsilon_lower(statement.audited)}"
    audited += " VIOLATED" if statement.violated else ""
  claimed = statement.claimed
  return (
    formats.budget(claimed) if claimed else "nothing",
    formats.proven(statement),
    audited,
  )


def audit(item: records.Audit) -> tuple[str, ...]:
  """An audit of privacy."""
  claimed = item.claimed
  return (
    f"{item.label} ({item.scope})",
    formats.budget(claimed) if claimed else "nothing",
    formats.proven(item),
    f">= {formats.dp_epsilon_lower(item.audited)} at dp_delta"
    f" {formats.dp_delta_lower(item.dp_delta)}",
    f"{views.evidence(item)}, confidence {views.confidence(item.confidence)}",
    item.verdict,
  )


def _advantage(item: records.Inference) -> str:
  bounds = item.advantage_interval
  more = "" if bounds is None else f" ({formats.share_interval(bounds)})"
  return f"{item.advantage:.3f}{more}"


def strategy(item: records.Inference) -> tuple[str, ...]:
  """A strategy of membership inference."""
  right = formats.percent(item.balanced_accuracy) + _interval(item.interval)
  auc = "-" if item.auc is None else f"{item.auc:.3f}"
  return (item.label, right, _advantage(item), auc)


def attack(item: records.AttackResult) -> tuple[str, ...]:
  """An attack at one size."""
  return (
    item.name,
    item.norm,
    formats.number(item.attack_eps),
    "-" if item.steps is None else str(item.steps),
    _accuracy(item),
    "; ".join(item.warnings) or "none",
  )


def radius(point) -> tuple[str, str]:
  """A point of the curve of radii."""
  return formats.number(point.radius), _accuracy(point)


def check(item: Check) -> tuple[str, str, str]:
  """A check of the run's figures against each other."""
  return item.status, item.title, item.detail


def run(item: comparable.Run) -> tuple[str, ...]:
  """A run among others."""
  results, worst, point = item.results, item.worst, item.point
  audited = results.certificate_audit
  attacked = _accuracy(worst)
  if worst is not None:
    size = formats.number(worst.attack_eps)
    attacked += f", {worst.name} {worst.norm} {size}"
  radii = _accuracy(point)
  if point is not None:
    size = formats.number(point.radius)
    radii += f", {item.radius_words}, {results.smoothed.norm} {size}"
  violations = "not run"
  if audited is not None:
    of = f"{audited.violations} of {audited.count:,} {audited.kind}"
    parts = (f"{of}: {audited.verdict}", audited.short_power)
    violations = "; ".join(filter(None, parts))
  return (
    item.name,
    results.method,
    results.dataset,
    *privacy(results.privacy),
    _accuracy(results.clean),
    attacked,
    radii,
    _advantage(results.membership.headline) if results.membership else "not run",
    violations,
  )
