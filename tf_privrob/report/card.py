"""The report as data (`report.json`) and as five lines of text."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_privrob.report import audits as audits_lib
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import leakage
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import promises
from tf_privrob.report import results as results_lib

_FORMAT = 2


def as_json(
  results: results_lib.Results, checks: tuple[consistency.Check, ...]
) -> dict[str, Any]:
  """The page's figures for machines; a part that was not run is null."""
  worst = metrics_lib.headline_attack(results.attacks)
  return {
    "format": _FORMAT,
    "method": results.config.get("method"),
    "dataset": results.config.get("dataset"),
    "network": results.config.get("network"),
    "clean": results.clean,
    "attacked": worst,
    "attacks": results.attacks,
    "certified": _radius(results, "proven"),
    "claimed_radius": _radius(results, "claimed"),
    "smoothed": results.smoothed,
    "privacy": _privacy(results),
    "audits": [_audit(audit) for audit in results.audits],
    "membership": _membership(results),
    "certificate_audit": _certificate_audit(results),
    "promises": promises.find(results, checks),
    "checks": checks,
    "problems": results.problems,
    "settings": results.config.get("config"),
    "run": results.run,
    "commands": results.commands,
    "summary": summary(results).splitlines(),
  }


def _radius(results: results_lib.Results, kind: str) -> dict[str, Any] | None:
  smoothed = results.smoothed
  if smoothed is None or smoothed.kind != kind:
    return None
  point = metrics_lib.headline_radius(smoothed)
  return {
    "norm": smoothed.norm,
    "radius": point.radius,
    "accuracy": point.accuracy,
    "interval": point.interval,
    "confidence": smoothed.confidence,
    "count": smoothed.count,
    "kind": kind,
    "refuted": promises.radii_refuted(results),
  }


def _privacy(results: results_lib.Results) -> dict[str, Any] | None:
  """All three figures under their names, null where there is none."""
  if results.privacy is None:
    return None
  return results.privacy.to_dict()


def _audit(audit: audits_lib.Audit) -> dict[str, Any]:
  return {**dataclasses.asdict(audit), "verdict": audit.verdict}


def _membership(results: results_lib.Results) -> dict[str, Any] | None:
  """Every strategy, the strongest, and what the proven budget allows."""
  membership = results.membership
  if membership is None:
    return None
  budget = leakage.replaced(results.privacy)
  return {
    **dataclasses.asdict(membership),
    "headline": membership.headline.label,
    "advantage": membership.headline.advantage,
    "advantage_interval": membership.headline.advantage_interval,
    "advantage_allowed": budget and leakage.most_advantage(budget),
    "covered": False,  # by the guarantee: computed on private rows
  }


def _certificate_audit(results: results_lib.Results) -> dict[str, Any] | None:
  audit = results.certificate_audit
  if audit is None:
    return None
  return {
    **dataclasses.asdict(audit),
    "verdict": audit.verdict,
    "detectable": audit.detectable,
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
  if not results.config:
    return _one_line(f"{results.title}: no configuration, nothing trained")
  line = f"{results.title}, network {results.network}"
  seconds = metrics_lib.as_number(results.run.get("train_seconds"))
  if seconds is not None:
    line += f", trained in {formats.duration(seconds)}"
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
  worst = metrics_lib.headline_attack(results.attacks)
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
  point = metrics_lib.headline_radius(smoothed)
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
  refuted = "  REFUTED" if promises.radii_refuted(results) else attacked
  if smoothed.kind != "proven":
    return "  " + _one_line(f"claimed radius, not proven: {figures}{refuted}")
  confidence = ""
  if smoothed.deterministic:
    confidence = ", without randomness"
  elif smoothed.confidence is not None:
    confidence = f", confidence {100 * smoothed.confidence:.6g}% each"
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
