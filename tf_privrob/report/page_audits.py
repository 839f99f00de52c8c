"""The page's parts on audits: of privacy, and of certified radii."""

from __future__ import annotations

import math

from tf_privrob.report import audits as audits_lib
from tf_privrob.report import formats
from tf_privrob.report import results as results_lib
from tf_privrob.report.markup import definitions
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import join
from tf_privrob.report.markup import not_run
from tf_privrob.report.markup import pill
from tf_privrob.report.markup import safe
from tf_privrob.report.markup import section
from tf_privrob.report.markup import table
from tf_privrob.report.markup import tag
from tf_privrob.report.markup import value

_MOST_ROWS = 20


def audits_section(results: results_lib.Results, command: str) -> Html:
  """A table with one row for each audit of privacy."""
  title = "Audits of privacy"
  if not results.audits:
    text = "An audit demonstrates how much the training leaks at least."
    return section("audits", title, not_run(text, command))
  lead = (
    "Each audit plants records and tests for them. Its figure is a lower bound"
    " on dp_epsilon that holds with the stated confidence;"
    " \u201creachable\u201d is the most that this many runs could have shown. A"
    " low figure does not prove privacy."
  )
  head = ("Audit", "Claimed", "Proven", "Audited", "Reachable", "Evidence")
  rows = [_audit_row(audit) for audit in results.audits]
  lead = tag("p", lead, css="lead")
  return section(
    "audits",
    title,
    lead,
    table((*head, "Verdict"), rows, css="texts audits", numeric_from=7),
  )


def _audit_row(audit: audits_lib.Audit) -> tuple:
  about = [audit.scope, audit.statistic]
  if audit.canary:
    about.append(f"canary {audit.canary}")
  status = "pass"
  if audit.refutes_proven or audit.refutes_claimed:
    status = "fail"
  elif audit.proven is None:
    status = "warn"
  elif audit.verdict != "below proven":
    status = "note"
  reachable = safe("\u2013")
  if audit.reachable is not None:
    lower = formats.dp_epsilon_lower(audit.reachable)
    reachable = value(audit.reachable, lower)
  return (
    join([audit.label, tag("small", "; ".join(filter(None, about)))]),
    _budget(audit.claimed, "nothing"),
    _budget(audit.proven, "no finite bound known"),
    join(
      [
        "\u2265 ",
        value(audit.audited, formats.dp_epsilon_lower(audit.audited)),
        tag("small", f"at dp_delta {formats.dp_delta_lower(audit.dp_delta)}"),
      ]
    ),
    reachable,
    join([evidence(audit), tag("small", confidence(audit))]),
    pill(status, audit.verdict),
  )


def _budget(budget, absent: str) -> Html:
  if budget is None:
    return safe(absent)
  return tag("span", formats.budget(budget), css="nowrap")


def evidence(audit: audits_lib.Audit) -> str:
  """The counts that the bound was computed from."""
  if audit.guesses is not None:
    of = "" if audit.runs is None else f" of {audit.runs:,} canaries"
    return f"{audit.correct} of {audit.guesses:,} guesses right{of}"
  if audit.caught is not None and audit.runs is not None:
    return (
      f"{audit.caught:,} caught, {audit.false_alarms or 0:,} false alarms, of"
      f" {audit.runs:,} runs each"
    )
  return "\u2013"


def confidence(audit: audits_lib.Audit) -> str:
  """How sure the bound is."""
  if audit.confidence is None:
    return "confidence not stated"
  return f"confidence {100 * audit.confidence:.6g}%"


def certificates_section(results: results_lib.Results, command: str) -> Html:
  """Attacks within the radii: how many answers they changed."""
  audit = results.certificate_audit
  claimed = results.smoothed is not None and results.smoothed.kind != "proven"
  if audit is None:
    title = "Attacks on claimed radii" if claimed else "Attacks on certificates"
    text = "Attacks within each radius look for an answer that changes."
    return section("violations", title, not_run(text, command))
  word = "certified" if audit.proven else "claimed"
  title = (
    "Attacks on certificates" if audit.proven else ("Attacks on claimed radii")
  )
  status = {
    audits_lib.NO_VIOLATION: "pass",
    audits_lib.WITHIN: "note",
    audits_lib.VIOLATED: "fail",
  }[audit.verdict]
  if status == "pass" and math.isinf(audit.detectable):
    status = "note"
  said = audit.verdict
  if status == "fail" and not audit.proven:
    said = "refuted"
  lead = (
    f"Each {word} radius was attacked by changes that stay below it. A radius"
    " that holds leaves the answer as it is; none found does not prove that"
    " there is none."
  )
  return section(
    "violations",
    title,
    tag("p", lead, css="lead"),
    tag("p", pill(status, said), " ", meaning(audit)),
    tag("p", audit.power) if audit.power else "",
    definitions(_certificate_facts(audit, word)),
    _by_attack(audit),
    _by_factor(audit),
    _violations(audit),
  )


def meaning(audit: audits_lib.CertificateAudit) -> str:
  """What the number of violations says about the radii."""
  found = f"{audit.violations:,} of {audit.count:,} answers changed."
  if audit.verdict == audits_lib.VIOLATED:
    if audit.proven:
      return f"{found} A certificate is wrong: do not rely on any of them."
    return f"{found} The claimed radii are refuted."
  if audit.verdict == audits_lib.WITHIN:
    return (
      f"{found} Each radius may be wrong with probability"
      f" {audit.allowed:.4g}, so chance explains that many."
    )
  extra = "" if audit.proven else " The claim is not proven by that."
  return f"{found}{extra}"


def _certificate_facts(audit: audits_lib.CertificateAudit, word: str) -> list:
  rate = audit.violations / audit.count if audit.count else 0.0
  share = f"{formats.percent(rate, 2)} ({formats.interval(audit.interval)})"
  items = [
    (f"{word} radii attacked", value(audit.count, f"{audit.count:,}")),
    ("violations", value(audit.violations, f"{audit.violations:,}")),
    ("share, with 95% interval", share),
    ("share allowed", value(audit.allowed, f"{100 * audit.allowed:.4g}%")),
  ]
  if audit.method:
    items.append(("method", audit.method))
  if audit.norm:
    items.append(("norm", formats.norm(audit.norm)))
  if audit.draws is not None:
    items.append(
      ("draws of noise in each step", value(audit.draws, audit.draws))
    )
  if audit.seconds is not None:
    items.append(("time", formats.duration(audit.seconds)))
  return items


def _by_attack(audit: audits_lib.CertificateAudit) -> Html:
  if not audit.attacks:
    return Html("")
  rows = [(name, value(count, f"{count:,}")) for name, count in audit.attacks]
  return table(("Attack", "Violations"), rows)


def _by_factor(audit: audits_lib.CertificateAudit) -> Html:
  if not audit.inflated:
    return Html("")
  rows = [
    (f"{factor:g}", value(fallen, f"{fallen:,} of {audit.count:,}"))
    for factor, fallen in audit.inflated
  ]
  caption = "The same attacks inside larger balls: what would have been seen"
  return table(("Radii times", "Fell"), rows, caption=caption)


def _violations(audit: audits_lib.CertificateAudit) -> Html:
  if not audit.rows:
    return Html("")
  rows = [
    (
      f"example {_text(row.index)}",
      row.attack,
      f"{_text(row.before)} \u2192 {_text(row.after)}",
      _text(row.radius),
      _text(row.size),
    )
    for row in audit.rows[:_MOST_ROWS]
  ]
  more = len(audit.rows) - len(rows)
  caption = "Answers that changed"
  if more > 0:
    caption += f", the first {len(rows)}; {more:,} more are in the file"
  head = ("Input", "Attack", "Answer", "Radius", "Size of the change")
  return table(head, rows, caption=caption, numeric_from=3)


def _text(item) -> str:
  return "\u2013" if item is None else formats.number(item)
