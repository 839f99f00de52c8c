"""Do audits, membership inference and attacks on radii fit what is stated?

    audited dp_epsilon <= proven dp_epsilon,
    advantage of membership inference <= what proven DP allows
      (`leakage`, equations 3 and 4), by the lower end of its interval,
    share of violated radii <= 1 - confidence, beyond chance; without
      randomness there is none at all. Attacks that would not have seen radii
      ten times as large agree with everything: that is a note, no pass.

An attack that breaks one of them refutes what is stated, whoever stated it.
"""

from __future__ import annotations

import math

from tf_privrob.records import audits as audits_lib
from tf_privrob.report import formats
from tf_privrob.report import leakage as leakage_lib
from tf_privrob.report import results as results_lib
from tf_privrob.report.verdicts import Check
from tf_privrob.report.verdicts import FAIL
from tf_privrob.report.verdicts import NOT_RUN
from tf_privrob.report.verdicts import NOTE
from tf_privrob.report.verdicts import PASS
from tf_privrob.report.verdicts import WARN


def audits_below_bounds(results: results_lib.Results) -> Check:
  """Each audit against what was proven, and claimed, for what it audited."""
  title = "No audit shows more than is stated"
  if not results.audits:
    return Check(NOT_RUN, title, "No audit was run on this model.")
  wrong = [
    f"{audit.label} {audit.verdict} ({formats.privacy_figures(audit)})"
    for audit in results.audits
    if audit.refutes_proven or audit.refutes_claimed
  ]
  if wrong:
    return Check(FAIL, title, f"{'; '.join(wrong)}.")
  unproven = [audit for audit in results.audits if audit.proven is None]
  found = "; ".join(
    f"{audit.label}: {audit.verdict}" for audit in results.audits
  )
  return Check(WARN if unproven else PASS, title, f"{found}.")


def statement_has_the_audit(results: results_lib.Results) -> Check:
  """The statement's audited figure is the largest of the run's own audits."""
  title = "The privacy statement shows the strongest audit of this run"
  own = [a for a in results.audits if a.scope == audits_lib.OWN_SCOPE]
  if not own or results.privacy is None:
    return Check(NOT_RUN, title, "Needs a statement and an audit of the run.")
  strongest = max(own, key=lambda audit: audit.audited)
  stated = results.privacy.audited
  if stated is not None and stated >= strongest.audited * (1 - 1e-9):
    detail = f"Stated: {formats.privacy_figures(results.privacy)}."
    return Check(PASS, title, detail)
  return Check(
    WARN,
    title,
    f"{strongest.label} found >= {formats.dp_epsilon_lower(strongest.audited)}"
    f" at dp_delta {formats.dp_delta_lower(strongest.dp_delta)}, but"
    f" privacy.json has: {formats.privacy_figures(results.privacy)}.",
  )


def membership_below_bound(results: results_lib.Results) -> Check:
  """No strategy's advantage is surely above what proven DP allows."""
  title = "Membership inference stays below what the proof allows"
  membership, statement = results.membership, results.privacy
  if membership is None:
    return Check(NOT_RUN, title, "No membership inference was run.")
  budget = leakage_lib.replaced(statement)
  if budget is None:
    best = membership.headline
    return Check(
      NOTE,
      title,
      f"No privacy is proven, so any advantage is possible; {best.label} had"
      f" {best.advantage:.3f}.",
    )
  most = leakage_lib.most_advantage(budget)
  wrong = [
    f"{item.label}: advantage {item.advantage:.3f}, surely above"
    f" {item.least_advantage:.3f}"
    for item in membership.strategies
    if item.least_advantage is not None and item.least_advantage > most
  ]
  allowed = (
    f"Proven {formats.proven(statement)} allows an advantage of"
    f" {formats.upper(most)} where one example replaces another"
  )
  if wrong:
    return Check(
      FAIL,
      title,
      f"{'; '.join(wrong)}. {allowed}: the proof does not describe what the"
      " code did, or members and non-members are not drawn alike. (The"
      " intervals do not count the chance of this one training.)",
    )
  best = max(item.advantage for item in membership.strategies)
  return Check(PASS, title, f"{allowed}; the largest found is {best:.3f}.")


def radii_withstand(results: results_lib.Results) -> Check:
  """Attacks within the radii change no more answers than chance explains."""
  audit = results.certificate_audit
  if audit is None:
    title = "Radii withstand attacks within them"
    return Check(NOT_RUN, title, "No radius was attacked.")
  title = f"{audit.word.capitalize()} radii withstand attacks within them"
  found = (
    f"{audit.violations} of {audit.count:,} violated, allowed"
    f" {100 * audit.allowed:.4g}%"
  )
  if not audit.violated:
    status = NOTE if math.isinf(audit.detectable) else PASS
    detail = f"{found}: {audit.verdict}; {audit.short_power}."
    return Check(status, title, detail)
  if audit.proven:
    why = "a certificate is wrong: do not rely on any of them"
  else:
    why = "the claimed radii are refuted"
  return Check(FAIL, title, f"{found}: {why}.")
