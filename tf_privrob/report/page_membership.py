"""The page's part on membership inference: a table and its ROC curves."""

from __future__ import annotations

from tf_privrob.report import formats
from tf_privrob.report import leakage as leakage_lib
from tf_privrob.report import plots_membership
from tf_privrob.report import results as results_lib
from tf_privrob.report.markup import definitions
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

_TITLE = "Membership inference"
_LEAD = (
  "Whether an attacker who holds an example can tell if it was trained on."
  " Guessing has advantage 0 and a balanced accuracy of 50%. What proven"
  " privacy allows is an upper bound on every attack; what the strategies"
  " reached is not."
)
_MOST_CURVES = 5
_NONPRIVATE = (
  " These figures were computed on the private training data without noise."
  " Publishing them voids the privacy statement."
)


def membership_section(results: results_lib.Results, command: str) -> Html:
  """Table, curves and what proven privacy allows."""
  membership = results.membership
  if membership is None:
    text = "Membership inference asks which examples were trained on."
    return section("membership", _TITLE, not_run(text, command))
  drawn = curves(membership)
  parts = []
  if drawn:
    svg = Html(plots_membership.roc_curves(drawn, results.privacy))
    small = "both axes logarithmic"
    if len(drawn) == _MOST_CURVES:
      small += f"; the {_MOST_CURVES} of largest advantage"
    caption = join(["ROC curves ", tag("small", small)])
    facts = _facts(results, membership)
    parts.append(tag("div", figure(svg, caption), facts, css="plots"))
  else:
    parts.append(_facts(results, membership))
  parts.append(_table(membership))
  note = join([pill("warn", "not covered by the guarantee"), _NONPRIVATE])
  parts.append(tag("div", tag("p", note), css="uncovered"))
  return section("membership", _TITLE, tag("p", _LEAD, css="lead"), *parts)


def curves(
  membership: leakage_lib.Membership,
) -> list[tuple[str, leakage_lib.Inference]]:
  """The curves to draw with their names, the largest advantage first.

  Strategies that differ by their threshold only share a curve; it is drawn
  once, under the name of the score. At most five, so that none look alike.
  """
  found = {}
  for item in sorted(membership.strategies, key=lambda i: -i.advantage):
    if item.fpr:
      found.setdefault((item.fpr, item.tpr), []).append(item)
  return [
    (
      items[0].label if len(items) == 1 else items[0].score.replace("_", " "),
      items[0],
    )
    for items in found.values()
  ][:_MOST_CURVES]


def _facts(
  results: results_lib.Results, membership: leakage_lib.Membership
) -> Html:
  best = membership.headline
  items = [
    ("strongest", best.label),
    ("its advantage", _advantage(best, small=False)),
  ]
  budget = leakage_lib.replaced(results.privacy)
  if budget is not None:
    most = leakage_lib.most_advantage(budget)
    proven = formats.proven(results.privacy)
    items.append(
      (
        f"advantage that proven {proven} allows",
        value(most, formats.upper(most)),
      )
    )
    if budget != results.privacy.proven:
      items.append(("as one removed and one added", formats.budget(budget)))
  else:
    items.append(("advantage that proven privacy allows", "1, none is proven"))
  for name, count in (
    ("members", membership.num_members),
    ("non-members", membership.num_nonmembers),
  ):
    if count is not None:
      items.append((name, value(count, f"{count:,}")))
  if membership.attack:
    items.append(("attack", membership.attack))
  if membership.attack_eps is not None:
    size = value(membership.attack_eps, formats.number(membership.attack_eps))
    items.append(("attack_eps", size))
  if membership.seconds is not None:
    items.append(("time", formats.duration(membership.seconds)))
  return definitions(items)


def _advantage(item: leakage_lib.Inference, small: bool = True) -> Html:
  figure_ = value(item.advantage, f"{item.advantage:.3f}")
  if item.advantage_interval is None:
    return figure_
  bounds = formats.share_interval(item.advantage_interval)
  if small:
    return join([figure_, tag("small", bounds)])
  return join([figure_, f" ({bounds})"])


def _table(membership: leakage_lib.Membership) -> Html:
  rates = sorted({p.fpr for i in membership.strategies for p in i.points})
  rows = []
  for item in membership.strategies:
    points = {point.fpr: point for point in item.points}
    css = "worst" if item is membership.headline else ""
    label = [item.label]
    if item.oracle:
      label.append(tag("small", "threshold chosen on the same examples"))
    rows.append(
      (
        join(label),
        join(
          [
            percent(item.balanced_accuracy, css),
            tag("small", formats.interval(item.interval)),
          ]
        ),
        _advantage(item),
        _auc(item),
        *(_rate(points.get(rate)) for rate in rates),
      )
    )
  head = ["Strategy", "Balanced accuracy", "Advantage", "AUC"]
  head += [f"TPR at FPR {100 * rate:.4g}%" for rate in rates]
  small = "with 95% intervals; bold: the strongest, oracle thresholds apart"
  return table(
    head,
    rows,
    caption=join(["Strategies ", tag("small", small)]),
  )


def _auc(item: leakage_lib.Inference) -> Html:
  if item.auc is None:
    return safe("\u2013")
  bounds = formats.share_interval(item.auc_interval)
  return join([value(item.auc, f"{item.auc:.3f}"), tag("small", bounds)])


def _rate(point: leakage_lib.OperatingPoint | None) -> Html:
  if point is None:
    return safe("\u2013")
  if point.tpr is None:
    return join(["\u2013", tag("small", point.note or "not run")])
  bounds = tag("small", formats.interval(point.interval))
  return join([value(point.tpr, formats.percent(point.tpr, 2)), bounds])
