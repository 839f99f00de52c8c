"""Figures of `privacy_risks.membership`, from its results alone."""

from __future__ import annotations

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.membership import published as published_rows
from experiments.privacy_risks.training import cells as robust_training_cells
from tf_privrob.report import formats

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
_NAMES = ("I_B", "I_A")
_GUESS = {"color": "#8a8a8a", "linewidth": 1, "linestyle": ":"}


def _color(trainer: str) -> str:
  return grid_plots.COLORS[_COLORS[trainer]]


def _of_part(results: Results, part: str) -> dict[str, list]:
  """Results of a part by data set."""
  found = {}
  for result in results.values():
    if result["part"] == part:
      found.setdefault(result["dataset"], []).append(result)
  return found


def _accuracy_panels(count: int, width: float = 4.6):
  """Panels whose y axis is an inference accuracy."""
  figure, panels = grid_plots.panels(count, max(7.5, width * count), 4.4)
  for axes in panels:
    axes.axhline(0.5, **_GUESS)
    axes.set_ylim(0.48, None)
  panels[0].set_ylabel("inference accuracy (oracle threshold)")
  return figure, panels


def _separate_panels(lines: int, columns: int, size: tuple[float, float]):
  """Panels whose y axes are shares, each with limits of its own."""
  from matplotlib import figure as figure_lib

  figure = figure_lib.Figure(figsize=size, layout="constrained")
  panels = figure.subplots(lines, columns, squeeze=False).flatten()
  for axes in panels:
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
  return figure, panels


def _fit(panels, values) -> None:
  """Room for everything that is drawn, and a guess at the bottom."""
  panels[0].set_ylim(0.48, min(1.02, max(values) + 0.03))


def _errors(rows) -> list[list[float]]:
  """Distances from the accuracies to the ends of their intervals."""
  values = [row["balanced_accuracy"] for row in rows]
  return [
    [max(0.0, v - row["interval"][0]) for v, row in zip(values, rows)],
    [max(0.0, row["interval"][1] - v) for v, row in zip(values, rows)],
  ]


def _line(axes, x, rows, color: str, label: str, style: str = "o-") -> None:
  """Inference accuracies with their intervals."""
  values = [row["balanced_accuracy"] for row in rows]
  axes.errorbar(
    x, values, _errors(rows), fmt=style, color=color, capsize=2, label=label
  )


# Figures 1 and 7.


def losses_figure(results: Results):
  """Figure 1: losses of members and non-members."""
  shown = []
  for found in _of_part(results, "losses").values():
    for result in found:
      kinds = ("benign",) if result["trainer"] == "natural" else None
      for kind in kinds or ("benign", "adversarial"):
        shown.append((result, kind))
  groups = {"members": "blue", "non-members": "orange"}
  return _histograms(shown, groups)


def secure_figure(results: Results):
  """Figure 7: losses of secure and of insecure test examples."""
  shown = [
    (result, "benign")
    for found in _of_part(results, "losses").values()
    for result in found
    if result["trainer"] == "pgd"
  ]
  groups = {"secure non-members": "green", "insecure non-members": "pink"}
  return _histograms(shown, groups)


def _histograms(shown, groups):
  """A panel for each model and kind of loss, three in a row."""
  if not shown:
    return None
  columns = min(3, len(shown))
  lines = -(-len(shown) // columns)
  size = (max(7.5, 4 * columns), 3.2 * lines + 0.6)
  figure, panels = _separate_panels(lines, columns, size)
  for axes, (result, kind) in zip(panels, shown):
    for name, color in groups.items():
      found = result["losses"][kind][name]
      if found["count"]:
        shares = [count / found["count"] for count in found["counts"]]
        edges = [10**edge for edge in found["log10_edges"]]
        axes.stairs(
          shares, edges, color=grid_plots.COLORS[color], label=name, lw=1.6
        )
    axes.set_xscale("log")
    axes.set_title(f"{result['dataset']}, {result['label']}: {kind} loss")
  for axes in panels[len(shown) :]:
    axes.set_axis_off()
  for axes in panels[max(0, len(shown) - columns) : len(shown)]:
    axes.set_xlabel("cross-entropy of the true class")
  panels[0].set_ylabel("share of examples")
  grid_plots.legend(figure, columns=4)
  return figure


# Figure 2.


def sensitivity_figure(results: Results):
  """Figure 2: confidence lost by retraining, in ascending order."""
  found = findings_lib.sensitivities(results)
  names = list(dict.fromkeys(dataset for dataset, _ in found))
  if not names:
    return None
  figure, panels = grid_plots.panels(len(names), max(7.5, 5 * len(names)), 4.2)
  values = []
  for axes, name in zip(panels, names):
    for (dataset, trainer), groups in found.items():
      if dataset != name:
        continue
      label = robust_training_cells.LABELS[trainer]
      for group, style in (("left_out", "o-"), ("kept", ":")):
        ordered = sorted(groups[group])
        values += ordered
        word = "left out" if group == "left_out" else "kept, for comparison"
        axes.plot(
          range(1, len(ordered) + 1),
          ordered,
          style,
          color=_color(trainer),
          label=f"{label}, {word}",
        )
    axes.set_title(name)
    axes.set_xlabel("training example, sorted")
  low, high = min(values), max(values)
  room = 0.05 + 0.1 * (high - low)
  panels[0].set_ylim(low - room, high + room)
  panels[0].set_ylabel("confidence, original minus retrained")
  grid_plots.legend(figure, columns=2)
  return figure


# Figures 3 and 4.


def capacity_figure(results: Results):
  """Figure 3: I_B and accuracy under attack by width."""
  trainings = findings_lib.in_study(results, "capacity")
  return _capacities(results, trainings, "capacity", "I_B", "adv-train")


def verified_capacity_figure(results: Results):
  """Figure 4: I_V and verified accuracy of IBP by width."""
  trainings = findings_lib.in_study(results, "verified_capacity")
  return _capacities(
    results, trainings, "verified_capacity", "I_V", "ver-train"
  )


def _capacities(results, trainings, study: str, name: str, column: str):
  """Inference and accuracy on members, a line a trainer and radius."""
  lines = {}
  for trained in trainings:
    infer = findings_lib.infer_of(results, trained)
    inferred = findings_lib.inferred(infer, name)
    if inferred:
      radius = trained["attack_eps"]
      key = (trained["dataset"], trained["trainer"], radius)
      if trained["trainer"] == "natural":
        key = (trained["dataset"], "natural", None)
      row = (trained["studies"][study], inferred, infer["accuracies"][column])
      lines.setdefault(key, []).append(row)
  if not lines:
    return None
  figure, (first, second) = _separate_panels(1, 2, (10, 4.4))
  colors = [c for c in grid_plots.COLORS.values() if c != _color("natural")]
  place = 0
  for (dataset, trainer, radius), rows in lines.items():
    label, color = f"{dataset}, natural", _color("natural")
    if trainer != "natural":
      known = robust_training_cells.LABELS[trainer]
      label = f"{dataset}, {known} at {radius:.4g}"
      color, place = colors[place % len(colors)], place + 1
    widths = [row[0] for row in rows]
    _line(first, widths, [row[1] for row in rows], color, label)
    accuracies = [row[2]["accuracy"] for row in rows]
    second.plot(widths, accuracies, "o-", color=color, label=label)
  ticks = sorted({row[0] for rows in lines.values() for row in rows})
  for axes in (first, second):
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("capacity, in units of the networks")
  first.axhline(0.5, **_GUESS)
  first.set_title(f"{name} (oracle threshold)")
  second.set_title(f"{column} accuracy")
  first.set_ylabel("accuracy")
  grid_plots.legend(figure, columns=3)
  return figure


# Figures 5, 8 and 9; Figure 6.


def radii_figure(results: Results):
  """Figures 5, 8 and 9: I_A by the radius of inference."""
  found = _of_part(results, "radii")
  if not found:
    return None
  figure, panels = _accuracy_panels(len(found))
  values = []
  for axes, (name, group) in zip(panels, found.items()):
    for place, result in enumerate(group):
      rows = result["radii"]
      color = _color(result["trainer"])
      # Beside each other, so that the intervals can be told apart.
      shift = 0.008 * place * rows[-1]["radius"]
      radii = [row["radius"] + shift for row in rows]
      _line(axes, radii, rows, color, result["label"])
      values += [row["interval"][1] for row in rows]
      best = published_rows.BEST_RADII.get(result["trainer"])
      if name == "yale_b" and best:
        axes.axvline(best, color=color, lw=1, ls="--", label="published best")
    axes.axvline(
      group[0]["attack_eps"], color="#8a8a8a", lw=1, label="radius of training"
    )
    axes.set_title(name)
    axes.set_xlabel("l_inf radius of inference; 0 is I_B")
  _fit(panels, values)
  grid_plots.legend(figure, columns=4)
  return figure


def temperatures_figure(results: Results):
  """Figure 6: I_B and I_A of PGD by temperature."""
  found = _of_part(results, "temperatures")
  if not found:
    return None
  figure, panels = _accuracy_panels(len(found))
  values = []
  for axes, (name, group) in zip(panels, found.items()):
    rows = group[0]["temperatures"]
    temperatures = [row["temperature"] for row in rows]
    for score, color, factor in zip(_NAMES, ("orange", "blue"), (1, 1.04)):
      measured = [row[score] for row in rows]
      color = grid_plots.COLORS[color]
      places = [factor * temperature for temperature in temperatures]
      _line(axes, places, measured, color, score)
      values += [row["interval"][1] for row in measured]
      if name == "yale_b":
        released = published_rows.RELEASED_TEMPERATURES
        place = _NAMES.index(score)
        axes.plot(
          list(released),
          [pair[place] / 100 for pair in released.values()],
          "D",
          color=color,
          markerfacecolor="none",
          label=f"{score} of the released predictions",
        )
    axes.set_xscale("log")
    axes.set_xticks(temperatures, [f"{value:g}" for value in temperatures])
    axes.set_xticks([], minor=True)
    axes.set_title(f"{name}, {group[0]['label']}")
    axes.set_xlabel("temperature")
  _fit(panels, values)
  grid_plots.legend(figure, columns=4)
  return figure


# Private models.


def private_figure(results: Results):
  """Advantage of I_B and I_A by proven budget, and what that allows."""
  trainings = findings_lib.in_study(results, "private")
  trainings = [t for t in trainings if findings_lib.infer_of(results, t)]
  proven = [t["proven"]["dp_epsilon"] for t in trainings if t["proven"]]
  if not proven:
    return None
  from tf_privrob import membership

  names = list(dict.fromkeys(t["dataset"] for t in trainings if t["proven"]))
  figure, panels = grid_plots.panels(len(names), max(8, 5 * len(names)), 4.6)
  last = max(proven)
  none_at = 2.2 * last
  for axes, name in zip(panels, names):
    group = [t for t in trainings if t["dataset"] == name]
    dp_delta = next(t["proven"]["dp_delta"] for t in group if t["proven"])
    grid = [last * 1.4 * step / 80 for step in range(1, 81)]
    for fixed, style in ((False, "--"), (True, "-.")):
      allowed = [
        membership.advantage_bound(value, dp_delta, fixed_size=fixed)
        for value in grid
      ]
      word = "replaced" if fixed else "added or removed"
      axes.plot(
        grid,
        [bound.advantage for bound in allowed],
        style,
        color=grid_plots.COLORS["black"],
        linewidth=1.2,
        label=f"allowed by the proven budget, one example {word}",
      )
    axes.axvline(1.6 * last, **_GUESS)
    for number, trained in enumerate(group):
      _draw_private(axes, results, trained, none_at, number)
    ticks = {
      formats.dp_epsilon(t["proven"]["dp_epsilon"]): t["proven"]["dp_epsilon"]
      for t in group
      if t["proven"]
    }
    axes.set_xticks([*ticks.values(), none_at], [*ticks, "not private"])
    axes.set_title(name)
    axes.set_xlabel("proven dp_epsilon")
  panels[0].set_ylim(-0.25, 1.02)
  panels[0].set_ylabel("advantage (held-out threshold)")
  grid_plots.legend(figure, 3, grid_page.conditions(trainings))
  return figure


def _draw_private(axes, results, trained, none_at: float, number: int) -> None:
  infer = findings_lib.infer_of(results, trained)
  budget = trained["proven"]
  place = budget["dp_epsilon"] if budget else none_at
  for score, marker in zip(_NAMES, ("o", "s")):
    found = findings_lib.inferred(infer, score, "held_out")
    if found is None:
      continue
    low, high = found["advantage_interval"]
    value = found["advantage"]
    shift = (
      0.012 * (number % 3 - 1) + (0.006 if marker == "s" else 0)
    ) * none_at
    axes.errorbar(
      place + shift,
      value,
      [[max(0.0, value - low)], [max(0.0, high - value)]],
      fmt=marker,
      color=_color(trained["trainer"]),
      capsize=2,
      label=f"{robust_training_cells.LABELS[trained['trainer']]}, {score}",
    )


FIGURES = (
  ("figure-1", "Figure 1: losses of members and non-members", losses_figure),
  (
    "figure-2",
    "Figure 2: sensitivity to a training example",
    sensitivity_figure,
  ),
  ("figure-3", "Figure 3: capacity of PGD models", capacity_figure),
  ("figure-4", "Figure 4: capacity of IBP models", verified_capacity_figure),
  ("figure-5-8-9", "Figures 5, 8 and 9: radius of inference", radii_figure),
  ("figure-6", "Figure 6: temperature", temperatures_figure),
  ("figure-7", "Figure 7: secure and insecure test examples", secure_figure),
  ("private", "Private models: advantage by proven budget", private_figure),
)
