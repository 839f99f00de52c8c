"""The page of `experiments.halfspaces`: tables, figures and notes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.halfspaces import cells as halfspaces_cells
from experiments.halfspaces import rates_page as halfspaces_rates_page
from tf_privrob.report import formats

Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
Row = Mapping[str, Any]
_NAMES = {
  "joint": "perceptron",
  "literal": "perceptron, the paper's noise",
  "shared": "perceptron, shared batch",
  "kesler": "perceptron, Kesler",
}
_COLORS = {
  "joint": "green",
  "literal": "orange",
  "shared": "purple",
  "kesler": "blue",
}
_BUDGET = ["claimed dp_epsilon", "proven dp_epsilon", "audited", "dp_delta"]
_NOT_AUDITED = grid_page.audited(None)


def _rows(results: Results) -> Iterator[dict[str, Any]]:
  """All settings of all perceptrons, each with its batch and accounting."""
  for result in results.values():
    if result["recipe"] == halfspaces_cells.PERCEPTRON:
      accounting, batch = result["part"].split("-")
      for row in result["rows"]:
        yield {**row, "accounting": accounting, "batch": int(batch)}


def best(
  results: Results,
  accounting: str,
  dp_epsilon: float | None,
  dp_delta: float | None,
  place: int | None = None,
) -> Row | None:
  """The setting with the highest accuracy; `place` is that of a radius.

  Chosen on the test images, as in the paper; no budget is charged for it.
  """
  found = [
    row
    for row in _rows(results)
    if row["accounting"] == accounting
    and (row["dp_epsilon"], row["dp_delta"]) == (dp_epsilon, dp_delta)
  ]

  def value(row):
    return row["accuracy"] if place is None else row["robust"][place]

  return max(found, key=value, default=None)


def _best_at_each(
  experiment, results: Results, accounting: str, dp_epsilon: float
) -> list[float]:
  """The best robust accuracy at each radius."""
  budget = (dp_epsilon, _own_delta(experiment))
  return [
    best(results, accounting, *budget, place)["robust"][place]
    for place in range(len(experiment["settings"]["radii"]))
  ]


def _own_delta(experiment) -> float:
  """The dp_delta of the data set."""
  return halfspaces_cells.dp_delta(experiment["dataset"])


def _who(row: Row) -> list[str]:
  """Accounting and the three figures: a claim never stands alone."""
  name = _NAMES[row["accounting"]]
  if row["dp_epsilon"] is None:
    return [f"{name}, no noise", "none", grid_page.NONE_KNOWN, "not run", "-"]
  return [
    name,
    formats.dp_epsilon(row["claimed"]),
    formats.dp_epsilon(row["proven"]) + grid_page.beside(row),
    _NOT_AUDITED,
    formats.dp_delta(row["dp_delta"]),
  ]


def tables(experiment, results: Results) -> list[Table]:
  """Accuracies, robust accuracies, networks, speed, sample sizes."""
  return [
    _accuracy_table(experiment, results),
    *_grid_tables(experiment, results),
    _robust_table(experiment, results),
    _network_table(results),
    _crossing_table(experiment, results),
    _speed_table(results),
    *halfspaces_rates_page.tables(results),
  ]


def _accuracy_table(experiment, results: Results) -> Table:
  scale, own = experiment["settings"], _own_delta(experiment)
  budgets = [(e, own) for e in scale["dp_epsilons"]]
  budgets += [(1.0, d) for d in scale["dp_deltas"] if d != own]
  rows = []
  for accounting in halfspaces_cells.ACCOUNTINGS:
    for budget in [*budgets, (None, None)]:
      row = best(results, accounting, *budget)
      if row is not None:
        stddev = row.get("stddev")
        rows.append(
          [
            *_who(row),
            str(row["batch"]),
            f"{row['margin']:g}",
            "0" if stddev is None else f"{stddev:.3f}",
            f"{100 * row['accuracy']:.2f} +- {100 * row['standard_error']:.2f}",
            grid_page.percent(row["unit_accuracy"]),
          ]
        )
  head = ["method", *_BUDGET, "batch", "gamma'", "noise", "accuracy in %"]
  head.append("with weights of norm 1")
  return Table("Accuracy by budget, best of the grid", head, rows)


def _grid_tables(experiment, results: Results) -> Iterator[Table]:
  """Accuracy at dp_epsilon 1 by batch size and margin."""
  margins = experiment["settings"]["margins"]
  for accounting, text in halfspaces_cells.ACCOUNTINGS.items():
    found = [
      row
      for row in _rows(results)
      if row["accounting"] == accounting
      and (row["dp_epsilon"], row["dp_delta"]) == (1.0, _own_delta(experiment))
    ]
    rows = []
    for batch in sorted({row["batch"] for row in found}):
      mine = {row["margin"]: row for row in found if row["batch"] == batch}
      one = next(iter(mine.values()))
      cells = [
        grid_page.percent(mine[margin]["accuracy"]) for margin in margins
      ]
      rows.append([*_who(one), str(batch), f"{one['stddev']:.3f}", *cells])
    head = ["method", *_BUDGET, "batch", "noise"]
    head += [f"gamma' {margin:g}" for margin in margins]
    title = f"Accuracy in % at dp_epsilon 1; budget of {text}"
    yield Table(title, head, rows)


def _places(experiment, radii) -> list[int]:
  known = experiment["settings"]["radii"]
  return [known.index(radius) for radius in radii if radius in known]


def _robust_table(experiment, results: Results) -> Table:
  scale = experiment["settings"]
  places = _places(experiment, (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0))
  rows = []
  for accounting in halfspaces_cells.ACCOUNTINGS:
    for dp_epsilon in scale["dp_epsilons"]:
      row = best(results, accounting, dp_epsilon, _own_delta(experiment))
      if row is not None:
        cells = [grid_page.percent(row["robust"][place]) for place in places]
        rows.append([*_who(row), *cells])
  head = ["method", *_BUDGET]
  head += [f"{scale['radii'][place]:g}" for place in places]
  return Table("Robust accuracy in % by l_2 radius, exact", head, rows)


def _networks(results: Results) -> Iterator[tuple[Row, Row | None]]:
  """Training and attack of each network."""
  for result in results.values():
    if result["recipe"] == halfspaces_cells.CNN and result["part"] == "train":
      yield result, results.get(f"{result['model']}/attack")


def _proven_of(trained: Row) -> str:
  """The proven dp_epsilon of a network, with its condition."""
  dp_epsilon = formats.dp_epsilon(trained["proven"]["dp_epsilon"])
  return dp_epsilon + grid_page.beside(trained)


def _conditions(results: Results) -> str:
  """What the proven figures of networks and perceptrons depend on."""
  return grid_page.conditions([*results.values(), *_rows(results)])


def _network_table(results: Results) -> Table:
  rows, radii = [], []
  for trained, attacked in _networks(results):
    budget = [
      formats.dp_epsilon(trained["claimed"]["dp_epsilon"]),
      _proven_of(trained),
      grid_page.audited(trained["audited"]),
      formats.dp_delta(trained["proven"]["dp_delta"]),
    ]
    clean = grid_page.percent(trained["clean"]["accuracy"])
    if attacked is None:
      rows.append([trained["network"], *budget, clean, "not run"])
      continue
    radii = attacked["radii"]
    for name, key in (("anywhere", "free"), ("inside [0, 1]", "boxed")):
      cells = [grid_page.percent(value) for value in attacked[key]]
      rows.append([trained["network"], *budget, clean, name, *cells])
  head = ["network", *_BUDGET, "clean, all", "attack"]
  head += [f"{radius:g}" for radius in radii]
  title = "DP-SGD network: accuracy in % under targeted PGD by l_2 radius"
  return Table(title, head, rows)


def crossing(robust, radii, attacked: Row) -> float | None:
  """The first attacked radius where the perceptron is ahead; None: nowhere.

  Args:
    robust: accuracy of the perceptron at each of `radii`.
    radii: where it is known.
    attacked: result of the attack on the network.
  """
  for radius, value in zip(attacked["radii"], attacked["free"]):
    if radius in radii and robust[radii.index(radius)] > value:
      return radius
  return None


def _crossing_table(experiment, results: Results) -> Table:
  radii, rows = experiment["settings"]["radii"], []
  own = _own_delta(experiment)
  for trained, attacked in _networks(results):
    for accounting in halfspaces_cells.ACCOUNTINGS:
      budget = (trained["dp_epsilon"], own)
      row = best(results, accounting, *budget)
      if row is None or attacked is None:
        continue
      each = _best_at_each(experiment, results, accounting, budget[0])
      curves = (row["robust"], each)
      found = [crossing(curve, radii, attacked) for curve in curves]
      rows.append(
        [
          *_who(row),
          _proven_of(trained),
          grid_page.percent(row["accuracy"]),
          grid_page.percent(attacked["free"][0]),
          *("nowhere" if r is None else f"{r:g}" for r in found),
        ]
      )
  head = ["method", *_BUDGET, "network's proven dp_epsilon"]
  head += ["accuracy in %", "network's", "ahead from l_2 radius"]
  head.append("with settings best at each radius")
  return Table("Where the perceptron overtakes the network", head, rows)


def _speed_table(results: Results) -> Table:
  rows = [
    [
      *result["part"].split("-"),
      f"{result['steps']:,}",
      f"{result['updates_per_second']:,.0f}",
      f"{result['training_seconds']:.0f}",
      f"{result['calibration_seconds']:.0f}",
    ]
    for result in results.values()
    if result["recipe"] == halfspaces_cells.PERCEPTRON
  ]
  head = ["accounting", "batch", "steps", "updates a second", "seconds"]
  head.append("seconds of calibration")
  return Table("Trainings, all settings of a batch size at once", head, rows)


# Figures.


def figures(experiment, results: Results) -> Iterator[grid_plots.Figure]:
  """Figures 1 and 2, and the sample sizes."""
  title, size = _conditions(results), (10, 4.6)
  panels = _budget_panels(experiment, results)
  caption = "Figure 1: accuracy by budget"
  yield grid_plots.Figure("figure-1", caption, panels, size, 4, title)
  panels = _robust_panels(experiment, results)
  caption = "Figure 1: robust accuracy"
  yield grid_plots.Figure("figure-1-robust", caption, panels, size, 3, title)
  panels = _network_panels(experiment, results)
  size = (4 * len(panels), 4.6)
  caption = "Figure 2: against a DP-SGD network"
  yield grid_plots.Figure("figure-2", caption, panels, size, 2, title)
  yield from halfspaces_rates_page.figures(results)


def _budget_panels(experiment, results: Results) -> list[grid_plots.Panel]:
  """Figure 1, left: accuracy by dp_epsilon and by dp_delta."""
  scale, own = experiment["settings"], _own_delta(experiment)
  deltas = sorted({own, *scale["dp_deltas"]})
  swept = {
    "proven": [(dp_epsilon, own) for dp_epsilon in scale["dp_epsilons"]],
    "dp_delta": [(1.0, delta) for delta in deltas],
  }
  lines, shown = {key: [] for key in swept}, [0.0]
  for accounting, color in _COLORS.items():
    for key, budgets in swept.items():
      rows = [best(results, accounting, *budget) for budget in budgets]
      rows = [row for row in rows if row is not None]
      values = [row["accuracy"] for row in rows]
      errors = [2 * row["standard_error"] for row in rows]
      ends = [(v - e, v + e) for v, e in zip(values, errors)]
      places = [row[key] for row in rows]
      label = _NAMES[accounting]
      if rows:
        lines[key].append(
          grid_plots.Line(places, values, label, color, "o-", "bars", ends)
        )
        shown += values
  low, high = min(shown[1:], default=0.0), max(shown)
  room = 0.02 + 0.1 * (high - low)
  common = {
    "x_log": 10,
    "y_limits": (max(0, low - room), min(1, high + room)),
  }
  label = "dp_delta; dp_epsilon 1, claimed for the paper's noise"
  proven = "proven dp_epsilon of all classes"
  return [
    grid_plots.Panel(lines["proven"], "", proven, "accuracy", **common),
    grid_plots.Panel(lines["dp_delta"], "", label, **common),
  ]


def _robust_panels(experiment, results: Results) -> list[grid_plots.Panel]:
  """Figure 1, right: exact robust accuracy by radius, for each budget.

  Settings are the best ones for clean images, or the best ones at each radius.
  """
  scale, own = experiment["settings"], _own_delta(experiment)
  clean_lines, each_lines = [], []
  colors = list(grid_plots.COLORS)
  for number, dp_epsilon in enumerate(scale["dp_epsilons"]):
    clean = best(results, "joint", dp_epsilon, own)
    if clean is not None:
      label = f"proven dp_epsilon {formats.dp_epsilon(clean['proven'])}"
      look = (label, colors[number % len(colors)])
      each = _best_at_each(experiment, results, "joint", dp_epsilon)
      clean_lines.append(
        grid_plots.Line(scale["radii"], clean["robust"], *look)
      )
      each_lines.append(grid_plots.Line(scale["radii"], each, *look))
  title, side = "settings best for clean images", "robust accuracy, exact"
  return [
    grid_plots.Panel(clean_lines, title, "l_2 radius", side),
    grid_plots.Panel(each_lines, "settings best at each radius", "l_2 radius"),
  ]


def _network_panels(experiment, results: Results) -> list[grid_plots.Panel]:
  """Figure 2: a panel a budget, perceptrons proven, networks attacked."""
  scale, own = experiment["settings"], _own_delta(experiment)
  panels = []
  for trained, attacked in _networks(results):
    if attacked is None:
      continue
    lines, texts = [], []
    for accounting, height in (("joint", 4), ("literal", 14)):
      row = best(results, accounting, trained["dp_epsilon"], own)
      if row is not None:
        label, color = f"{_NAMES[accounting]}, exact", _COLORS[accounting]
        points = (scale["radii"], row["robust"])
        lines.append(grid_plots.Line(*points, label, color))
        place = (scale["radii"][-1], row["robust"][-1])
        text = f"proven {formats.dp_epsilon(row['proven'])}"
        texts.append((place, text, color, height))
    for key, style, where in (
      ("free", "o-", ""),
      ("boxed", "s:", " inside [0, 1]"),
    ):
      label = f"DP-SGD network under attack{where}"
      points = (attacked["radii"], attacked[key])
      lines.append(grid_plots.Line(*points, label, style=style))
    proven = formats.dp_epsilon(trained["proven"]["dp_epsilon"])
    title = f"network: proven dp_epsilon {proven}"
    side = "" if panels else "robust accuracy"
    panels.append(
      grid_plots.Panel(lines, title, "l_2 radius", side, texts=texts)
    )
  return panels


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  del results
  scale = experiment["settings"]
  return [
    "Claimed is what the paper's accounting says: noise for the halfspace of"
    " one class, by RDP. Proven is the joint figure of all classes, by PLD,"
    " add-or-remove-one, with Poisson batches.",
    f"{scale['trials']} independent trials, +- standard error of their mean."
    " The settings of one trial share batches and noise.",
    "The best batch size and gamma' are chosen by accuracy on the test images,"
    " as in the paper; no budget is charged for the choice.",
    "Radii are l_2, in pixels of [0, 1], for images that are not normalised. A"
    " perceptron's robust accuracy is exact and proven; a network's is what an"
    " attack left, an upper bound.",
    f"Targeted PGD, {scale['attack_steps']} steps towards each other class,"
    f" {scale['num_attacked']} test images; what falls at one radius has fallen"
    " at all larger ones.",
    *halfspaces_rates_page.notes(),
  ]
