"""Figures of `privacy_risks.membership`, from its results alone."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.membership import rows as rows_lib
from experiments.privacy_risks.training import cells as robust_training_cells
from tf_privrob.report import formats

Figure, Line, Panel = grid_plots.Figure, grid_plots.Line, grid_plots.Panel
Results = findings_lib.Results
_COLORS = {
  "natural": "black",
  "pgd": "blue",
  "wrm": "orange",
  "trades": "green",
  "dual": "olive",
  "diffai": "pink",
  "ibp": "purple",
}
_LABELS = robust_training_cells.LABELS
_NAMES = ("I_B", "I_A")
_GUESS = Line((), (0.5,), color="grey", style=":", shape="across")
_ORACLE = "inference accuracy (oracle threshold)"
_HOLLOW = {"markerfacecolor": "none"}


def figures(experiment, results: Results) -> Iterator[Figure]:
  """The paper's figures, and private models."""
  del experiment
  losses = grid_page.of_part(results, "losses")
  both, one = ("benign", "adversarial"), ("benign",)
  yield _histograms(
    "figure-1",
    "Figure 1: losses of members and non-members",
    [
      (result, kind)
      for result in losses
      for kind in (one if result["trainer"] == "natural" else both)
    ],
    {"members": "blue", "non-members": "orange"},
  )
  yield _sensitivity_figure(results)
  yield _capacities(
    results,
    "figure-3",
    "Figure 3: capacity of PGD models",
    ("capacity", "I_B", "adv-train"),
  )
  yield _capacities(
    results,
    "figure-4",
    "Figure 4: capacity of IBP models",
    ("verified_capacity", "I_V", "ver-train"),
  )
  yield _radii_figure(results)
  yield _temperatures_figure(results)
  yield _histograms(
    "figure-7",
    "Figure 7: secure and insecure test examples",
    [(result, "benign") for result in losses if result["trainer"] == "pgd"],
    {"secure non-members": "green", "insecure non-members": "pink"},
  )
  yield _private_figure(results)


def _by_dataset(results: Results, part: str) -> dict[str, list]:
  """Results of a part by data set."""
  found = {}
  for result in grid_page.of_part(results, part):
    found.setdefault(result["dataset"], []).append(result)
  return found


def _size(count: int, each: float, height: float) -> tuple[float, float]:
  return max(7.5, each * count), height


def _inferred(x, rows, color: str, label: str) -> Line:
  """Inference accuracies with their intervals."""
  values = [row["balanced_accuracy"] for row in rows]
  ends = [row["interval"] for row in rows]
  return Line(x, values, label, color, "o-", "bars", ends)


def _limits(lines) -> tuple[float, float]:
  """Room for everything that is drawn, and a guess at the bottom."""
  most = max((end for line in lines for _, end in line.intervals), default=1.0)
  return 0.48, min(1.02, most + 0.03)


# Figures 1 and 7.


def _histograms(name: str, caption: str, shown, groups) -> Figure:
  """A panel for each model and kind of loss, three in a row."""
  columns = max(1, min(3, len(shown)))
  panels = []
  for number, (result, kind) in enumerate(shown):
    lines = []
    for group, color in groups.items():
      found = result["losses"][kind][group]
      if found["count"]:
        shares = [count / found["count"] for count in found["counts"]]
        edges = [10**edge for edge in found["log10_edges"]]
        more = {"lw": 1.6}
        lines.append(
          Line(edges, shares, group, color, shape="stairs", more=more)
        )
    last = number >= len(shown) - columns
    panels.append(
      Panel(
        lines,
        f"{result['dataset']}, {result['label']}: {kind} loss",
        "cross-entropy of the true class" if last else "",
        "" if number else "share of examples",
        x_log=10,
        y_limits=(None, None),
      )
    )
  size = _size(columns, 4, 3.2 * -(-len(shown) // columns) + 0.6)
  return Figure(
    name, caption, panels, size, columns=4, apart=True, across=columns
  )


# Figure 2.


def _sensitivity_figure(results: Results) -> Figure:
  """Figure 2: confidence lost by retraining, in ascending order."""
  found = findings_lib.sensitivities(results)
  values = [v for groups in found.values() for g in groups.values() for v in g]
  low, high = min(values, default=0.0), max(values, default=1.0)
  room = 0.05 + 0.1 * (high - low)
  panels = []
  for name in dict.fromkeys(dataset for dataset, _ in found):
    lines = []
    for (dataset, trainer), groups in found.items():
      for group, style, words in (
        ("left_out", "o-", "left out"),
        ("kept", ":", "kept, for comparison"),
      ):
        ordered = sorted(groups[group])
        places = range(1, len(ordered) + 1)
        label = f"{_LABELS[trainer]}, {words}"
        if dataset == name:
          lines.append(Line(places, ordered, label, _COLORS[trainer], style))
    panels.append(
      Panel(
        lines,
        name,
        "training example, sorted",
        "" if panels else "confidence, original minus retrained",
        y_limits=(low - room, high + room),
      )
    )
  caption = "Figure 2: sensitivity to a training example"
  return Figure("figure-2", caption, panels, _size(len(panels), 5, 4.2))


# Figures 3 and 4.


def _capacities(results, name: str, caption: str, names) -> Figure:
  """Inference and accuracy on members, a line a trainer and radius."""
  study, score, column = names
  groups = {}
  for trained in findings_lib.in_study(results, study):
    infer = findings_lib.infer_of(results, trained)
    inferred = findings_lib.inferred(infer, score)
    if inferred:
      natural = trained["trainer"] == "natural"
      radius = None if natural else trained["attack_eps"]
      key = (trained["dataset"], trained["trainer"], radius)
      row = (trained["studies"][study], inferred, infer["accuracies"][column])
      groups.setdefault(key, []).append(row)
  first, second = [], []
  colors = [color for color in _COLORS.values() if color != "black"]
  for (dataset, trainer, radius), rows in groups.items():
    label, color = f"{dataset}, natural", "black"
    if trainer != "natural":
      label = f"{dataset}, {_LABELS[trainer]} at {radius:.4g}"
      color = colors[len(second) % len(colors)]
    widths = [row[0] for row in rows]
    first.append(_inferred(widths, [row[1] for row in rows], color, label))
    shares = [row[2]["accuracy"] for row in rows]
    second.append(Line(widths, shares, label, color, "o-"))
  widths = {row[0] for rows in groups.values() for row in rows}
  common = {
    "x_label": "capacity, in units of the networks",
    "x_log": 10,
    "x_ticks": grid_plots.ticks(widths),
    "y_limits": (None, None),
  }
  title = f"{score} (oracle threshold)"
  lines = [*first, _GUESS] if first else []
  panels = [
    Panel(lines, title, y_label="accuracy", **common),
    Panel(second, f"{column} accuracy", **common),
  ]
  return Figure(name, caption, panels, (10, 4.4), columns=3, apart=True)


# Figures 5, 8 and 9; Figure 6.


def _published(dataset: str, study: str) -> list:
  return [
    row
    for row in rows_lib.PUBLISHED
    if (row.dataset, row.study) == (dataset, study)
  ]


def _radii_figure(results: Results) -> Figure:
  """Figures 5, 8 and 9: I_A by the radius of inference."""
  groups, every = {}, []
  for name, group in _by_dataset(results, "radii").items():
    lines = groups.setdefault(name, [])
    for place, result in enumerate(group):
      rows, color = result["radii"], _COLORS[result["trainer"]]
      # Beside each other, so that the intervals can be told apart.
      shift = 0.008 * place * rows[-1]["radius"]
      radii = [row["radius"] + shift for row in rows]
      lines.append(_inferred(radii, rows, color, result["label"]))
      best = [
        row.figures["best_radius"]
        for row in _published(name, "best_radius")
        if row.model == result["trainer"]
      ]
      lines.append(Line(best, (), "published best", color, "--", "down"))
    own, label = [group[0]["attack_eps"]], "radius of training"
    lines += [Line(own, (), label, "grey", "-", "down"), _GUESS]
    every += lines
  panels = [
    Panel(
      lines,
      name,
      "l_inf radius of inference; 0 is I_B",
      "" if number else _ORACLE,
      y_limits=_limits(every),
    )
    for number, (name, lines) in enumerate(groups.items())
  ]
  caption = "Figures 5, 8 and 9: radius of inference"
  size = _size(len(panels), 4.6, 4.4)
  return Figure("figure-5-8-9", caption, panels, size, columns=4)


def _temperatures_figure(results: Results) -> Figure:
  """Figure 6: I_B and I_A of PGD by temperature."""
  groups, every = {}, []
  for name, group in _by_dataset(results, "temperatures").items():
    rows = group[0]["temperatures"]
    lines = [_GUESS]
    for score, color, factor in zip(_NAMES, ("orange", "blue"), (1, 1.04)):
      places = [factor * row["temperature"] for row in rows]
      measured = [row[score] for row in rows]
      lines.append(_inferred(places, measured, color, score))
      released = _published(name, "temperature")
      label = f"{score} of the released predictions"
      values = [row.figures[score] / 100 for row in released]
      places = [row.value for row in released]
      if released:
        lines.append(Line(places, values, label, color, "D", more=_HOLLOW))
    every += lines
    ticks = grid_plots.ticks(row["temperature"] for row in rows)
    groups[f"{name}, {group[0]['label']}"] = lines, ticks
  panels = [
    Panel(
      lines,
      title,
      "temperature",
      "" if number else _ORACLE,
      x_log=10,
      x_ticks=ticks,
      y_limits=_limits(every),
    )
    for number, (title, (lines, ticks)) in enumerate(groups.items())
  ]
  size = _size(len(panels), 4.6, 4.4)
  return Figure("figure-6", "Figure 6: temperature", panels, size, columns=4)


# Private models.


def _private_figure(results: Results) -> Figure:
  """Advantage of I_B and I_A by proven budget, and what that allows."""
  trainings = findings_lib.in_study(results, "private")
  trainings = [t for t in trainings if findings_lib.infer_of(results, t)]
  private = [t for t in trainings if t["proven"]]
  last = max((t["proven"]["dp_epsilon"] for t in private), default=1.0)
  none_at = 2.2 * last
  panels = []
  for name in dict.fromkeys(t["dataset"] for t in private):
    group = [t for t in trainings if t["dataset"] == name]
    budgets = [t["proven"] for t in group if t["proven"]]
    lines = _allowed(budgets[0]["dp_delta"], last)
    lines.append(Line([1.6 * last], (), None, "grey", ":", "down"))
    for number, trained in enumerate(group):
      lines += _advantages(results, trained, none_at, number)
    places = [budget["dp_epsilon"] for budget in budgets]
    ticks = {place: formats.dp_epsilon(place) for place in places}
    panels.append(
      Panel(
        lines,
        name,
        "proven dp_epsilon",
        "" if panels else "advantage (held-out threshold)",
        x_ticks={**ticks, none_at: "not private"},
        y_limits=(-0.25, 1.02),
      )
    )
  caption = "Private models: advantage by proven budget"
  size = (max(8, 5 * len(panels)), 4.6)
  title = grid_page.conditions(trainings)
  return Figure("private", caption, panels, size, 3, title)


def _allowed(dp_delta: float, last: float) -> list[Line]:
  """What a proven budget allows any attacker, by dp_epsilon."""
  from tf_privrob import membership

  places = [last * 1.4 * step / 80 for step in range(1, 81)]
  lines = []
  for fixed, style, word in (
    (False, "--", "added or removed"),
    (True, "-.", "replaced"),
  ):
    bounds = [
      membership.advantage_bound(place, dp_delta, fixed_size=fixed).advantage
      for place in places
    ]
    label = f"allowed by the proven budget, one example {word}"
    more = {"linewidth": 1.2}
    lines.append(Line(places, bounds, label, style=style, more=more))
  return lines


def _advantages(results, trained, none_at: float, number: int) -> list[Line]:
  infer = findings_lib.infer_of(results, trained)
  budget, lines = trained["proven"], []
  place = budget["dp_epsilon"] if budget else none_at
  for score, marker, aside in (("I_B", "o", 0), ("I_A", "s", 0.006)):
    found = findings_lib.inferred(infer, score, "held_out")
    if found:
      x = place + (0.012 * (number % 3 - 1) + aside) * none_at
      label = f"{_LABELS[trained['trainer']]}, {score}"
      color, ends = _COLORS[trained["trainer"]], [found["advantage_interval"]]
      points = ([x], [found["advantage"]])
      lines.append(Line(*points, label, color, marker, "bars", ends))
  return lines
