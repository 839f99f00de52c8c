"""Figures of `experiments.halfspaces`, from its results alone."""

from __future__ import annotations

from experiments import grid_plots
from experiments import halfspaces_cells
from experiments import halfspaces_page
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
  """Figure 1: accuracy by dp_epsilon, by dp_delta, robust by radius."""
  scale, own = experiment["settings"], halfspaces_page.own_delta(experiment)
  figure, (first, second, third) = grid_plots.panels(3, 12, 4.6)
  drawn = False
  for accounting in halfspaces_cells.ACCOUNTINGS:
    budgets = [(dp_epsilon, own) for dp_epsilon in scale["dp_epsilons"]]
    by_epsilon = _found(results, accounting, budgets)
    if not by_epsilon:
      continue
    drawn = True
    _line(first, by_epsilon, accounting, "proven")
    deltas = sorted({own, *scale["dp_deltas"]})
    if accounting in ("joint", "literal"):
      budgets = [(1.0, dp_delta) for dp_delta in deltas]
      by_delta = _found(results, accounting, budgets)
      _line(second, by_delta, accounting, "dp_delta")
    if accounting == "joint":
      for number, row in enumerate(by_epsilon):
        third.plot(
          scale["radii"],
          row["robust"],
          color=grid_plots.COLORS["green"],
          alpha=0.3 + 0.7 * (number + 1) / len(by_epsilon),
        )
        third.annotate(
          f"{row['proven']:.2g}",
          (scale["radii"][0], row["robust"][0]),
          textcoords="offset points",
          xytext=(4, 3),
          fontsize=8,
        )
  if not drawn:
    return None
  first.set_xlabel("proven dp_epsilon of all classes")
  second.set_xlabel("dp_delta, dp_epsilon 1 (claimed for the paper's noise)")
  third.set_xlabel("l_2 radius; numbers: proven dp_epsilon")
  first.set_ylabel("accuracy")
  third.set_title("robust, exact")
  for axes in (first, second):
    axes.set_xscale("log")
  grid_plots.legend(figure, columns=4)
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
          f"proven {row['proven']:.3g}",
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
  grid_plots.legend(figure, columns=2)
  return figure


FIGURES = (
  ("figure-1", "Figure 1: accuracy by budget, robust accuracy", budget_figure),
  ("figure-2", "Figure 2: against a DP-SGD network", network_figure),
)
