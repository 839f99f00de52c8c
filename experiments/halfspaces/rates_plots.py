"""Figures of `halfspaces_rates`, from its results alone."""

from __future__ import annotations

import math

from experiments.grid import plots as grid_plots
from experiments.halfspaces import fit as halfspaces_fit
from experiments.halfspaces import ideal as halfspaces_ideal
from experiments.halfspaces import rates as halfspaces_rates
from experiments.halfspaces import rates_page as page

_COLORS = {"dp": "blue", "free": "black", "clean": "green", "control": "orange"}
_PANELS = {"easy": "blue", "blocks": "pink"}
_BUDGETS = ("blue", "pink", "green", "orange")


def _new(columns: int, width: float, height: float):
  from matplotlib import figure

  made = figure.Figure(figsize=(width, height), layout="constrained")
  return made, made.subplots(1, columns, squeeze=False)[0]


def _bars(axes, xs, fits, **style) -> None:
  """Estimates with their intervals."""
  below = [max(0.0, fit.value - fit.low) for fit in fits]
  above = [max(0.0, fit.high - fit.value) for fit in fits]
  values = [fit.value for fit in fits]
  axes.errorbar(xs, values, (below, above), marker="o", capsize=3, **style)


def _log_dimensions(axes, dimensions) -> None:
  from matplotlib import ticker

  axes.set_xscale("log", base=2)
  axes.set_yscale("log")
  axes.set_xticks(sorted(dimensions), [str(d) for d in sorted(dimensions)])
  axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
  axes.minorticks_off()
  axes.set_xlabel("dimension d")


def size_figure(results: page.Results):
  """N by d for all learners on the uniform instance, and the ratios."""
  ratios = {name: page.pairs(results, name) for name in page.NAMES}
  ratios = {name: pair for name, pair in ratios.items() if pair[0]}
  if not ratios:
    return None
  figure, (left, right) = _new(2, 11.5, 5.2)
  seen = set()
  for learner, settings in halfspaces_rates.LEARNERS.items():
    points = page.by_dimension(results, "easy", learner)
    kept = {d: p for d, p in points.items() if p["n"] is not None}
    seen |= set(kept)
    if kept:
      _bars(
        left,
        list(kept),
        [halfspaces_fit.size_interval(point) for point in kept.values()],
        label=settings.label,
        color=grid_plots.COLORS[_COLORS[learner]],
      )
  settings = page.ideal(results)
  if seen and settings:
    formula = [
      halfspaces_ideal.noisy_mean_n(d, **settings) for d in sorted(seen)
    ]
    left.plot(
      sorted(seen),
      formula,
      color=grid_plots.COLORS["blue"],
      linestyle="--",
      label="noisy mean, robust, by formula",
    )
  if seen:
    _log_dimensions(left, seen)
  left.set_title(f"{page.NAMES['easy']}: smallest n")
  left.set_ylabel("examples")
  _ratio_panel(right, ratios)
  grid_plots.legend(figure, columns=2)
  return figure


def _ratio_panel(axes, ratios) -> None:
  """DP over without noise, and lines of slope 1/2 through the first points."""
  seen = set()
  for name, (over, under) in ratios.items():
    fits = {
      a["x"]: halfspaces_fit.size_interval(a, b)
      for a, b in zip(over, under)
      if a["n"] is not None and b["n"] is not None
    }
    if not fits:
      continue
    color = grid_plots.COLORS[_PANELS[name]]
    slope = halfspaces_fit.fit(over, under)
    label = f"ratio, {page.NAMES[name]}: exponent {page.between(slope)}"
    _bars(axes, list(fits), list(fits.values()), label=label, color=color)
    first = min(fits)
    guide = [fits[first].value * math.sqrt(d / first) for d in fits]
    axes.plot(
      list(fits), guide, color=color, linestyle=":", label="guide: sqrt(d)"
    )
    seen |= set(fits)
  if seen:
    _log_dimensions(axes, seen)
  axes.set_title("n with noise over n without, robust")
  axes.set_ylabel("ratio")


def pure_figure(results: page.Results):
  """N * dp_epsilon by d: one line for each budget, and the known law."""
  result = page.find(results, "packing", "pure")
  if result is None:
    return None
  figure, (axes,) = _new(1, 7.5, 5.0)
  groups = {}
  for point in result["points"]:
    groups.setdefault(point["dp_epsilon"], []).append(point)
  for color, (dp_epsilon, points) in zip(_BUDGETS, groups.items()):
    kept = [point for point in points if point["n"] is not None]
    fits = [halfspaces_fit.size_interval(point) for point in kept]
    _bars(
      axes,
      [point["x"] for point in kept],
      [fit.times(dp_epsilon) for fit in fits],
      label=f"measured, dp_epsilon {dp_epsilon:g}",
      color=grid_plots.COLORS[color],
    )
  first = next(iter(groups.values()))
  axes.plot(
    [point["x"] for point in first],
    [point["dp_epsilon"] * point["predicted"] for point in first],
    color=grid_plots.COLORS["black"],
    linestyle=":",
    label="law of a success, large net",
  )
  axes.set_ylim(bottom=0)
  axes.set_xlabel("dimension d")
  axes.set_ylabel("n * dp_epsilon")
  grid_plots.legend(figure, columns=2)
  return figure


FIGURES = (
  ("rates", "Smallest n by dimension, and its ratio", size_figure),
  ("pure", "Pure DP: n * dp_epsilon by dimension", pure_figure),
)
