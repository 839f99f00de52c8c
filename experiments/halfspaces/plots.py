"""Figures of `experiments.halfspaces`, from its results alone."""

from __future__ import annotations

from experiments.grid import plots as grid_plots
from experiments.halfspaces import cells as halfspaces_cells
from experiments.halfspaces import page as halfspaces_page
from tf_privrob.report import formats

Results = halfspaces_page.Results
Row = halfspaces_page.Row
_COLORS = {
  "joint": "green",
  "literal": "orange",
  "shared": "purple",
  "kesler": "blue",
}


def budget_figure(experiment, results: Results):
  """Figure 1, left: accuracy by dp_epsilon and by dp_delta."""
  scale, own = experiment["settings"], halfspaces_page.own_delta(experiment)
  figure, (first, second) = grid_plots.panels(2, 10, 4.6)
  shown = []
  for accounting in halfspaces_cells.ACCOUNTINGS:
    budgets = [(dp_epsilon, own) for dp_epsilon in scale["dp_epsilons"]]
    by_epsilon = _found(results, accounting, budgets)
    budgets = [(1.0, delta) for delta in sorted({own, *scale["dp_deltas"]})]
    by_delta = _found(results, accounting, budgets)
    if by_epsilon:
      _line(first, by_epsilon, accounting, "proven")
      _line(second, by_delta, accounting, "dp_delta")
      shown += [row["accuracy"] for row in (*by_epsilon, *by_delta)]
  if not shown:
    return None
  room = 0.02 + 0.1 * (max(shown) - min(shown))
  first.set_ylim(max(0, min(shown) - room), min(1, max(shown) + room))
  first.set_xlabel("proven dp_epsilon of all classes")
  second.set_xlabel("dp_delta; dp_epsilon 1, claimed for the paper's noise")
  first.set_ylabel("accuracy")
  for axes in (first, second):
    axes.set_xscale("log")
  grid_plots.legend(figure, 4, halfspaces_page.conditions(results))
  return figure


def robust_figure(experiment, results: Results):
  """Figure 1, right: exact robust accuracy by radius, for each budget.

  Settings are the best ones for clean images, or the best ones at each radius.
  """
  scale, own = experiment["settings"], halfspaces_page.own_delta(experiment)
  figure, panels = grid_plots.panels(2, 10, 4.6)
  colors = list(grid_plots.COLORS.values())
  drawn = False
  for number, dp_epsilon in enumerate(scale["dp_epsilons"]):
    clean = halfspaces_page.best(results, "joint", dp_epsilon, own)
    if clean is None:
      continue
    drawn = True
    each = [
      halfspaces_page.best(results, "joint", dp_epsilon, own, place)["robust"][
        place
      ]
      for place in range(len(scale["radii"]))
    ]
    style = {
      "color": colors[number % len(colors)],
      "label": f"proven dp_epsilon {formats.dp_epsilon(clean['proven'])}",
    }
    panels[0].plot(scale["radii"], clean["robust"], **style)
    panels[1].plot(scale["radii"], each, **style)
  if not drawn:
    return None
  panels[0].set_title("settings best for clean images")
  panels[1].set_title("settings best at each radius")
  panels[0].set_ylabel("robust accuracy, exact")
  for axes in panels:
    axes.set_xlabel("l_2 radius")
  grid_plots.legend(figure, 3, halfspaces_page.conditions(results))
  return figure


def _found(results, accounting: str, budgets) -> list[Row]:
  """The best settings of the budgets that were run."""
  rows = [halfspaces_page.best(results, accounting, *b) for b in budgets]
  return [row for row in rows if row is not None]


def _line(axes, rows: list[Row], accounting: str, key: str) -> None:
  axes.errorbar(
    [row[key] for row in rows],
    [row["accuracy"] for row in rows],
    [2 * row["standard_error"] for row in rows],
    marker="o",
    color=grid_plots.COLORS[_COLORS[accounting]],
    label=halfspaces_page.NAMES[accounting],
  )


def network_figure(experiment, results: Results):
  """Figure 2: a panel a budget, perceptrons proven, networks attacked."""
  found = halfspaces_page.networks(results)
  networks = [(trained, attacked) for trained, attacked in found if attacked]
  if not networks:
    return None
  scale, own = experiment["settings"], halfspaces_page.own_delta(experiment)
  figure, panels = grid_plots.panels(len(networks), 4 * len(networks), 4.6)
  for axes, (trained, attacked) in zip(panels, networks):
    for accounting in ("joint", "literal"):
      dp_epsilon = trained["dp_epsilon"]
      row = halfspaces_page.best(results, accounting, dp_epsilon, own)
      if row is not None:
        axes.plot(
          scale["radii"],
          row["robust"],
          color=grid_plots.COLORS[_COLORS[accounting]],
          label=f"{halfspaces_page.NAMES[accounting]}, exact",
        )
        axes.annotate(
          f"proven {formats.dp_epsilon(row['proven'])}",
          (scale["radii"][-1], row["robust"][-1]),
          ha="right",
          xytext=(0, 4 if accounting == "joint" else 14),
          textcoords="offset points",
          fontsize=8,
          color=grid_plots.COLORS[_COLORS[accounting]],
        )
    for key, style in (("free", "o-"), ("boxed", "s:")):
      where = "" if key == "free" else " inside [0, 1]"
      axes.plot(
        attacked["radii"],
        attacked[key],
        style,
        color=grid_plots.COLORS["black"],
        label=f"DP-SGD network under attack{where}",
      )
    proven = trained["proven"]["dp_epsilon"]
    axes.set_title(f"network: proven dp_epsilon {formats.dp_epsilon(proven)}")
    axes.set_xlabel("l_2 radius")
  panels[0].set_ylabel("robust accuracy")
  grid_plots.legend(figure, 2, halfspaces_page.conditions(results))
  return figure


FIGURES = (
  ("figure-1", "Figure 1: accuracy by budget", budget_figure),
  ("figure-1-robust", "Figure 1: robust accuracy", robust_figure),
  ("figure-2", "Figure 2: against a DP-SGD network", network_figure),
)
