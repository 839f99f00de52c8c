"""The figures of `experiments.dpal`, and how results are read for them."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from experiments.dpal import cells as dpal_cells
from experiments.dpal import measure as dpal_measure
from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.grid import sheets
from tf_privrob.report import formats

PUBLISHED = sheets.published(__file__)
Results = Mapping[str, Mapping[str, Any]]
Line = grid_plots.Line
_NUMBERS = {
  "mnist": {0.1: "Figure 4", 0.2: "Figures 2, 5", "radii": "Figures 3, 8"},
  "cifar10": {0.1: "Figure 6", 0.2: "Figure 7", "radii": "Figure 9"},
}
# Color and marker of methods and of claims.
_METHODS = {
  "dpal": ("orange", "o"),
  "adlm": ("purple", "s"),
  "dp_sgd": ("blue", "^"),
  "sound_dpal": ("green", "D"),
  "secure_sgd": ("pink", "v"),
  "adlm_same": ("olive", "x"),
  "dp_sgd_same": ("grey", "v"),
}
_CLAIMS = {
  "paper": ("orange", "o"),
  "paper_matrix": ("sand", "D"),
  "harmonic": ("pink", "s"),
  "released_v0": ("olive", "^"),
  "released_v1": ("purple", "v"),
}


def published(
  experiment, study: str, model: str = "dpal"
) -> dict[float, sheets.Published]:
  """What the paper's text says of this data set, by size or budget."""
  family = dpal_cells.FAMILIES[experiment["dataset"]]
  return sheets.by_value(PUBLISHED, family, study, model)


def proven_at(result, size: float) -> float | None:
  """The share that is proven at a size; None if it was not run."""
  points = result["proven"]["linf"] if result else ()
  return next((p["accuracy"] for p in points if p["radius"] == size), None)


def radii_of(results: Results, method: str):
  """The result of a method's "radii" cell, or None."""
  found = grid_page.of_part(results, "radii")
  return next((r for r in found if r["method"] == method), None)


def figures(experiment, results: Results) -> Iterator[grid_plots.Figure]:
  """As in the paper; what was not run is left out."""
  for size in dpal_cells.SIZES:
    yield from _accuracy_figure(experiment, results, size)
  yield from _radii_figure(experiment, results)
  yield from _attacked_figure(experiment, results)
  yield from _fallen_figure(results)


def _number(experiment, key) -> str:
  """Of the figure in the paper."""
  return _NUMBERS[dpal_cells.FAMILIES[experiment["dataset"]]][key]


def _method_label(method: str) -> str:
  """A method with what its budget is; a claim never stands alone."""
  name = dpal_cells.METHODS[method]
  if method in dpal_cells.CLAIMED_ONLY:
    return f"{name}: budget claimed, proven: none known"
  dp_delta = formats.dp_delta(dpal_cells.DP_DELTA)
  return f"{name}: budget proven, at delta {dp_delta}"


def _accuracy_figure(experiment, results, size: float):
  """Figures 2 and 4-7: accuracy under attack against the total budget."""
  found = [
    result
    for result in grid_page.of_part(results, "linf")
    if result["attack_eps"] == size
  ]
  if not found:
    return
  panels = []
  for attack, title in dpal_cells.ATTACKS.items():
    lines = []
    for method, (color, marker) in _METHODS.items():
      mine = [result for result in found if result["method"] == method]
      mine.sort(key=lambda result: result["total"])
      rows = [_of_attack(result, attack) for result in mine]
      style = "--" if method in dpal_cells.CLAIMED_ONLY else "-"
      totals = [result["total"] for result in mine]
      label = _method_label(method)
      lines += _band(totals, rows, label, color, marker + style)
    label = "total dp_epsilon, claimed or proven"
    side = "" if panels else f"accuracy under l_inf({size:g})"
    panels.append(grid_plots.Panel(lines, title, label, side))
  number = _number(experiment, size)
  yield grid_plots.Figure(
    f"accuracy_linf_{size:g}",
    f"Accuracy under l_inf({size:g}) (the paper's {number})",
    panels,
    (11.5, 3.7),
    title=grid_page.conditions(results.values()),
  )


def _band(x, rows, label, color, style) -> list[Line]:
  """A curve with its 95 % intervals, if it was run."""
  values = [row["accuracy"] for row in rows]
  intervals = [row["interval"] for row in rows]
  made = Line(x, values, label, color, style, "band", intervals)
  return [made] if rows else []


def _of_attack(result, attack: str):
  return next(row for row in result["attacks"] if row["name"] == attack)


def _radii_figure(experiment, results):
  """Figures 3, 8 and 9: claimed and proven shares against the size."""
  dpal, sound = (radii_of(results, name) for name in ("dpal", "sound_dpal"))
  if not dpal and not sound:
    return
  claims = []
  for name, points in _drawn(dpal).items():
    color, marker = _CLAIMS[name]
    label = f"DPAL claimed, {dpal_measure.FORMULAS[name].label}"
    shares = [point["accuracy"] for point in points]
    claims.append(Line(_sizes(points), shares, label, color, f"{marker}--"))
  if dpal:
    rows = dpal["claimed"]["attacked"]
    label = "DPAL under an EOT-PGD attack: the truth is not above"
    claims += _band(_sizes(rows), rows, label, "black", "x-")
  proven = {norm: [] for norm in ("linf", "l2")}
  for norm, lines in proven.items():
    for result, color, label in (
      (dpal, "blue", "proven, DPAL, one noise layer"),
      (sound, "green", "proven, SoundDPAL, smoothing"),
    ):
      look = {"color": color, "more": {"linewidth": 2.4}}
      if result:
        points = result["proven"][norm]
        lines.append(grid_plots.certified(points, label, **look))
  known = published(experiment, "size")
  if known:
    shares = [row.figures["claimed"] for row in known.values()]
    label, more = "claimed in the paper's text", {"markersize": 10}
    line = Line(list(known), shares, label, "black", "*", more=more)
    proven["linf"].append(line)
  total = experiment["settings"]["radii_total"]
  yield grid_plots.Figure(
    "radii",
    "Claimed and proven robustness (the paper's"
    f" {_number(experiment, 'radii')}), budget {total:g}: claimed for DPAL,"
    " proven for SoundDPAL",
    [
      grid_plots.Panel(
        claims + proven["linf"],
        "l_inf: claimed, proven, and under attack",
        "size mu, inputs in [-1, 1]",
        "share of test images, right and robust",
      ),
      grid_plots.Panel(proven["l2"], "l_2: proven", "radius"),
    ],
    (11.5, 4.9),
  )


def _sizes(rows) -> list[float]:
  return [row["attack_eps"] for row in rows]


def _drawn(dpal) -> Mapping[str, Any]:
  """The curves of DPAL that figures show: by the bounds with larger claims."""
  return dpal["claimed"]["curves"]["clopper_pearson"] if dpal else {}


# Of a method at attacked images: what is drawn, how, and how it is called.
_ATTACKED = {
  "dpal": {
    "paper": ("orange", "o--", "DPAL claimed, Eq. 16"),
    "released_v0": ("olive", "^--", "DPAL claimed, released code V0"),
  },
  "secure_sgd": {"released": ("pink", "v--", "SecureSGD claimed")},
  "sound_dpal": {"": ("green", "D-", "SoundDPAL proven")},
  "pixeldp": {"": ("blue", "s-", "PixelDP proven")},
  "pixeldp_linf": {"": ("purple", "x-", "PixelDP for l_inf proven")},
}


def _attacked_figure(experiment, results: Results):
  """Figures 3, 8 and 9: right, with such a size, at attacked images."""
  found = grid_page.of_part(results, "attacked")
  panels = []
  for attack, title in dpal_cells.ATTACKS.items() if found else ():
    lines = []
    for result in found:
      shown = _ATTACKED[result["method"]] if result["attack"] == attack else {}
      for name, (color, style, label) in shown.items():
        shares = [_share_there(point, name) for point in result["points"]]
        sizes = _sizes(result["points"])
        intervals = [share["interval"] for share in shares]
        values = [share["accuracy"] for share in shares]
        lines.append(
          Line(sizes, values, label, color, style, "band", intervals)
        )
    side = "" if panels else "share, right and robust"
    panels.append(grid_plots.Panel(lines, title, "l_inf size", side))
  if panels:
    number = _number(experiment, "radii")
    yield grid_plots.Figure(
      "attacked",
      f"Claimed and proven sizes at attacked images (the paper's {number})",
      panels,
      (11.5, 3.7),
    )


def _share_there(point, name: str) -> Mapping[str, Any]:
  """Claimed by a formula, or proven."""
  if not name:
    return point["proven"]
  return point["claimed"]["clopper_pearson"][name]


def _fallen_figure(results: Results):
  """Images claimed to be robust at mu, and those that an attack took."""
  dpal = radii_of(results, "dpal")
  if not dpal:
    return
  curves, count = _drawn(dpal), dpal["count"]
  most = max(point["claimed"] for row in curves.values() for point in row)
  panels = []
  for name, points in curves.items():
    places, sizes = range(len(points)), _sizes(points)
    claimed, fallen = (
      [point[key] / count for point in points] for key in ("claimed", "fallen")
    )
    proven = [proven_at(dpal, size) for size in sizes]
    taken = "of these misclassified by an EOT-PGD attack within mu"
    dash = {"markersize": 13, "markeredgewidth": 3, "clip_on": False}
    lines = [
      Line(places, claimed, "claimed robust at mu", "sand", shape="columns"),
      Line(places, fallen, taken, "red", shape="columns", more={"width": 0.5}),
      Line(places, proven, "proven at mu", "blue", "_", more=dash),
    ]
    panels.append(
      grid_plots.Panel(
        lines,
        dpal_measure.FORMULAS[name].label,
        "size mu",
        "" if panels else "share of test images",
        x_ticks=dict(zip(places, (f"{size:g}" for size in sizes))),
        y_limits=(0, max(1.1 * most / count, 0.1)),
      )
    )
  caption = "What became of the images claimed to be robust"
  yield grid_plots.Figure("fallen", caption, panels, (11.5, 3.7), columns=3)
