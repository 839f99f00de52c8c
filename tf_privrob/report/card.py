"""The report as data (`report.json`) and as five lines of text."""

from __future__ import annotations

from typing import Any

from tf_privrob import records
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import headlines
from tf_privrob.report import leakage
from tf_privrob.report import promises
from tf_privrob.report import results as results_lib

_FORMAT = 2
# What the report repeats of the records, by their names in Python.
_RADII = (
  "curve kind norm smoothing_stddev num_selection num_estimation confidence"
  " condition count abstained mean_radius seconds"
)
_AUDIT = (
  "name label audited dp_delta claimed proven stated_verdict statistic canary"
  " scope confidence runs caught false_alarms guesses correct reachable seconds"
  " command verdict"
)
_STRATEGY = (
  "strategy score label balanced_accuracy advantage interval"
  " advantage_interval auc auc_interval num_members num_nonmembers confidence"
)
_POINT = "fpr tpr interval note"
_MEMBERSHIP = "num_members num_nonmembers attack attack_eps seconds command"
_CERTIFICATE_AUDIT = (
  "count violations allowed kind norm method confidence interval"
  " stated_verdict stated_detectable draws seconds command verdict detectable"
)
_VIOLATION = "index radius size attack before after"


def as_json(
  results: results_lib.Results, checks: consistency.Checks
) -> dict[str, Any]:
  """The page's figures for machines; a part that was not run is null."""
  config = results.config or records.Config()
  return {
    "format": _FORMAT,
    "method": config.method,
    "dataset": config.dataset,
    "network": config.network,
    "clean": results.clean,
    "attacked": headlines.headline_attack(results.attacks),
    "attacks": results.attacks,
    "certified": _radius(results, "proven"),
    "claimed_radius": _radius(results, "claimed"),
    "smoothed": results.smoothed and _only(results.smoothed, _RADII),
    "privacy": results.privacy and results.privacy.to_dict(),
    "audits": [_only(audit, _AUDIT) for audit in results.audits],
    "membership": _membership(results),
    "certificate_audit": _certificate_audit(results),
    "promises": promises.find(results, checks),
    "checks": checks,
    "problems": results.problems,
    "settings": config.config,
    "run": results.run if results.run != records.Run() else {},
    "commands": results.commands,
    "summary": summary(results).splitlines(),
  }


def _radius(results: results_lib.Results, kind: str) -> dict[str, Any] | None:
  smoothed = results.smoothed
  if smoothed is None or smoothed.kind != kind:
    return None
  point = headlines.headline_radius(smoothed)
  return {
    "norm": smoothed.norm,
    "radius": point.radius,
    "accuracy": point.accuracy,
    "interval": point.interval,
    "confidence": smoothed.confidence,
    "condition": smoothed.condition,
    "count": smoothed.count,
    "kind": kind,
    "refuted": results.radii_refuted,
  }


def _only(record: Any, names: str) -> dict[str, Any]:
  """These figures of a record, under the names that they have in Python."""
  return {name: getattr(record, name) for name in names.split()}


def _membership(results: results_lib.Results) -> dict[str, Any] | None:
  """Every strategy, the strongest, and what the proven budget allows."""
  membership = results.membership
  if membership is None:
    return None
  best, budget = membership.headline, leakage.replaced(results.privacy)
  strategies = [
    {
      **_only(item, _STRATEGY),
      "points": [_only(point, _POINT) for point in item.points],
      "fpr": item.roc.fpr,
      "tpr": item.roc.tpr,
    }
    for item in membership.strategies
  ]
  return {
    "strategies": strategies,
    **_only(membership, _MEMBERSHIP),
    "headline": best.label,
    **_only(best, "advantage advantage_interval"),
    "advantage_allowed": budget and leakage.most_advantage(budget),
    "covered": False,  # by the guarantee: computed on private rows
  }


def _certificate_audit(results: results_lib.Results) -> dict[str, Any] | None:
  audit = results.certificate_audit
  if audit is None:
    return None
  return {
    **_only(audit, _CERTIFICATE_AUDIT),
    "attacks": [(row.name, row.violations) for row in audit.attacks],
    "inflated": audit.pairs,
    "rows": [_only(row, _VIOLATION) for row in audit.rows],
  }


def summary(results: results_lib.Results) -> str:
  """Exactly five lines: the run, then each promise with its conditions."""
  return "\n".join(
    (
      _run_line(results),
      f"  clean      {_clean_line(results)}",
      f"  attacked   {_attacked_line(results)}",
      _radius_line(results),
      f"  privacy    {_privacy_line(results)}",
    )
  )


def _one_line(text: str) -> str:
  return " ".join(text.split())


def _run_line(results: results_lib.Results) -> str:
  if results.predictions:
    return _one_line(f"{results.title}: no model is here")
  if results.config is None:
    return _one_line(f"{results.title}: no configuration, nothing trained")
  line = f"{results.title}, network {results.network}"
  if results.run.train_seconds is not None:
    line += f", trained in {formats.duration(results.run.train_seconds)}"
  return _one_line(line)


def _sample(result) -> str:
  interval = formats.interval(result.interval).replace("\u2013", "-")
  count = f", {result.count:,} examples" if result.count else ""
  return f"(95% interval {interval}{count})"


def _clean_line(results: results_lib.Results) -> str:
  if results.clean is None:
    return "not run"
  return f"{formats.percent(results.clean.accuracy)} {_sample(results.clean)}"


def _attacked_line(results: results_lib.Results) -> str:
  worst = headlines.headline_attack(results.attacks)
  if worst is None:
    return "not run"
  return _one_line(
    f"{formats.percent(worst.accuracy)} at {worst.norm}"
    f" {formats.number(worst.attack_eps)}, worst: {worst.name} {_sample(worst)}"
  )


def _radius_line(results: results_lib.Results) -> str:
  smoothed = results.smoothed
  if smoothed is None:
    return "  certified  not run"
  point = headlines.headline_radius(smoothed)
  figures = (
    f"{formats.percent(point.accuracy)} at {smoothed.norm} radius"
    f" {formats.number(point.radius)}"
  )
  audit = results.certificate_audit
  attacked = ""
  if audit is not None and audit.short_power:
    attacked = (
      f"; {audit.violations:,} of {audit.count:,} attacked fell,"
      f" {audit.short_power}"
    )
  refuted = "  REFUTED" if results.radii_refuted else attacked
  if smoothed.kind != "proven":
    return "  " + _one_line(f"claimed radius, not proven: {figures}{refuted}")
  confidence = ""
  if smoothed.deterministic:
    confidence = ", without randomness"
  elif smoothed.confidence is not None:
    confidence = f", confidence {100 * smoothed.confidence:.6g}% each"
  if smoothed.condition:
    confidence += f", {smoothed.condition}"
  return f"  certified  {figures}{confidence}, {smoothed.subject}{refuted}"


def _privacy_line(results: results_lib.Results) -> str:
  if results.privacy is None:
    return "not run"
  statement = results.privacy
  line = formats.privacy_figures(statement, " | ")
  if statement.gaussian_mu is not None:
    line += f" | mu {formats.dp_epsilon(statement.gaussian_mu)}"
  line += f" | unit {statement.unit}"
  return _one_line(line) + ("  VIOLATED" if statement.violated else "")
