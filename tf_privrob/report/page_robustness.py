"""The page's robustness parts: accuracy under attack, and certificates."""

from __future__ import annotations

import numpy as np

from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import page_cards
from tf_privrob.report import plots
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


def attack_section(results: results_lib.Results, command: str) -> Html:
  """Curves, table and warnings of all attacks."""
  if not results.attacks:
    text = "Evaluation measures accuracy under attack."
    return section("attacks", "Under attack", not_run(text, command))
  norms = list(dict.fromkeys(attack.norm for attack in results.attacks))
  figures = [
    figure(
      Html(
        plots.attack_curves(
          results.attacks, norm, results.attack_names, results.clean
        )
      ),
      join(
        [
          f"Accuracy under {formats.norm(norm)} attacks ",
          tag("small", "bands: 95% intervals"),
        ]
      ),
    )
    for norm in norms
  ]
  tables = [_attack_table(results, norm) for norm in norms]
  return section(
    "attacks",
    "Under attack",
    tag(
      "p",
      "Accuracy of the network, without noise, on inputs changed by an attacker"
      " who knows its weights. Every figure is an upper bound on robustness.",
      css="lead",
    ),
    tag("div", *figures, css="plots"),
    *tables,
    _attack_warnings(results),
  )


def _attack_table(results: results_lib.Results, norm: str) -> Html:
  attacks = [attack for attack in results.attacks if attack.norm == norm]
  sizes = sorted({attack.attack_eps for attack in attacks})
  worst = metrics_lib.worst_by_size(attacks)
  rows = []
  for key in dict.fromkeys((a.name, a.steps, a.restarts) for a in attacks):
    mine = {
      a.attack_eps: a for a in attacks if (a.name, a.steps, a.restarts) == key
    }
    cells = []
    for size in sizes:
      attack = mine.get(size)
      if attack is None:
        cells.append(safe("\u2013"))
        continue
      lowest = attack.accuracy == worst[norm, size].accuracy
      css = "worst" if lowest else ""
      bounds = tag("small", formats.interval(attack.interval))
      cells.append(join([percent(attack.accuracy, css), bounds]))
    name, steps, restarts = key
    seconds = [a.seconds for a in mine.values() if a.seconds is not None]
    rows.append(
      (
        name,
        *(
          safe("\u2013" if item is None else item) for item in (steps, restarts)
        ),
        *cells,
        formats.duration(sum(seconds)) if seconds else "\u2013",
      )
    )
  counts = sorted({a.count for a in attacks if a.count})
  of = " and ".join(f"{count:,}" for count in counts) or "unknown"
  head = ["Attack", "Steps", "Restarts"]
  head += [f"{formats.norm(norm)} {formats.number(size)}" for size in sizes]
  return table(
    [*head, "Time"],
    rows,
    caption=join(
      [
        f"Accuracy under {formats.norm(norm)} attacks ",
        tag(
          "small",
          f"on {of} test examples, with 95% intervals; bold: the worst at its"
          " size",
        ),
      ]
    ),
  )


def _attack_warnings(results: results_lib.Results) -> Html:
  found: dict[str, list[str]] = {}
  for attack in results.attacks:
    for text in attack.warnings:
      size = formats.number(attack.attack_eps)
      where = f"{attack.name} {formats.norm(attack.norm)} {size}"
      found.setdefault(text, []).append(where)
  if not found:
    return tag("p", pill("pass", "no warnings"), " from the attacks.")
  items = [
    tag(
      "li",
      tag("div", pill("warn", "warning")),
      tag("p", tag("strong", text)),
      tag("p", ", ".join(dict.fromkeys(places)), css="detail"),
    )
    for text, places in found.items()
  ]
  return join(
    [tag("h3", "Warnings of the attacks"), tag("ul", *items, css="checks")]
  )


def certified_section(results: results_lib.Results, command: str) -> Html:
  """The curve of certified accuracy and what it rests on."""
  smoothed = results.smoothed
  if smoothed is None:
    return section(
      "certified",
      "Certified robustness",
      not_run("Evaluation certifies the model, smoothed or as it is.", command),
    )
  word = consistency.radius_word(smoothed)
  distance = formats.norm(smoothed.norm)
  if smoothed.kind == "proven":
    title = "Certified robustness"
    change = f"no change of {distance} length below r alters that answer"
    text = (
      "Randomised smoothing answers with the class that wins under Gaussian"
      f" noise. For each input and its radius r, {change}; the statement fails"
      " with probability at most 1 \u2212 confidence. It is about the smoothed"
      " classifier, not about the network alone."
    )
    if smoothed.deterministic:
      text = (
        "The network answers as it is, without noise. For each input and its"
        f" radius r, {change}, with certainty."
      )
    lead = tag("p", text, css="lead")
  else:
    title = "Claimed robustness"
    lead = tag(
      "div",
      tag(
        "p",
        "These radii are claimed by the method. No theorem known to us supports"
        " them, so they are not certificates.",
      ),
      css="banner warn",
    )
  caption = join(
    [
      f"{word.capitalize()} accuracy against the radius ",
      tag("small", "band: 95% interval"),
    ]
  )
  svg = Html(plots.certified_curve(smoothed, results.attacks))
  return section(
    "certified",
    title,
    lead,
    tag("div", figure(svg, caption), _smoothing_facts(smoothed), css="plots"),
    _radius_table(smoothed, word),
  )


def _smoothing_facts(smoothed: metrics_lib.Smoothed) -> Html:
  rows = [
    ("smoothing_stddev", smoothed.smoothing_stddev),
    ("draws to select the class", smoothed.num_selection),
    ("draws to bound its probability", smoothed.num_estimation),
    ("examples", smoothed.count),
    ("abstained", smoothed.abstained),
    ("mean radius", smoothed.mean_radius),
  ]
  items = [
    (name, value(item, formats.number(item)))
    for name, item in rows
    if item is not None
  ]
  if smoothed.confidence is not None:
    exact = value(smoothed.confidence, page_cards.confidence(smoothed))
    items.insert(3, ("confidence, each example", exact))
  if smoothed.seconds is not None:
    items.append(("time", formats.duration(smoothed.seconds)))
  return definitions(items)


def _radius_table(smoothed: metrics_lib.Smoothed, word: str) -> Html:
  """The curve in figures, thinned to at most eight evenly spread radii."""
  curve = smoothed.curve
  picks = np.linspace(0, len(curve) - 1, min(len(curve), 8)).round().astype(int)
  points = [curve[index] for index in picks]
  return table(
    ["radius at least", *(formats.number(point.radius) for point in points)],
    [
      (
        tag("span", f"{word} accuracy", css="nowrap"),
        *(
          join(
            [
              percent(point.accuracy),
              tag("small", formats.interval(point.interval)),
            ]
          )
          for point in points
        ),
      )
    ],
  )
