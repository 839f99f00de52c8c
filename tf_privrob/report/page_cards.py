"""The first row of the page: what accuracy the model promises, and when."""

from __future__ import annotations

import numpy as np

from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import promises
from tf_privrob.report import results as results_lib
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import join
from tf_privrob.report.markup import percent
from tf_privrob.report.markup import pill
from tf_privrob.report.markup import tag
from tf_privrob.report.markup import value


def _meter(share: float, bounds: metrics_lib.Interval | None) -> Html:
  """A share as a bar, with its interval drawn over it."""
  parts = [tag("i", style=f"width:{100 * share:.2f}%")]
  if bounds is not None:
    low, high = (100 * bound for bound in bounds)
    parts.append(tag("b", style=f"left:{low:.2f}%;width:{high - low:.2f}%"))
  return tag("div", *parts, css="meter", aria_hidden="true")


def _list(rows) -> list[Html]:
  """Names with a figure each, below a card's text; nothing for no rows."""
  items = [tag("li", name, figure) for name, figure in rows]
  return [tag("ul", *items, css="sizes")] if items else []


def _card(title: str, css: str, share, bounds, note, *more: Html) -> Html:
  big = tag("span", percent(share), css="big")
  return tag(
    "article",
    tag("h3", title),
    big,
    _meter(share, bounds),
    tag("p", note),
    *more,
    css=f"card {css}",
  )


def _absent_card(title: str, css: str, note: str) -> Html:
  big = tag("span", "not run", css="big words absent")
  return tag(
    "article", tag("h3", title), big, tag("p", note), css=f"card {css}"
  )


def _sample(result) -> str:
  """Of how many examples, and the interval that follows from it."""
  parts = []
  if result.count:
    parts.append(f"{result.count:,} test examples")
  if result.interval is not None:
    parts.append(f"95% interval {formats.interval(result.interval)}")
  return "; ".join(parts)


def clean_card(results: results_lib.Results) -> Html:
  """Accuracy without an attack."""
  clean = results.clean
  if clean is None:
    note = "Accuracy on untouched test examples."
    return _absent_card("Clean accuracy", "clean", note)
  note = f"On untouched inputs: {_sample(clean)}."
  more = []
  classes = metrics_lib.as_number(results.section("dataset").get("num_classes"))
  if classes:
    more.append((f"guessing, {classes:g} classes", percent(1 / classes)))
  for name in ("num_train", "num_test"):
    size = metrics_lib.as_number(results.section("dataset").get(name))
    if size is not None:
      word = "training" if name == "num_train" else "test"
      more.append((f"{word} examples", value(size, f"{size:,}")))
  return _card(
    "Clean accuracy",
    "clean",
    clean.accuracy,
    clean.interval,
    note,
    *_list(more),
  )


def attacked_card(results: results_lib.Results) -> Html:
  """The worst attack at the stated size, and at every other size."""
  worst = metrics_lib.headline_attack(results.attacks)
  if worst is None:
    note = "Accuracy that attacks leave."
    return _absent_card("Accuracy under attack", "attacked", note)
  sizes = [
    attack
    for attack in metrics_lib.worst_by_size(results.attacks).values()
    if attack.norm == worst.norm
  ]
  size = f"{formats.norm(worst.norm)} {formats.number(worst.attack_eps)}"
  tried = {
    attack.name
    for attack in results.attacks
    if (attack.norm, attack.attack_eps) == (worst.norm, worst.attack_eps)
  }
  note = (
    f"Worst of {len(tried)} attack{'s' if len(tried) > 1 else ''} of that size"
    f" ({worst.name}): {_sample(worst)}. An upper bound: a better attack may"
    " leave less."
  )
  others = [
    (
      f"{formats.norm(other.norm)} {formats.number(other.attack_eps)}",
      percent(other.accuracy),
    )
    for other in _spread(sizes, worst)
  ]
  return _card(
    f"Under attack, {size}",
    "attacked",
    worst.accuracy,
    worst.interval,
    note,
    *_list(others),
  )


def certified_card(results: results_lib.Results) -> Html:
  """Accuracy with a radius; called certified only if it is proven."""
  smoothed = results.smoothed
  if smoothed is None:
    note = "Accuracy that no attack of a stated size can reduce."
    return _absent_card("Certified accuracy", "certified", note)
  point = metrics_lib.headline_radius(smoothed)
  radius = f"{formats.norm(smoothed.norm)} {formats.number(point.radius)}"
  of = f"{smoothed.count:,} test examples" if smoothed.count else "a sample"
  if smoothed.kind == "proven":
    title = f"Certified, {radius}"
    how = f", each with confidence {confidence(smoothed)}"
    if smoothed.deterministic:
      how = ", with certainty"
    whom = smoothed.subject.replace("smoothed", "the smoothed")
    note = (
      f"Proven for {whom}: no attack within this radius changes its"
      f" answer{how}. On {of}."
    )
  else:
    title = f"Claimed radius {radius}: not certified"
    note = (
      f"The method claims this radius; no theorem known to us supports it. On"
      f" {of}."
    )
  if promises.radii_refuted(results):
    audit = results.certificate_audit
    found = f" {audit.violations} of {audit.count:,} radii did not hold. "
    note = join([pill("fail", "refuted by attacks"), found, note])
  others = [
    (
      f"{formats.norm(smoothed.norm)} {formats.number(other.radius)}",
      percent(other.accuracy),
    )
    for other in _spread(smoothed.curve, point)
  ]
  return _card(
    title,
    "certified",
    point.accuracy,
    point.interval,
    note,
    *_list(others),
  )


def _spread(curve, shown, most: int = 3):
  """A few points spread over a curve, without the one shown already."""
  rest = [point for point in curve if point is not shown]
  if len(rest) <= most:
    return rest
  picks = np.linspace(0, len(rest) - 1, most).round().astype(int)
  return [rest[index] for index in picks]


def confidence(smoothed: metrics_lib.Smoothed) -> str:
  """The confidence of each certificate, as a percentage."""
  if smoothed.confidence is None:
    return "not stated"
  return f"{100 * smoothed.confidence:.6g}%"
