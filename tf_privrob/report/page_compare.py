"""The comparison as one page: a table, and curves of what is comparable."""

from __future__ import annotations

from collections.abc import Sequence

from tf_privrob.report import audits as audits_lib
from tf_privrob.report import comparable
from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import page
from tf_privrob.report import page_run
from tf_privrob.report import plots_compare
from tf_privrob.report import promises
from tf_privrob.report.markup import figure
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import join
from tf_privrob.report.markup import not_run
from tf_privrob.report.markup import percent
from tf_privrob.report.markup import pill
from tf_privrob.report.markup import safe
from tf_privrob.report.markup import section
from tf_privrob.report.markup import table
from tf_privrob.report.markup import tag
from tf_privrob.report.markup import value

_LINKS = (
  ("runs", "Runs"),
  ("attacked", "Under attack"),
  ("radius", "Radii"),
  ("roc", "Membership"),
)
_SECTIONS = {  # title, lead, what was not run, the binary that runs it
  "attacked": (
    "Under attack",
    "The worst attack at every size; an upper bound on robustness.",
    "accuracy under attack",
    "evaluate",
  ),
  "radius": (
    "Radii",
    "Accuracy with a radius of at least r. Proven radii are called certified,"
    " claimed ones are not, and the two are never drawn together.",
    "radii",
    "evaluate",
  ),
  "roc": (
    "Membership inference",
    "The same strategy and score of each run, on log axes; the strongest"
    " strategy of each run is in the table. Computed on private training data:"
    " not covered by the guarantee.",
    "membership inference",
    "infer",
  ),
}


def render(
  runs: Sequence[comparable.Run], found: Sequence[comparable.Group]
) -> str:
  """Returns the whole page."""
  title = f"{len(runs)} runs compared"
  links = (tag("a", text, href=f"#{anchor}") for anchor, text in _LINKS)
  header = tag(
    "header",
    tag("p", "tf_privrob \u00b7 comparison", css="eyebrow"),
    tag("h1", title),
    tag("p", _lede(runs), css="lede"),
    tag("nav", *links, aria_label="Parts of this page"),
  )
  main = tag(
    "main",
    _banner("warn", comparable.differences(runs, found)),
    _banner("fail", _failures(runs)),
    _banner("warn", _problems(runs)),
    section("runs", "Runs", _table(runs)),
    *(_curves(part, runs, found) for part in _SECTIONS),
  )
  footer = tag(
    "footer",
    tag(
      "p",
      "Attack sizes and radii of the table are chosen by fixed rules that do"
      " not look at the results.",
    ),
  )
  return page.document(
    f"{title} \u00b7 tf_privrob", join([header, main, footer], "\n")
  )


def _lede(runs: Sequence[comparable.Run]) -> str:
  names = ", ".join(dict.fromkeys(run.results.title for run in runs))
  return f"{names}."


def _failures(runs: Sequence[comparable.Run]) -> list[str]:
  return [
    f"A guarantee of {run.name} is violated: {'; '.join(run.failed)}."
    for run in runs
    if run.failed
  ]


def _problems(runs: Sequence[comparable.Run]) -> list[str]:
  return [
    f"{run.name}: could not be read: {problem}"
    for run in runs
    for problem in run.results.problems
  ]


def _banner(css: str, sentences: Sequence[str]) -> Html:
  if not sentences:
    return Html("")
  items = (tag("li", sentence) for sentence in sentences)
  return tag("div", tag("ul", *items), css=f"banner {css}", role="alert")


def _table(runs: Sequence[comparable.Run]) -> Html:
  head = (
    "Run",
    "Privacy claimed",
    "proven",
    "audited",
    "Clean",
    "Under attack",
    "Radius",
    "Membership advantage (not covered by the guarantee)",
    "Violations",
  )
  small = "privacy as (dp_epsilon, dp_delta); with 95% intervals"
  return table(
    head,
    [_row(run) for run in runs],
    caption=join(["Figures ", tag("small", small)]),
    css="compare",
  )


def _row(run: comparable.Run) -> tuple:
  results = run.results
  about = f"{results.method}, {results.dataset}, {results.network}"
  worst = metrics_lib.headline_attack(results.attacks)
  return (
    join([run.name, tag("small", about)]),
    *_privacy(results.privacy),
    _accuracy(results.clean),
    _accuracy(
      worst,
      worst
      and f"{worst.name} {formats.norm(worst.norm)}"
      f" {formats.number(worst.attack_eps)}",
    ),
    _radius(results),
    _membership(results.membership),
    _violations(results.certificate_audit),
  )


def _bounds(text: str) -> Html:
  return tag("small", text, css="nowrap")


def _absent() -> Html:
  return tag("span", "not run", css="absent")


def _privacy(statement) -> tuple[Html, Html, Html]:
  """The three cells; there is no way to fill only one."""
  if statement is None:
    return (_absent(),) * 3
  refuted = pill("fail", "refuted") if statement.violated else Html("")
  claimed = statement.claimed
  audited = _absent()
  if statement.audited is not None:
    lower = formats.dp_epsilon_lower(statement.audited)
    audited = join(["\u2265 ", value(statement.audited, lower), " ", refuted])
  return (
    safe(formats.budget(claimed) if claimed else "nothing"),
    safe(formats.proven(statement))
    if statement.proven
    else pill("warn", "none known"),
    audited,
  )


def _accuracy(result, about: str | None = None) -> Html:
  if result is None:
    return _absent()
  cell = [percent(result.accuracy)]
  cell.append(_bounds(formats.interval(result.interval)))
  if about:
    cell.append(tag("small", about))
  return join(cell)


def _radius(results) -> Html:
  smoothed = results.smoothed
  if smoothed is None:
    return _absent()
  word = "certified" if smoothed.kind == "proven" else "claimed, not proven"
  if promises.radii_refuted(results):
    word += ", refuted"
  point = metrics_lib.headline_radius(smoothed)
  size = f"{formats.norm(smoothed.norm)} {formats.number(point.radius)}"
  return _accuracy(point, f"{word}, {size}")


def _membership(membership) -> Html:
  if membership is None:
    return _absent()
  best = membership.headline
  return join(
    [
      value(best.advantage, f"{best.advantage:.3f}"),
      _bounds(formats.share_interval(best.advantage_interval)),
      tag("small", best.label),
    ]
  )


def _violations(audit) -> Html:
  if audit is None:
    return _absent()
  word = "certified" if audit.proven else "claimed"
  verdict = audit.verdict
  if verdict == audits_lib.VIOLATED:
    verdict = pill("fail", verdict)
  return join(
    [
      value(audit.violations, f"{audit.violations} of {audit.count:,}"),
      tag("small", word),
      tag("small", verdict),
      tag("small", audit.short_power) if audit.short_power else "",
    ]
  )


def _curves(
  part: str,
  runs: Sequence[comparable.Run],
  found: Sequence[comparable.Group],
) -> Html:
  title, lead, what, binary = _SECTIONS[part]
  mine = [group for group in found if group.part == part]
  order = [run.name for run in runs]
  figures = [
    figure(
      Html(plots_compare.draw(group, order, f"{part}-{index}")),
      _caption(group),
    )
    for index, group in enumerate(mine)
  ]
  shown = {run.name for group in mine for run in group.runs}
  missing = [run for run in runs if run.name not in shown]
  parts = []
  if figures:
    parts.append(tag("p", lead, css="lead"))
    parts.append(tag("div", *figures, css="plots"))
  if missing:
    names = ", ".join(run.name for run in missing)
    commands = (page_run.command(run.results, binary) for run in missing)
    text = f"Missing: {what} of {names}."
    parts.append(not_run(text, "\n".join(commands)))
  return section(part, title, *parts)


def _caption(group: comparable.Group) -> Html:
  data = group.key[0][0]
  if group.part == "attacked":
    text = f"Accuracy under {formats.norm(group.key[1])} attacks"
  elif group.part == "radius":
    word = "Certified" if group.key[2] == "proven" else "Claimed, not proven"
    text = f"{word}: accuracy against the {formats.norm(group.key[1])} radius"
  else:
    text = comparable.roc_of(group.runs[0]).label
  alone = "" if len(group.runs) > 1 else ", comparable with no other run"
  return join([f"{text} ", tag("small", f"{data}{alone}")])
