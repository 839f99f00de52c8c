"""The report of one run as Markdown, for a repository or a model card.

Text from files is escaped, so that it shows as text: Markdown passes HTML on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Sequence

from tf_privrob.report import audits as audits_lib
from tf_privrob.report import card
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import leakage as leakage_lib
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import page_audits
from tf_privrob.report import page_promises
from tf_privrob.report import page_run
from tf_privrob.report import promises as promises_lib
from tf_privrob.report import results as results_lib
from tf_privrob.report import verdicts


def text(item: object) -> str:
  """Plain text as Markdown that shows it: no markup, no HTML, one line."""
  line = " ".join(str(item).split())
  line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
  return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", line)


def code(item: str) -> str:
  """A block of code, fenced by more backticks than it has."""
  longest = max((len(run) for run in re.findall("`+", item)), default=0)
  fence = "`" * max(3, longest + 1)
  return f"{fence}sh\n{item}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
  """A table; cells are plain text."""
  lines = [head, ["---"] * len(head)]
  lines[0] = [text(cell) for cell in head]
  lines += [[text(cell) for cell in row] for row in rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(items: Iterable[object]) -> str:
  """A list of sentences."""
  return "\n".join(f"- {text(item)}" for item in items)


def document(title: str, parts: Iterable[str]) -> str:
  """A page of parts that are not empty."""
  return "\n\n".join([f"# {text(title)}", *filter(None, parts)]) + "\n"


def _not_run(results: results_lib.Results, binary: str) -> str:
  command = page_run.command(results, binary)
  if binary == "train":
    command = page_run.train_command(results)
  return f"Not run. To get it:\n\n{code(command)}"


def render(
  results: results_lib.Results, checks: tuple[verdicts.Check, ...]
) -> str:
  """Returns the whole report."""
  promises = promises_lib.find(results, checks)
  sentences = []
  for name, heading in page_promises.HEADINGS:
    if getattr(promises, name):
      sentences += [f"### {heading}", bullets(getattr(promises, name))]
  return document(
    results.title,
    [
      code(card.summary(results)).replace("```sh", "```text", 1),
      _problems(results),
      "## What you may promise about this model",
      *sentences,
      "## Privacy",
      _privacy(results),
      "## Audits of privacy",
      _audits(results),
      "## Membership inference",
      _membership(results),
      "## Under attack",
      _attacks(results),
      *_radii(results),
      "## Attacks within the radii",
      _certificates(results),
      "## Do the numbers agree?",
      table(
        ("Status", "What must hold", "Found"),
        [(check.status, check.title, check.detail) for check in checks],
      ),
    ],
  )


def _problems(results: results_lib.Results) -> str:
  if not results.problems:
    return ""
  return f"Could not be read:\n\n{bullets(results.problems)}"


def privacy_cells(statement) -> tuple[str, str, str]:
  """Claimed, proven and audited; never one of them alone."""
  if statement is None:
    return ("not run",) * 3
  audited = statement.audited
  return (
    formats.budget(statement.claimed) if statement.claimed else "nothing",
    formats.proven(statement),
    "not run"
    if audited is None
    else f">= {formats.dp_epsilon_lower(audited)}"
    + (" VIOLATED" if statement.violated else ""),
  )


def _privacy(results: results_lib.Results) -> str:
  if results.privacy is None:
    return _not_run(results, "train")
  cells = table(
    ("Claimed", "Proven", "Audited"), [privacy_cells(results.privacy)]
  )
  covered = table(("What the statement covers", ""), results.privacy.coverage())
  return f"{cells}\n\n{text(results.privacy.text())}\n\n{covered}"


def _audits(results: results_lib.Results) -> str:
  if not results.audits:
    return _not_run(results, "audit")

  def row(audit: audits_lib.Audit) -> tuple:
    claimed = audit.claimed
    return (
      f"{audit.label} ({audit.scope})",
      formats.budget(claimed) if claimed else "nothing",
      formats.proven(audit),
      f">= {formats.dp_epsilon_lower(audit.audited)} at dp_delta"
      f" {formats.dp_delta_lower(audit.dp_delta)}",
      f"{page_audits.evidence(audit)}, {page_audits.confidence(audit)}",
      audit.verdict,
    )

  head = ("Audit", "Claimed", "Proven", "Audited", "Evidence", "Verdict")
  return table(head, map(row, results.audits))


def interval(bounds) -> str:
  """An interval in parentheses, or nothing."""
  return "" if bounds is None else f" ({formats.interval(bounds)})"


def _membership(results: results_lib.Results) -> str:
  membership = results.membership
  if membership is None:
    return _not_run(results, "infer")
  budget = leakage_lib.replaced(results.privacy)
  allowed = "No privacy is proven, so every advantage is possible."
  if budget is not None:
    most = leakage_lib.most_advantage(budget)
    allowed = (
      f"Proven {formats.proven(results.privacy)} allows an advantage of"
      f" {formats.upper(most)} where one example replaces another."
    )
  rows = [
    (
      item.label,
      f"{formats.percent(item.balanced_accuracy)}{interval(item.interval)}",
      advantage(item),
      "-" if item.auc is None else f"{item.auc:.3f}",
    )
    for item in membership.strategies
  ]
  head = ("Strategy", "Balanced accuracy", "Advantage", "AUC")
  warning = (
    "Computed on the private training data: not covered by the guarantee."
  )
  return f"{table(head, rows)}\n\n{text(allowed)} {warning}"


def advantage(item: leakage_lib.Inference) -> str:
  """The advantage with its interval."""
  bounds = item.advantage_interval
  more = "" if bounds is None else f" ({formats.share_interval(bounds)})"
  return f"{item.advantage:.3f}{more}"


def _attacks(results: results_lib.Results) -> str:
  if not results.attacks:
    return _not_run(results, "evaluate")
  rows = [
    (
      attack.name,
      attack.norm,
      formats.number(attack.attack_eps),
      "-" if attack.steps is None else attack.steps,
      f"{formats.percent(attack.accuracy)}{interval(attack.interval)}",
      "; ".join(attack.warnings) or "none",
    )
    for attack in results.attacks
  ]
  head = ("Attack", "Norm", "attack_eps", "Steps", "Accuracy", "Warnings")
  return table(head, rows)


def _radii(results: results_lib.Results) -> tuple[str, str]:
  smoothed = results.smoothed
  if smoothed is None:
    return "## Certified robustness", _not_run(results, "evaluate")
  word = consistency.radius_word(smoothed)
  rows = [
    (
      formats.number(point.radius),
      f"{formats.percent(point.accuracy)}{interval(point.interval)}",
    )
    for point in _thinned(smoothed.curve)
  ]
  note = ""
  if smoothed.kind != "proven":
    note = "\n\nNo theorem known to us supports these radii."
  head = (f"{smoothed.norm} radius at least", f"{word} accuracy")
  return f"## {word.capitalize()} robustness", f"{table(head, rows)}{note}"


def _thinned(curve: Sequence[metrics_lib.CurvePoint], most: int = 12):
  step = -(-len(curve) // most)
  return curve[::step]


def _certificates(results: results_lib.Results) -> str:
  audit = results.certificate_audit
  if audit is None:
    return _not_run(results, "audit_certificates")
  word = "certified" if audit.proven else "claimed"
  return (
    f"{audit.count:,} {word} radii, verdict: {text(audit.verdict)}."
    f" {text(f'{page_audits.meaning(audit)} {audit.power}')}"
  )
