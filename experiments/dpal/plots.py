"""The figures of `experiments.dpal`, drawn from its results alone.

Each function takes the results by cell name, leaves out what was not run, and
returns a matplotlib figure, or None where nothing of it was run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.dpal import cells as dpal_cells
from experiments.dpal import measure as dpal_measure
from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from tf_privrob.report import formats

_PALETTE = grid_plots.COLORS
_COLORS = {
  "dpal": _PALETTE["orange"],
  "adlm": _PALETTE["purple"],
  "dp_sgd": _PALETTE["blue"],
  "sound_dpal": _PALETTE["green"],
}
_MARKERS = {"dpal": "o", "adlm": "s", "dp_sgd": "^", "sound_dpal": "D"}
_CLAIMS = {
  "paper": (_PALETTE["orange"], "o"),
  "harmonic": (_PALETTE["pink"], "s"),
  "released_v0": (_PALETTE["olive"], "^"),
  "released_v1": (_PALETTE["purple"], "v"),
}
_ATTACKED = _PALETTE["black"]
Results = Mapping[str, Mapping[str, Any]]


def method_label(method: str) -> str:
  """A method with what its budget is; a claim never stands alone."""
  name = dpal_cells.METHODS[method]
  if method in dpal_cells.CLAIMED_ONLY:
    return f"{name}: budget claimed, proven: none known"
  dp_delta = formats.dp_delta(dpal_cells.DP_DELTA)
  return f"{name}: budget proven, at delta {dp_delta}"


def accuracy_figure(results: Results, size: float):
  """Figures 2 and 4-7: accuracy under attack against the total budget."""
  rows = {
    method: sorted(
      (result["total"], result)
      for result in results.values()
      if (result["method"], result["part"]) == (method, f"linf-{size:g}")
    )
    for method in dpal_cells.METHODS
  }
  if not any(rows.values()):
    return None
  figure, panels = grid_plots.panels(4, 11.5, 3.7)
  for axes, (attack, label) in zip(panels, dpal_cells.ATTACKS.items()):
    for method, pairs in rows.items():
      found = [_of_attack(result, attack) for _, result in pairs]
      _line(
        axes,
        [total for total, _ in pairs],
        found,
        method_label(method),
        _COLORS[method],
        _MARKERS[method],
        "--" if method in dpal_cells.CLAIMED_ONLY else "-",
      )
    axes.set_title(label)
    axes.set_xlabel("total dp_epsilon, claimed or proven")
  panels[0].set_ylabel(f"accuracy under l_inf({size:g})")
  grid_plots.legend(figure, 2, grid_page.conditions(results.values()))
  return figure


def radii_figure(results: Results, family: str):
  """Figures 3, 8 and 9: claimed and proven shares against the size."""
  dpal, sound = (radii_of(results, name) for name in dpal_cells.RADII_METHODS)
  if not dpal and not sound:
    return None
  figure, (linf, l2) = grid_plots.panels(2, 11.5, 4.9)
  if dpal:
    _claims(linf, dpal["claimed"])
    for axes, norm in ((linf, "linf"), (l2, "l2")):
      _proven(axes, dpal, norm, "DPAL, one noise layer", "dpal")
  if sound:
    for axes, norm in ((linf, "linf"), (l2, "l2")):
      _proven(axes, sound, norm, "SoundDPAL, smoothing", "sound_dpal")
  published = dpal_cells.PAPER[family].get("claimed_at_size", {})
  if published:
    linf.plot(
      [float(size) for size in published],
      list(published.values()),
      "*",
      color=_ATTACKED,
      markersize=10,
      label="claimed in the paper's text",
    )
  linf.set_title("l_inf: claimed, proven, and under attack")
  linf.set_xlabel("size mu, inputs in [-1, 1]")
  linf.set_ylabel("share of test images, right and robust")
  l2.set_title("l_2: proven")
  l2.set_xlabel("radius")
  grid_plots.legend(figure, columns=2)
  return figure


def fallen_figure(results: Results):
  """Images claimed to be robust at mu, and those that an attack took."""
  dpal = radii_of(results, "dpal")
  if not dpal:
    return None
  curves = dpal["claimed"]["curves"]
  figure, panels = grid_plots.panels(len(curves), 11.5, 3.7)
  for axes, (name, points) in zip(panels, curves.items()):
    places = range(len(points))
    claimed = [point["claimed"] / dpal["count"] for point in points]
    fallen = [point["fallen"] / dpal["count"] for point in points]
    axes.bar(places, claimed, color="#e3c9ae", label="claimed robust at mu")
    axes.bar(
      places,
      fallen,
      color="#a8201c",
      width=0.5,
      label="of these misclassified by an EOT-PGD attack within mu",
    )
    axes.plot(
      places,
      [_proven_share(dpal, point["attack_eps"]) for point in points],
      "_",
      color=_COLORS["dp_sgd"],
      markersize=13,
      markeredgewidth=3,
      clip_on=False,
      label="proven at mu",
    )
    sizes = [f"{point['attack_eps']:g}" for point in points]
    axes.set_xticks(list(places), sizes, fontsize=8.5)
    axes.grid(visible=False, axis="x")
    axes.set_title(dpal_measure.COMPOSITIONS[name])
    axes.set_xlabel("size mu")
  most = max(point["claimed"] for row in curves.values() for point in row)
  panels[0].set_ylim(0, max(1.1 * most / dpal["count"], 0.1))
  panels[0].set_ylabel("share of test images")
  grid_plots.legend(figure, columns=3)
  return figure


def _line(axes, x, rows, label, color, marker, style="-") -> None:
  """A curve with its 95 % intervals."""
  if not rows:
    return
  low, high = zip(*(row["interval"] for row in rows))
  axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
  axes.plot(
    x,
    [row["accuracy"] for row in rows],
    style,
    color=color,
    marker=marker,
    label=label,
  )


def _claims(axes, claimed) -> None:
  for name, points in claimed["curves"].items():
    color, marker = _CLAIMS[name]
    axes.plot(
      [point["attack_eps"] for point in points],
      [point["accuracy"] for point in points],
      "--",
      color=color,
      marker=marker,
      label=f"DPAL claimed, {dpal_measure.COMPOSITIONS[name]}",
    )
  rows = claimed["attacked"]
  x = [row["attack_eps"] for row in rows]
  label = "DPAL under an EOT-PGD attack: the truth is not above"
  _line(axes, x, rows, label, _ATTACKED, "x")


def _proven(axes, result, norm, label, method) -> None:
  """As steps: between two radii what holds at the larger one is shown."""
  points = result["proven"][norm]
  axes.step(
    [point["radius"] for point in points],
    [point["accuracy"] for point in points],
    where="pre",
    color=_COLORS["sound_dpal" if method == "sound_dpal" else "dp_sgd"],
    linewidth=2.4,
    label=f"proven, {label}",
  )


def _proven_share(result, size: float) -> float:
  points = result["proven"]["linf"]
  return next(p["accuracy"] for p in points if p["radius"] == size)


def _of_attack(result, attack: str):
  return next(row for row in result["attacks"] if row["name"] == attack)


def radii_of(results: Results, method: str):
  """The result of a method's "radii" cell, or None."""
  found = [
    result
    for result in results.values()
    if (result["method"], result["part"]) == (method, "radii")
  ]
  return found[0] if found else None
