"""Tables of `halfspaces_rates`, from its results alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.halfspaces import fit as halfspaces_fit
from experiments.halfspaces import ideal as halfspaces_ideal
from experiments.halfspaces import rates as halfspaces_rates
from tf_privrob.report import formats

Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
NAMES = {"easy": "uniform", "blocks": "blocks of Theorem 3"}
_RATIOS = {
  "free": "without noise",
  "clean": "the same learner judged by its clean error",
}
_FAR = (2**18, 2**19, 2**20)  # values of d, for the formula


def tables(results: Results) -> list[Table]:
  """All of them, some perhaps without rows."""
  return [
    *(_size_table(results, instance) for instance in NAMES),
    _growth_table(results),
    _pure_table(results),
    _setting_table(results),
  ]


def find(results: Results, instance: str, learner: str):
  """One result, or None."""
  for result in results.values():
    if (result.get("instance"), result.get("learner")) == (instance, learner):
      return result
  return None


def by_dimension(
  results: Results, instance: str, learner: str
) -> dict[int, Any]:
  """The points of one result by d; {} if it is not there."""
  found = find(results, instance, learner)
  return {point["x"]: point for point in found["points"]} if found else {}


def pairs(
  results: Results, instance: str, other: str = "free"
) -> tuple[list, list]:
  """Points of "dp" and of another learner, of the d that both have."""
  over = by_dimension(results, instance, "dp")
  under = by_dimension(results, instance, other)
  common = sorted(set(over) & set(under))
  return [over[d] for d in common], [under[d] for d in common]


def _size(point) -> str:
  """N, or that it lies beyond the grid."""
  if point is None:
    return "not run"
  if point["n"] is None:
    return f"> {point['cap']:,} (censored)"
  return f"{point['n']:,}"


def between(fit, digits: int = 2) -> str:
  """An estimate with its interval, if it has any."""
  if fit is None:
    return "-"
  if fit.low == fit.high:
    return f"{fit.value:.{digits}f}"
  low, high = f"{fit.low:.{digits}f}", f"{fit.high:.{digits}f}"
  return f"{fit.value:.{digits}f} ({low} to {high})"


def _size_table(results: Results, instance: str) -> Table:
  kinds = {
    name: by_dimension(results, instance, name)
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
    row += [between(ratio, 1), f"{share:.1f}" if share else "-"]
    if instance == "easy":
      row.append(_ideal(results, d))
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
  return Table(f"Smallest n by dimension, {NAMES[instance]}", head, rows)


def ideal(results: Results, learner: str = "dp") -> dict[str, Any] | None:
  """Arguments of `halfspaces_ideal`, as this learner has on the easy one."""
  result = find(results, "easy", learner)
  names = ("gamma", "radius", "stddev", "sampling_prob", "steps")
  return {name: result[name] for name in names} if result else None


def _ideal(results: Results, dimension: int) -> str:
  settings = ideal(results)
  if settings is None:
    return "-"
  return f"{halfspaces_ideal.noisy_mean_n(dimension, **settings):,.0f}"


def growth(results: Results) -> list[tuple[str, str, Any, str]]:
  """What is fitted: instance, quantity, estimate, verdict in words."""
  fits, found = halfspaces_fit, []
  for instance, name in NAMES.items():
    for other, text in _RATIOS.items():
      over, under = pairs(results, instance, other)
      if over:
        slope = fits.fit(over, under)
        verdict = fits.growth_verdict(slope) + _shares(over, under)
        label = f"exponent of d, ratio to {text}"
        found.append((name, label, slope, verdict))
    for learner, settings in halfspaces_rates.LEARNERS.items():
      points = list(by_dimension(results, instance, learner).values())
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
  settings = ideal(results)
  dimensions = list(by_dimension(results, "easy", "dp"))
  if settings is None or len(dimensions) < 2:
    return []
  found = []
  for values in (dimensions, _FAR):
    value = halfspaces_ideal.exponent(values, **settings)
    label = "exponent of d, n of the noisy mean by formula"
    place = f"for d = {min(values):,} to {max(values):,}"
    exact = halfspaces_fit.Fit(value, value, value)
    found.append((NAMES["easy"], label, exact, f"no measurement; {place}"))
  return found


def _pure_growth(results: Results) -> list[tuple[str, str, Any, str]]:
  result, fits = find(results, "packing", "pure"), halfspaces_fit
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
    [instance, label, between(fit), verdict]
    for instance, label, fit, verdict in growth(results)
  ]
  head = ["instance", "fitted", "estimate (95 %)", "verdict"]
  return Table("Growth with the dimension", head, rows)


def _pure_table(results: Results) -> Table:
  result = find(results, "packing", "pure")
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
        between(scaled),
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
    if result.get("instance") not in NAMES:
      continue
    rows.append(
      [
        NAMES[result["instance"]],
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
