"""What the templates show of a run, where it is more than a record's field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.privacy import rounding
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import formats
from tf_privrob.report import headlines
from tf_privrob.report import leakage
from tf_privrob.report import plots
from tf_privrob.report import promises
from tf_privrob.report import results as results_lib

_NONPRIVATE = run_folder.NONPRIVATE
_MOST_CURVES = 5
_SAMPLERS = {
  "poisson": "Poisson: each example by its own coin",
  "shuffle": "shuffled batches",
  "fixed": "batches of one size, no amplification",
  "full_batch": "all examples in each step",
  "none": "no mini-batches",
}


class Figure(NamedTuple):
  """A plot, or a picture, under its caption."""

  svg: str
  caption: str
  small: str = ""


class Fact(NamedTuple):
  """A name and a figure; `exact` is the figure for machines, if it is one."""

  name: str
  text: str
  exact: Any = None


# The run.


def lede(results: results_lib.Results) -> str:
  """One sentence on what was trained, from whatever is known."""
  run = results.run
  if results.predictions:
    return "No model is here: what one said, and was stored, is judged."
  if results.config is None:
    return "This folder has no configuration: nothing was trained in it yet."
  network = f"Network {results.network}"
  if run.parameters is not None:
    network += f" with {run.parameters:,} parameters"
  trained = ""
  if run.dataset.num_train is not None:
    trained += f", trained on {run.dataset.num_train:,} examples"
  if run.train_seconds is not None:
    trained += f" in {formats.duration(run.train_seconds)}"
  if run.device:
    trained += f" on {run.device}"
  when = f" {formats.moment(run.created)}." if run.created else ""
  return f"{network}{trained}.{when}"


def training_facts(results: results_lib.Results) -> str:
  """How long it was trained, in a sentence."""
  run = results.run
  facts = [f"{len(results.history):,} epochs recorded"]
  if run.steps is not None:
    facts.append(f"{run.steps:,} steps")
  if run.train_seconds is not None:
    facts.append(formats.duration(run.train_seconds))
  if run.sessions is not None and run.sessions > 1:
    again = f"{run.sessions - 1:g} times" if run.sessions > 2 else "once"
    facts.append(f"resumed {again}")
  return ", ".join(facts) + "."


def training_figures(results: results_lib.Results) -> list[Figure]:
  """What the guarantee covers, over the epochs."""
  rows, statement = results.history, results.privacy
  found = []
  if plots.history_keys(rows, "eval_accuracy"):
    svg = plots.history(rows, "eval_accuracy", color=0, share=True)
    found.append(Figure(svg, "Accuracy on the test set"))
  if plots.history_keys(rows, "dp_epsilon"):
    proven = statement.proven if statement is not None else None
    caption = "dp_epsilon as accounted; none is proven of this model"
    if proven is not None:
      delta = formats.dp_delta(proven.dp_delta)
      caption = f"dp_epsilon spent, at dp_delta = {delta}"
      if statement.condition:
        caption += f"; proven {statement.condition}"
    limit = proven and proven.dp_epsilon
    svg = plots.history(rows, "dp_epsilon", color=3, limit=limit)
    found.append(Figure(svg, caption))
  return found


def uncovered_figures(results: results_lib.Results) -> list[Figure]:
  """Statistics of the private data that no noise protects."""
  rows, found = results.history, []
  for index, key in enumerate(plots.history_keys(rows, _NONPRIVATE)):
    values = [row.number(key) for row in rows]
    share = key.endswith(("accuracy", "fraction")) and all(
      item is None or 0 <= item <= 1 for item in values
    )
    svg = plots.history(
      rows, key, color=(4 + index) % 6, share=share, width=300, height=200
    )
    name = key[len(_NONPRIVATE) :].replace("_", " ")
    found.append(Figure(svg, name.capitalize()))
  return found


def flat(fields: Mapping[str, Any], prefix: str = "") -> list[Fact]:
  """Nested fields as dotted names."""
  found = []
  for name, item in fields.items():
    if isinstance(item, Mapping) and item:
      found += flat(item, f"{prefix}{name}.")
    else:
      found.append(Fact(f"{prefix}{name}", formats.number(item), item))
  return found


def times(results: results_lib.Results) -> list[Fact]:
  """Versions, machine, and the time of every part."""
  run = results.run
  found = [Fact(name, str(item)) for name, item in run.versions.items()]
  if run.device:
    found.append(Fact("device", run.device))
  attacks = [a.seconds for a in results.attacks if a.seconds is not None]
  smoothed = results.smoothed
  for name, seconds in (
    ("time to train", run.train_seconds),
    ("time to attack", sum(attacks) if attacks else None),
    ("time to certify", smoothed and smoothed.seconds),
  ):
    if seconds is not None:
      found.append(Fact(name, formats.duration(seconds)))
  return found


# Privacy.


def change(statement: statement_lib.PrivacyStatement) -> str:
  """What two neighbouring data sets differ by, as a verb."""
  name = statement.neighbouring
  return promises.NEIGHBOURING.get(name, name)


def accountant_facts(statement: statement_lib.PrivacyStatement) -> list[Fact]:
  """Both accountants' figures, what they are about, and who computed them."""
  accountant, found = statement.accountant, []
  for name in ("pld", "rdp"):
    figure = accountant.get(name)
    if isinstance(figure, (int, float)):
      finite = math.isfinite(figure)
      text = rounding.up(figure) if finite else "no finite figure"
      headline = " (headline)" if accountant.get("name") == name else ""
      label = f"dp_epsilon by {name.upper()}{headline}"
      found.append(Fact(label, text, figure))
  sampling = _SAMPLERS.get(statement.sampler, statement.sampler)
  found.append(Fact("neighbouring data sets", f"{change(statement)} one"))
  found.append(Fact("sampling", sampling))
  mu = statement.gaussian_mu
  if mu is not None:
    name = "mu of Gaussian DP, dp_delta \u2265 1e-10"
    found.append(Fact(name, rounding.up(mu), mu))
  if accountant:
    library = f"{accountant.get('library')} {accountant.get('version')}"
    by = accountant.get("rdp_library", library)
    if by != library:
      library += f", RDP with {by}"
    found.append(Fact("computed with", library))
  return found


def factor(dp_epsilon: float) -> str:
  """e^dp_epsilon, rounded up; "" where nobody can imagine it."""
  if dp_epsilon > 13:
    return ""
  return f"{float(formats.dp_epsilon(math.exp(dp_epsilon))):,g}"


# Under attack, and certified.


def attack_figures(results: results_lib.Results) -> list[Figure]:
  """Accuracy against the size, one plot for each norm."""
  attacks, names = results.attacks, results.attack_names
  return [
    Figure(
      plots.attack_curves(attacks, norm, names, results.clean),
      f"Accuracy under {formats.norm(norm)} attacks",
      "bands: 95% intervals",
    )
    for norm in dict.fromkeys(attack.norm for attack in attacks)
  ]


def radius_figure(results: results_lib.Results) -> Figure:
  """Accuracy against the radius."""
  svg = plots.certified_curve(results.smoothed, results.attacks)
  caption = f"{results.smoothed.word.capitalize()} accuracy against the radius"
  return Figure(svg, caption, "band: 95% interval")


def attacked(results: results_lib.Results) -> str:
  """What the attacks were against."""
  noisy = next((a for a in results.attacks if a.verdict_draws), None)
  if noisy is None:
    return "the network, without noise"
  return (
    "the classifier that the noise inside the network makes: attacks climb the"
    f" mean over {noisy.eot_draws} draws, and the majority of"
    f" {noisy.verdict_draws} fresh ones is its answer"
  )


class Attacks(NamedTuple):
  """The table of one norm: its sizes, a row for each attack, examples."""

  norm: str
  sizes: list[float]
  rows: list[tuple]
  counts: str


def attack_tables(results: results_lib.Results) -> list[Attacks]:
  """Rows of name, steps, restarts, (result, whether the worst), seconds."""
  worst, found = headlines.worst_by_size(results.attacks), []
  for norm in dict.fromkeys(attack.norm for attack in results.attacks):
    attacks = [attack for attack in results.attacks if attack.norm == norm]
    sizes, rows = sorted({a.attack_eps for a in attacks}), []
    for key in dict.fromkeys((a.name, a.steps, a.restarts) for a in attacks):
      mine = {
        a.attack_eps: a for a in attacks if (a.name, a.steps, a.restarts) == key
      }
      cells = [
        (a, a is not None and a.accuracy == worst[norm, size].accuracy)
        for size, a in ((size, mine.get(size)) for size in sizes)
      ]
      seconds = [a.seconds for a in mine.values() if a.seconds is not None]
      rows.append((*key, cells, sum(seconds) if seconds else None))
    counts = sorted({a.count for a in attacks if a.count})
    of = " and ".join(f"{count:,}" for count in counts) or "unknown"
    found.append(Attacks(norm, sizes, rows, of))
  return found


def attack_warnings(results: results_lib.Results) -> dict[str, list[str]]:
  """Where each warning was given, by its text."""
  found: dict[str, list[str]] = {}
  for attack in results.attacks:
    for text in attack.warnings:
      size = formats.number(attack.attack_eps)
      where = f"{attack.name} {formats.norm(attack.norm)} {size}"
      if where not in found.setdefault(text, []):
        found[text].append(where)
  return found


def sample(result) -> str:
  """Of how many examples, and the interval that follows from it."""
  parts = []
  if result.count:
    parts.append(f"{result.count:,} test examples")
  if result.interval is not None:
    parts.append(f"95% interval {formats.interval(result.interval)}")
  return "; ".join(parts)


def others(items: Sequence[Any], shown: Any) -> list[Any]:
  """A few of them, evenly spread, without the one that is shown already."""
  return headlines.spread([item for item in items if item is not shown], 3)


# Membership.


def curves(
  membership: records.Membership,
) -> list[tuple[str, records.Inference]]:
  """The curves to draw with their names, the largest advantage first.

  Strategies that differ by their threshold only share a curve; it is drawn
  once, under the name of the score. At most five, so that none look alike.
  """
  found: dict[records.membership.Roc, list[records.Inference]] = {}
  for item in sorted(membership.strategies, key=lambda i: -i.advantage):
    if item.roc.fpr:
      found.setdefault(item.roc, []).append(item)
  return [
    (
      items[0].label if len(items) == 1 else items[0].score.replace("_", " "),
      items[0],
    )
    for items in found.values()
  ][:_MOST_CURVES]


def roc_figure(results: results_lib.Results) -> Figure | None:
  """The ROC curves with what is proven; None if no strategy has one."""
  drawn = curves(results.membership)
  if not drawn:
    return None
  small = "both axes logarithmic"
  if len(drawn) == _MOST_CURVES:
    small += f"; the {_MOST_CURVES} of largest advantage"
  svg = plots.roc_curves(drawn, results.privacy)
  return Figure(svg, "ROC curves", small)


def allowed(results: results_lib.Results) -> float | None:
  """The largest advantage that is compatible with what is proven."""
  budget = leakage.replaced(results.privacy)
  return None if budget is None else leakage.most_advantage(budget)


# Audits.


def evidence(audit: records.Audit) -> str:
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


def confidence(value: float | None) -> str:
  """A confidence as a percentage, or that it is not stated."""
  return "not stated" if value is None else f"{100 * value:.6g}%"


def audit_status(audit: records.Audit) -> str:
  """How the verdict of an audit is to be coloured."""
  if audit.refutes_proven or audit.refutes_claimed:
    return "fail"
  if audit.proven is None:
    return "warn"
  return "pass" if audit.verdict == "below proven" else "note"


def radii_status(audit: records.CertificateAudit) -> str:
  """The same for attacks inside radii; without any power it is a note."""
  if audit.violated:
    return "fail"
  blind = math.isinf(audit.detectable)
  return "note" if audit.violations or blind else "pass"


def meaning(audit: records.CertificateAudit) -> str:
  """What the number of violations says about the radii."""
  found = f"{audit.violations:,} of {audit.count:,} answers changed."
  if audit.violated:
    if audit.proven:
      return f"{found} A certificate is wrong: do not rely on any of them."
    return f"{found} The claimed radii are refuted."
  if audit.violations:
    return (
      f"{found} Each radius may be wrong with probability"
      f" {audit.allowed:.4g}, so chance explains that many."
    )
  return f"{found}{'' if audit.proven else ' The claim is not proven by that.'}"
