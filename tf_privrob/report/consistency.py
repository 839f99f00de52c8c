"""Do the numbers of one run agree with each other, and with the attacks on it?

For one classifier and one norm, theory orders three figures at every radius r:

    certified accuracy(r) <= attacked accuracy(r) <= clean accuracy,

because a certificate bounds what any attack can do, and an attack can always
do nothing. Randomised smoothing certifies another classifier than the one
attacked, so there the left part is shown as an observation, not as a law.
What was attacked must stand:

    audited dp_epsilon <= proven dp_epsilon, or the proof does not describe
      the code,
    advantage of membership inference <= what proven DP allows
      (`leakage`, equations 3 and 4), by the lower end of its interval,
    share of violated radii <= 1 - confidence, beyond chance; without
      randomness there is none at all. Attacks that would not have seen radii
      ten times as large agree with everything: that is a note, no pass.

Differences that chance explains (overlapping intervals) raise no alarm.
"""

from __future__ import annotations

import dataclasses
import math

from tf_privrob import records
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.records import audits as audits_lib
from tf_privrob.records.evaluation import CurvePoint
from tf_privrob.report import formats
from tf_privrob.report import headlines
from tf_privrob.report import leakage
from tf_privrob.report import results as results_lib

PASS = "pass"
NOTE = "note"
WARN = "warn"
FAIL = "fail"
NOT_RUN = "not run"
_SINGLE_STEP = frozenset({"fgsm", "fgm"})


@dataclasses.dataclass(frozen=True)
class Check:
  """One comparison: its status, what must hold, and what was found."""

  status: str
  title: str
  detail: str


Checks = tuple[Check, ...]


def checks(results: results_lib.Results) -> Checks:
  """All comparisons that a run allows, those that could not be made too."""
  return (
    _privacy_order(results),
    _claim_is_proven(results),
    _history_within_proof(results),
    _attacked_below_clean(results),
    _size_helps_attacker(results),
    _iterations_help_attacker(results),
    _curve_falls(results),
    _certified_below_attacked(results),
    _audits_below_bounds(results),
    _statement_has_the_audit(results),
    _membership_below_bound(results),
    _radii_withstand(results),
  )


def refutation(statement: statement_lib.PrivacyStatement) -> str:
  """What an audit that exceeds a stated figure means; "" if none does."""
  if not statement.violated:
    return ""
  proven = statement.proven
  if proven is not None and statement.audited > proven.dp_epsilon:
    return (
      "The audit demonstrated more leakage than the proof allows, so the proof"
      " does not describe what this code did: do not release this model."
    )
  return (
    "The audit demonstrated more leakage than is claimed: the claim is false"
    " for this model."
  )


def _privacy_order(results: results_lib.Results) -> Check:
  title = "Audited privacy loss stays below the stated bounds"
  statement = results.privacy
  if statement is None or statement.audited is None:
    detail = "No audit of this run\u2019s own settings is in its statement."
    return Check(NOT_RUN, title, detail)
  figures = f"Here: {formats.privacy_figures(statement)}."
  if statement.violated:
    return Check(FAIL, title, f"{refutation(statement)} {figures}")
  if statement.proven is None:
    detail = f"An attack found leakage that no proof bounds. {figures}"
    return Check(WARN, title, detail)
  return Check(PASS, title, figures)


def _claim_is_proven(results: results_lib.Results) -> Check:
  title = "The claimed budget is supported by the proof"
  statement = results.privacy
  if statement is None:
    return Check(NOT_RUN, title, "There is no privacy statement.")
  if statement.claimed is None:
    return Check(PASS, title, "Nothing is claimed beyond the proof.")
  figures = f"Here: {formats.privacy_figures(statement)}."
  supported = claim_is_supported(statement)
  return Check(PASS if supported else WARN, title, figures)


def claim_is_supported(statement: statement_lib.PrivacyStatement) -> bool:
  """Whether the proven budget is at most the claimed one."""
  claimed, proven = statement.claimed, statement.proven
  return (
    proven is not None
    and proven.dp_epsilon <= claimed.dp_epsilon * (1 + 1e-6)
    and proven.dp_delta <= claimed.dp_delta * (1 + 1e-6)
  )


def _history_within_proof(results: results_lib.Results) -> Check:
  title = "The loss recorded while training fits the statement"
  spent = [row.number("dp_epsilon") for row in results.history]
  spent = [value for value in spent if value is not None]
  statement = results.privacy
  if not spent or statement is None or statement.proven is None:
    return Check(NOT_RUN, title, "Needs a history and a proven bound.")
  last, proven = max(spent), statement.proven.dp_epsilon
  detail = (
    f"Recorded {formats.dp_epsilon(last)}, stated {formats.dp_epsilon(proven)}."
  )
  return Check(PASS if last <= proven * 1.001 else WARN, title, detail)


def _attacked_below_clean(results: results_lib.Results) -> Check:
  title = "No attack leaves more accuracy than no attack"
  if results.clean is None or not results.attacks:
    return Check(NOT_RUN, title, "Needs clean and attacked accuracy.")
  wrong = [
    f"{_name(attack)} left {formats.percent(attack.accuracy)}"
    for attack in results.attacks
    if _clearly_above(attack, results.clean)
  ]
  if wrong:
    return Check(
      WARN,
      title,
      f"Clean accuracy is {formats.percent(results.clean.accuracy)}, but"
      f" {'; '.join(wrong)}.",
    )
  return Check(
    PASS, title, f"Holds for all {len(results.attacks)} attack results."
  )


def _size_helps_attacker(results: results_lib.Results) -> Check:
  title = "A larger attack never leaves more accuracy"
  pairs, wrong = 0, []
  for name in results.attack_names:
    for norm in ("linf", "l2", "l1"):
      series = sorted(
        (a for a in results.attacks if (a.name, a.norm) == (name, norm)),
        key=lambda attack: attack.attack_eps,
      )
      for small, large in zip(series, series[1:]):
        pairs += 1
        if _clearly_above(large, small):
          wrong.append(f"{_name(large)} is weaker than {_name(small)}")
  if not pairs:
    return Check(NOT_RUN, title, "Needs one attack at two sizes.")
  return _compared(title, wrong, f"for all {pairs} neighbouring sizes")


def _iterations_help_attacker(results: results_lib.Results) -> Check:
  title = "Iterated attacks are at least as strong as one step"
  pairs, wrong = 0, []
  single = [a for a in results.attacks if a.name.lower() in _SINGLE_STEP]
  for one in single:
    same_size = [
      attack
      for attack in results.attacks
      if (attack.norm, attack.attack_eps) == (one.norm, one.attack_eps)
      and (attack.steps or 1) > 1
    ]
    if same_size:
      pairs += 1
      best = min(same_size, key=lambda attack: attack.accuracy)
      if _clearly_above(best, one):
        wrong.append(f"{_name(one)} beats {_name(best)}")
  if not pairs:
    return Check(NOT_RUN, title, "Needs FGSM and an iterated attack.")
  return _compared(title, wrong, f"at all {pairs} sizes where both were run")


def _compared(title: str, wrong: list[str], where: str) -> Check:
  """Attacks of which one should be the stronger: those that were not."""
  if wrong:
    detail = f"{'; '.join(wrong)}: a sign of masked gradients."
    return Check(WARN, title, detail)
  return Check(PASS, title, f"Holds {where}.")


def _curve_falls(results: results_lib.Results) -> Check:
  smoothed = results.smoothed
  if smoothed is None:
    title = "Certified accuracy falls with the radius"
    return Check(NOT_RUN, title, "No certification was run.")
  title = f"{smoothed.word.capitalize()} accuracy falls with the radius"
  for near, far in zip(smoothed.curve, smoothed.curve[1:]):
    if far.accuracy > near.accuracy + 1e-9:
      return Check(
        WARN,
        title,
        f"It rises from radius {formats.number(near.radius)} to"
        f" {formats.number(far.radius)}, which no set of certificates can do.",
      )
  return Check(PASS, title, f"Holds over {len(smoothed.curve)} radii.")


def _certified_below_attacked(results: results_lib.Results) -> Check:
  smoothed = results.smoothed
  word = smoothed.word if smoothed else "certified"
  title = f"{word.capitalize()} \u2264 attacked accuracy at the same radius"
  pairs = [] if smoothed is None else comparable(results)
  if not pairs:
    return Check(
      NOT_RUN, title, "Needs certificates and attacks in the same norm."
    )
  above = [
    (point, attack) for point, attack in pairs if _clearly_above(point, attack)
  ]
  if not above:
    others = (
      ", though the radii belong to the smoothed classifier and the attacks"
      " were run on the network without noise"
    )
    found = "" if smoothed.deterministic else others
    text = f"Holds at all {len(pairs)} comparable sizes{found}."
    return Check(PASS, title, text)
  found = "; ".join(
    f"{word} {formats.percent(point.accuracy)} at radius"
    f" {formats.number(point.radius)}, {_name(attack)} leaves"
    f" {formats.percent(attack.accuracy)}"
    for point, attack in above
  )
  if smoothed.deterministic:
    return Check(
      WARN,
      title,
      f"{found}. Both are about the same network: a {word} radius is wrong, or"
      " they are of different examples.",
    )
  return Check(
    NOTE,
    title,
    f"{found}. Not a contradiction: the radii belong to the smoothed"
    " classifier, and the attacks were run on the network without noise.",
  )


def comparable(
  results: results_lib.Results,
) -> list[tuple[CurvePoint, records.AttackResult]]:
  """Each attacked size with the certified accuracy that it must not undercut.

  Robust accuracy falls with the size, so an attack of size s is held against
  the curve at the smallest radius >= s.
  """
  smoothed = results.smoothed
  pairs = []
  for (norm, size), attack in headlines.worst_by_size(results.attacks).items():
    points = [p for p in smoothed.curve if p.radius >= size]
    if norm == smoothed.norm and points:
      pairs.append((points[0], attack))
  return pairs


def _name(attack: records.AttackResult) -> str:
  size = formats.number(attack.attack_eps)
  return f"{attack.name} {formats.norm(attack.norm)} {size}"


def _clearly_above(first, second) -> bool:
  """Whether the first accuracy is above the second beyond chance."""
  if first.interval is not None and second.interval is not None:
    return first.interval[0] > second.interval[1]
  return first.accuracy > second.accuracy


def _audits_below_bounds(results: results_lib.Results) -> Check:
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


def _statement_has_the_audit(results: results_lib.Results) -> Check:
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


def _membership_below_bound(results: results_lib.Results) -> Check:
  """No strategy's advantage is surely above what proven DP allows."""
  title = "Membership inference stays below what the proof allows"
  membership, statement = results.membership, results.privacy
  if membership is None:
    return Check(NOT_RUN, title, "No membership inference was run.")
  budget = leakage.replaced(statement)
  if budget is None:
    best = membership.headline
    return Check(
      NOTE,
      title,
      f"No privacy is proven, so any advantage is possible; {best.label} had"
      f" {best.advantage:.3f}.",
    )
  most = leakage.most_advantage(budget)
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


def _radii_withstand(results: results_lib.Results) -> Check:
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
