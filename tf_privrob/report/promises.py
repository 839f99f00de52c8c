"""What may be promised about a model, in plain sentences.

Three lists: what is proven and not refuted, which may be promised; what was
measured, which may be reported as a measurement and guarantees nothing; and
what must not be promised: claims that no proof supports or that an audit
refutes, and every part that was not run. A sentence of the first two lists
never contains a claimed figure.
"""

from __future__ import annotations

import dataclasses

from tf_privrob import run_folder
from tf_privrob.records import schema
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import headlines
from tf_privrob.report import leakage as leakage_lib
from tf_privrob.report import results as results_lib
from tf_privrob.report.consistency import Checks

NEIGHBOURING = {
  "add_or_remove_one": "adding or removing",
  "replace_one": "replacing",
}
NOTHING = (
  "Nothing: no guarantee of this model is proven, or what is proven is refuted."
)


@dataclasses.dataclass(frozen=True)
class Promises:
  """Sentences: may be promised, may be reported, must not be promised."""

  may: tuple[str, ...]
  measured: tuple[str, ...]
  must_not: tuple[str, ...]


def find(results: results_lib.Results, checks: Checks) -> Promises:
  """Builds the three lists from what a run proved and measured."""
  leak = refuted_proof(results)
  may = [_privacy(results, leak), _robustness(results)]
  measured = [
    _clean(results),
    _attacked(results),
    _audited(results),
    _membership(results),
    _withstood(results),
  ]
  must_not = [
    *_not_private(results, leak),
    *_not_robust(results),
    *_not_covered(results),
    *_not_run(results),
  ]
  failed = [check.title for check in checks if check.status == consistency.FAIL]
  if failed:
    must_not.append(
      "Anything that rests on these figures before they are explained: this is"
      f" violated: {'; '.join(failed)}."
    )
  return Promises(
    tuple(item for item in may if item) or (NOTHING,),
    tuple(item for item in measured if item),
    tuple(must_not),
  )


def refuted_proof(results: results_lib.Results) -> str:
  """How the proven privacy was refuted; "" if it was not."""
  statement = results.privacy
  if statement is None or statement.proven is None:
    return ""
  proven = statement.proven
  if statement.audited is not None and statement.audited > proven.dp_epsilon:
    return "an audit demonstrated more leakage than the proof allows"
  for audit in results.audits:
    if audit.refutes_proven:
      return f"{audit.label} demonstrated more leakage than the proof allows"
  most = leakage_lib.most_advantage(leakage_lib.replaced(statement))
  for item in results.membership.strategies if results.membership else ():
    least = item.least_advantage
    if least is not None and least > most:
      return f"{item.label} infers membership better than the proof allows"
  return ""


def _privacy(results: results_lib.Results, leak: str) -> str:
  statement = results.privacy
  if statement is None or statement.proven is None or leak:
    return ""
  change = NEIGHBOURING.get(statement.neighbouring, statement.neighbouring)
  condition = f", but {statement.condition}" if statement.condition else ""
  sentence = (
    f"Its training is {formats.budget(statement.proven)}-differentially"
    f" private{condition}: {change} any one training example changes the"
    " probability of any outcome by a factor of at most e to the power of"
    f" {formats.dp_epsilon(statement.proven.dp_epsilon)}"
  )
  if statement.proven.dp_delta > 0:
    delta = formats.dp_delta(statement.proven.dp_delta)
    sentence += f", up to a remainder of {delta}"
  caveats = len(statement.caveats)
  if caveats:
    sentence += (
      f"; to be read with its {caveats} caveat{'s' if caveats > 1 else ''}"
    )
  return f"{sentence}."


def _robustness(results: results_lib.Results) -> str:
  smoothed = results.smoothed
  if smoothed is None or not smoothed.proven or results.radii_refuted:
    return ""
  point = headlines.headline_radius(smoothed)
  how = "with certainty"
  if not smoothed.deterministic:
    how = "with a confidence that is not stated"
    if smoothed.confidence is not None:
      how = f"each with confidence {100 * smoothed.confidence:.6g}%"
  if smoothed.condition:
    how += f", {smoothed.condition}"
  of = f"{smoothed.count:,} test examples" if smoothed.count else "its sample"
  whom = smoothed.subject.replace("smoothed", "the smoothed")
  return (
    f"On {formats.percent(point.accuracy)} of {of}"
    f"{_interval(point.interval)}, {whom} is right and no change of"
    f" {formats.norm(smoothed.norm)} size below {formats.number(point.radius)}"
    f" alters its answer, {how}."
  )


def _interval(bounds: schema.Interval | None) -> str:
  if bounds is None:
    return ""
  return f" (95% interval {formats.interval(bounds)})"


def _clean(results: results_lib.Results) -> str:
  clean = results.clean
  if clean is None:
    return ""
  of = f"{clean.count:,} test examples" if clean.count else "the test examples"
  return (
    f"It classifies {formats.percent(clean.accuracy)} of {of}"
    f"{_interval(clean.interval)} right; data that differ from them may do"
    " worse."
  )


def _attacked(results: results_lib.Results) -> str:
  worst = headlines.headline_attack(results.attacks)
  if worst is None:
    return ""
  return (
    f"The strongest attack tried of {formats.norm(worst.norm)} size"
    f" {formats.number(worst.attack_eps)}, {worst.name}, left"
    f" {formats.percent(worst.accuracy)}{_interval(worst.interval)}; a better"
    " attack may leave less."
  )


def _audited(results: results_lib.Results) -> str:
  statement = results.privacy
  if statement is None or statement.audited is None:
    return ""
  lower = formats.dp_epsilon_lower(statement.audited)
  note = f" ({statement.audit_note})" if statement.audit_note else ""
  return (
    f"Audits demonstrated a dp_epsilon of at least {lower}{note}; that they"
    " found no more proves nothing."
  )


def _membership(results: results_lib.Results) -> str:
  membership = results.membership
  if membership is None:
    return ""
  best = membership.headline
  sentence = (
    f"The strongest of {len(membership.strategies)} membership inferences,"
    f" {best.label}, was right {formats.percent(best.balanced_accuracy)} of the"
    f" time{_interval(best.interval)} where guessing is right 50.0%"
  )
  budget = leakage_lib.replaced(results.privacy)
  if budget is not None:
    most = (1 + leakage_lib.most_advantage(budget)) / 2
    condition = results.privacy.condition
    beside = f" ({condition})" if condition else ""
    allowed = f"{formats.upper(100 * most, 1)}%"
    sentence += f" and the proven privacy{beside} allows {allowed}"
  return (
    f"{sentence}; a better one may do better. Computed on the private training"
    " data: not covered by the guarantee."
  )


def _withstood(results: results_lib.Results) -> str:
  audit = results.certificate_audit
  if audit is None or not audit.proven or results.radii_refuted:
    return ""
  found = "none" if not audit.violations else f"{audit.violations}"
  return (
    f"Attacks within {audit.count:,} certified radii broke {found} of them"
    f" ({audit.verdict}). {audit.power}"
  )


def _not_private(results: results_lib.Results, leak: str) -> list[str]:
  statement = results.privacy
  if statement is None:
    return []
  found = []
  figures = formats.privacy_figures(statement)
  if leak:
    found.append(f"Any privacy: {leak} ({figures}).")
  elif statement.proven is None:
    found.append(
      "Any privacy: no theorem is known to bound what this model reveals about"
      f" a training example ({figures})."
    )
  claimed = statement.claimed
  refuted = any(audit.refutes_claimed for audit in results.audits) or (
    claimed is not None
    and statement.audited is not None
    and statement.audited > claimed.dp_epsilon
  )
  if refuted:
    found.append(f"The claimed privacy: an audit refutes it ({figures}).")
  elif claimed is not None and not consistency.claim_is_supported(statement):
    found.append(f"The claimed privacy: it is not proven ({figures}).")
  return found


def _not_robust(results: results_lib.Results) -> list[str]:
  smoothed, audit = results.smoothed, results.certificate_audit
  if results.radii_refuted:
    return [
      f"The {audit.word} radii: attacks within them changed"
      f" {audit.violations} of {audit.count:,} answers, so they are refuted."
    ]
  if smoothed is not None and not smoothed.proven:
    audited = "not attacked yet" if audit is None else audit.verdict
    return [
      "The claimed radii: no theorem known to us supports them (attacks within"
      f" them: {audited})."
    ]
  return []


def _not_covered(results: results_lib.Results) -> list[str]:
  """Figures that were computed on the private data and are in no budget."""
  found = []
  names = {name for row in results.history for name in row.figures}
  if any(name.startswith(run_folder.NONPRIVATE) for name in names):
    found.append("training statistics under nonprivate/")
  if results.membership is not None:
    found.append("results of membership inference")
  if results.audits:
    found.append("results of audits")
  if not found or results.privacy is None or results.privacy.proven is None:
    return []
  return [
    f"That a publication of {' or '.join(found)} is private: no budget"
    " counts figures computed on the training data."
  ]


def _not_run(results: results_lib.Results) -> list[str]:
  """One sentence for all parts that nobody has looked at."""
  parts = (
    ("a privacy statement", results.privacy is None),
    ("clean accuracy", results.clean is None),
    ("accuracy under attack", not results.attacks),
    ("radii", results.smoothed is None),
    ("attacks on radii", results.certificate_audit is None),
    ("membership inference", results.membership is None),
    (
      "audits of privacy",
      not results.audits
      and (results.privacy is None or results.privacy.audited is None),
    ),
  )
  missing = [name for name, absent in parts if absent]
  if not missing:
    return []
  return [f"Anything about what was not run: {', '.join(missing)}."]
