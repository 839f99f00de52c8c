"""The page's privacy parts: claimed, proven and audited, always together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tf_privrob.privacy import rounding
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import promises
from tf_privrob.report import results as results_lib
from tf_privrob.report.markup import definitions
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import join
from tf_privrob.report.markup import not_run
from tf_privrob.report.markup import pill
from tf_privrob.report.markup import section
from tf_privrob.report.markup import table
from tf_privrob.report.markup import tag
from tf_privrob.report.markup import value

_CLAIMED = "What the method\u2019s authors state."
_PROVEN = "What composition theorems support for what the code really did."
_AUDITED = "What an attack on this code could demonstrate: a lower bound."
_UNPROVEN = (
  "No theorem is known to bound what this model reveals about a training"
  " example. Treat it as not private."
)
_SAMPLER = {
  "poisson": "Poisson: each example by its own coin",
  "shuffle": "shuffled batches",
  "fixed": "batches of one size, no amplification",
  "full_batch": "all examples in each step",
  "none": "no mini-batches",
}


def _change(statement: statement_lib.PrivacyStatement) -> str:
  """What two neighbouring data sets differ by, as a verb."""
  change = statement.neighbouring
  return promises.NEIGHBOURING.get(change, change)


def _budget(budget: statement_lib.Budget) -> Html:
  return tag(
    "span",
    "(",
    value(budget.dp_epsilon, formats.dp_epsilon(budget.dp_epsilon)),
    ", ",
    value(budget.dp_delta, formats.dp_delta(budget.dp_delta)),
    ")",
    css="big",
  )


def _words(text: str, css: str = "") -> Html:
  return tag("span", text, css=f"big words {css}".strip())


def _column(
  title: str, figure: Html, note: str, css: str = "", condition: str = ""
) -> Html:
  beside = [tag("p", tag("strong", condition))] if condition else []
  return tag("div", tag("h3", title), figure, *beside, tag("p", note), css=css)


def triple(statement: statement_lib.PrivacyStatement) -> Html:
  """The three figures side by side; there is no way to show only one."""
  claimed = (
    _words("nothing claimed", "absent")
    if statement.claimed is None
    else _budget(statement.claimed)
  )
  proven = (
    _words("no finite bound known")
    if statement.proven is None
    else _budget(statement.proven)
  )
  if statement.audited is None:
    audited = _words("not run", "absent")
  else:
    lower = formats.dp_epsilon_lower(statement.audited)
    audited = tag("span", "\u2265 ", value(statement.audited, lower), css="big")
  warned = "warned" if statement.proven is None else ""
  alarmed = "alarmed" if statement.violated else ""
  note = statement.audit_note or _AUDITED
  condition = statement.condition if statement.proven else ""
  return tag(
    "div",
    _column("Privacy claimed", claimed, _CLAIMED),
    _column("Privacy proven", proven, _PROVEN, warned, condition),
    _column("Privacy audited", audited, note, alarmed),
    css="triple",
  )


def card(results: results_lib.Results) -> Html:
  """The privacy card of the first row."""
  statement = results.privacy
  if statement is None:
    head = tag("h3", "Privacy: claimed, proven, audited")
    note = tag("p", "The run has no privacy statement; training writes it.")
    words = _words("not run", "absent")
    return tag("article", head, words, note, css="card wide")
  if statement.violated:
    verdict = [pill("fail", "violated"), " ", consistency.refutation(statement)]
  elif statement.proven is None:
    verdict = [pill("warn", "unproven"), " ", _UNPROVEN]
  else:
    verdict = [
      "(dp_epsilon, dp_delta) for"
      f" {_change(statement)} one training example. The"
      " smaller, the less the model can reveal about anyone."
    ]
  return tag(
    "article",
    triple(statement),
    tag("p", *verdict),
    css="card wide alarm" if statement.violated else "card wide",
  )


def privacy_section(results: results_lib.Results, command: str) -> Html:
  """Statement, caveats, both accountants, releases and assumptions."""
  statement = results.privacy
  if statement is None:
    text = "Training writes the privacy statement."
    return section("privacy", "Privacy", not_run(text, command))
  quote = tag(
    "details",
    tag("summary", "The full statement in one paragraph, to quote"),
    tag("p", statement.text()),
  )
  parts = [tag("p", _paragraph(statement), css="paragraph")]
  if statement.caveats:
    items = (tag("li", caveat) for caveat in statement.caveats)
    parts += [tag("h3", "Caveats"), tag("ul", *items, css="caveats")]
  parts += [_coverage(statement), _accountant(statement)]
  if statement.releases:
    parts.append(_releases(statement))
  if statement.assumptions:
    parts.append(_assumptions(statement))
  return section("privacy", "Privacy", *parts, quote)


def _paragraph(statement: statement_lib.PrivacyStatement) -> Html:
  """What the figures mean, for a reader who does not work with them."""
  figures = f" In short: {formats.privacy_figures(statement)}."
  proven = statement.proven
  if proven is None:
    return join([_UNPROVEN, figures])
  remainder = (
    f", up to a remainder of {formats.dp_delta(proven.dp_delta)}"
    if proven.dp_delta > 0
    else ""
  )
  if statement.condition:
    remainder += f" ({statement.condition})"
  return join(
    [
      f"Whatever else an attacker knows, {_change(statement)} any one training"
      " example changes the probability of whatever was released by a factor of"
      " at most ",
      _factor(proven.dp_epsilon),
      f"{remainder}.",
      figures,
    ]
  )


def _factor(dp_epsilon: float) -> Html:
  """e^dp_epsilon, and its value, rounded up, where one can imagine it."""
  power = join(["e", tag("sup", formats.dp_epsilon(dp_epsilon))])
  if dp_epsilon > 13:
    return power
  factor = float(formats.dp_epsilon(math.exp(dp_epsilon)))
  return join([power, f" \u2248 {factor:,g}"])


def _coverage(statement: statement_lib.PrivacyStatement) -> Html:
  return table(
    ("Question", "Answer"),
    statement.coverage(),
    caption="What the statement covers",
    css="texts",
    numeric_from=2,
  )


def _assumptions(statement: statement_lib.PrivacyStatement) -> Html:
  return table(
    ("Assumption", "Enforced by"),
    [
      (item.text, tag("code", item.enforced_by))
      for item in statement.assumptions
    ],
    caption="What the proof assumes, and where the code makes it true",
    css="texts",
    numeric_from=2,
  )


def _releases(statement: statement_lib.PrivacyStatement) -> Html:
  rows = [
    (
      release["name"],
      release.get("description", ""),
      _parameters(release.get("parameters") or {}),
      value(release["count"], formats.number(release["count"])),
    )
    for release in statement.releases
  ]
  return table(
    ("Release", "What it is", "Parameters", "Times"),
    rows,
    caption="What was released from the private data",
    css="texts",
    numeric_from=3,
  )


def _parameters(parameters: Mapping[str, Any]) -> Html:
  return join(
    (
      join([tag("code", name), " ", value(item, formats.number(item))])
      for name, item in parameters.items()
    ),
    "<br>",
  )


def _accountant(statement: statement_lib.PrivacyStatement) -> Html:
  accountant = statement.accountant
  items: list[tuple[str, str]] = []
  for name in ("pld", "rdp"):
    figure = accountant.get(name)
    if isinstance(figure, (int, float)):
      finite = math.isfinite(figure)
      text = rounding.up(figure) if finite else "no finite figure"
      headline = " (headline)" if accountant.get("name") == name else ""
      label = f"dp_epsilon by {name.upper()}{headline}"
      items.append((label, value(figure, text)))
  items += [
    ("neighbouring data sets", f"{_change(statement)} one"),
    ("sampling", _SAMPLER.get(statement.sampler, statement.sampler)),
  ]
  if statement.gaussian_mu is not None:
    mu = value(statement.gaussian_mu, rounding.up(statement.gaussian_mu))
    items.append(("mu of Gaussian DP, dp_delta \u2265 1e-10", mu))
  if accountant:
    library = f"{accountant.get('library')} {accountant.get('version')}"
    items += [("computed with", library)]
  return definitions(items)
