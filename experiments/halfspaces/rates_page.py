"""Tables and figures of `halfspaces_rates`, from its results alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.halfspaces import fit as halfspaces_fit
from experiments.halfspaces import ideal as halfspaces_ideal
from experiments.halfspaces import rates as halfspaces_rates
from tf_privrob.report import formats

Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
_NAMES = {"easy": "uniform", "blocks": "blocks of Theorem 3"}
_RATIOS = {
  "free": "without noise",
  "clean": "the same learner judged by its clean error",
}
_COLORS = {"dp": "blue", "free": "black", "clean": "green", "control": "orange"}
_PANELS = {"easy": "blue", "blocks": "pink"}
_BUDGETS = ("blue", "pink", "green", "orange")
_FAR = (2**18, 2**19, 2**20)  # values of d, for the formula


def tables(results: Results) -> list[Table]:
  """All of them, some perhaps without rows."""
  return [
    *(_size_table(results, instance) for instance in _NAMES),
    _growth_table(results),
    _pure_table(results),
    _setting_table(results),
  ]


def _find(results: Results, instance: str, learner: str):
  """One result, or None."""
  for result in results.values():
    if (result.get("instance"), result.get("learner")) == (instance, learner):
      return result
  return None


def _by_dimension(
  results: Results, instance: str, learner: str
) -> dict[int, Any]:
  """The points of one result by d; {} if it is not there."""
  found = _find(results, instance, learner)
  return {point["x"]: point for point in found["points"]} if found else {}


def _pairs(
  results: Results, instance: str, other: str = "free"
) -> tuple[list, list]:
  """Points of "dp" and of another learner, of the d that both have."""
  over = _by_dimension(results, instance, "dp")
  under = _by_dimension(results, instance, other)
  common = sorted(set(over) & set(under))
  return [over[d] for d in common], [under[d] for d in common]


def _size(point) -> str:
  """N, or that it lies beyond the grid."""
  if point is None:
    return "not run"
  if point["n"] is None:
    return f"> {point['cap']:,} (censored)"
  return f"{point['n']:,}"


def _between(fit, digits: int = 2) -> str:
  """An estimate with its interval, if it has any."""
  if fit is None:
    return "-"
  if fit.low == fit.high:
    return f"{fit.value:.{digits}f}"
  low, high = f"{fit.low:.{digits}f}", f"{fit.high:.{digits}f}"
  return f"{fit.value:.{digits}f} ({low} to {high})"


def _size_table(results: Results, instance: str) -> Table:
  kinds = {
    name: _by_dimension(results, instance, name)
    for name in halfspaces_rates.LEARNERS
  }
  shown = {name: found for name, found in kinds.items() if found}
  rows = []
  for d in sorted({d for found in shown.values() for d in found}):
    row = [str(d), *(_size(found.get(d)) for found in shown.values())]
    over, under = (shown.get(name, {}).get(d) for name in ("dp", "free"))
    ratio = None
    if over and under:
      ratio = halfspaces_fit.size_interval(over, under)
    share = over and over["noise_share"]
    row += [_between(ratio, 1), f"{share:.1f}" if share else "-"]
    if instance == "easy":
      row.append(_formula(results, d))
    if "control" in shown:
      risk = shown["control"].get(d, {}).get("robust_risk")
      row.append(grid_page.percent(risk))
    rows.append(row)
  head = ["d", *(halfspaces_rates.LEARNERS[name].label for name in shown)]
  head += ["ratio to without noise, robust (95 %)", "noise over sampling"]
  if instance == "easy":
    head.append("noisy mean, robust, by formula")
  if "control" in shown:
    head.append("robust risk after projection, in %")
  return Table(f"Smallest n by dimension, {_NAMES[instance]}", head, rows)


def _ideal(results: Results, learner: str = "dp") -> dict[str, Any] | None:
  """Arguments of `halfspaces_ideal`, as this learner has on the easy one."""
  result = _find(results, "easy", learner)
  names = ("gamma", "radius", "stddev", "sampling_prob", "steps")
  return {name: result[name] for name in names} if result else None


def _formula(results: Results, dimension: int) -> str:
  settings = _ideal(results)
  if settings is None:
    return "-"
  return f"{halfspaces_ideal.noisy_mean_n(dimension, **settings):,.0f}"


def _growth(results: Results) -> list[tuple[str, str, Any, str]]:
  """What is fitted: instance, quantity, estimate, verdict in words."""
  fits, found = halfspaces_fit, []
  for instance, name in _NAMES.items():
    for other, text in _RATIOS.items():
      over, under = _pairs(results, instance, other)
      if over:
        slope = fits.fit(over, under)
        verdict = fits.growth_verdict(slope) + _shares(over, under)
        label = f"exponent of d, ratio to {text}"
        found.append((name, label, slope, verdict))
    for learner, settings in halfspaces_rates.LEARNERS.items():
      points = list(_by_dimension(results, instance, learner).values())
      if points:
        slope = fits.fit(points)
        label = f"exponent of d, n of {settings.label}"
        found.append((name, label, slope, fits.growth_verdict(slope)))
  return found + _ideal_growth(results) + _pure_growth(results)


def _shares(over, under) -> str:
  """Where the exponent of the ratio comes from: the fit is linear in log n."""
  kept = [(a, b) for a, b in zip(over, under) if None not in (a["n"], b["n"])]
  slopes = [halfspaces_fit.fit(points) for points in zip(*kept)]
  if not slopes or None in slopes:
    return ""
  over_value, under_value = (slope.value for slope in slopes)
  return (
    f" ({over_value:+.2f} from its n, {-under_value:+.2f} from the other's)"
  )


def _ideal_growth(results: Results) -> list[tuple[str, str, Any, str]]:
  """The exponents that the formula has, where it was measured and far out."""
  settings = _ideal(results)
  dimensions = list(_by_dimension(results, "easy", "dp"))
  if settings is None or len(dimensions) < 2:
    return []
  found = []
  for values in (dimensions, _FAR):
    value = halfspaces_ideal.exponent(values, **settings)
    label = "exponent of d, n of the noisy mean by formula"
    place = f"for d = {min(values):,} to {max(values):,}"
    exact = halfspaces_fit.Fit(value, value, value)
    found.append((_NAMES["easy"], label, exact, f"no measurement; {place}"))
  return found


def _pure_growth(results: Results) -> list[tuple[str, str, Any, str]]:
  result, fits = _find(results, "packing", "pure"), halfspaces_fit
  if result is None:
    return []
  points = result["points"]
  scales = [point["dp_epsilon"] for point in points]
  slope, bend = (
    fits.fit(points, degree=degree, logs=False, scales=scales)
    for degree in (1, 2)
  )
  verdict = fits.line_verdict(slope, bend)
  found = [
    ("packing", "n * dp_epsilon for one dimension more", slope, verdict),
    ("packing", "quadratic term of n * dp_epsilon", bend, verdict),
  ]
  budgets = sorted(set(scales))
  groups = {b: [p for p in points if p["dp_epsilon"] == b] for b in budgets}
  for budget in budgets[1:]:
    ratio = fits.fit(
      groups[budget],
      groups[budgets[0]],
      degree=0,
      scales=[budget / budgets[0]] * len(groups[budget]),
    )
    label = f"mean log ratio of n * dp_epsilon, {budget:g} to {budgets[0]:g}"
    found.append(("packing", label, ratio, fits.ratio_verdict(ratio)))
  return found


def _growth_table(results: Results) -> Table:
  rows = [
    [instance, label, _between(fit), verdict]
    for instance, label, fit, verdict in _growth(results)
  ]
  head = ["instance", "fitted", "estimate (95 %)", "verdict"]
  return Table("Growth with the dimension", head, rows)


def _pure_table(results: Results) -> Table:
  result = _find(results, "packing", "pure")
  rows = []
  for point in result["points"] if result else ():
    dp_epsilon = point["dp_epsilon"]
    interval = halfspaces_fit.size_interval(point)
    scaled = interval and interval.times(dp_epsilon)
    rows.append(
      [
        str(point["x"]),
        formats.dp_epsilon(dp_epsilon),
        _size(point),
        _between(scaled),
        f"{dp_epsilon * point['predicted']:.2f}",
        f"{point['net_size']:,}",
      ]
    )
  head = ["d", "dp_epsilon", "n", "n * dp_epsilon (95 %)"]
  head += ["by the law of a success", "vectors of the net"]
  title = "Smallest n of the pure learner, packing of Theorem 2"
  return Table(title, head, rows)


def _setting_table(results: Results) -> Table:
  rows = []
  for result in results.values():
    if result.get("instance") not in _NAMES:
      continue
    rows.append(
      [
        _NAMES[result["instance"]],
        result["label"],
        grid_page.proven(result, "not private"),
        f"{result['gamma']:g}",
        f"{result['radius']:g}",
        str(result["steps"]),
        f"{result['sampling_prob']:g}",
        f"{result['stddev']:.2f}",
        str(len(result["points"][0]["brackets"])),
        str(sum(point["evaluations"] for point in result["points"])),
        f"{result['seconds'] / 60:.1f}",
      ]
    )
  head = ["instance", "learner", "proven budget", "gamma", "judged at"]
  head += ["steps", "sampling rate", "noise stddev", "seeds", "trainings"]
  return Table("Settings of the sample sizes", [*head, "minutes"], rows)


# Figures.


def figures(results: Results) -> Iterator[grid_plots.Figure]:
  """The smallest n by dimension, its ratio, and that of the pure learner."""
  ratios = {name: _pairs(results, name) for name in _NAMES}
  ratios = {name: pair for name, pair in ratios.items() if pair[0]}
  if ratios:
    caption = "Smallest n by dimension, and its ratio"
    panels = [_size_panel(results), _ratio_panel(ratios)]
    size = (11.5, 5.2)
    yield grid_plots.Figure("rates", caption, panels, size, apart=True)
  result = _find(results, "packing", "pure")
  if result is not None:
    caption, size = "Pure DP: n * dp_epsilon by dimension", (7.5, 5.0)
    yield grid_plots.Figure("pure", caption, [_pure_panel(result)], size)


def _bars(places, fits, label: str, color: str) -> grid_plots.Line:
  """Estimates with their intervals."""
  values = [fit.value for fit in fits]
  ends = [(fit.low, fit.high) for fit in fits]
  return grid_plots.Line(places, values, label, color, "o-", "bars", ends)


def _log_panel(lines, seen, title: str, side: str) -> grid_plots.Panel:
  """Both axes are logarithmic, where there is anything."""
  logs = {"x_log": 2, "y_log": 10, "x_ticks": grid_plots.ticks(seen)}
  return grid_plots.Panel(
    lines,
    title,
    "dimension d",
    side,
    y_limits=(None, None),
    numbers=True,
    **(logs if seen else {}),
  )


def _size_panel(results: Results) -> grid_plots.Panel:
  """N by d for all learners on the uniform instance."""
  lines, seen = [], set()
  for learner, settings in halfspaces_rates.LEARNERS.items():
    points = _by_dimension(results, "easy", learner)
    kept = {d: p for d, p in points.items() if p["n"] is not None}
    seen |= set(kept)
    fits = [halfspaces_fit.size_interval(point) for point in kept.values()]
    if kept:
      lines.append(_bars(list(kept), fits, settings.label, _COLORS[learner]))
  settings = _ideal(results)
  if seen and settings:
    formula = [
      halfspaces_ideal.noisy_mean_n(d, **settings) for d in sorted(seen)
    ]
    label = "noisy mean, robust, by formula"
    lines.append(grid_plots.Line(sorted(seen), formula, label, "blue", "--"))
  title = f"{_NAMES['easy']}: smallest n"
  return _log_panel(lines, seen, title, "examples")


def _ratio_panel(ratios) -> grid_plots.Panel:
  """DP over without noise, and lines of slope 1/2 through the first points."""
  lines, seen = [], set()
  for name, (over, under) in ratios.items():
    fits = {
      a["x"]: halfspaces_fit.size_interval(a, b)
      for a, b in zip(over, under)
      if a["n"] is not None and b["n"] is not None
    }
    if not fits:
      continue
    slope, color = _between(halfspaces_fit.fit(over, under)), _PANELS[name]
    label = f"ratio, {_NAMES[name]}: exponent {slope}"
    lines.append(_bars(list(fits), list(fits.values()), label, color))
    first = min(fits)
    guide = [fits[first].value * math.sqrt(d / first) for d in fits]
    lines.append(
      grid_plots.Line(list(fits), guide, "guide: sqrt(d)", color, ":")
    )
    seen |= set(fits)
  title = "n with noise over n without, robust"
  return _log_panel(lines, seen, title, "ratio")


def _pure_panel(result) -> grid_plots.Panel:
  """N * dp_epsilon by d: one line for each budget, and the known law."""
  groups, lines = {}, []
  for point in result["points"]:
    groups.setdefault(point["dp_epsilon"], []).append(point)
  for color, (dp_epsilon, points) in zip(_BUDGETS, groups.items()):
    kept = [point for point in points if point["n"] is not None]
    fits = [
      halfspaces_fit.size_interval(point).times(dp_epsilon) for point in kept
    ]
    label = f"measured, dp_epsilon {dp_epsilon:g}"
    lines.append(_bars([point["x"] for point in kept], fits, label, color))
  first = next(iter(groups.values()))
  law = [point["dp_epsilon"] * point["predicted"] for point in first]
  places, label = [point["x"] for point in first], "law of a success, large net"
  lines.append(grid_plots.Line(places, law, label, style=":"))
  return grid_plots.Panel(
    lines,
    "",
    "dimension d",
    "n * dp_epsilon",
    y_limits=(0, None),
    numbers=True,
  )


def notes() -> list[str]:
  """How to read it, in sentences."""
  return [
    "The smallest n is the first of a geometric grid for which the risk on"
    " fresh examples is at most 0.1 in two thirds of the seeds, found by"
    " bisection: a learner is assumed to do no worse with more examples.",
    "Intervals are bootstraps over seeds, and over where between two sizes of"
    " the grid the true one lies.",
    "Read the ratio to the learner without noise: n itself depends on the"
    " instance, which becomes easier in high dimensions (margins fluctuate by"
    " 1 / sqrt(d)), for both learners. The noisy mean is the perceptron if"
    " every example were always violated; its formula has the same effect, and"
    " tells how far out n itself would grow like sqrt(d).",
    "Noise over sampling is the length of all noise over that of the random"
    " part of all examples; only far above 1 does privacy decide n.",
    "These are upper bounds of one algorithm on one distribution: they can"
    " agree with the theorems' rates, but do not prove a lower bound.",
  ]
