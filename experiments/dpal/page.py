"""The page of `experiments.dpal`: tables, figures and notes.

Every budget is shown as claimed, proven and audited, every radius as claimed,
proven and attacked, side by side, and the paper's own numbers beside ours.
"""

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
Line, Table = grid_plots.Line, grid_page.Table
percent = grid_page.percent
_NUMBERS = {
  "mnist": {0.1: "Figure 4", 0.2: "Figures 2, 5", "radii": "Figures 3, 8"},
  "cifar10": {0.1: "Figure 6", 0.2: "Figure 7", "radii": "Figure 9"},
}
_SHOWN = (0.05, 0.6)  # sizes that the paper's text has figures for
# Color and marker of methods and of claims.
_METHODS = {
  "dpal": ("orange", "o"),
  "adlm": ("purple", "s"),
  "dp_sgd": ("blue", "^"),
  "sound_dpal": ("green", "D"),
  "secure_sgd": ("pink", "v"),
}
_CLAIMS = {
  "paper": ("orange", "o"),
  "harmonic": ("pink", "s"),
  "released_v0": ("olive", "^"),
  "released_v1": ("purple", "v"),
}


def tables(experiment, results: Results) -> list[Table]:
  """Accuracies, radii, and what the paper says."""
  return [
    _accuracy_table(results),
    _radii_table(experiment, results),
    _fallen_table(results),
    _paper_table(experiment, results),
  ]


def _published(experiment, study: str) -> dict[float, sheets.Published]:
  """What the paper's text says of this data set, by size or budget."""
  family = dpal_cells.FAMILIES[experiment["dataset"]]
  return sheets.by_value(PUBLISHED, family, study, "dpal")


def _accuracy_table(results: Results) -> Table:
  rows = []
  for result in grid_page.of_part(results, "linf"):
    trained = results.get(f"{result['model']}/train", {})
    points = [row["accuracy"] for row in result["attacks"]]
    rows.append(
      [
        dpal_cells.METHODS[result["method"]],
        *grid_page.budgets(trained),
        f"{result['attack_eps']:g}",
        percent(result["clean_accuracy"]),
        *map(percent, points),
        percent(_mean(result)),
      ]
    )
  head = ["method", *grid_page.BUDGETS, "l_inf size"]
  head += ["clean", *dpal_cells.ATTACKS.values(), "mean"]
  return Table("Accuracy in %, under white-box attacks", head, rows)


def _radii_table(experiment, results: Results) -> Table:
  dpal, sound = (radii_of(results, name) for name in ("dpal", "sound_dpal"))
  published = _published(experiment, "size")
  names = dpal_measure.COMPOSITIONS
  rows = []
  for number, size in enumerate(dpal_cells.RADII if dpal or sound else ()):
    known = published.get(size)
    row = [f"{size:g}", percent(known.figures["claimed"]) if known else "-"]
    if dpal:
      claimed = dpal["claimed"]
      points = [claimed["curves"][name][number] for name in names]
      row += [percent(point["accuracy"]) for point in points]
      row.append(percent(claimed["attacked"][number]["accuracy"]))
    else:
      row += [grid_page.NOT_RUN] * (len(names) + 1)
    row += [percent(_proven_at(dpal, size)), percent(_proven_at(sound, size))]
    rows.append(row)
  head = ["l_inf size", "claimed in the paper's text"]
  head += [f"claimed, {label}" for label in names.values()]
  head += ["DPAL under EOT-PGD", "proven, DPAL", "proven, SoundDPAL"]
  title = "Right and robust at a size, in % of the test images"
  return Table(title, head, rows)


def _fallen_table(results: Results) -> Table:
  """Of the images that each formula claims to be robust, how many fell."""
  dpal = radii_of(results, "dpal")
  rows = []
  for number, size in enumerate(dpal_cells.RADII if dpal else ()):
    points = [
      dpal["claimed"]["curves"][name][number]
      for name in dpal_measure.COMPOSITIONS
    ]
    fallen = [f"{point['fallen']} of {point['claimed']}" for point in points]
    share = percent(dpal["claimed"]["attacked"][number]["accuracy"])
    proven = percent(_proven_at(dpal, size))
    rows.append([f"{size:g}", *fallen, share, proven])
  head = ["l_inf size"]
  head += [f"claimed, {name}" for name in dpal_measure.COMPOSITIONS.values()]
  head += ["% of all standing", "% proven"]
  title = "Images claimed to be robust that an EOT-PGD attack took"
  return Table(title, head, rows)


def _proven_at(result, size: float) -> float | None:
  """The share that is proven at a size; None if it was not run."""
  points = result["proven"]["linf"] if result else ()
  return next((p["accuracy"] for p in points if p["radius"] == size), None)


def _paper_table(experiment, results: Results) -> Table:
  """The few numbers in the paper's text, and what came out here."""
  rows = []
  for row in _published(experiment, "drop").values():
    label = "DPAL, mean over budgets and attacks: points lost from size 0.1 to"
    drops = _mean_drops(results)
    here = sum(drops) / len(drops) if drops else None
    rows.append([f"{label} 0.2", percent(row.figures["drop"]), percent(here)])
  for total, row in _published(experiment, "total").items():
    names = [f"dpal-{total:g}/linf-{size:g}" for size in dpal_cells.SIZES]
    run = [_mean(results[name]) for name in names if name in results]
    here = sum(run) / len(run) if run else None
    label = (
      f"DPAL under attack, mean, claimed budget {total:g}, proven:"
      f" {grid_page.NONE_KNOWN}"
    )
    rows.append([label, percent(row.figures["attacked"]), percent(here)])
  dpal = radii_of(results, "dpal")
  for size, row in _published(experiment, "size").items():
    number = dpal_cells.RADII.index(size)
    for name in ("paper", "released_v0"):
      point = dpal and dpal["claimed"]["curves"][name][number]
      label = (
        f"DPAL claimed robust at {size:g}, {dpal_measure.COMPOSITIONS[name]}"
        f" (proven here: {percent(_proven_at(dpal, size))})"
      )
      here = percent(point and point["accuracy"])
      rows.append([label, percent(row.figures["claimed"]), here])
  return Table("Beside the paper's numbers, in %", ["", "paper", "here"], rows)


def _mean(result) -> float:
  rows = result["attacks"]
  return sum(row["accuracy"] for row in rows) / len(rows)


def _mean_drops(results: Results) -> list[float]:
  """Of DPAL, from the smaller to the larger size, for each budget."""
  small, large = (f"linf-{size:g}" for size in dpal_cells.SIZES)
  return [
    _mean(result) - _mean(results[f"{result['model']}/{large}"])
    for result in results.values()
    if (result["method"], result["part"]) == ("dpal", small)
    and f"{result['model']}/{large}" in results
  ]


def radii_of(results: Results, method: str):
  """The result of a method's "radii" cell, or None."""
  found = grid_page.of_part(results, "radii")
  return next((r for r in found if r["method"] == method), None)


def summary(results: Results, audits: Results) -> Table:
  """The six models at one budget; what was not run is called so.

  Args:
    results: of a scale, by cell name.
    audits: of one step, by method.
  """
  rows = []
  for method, label in dpal_cells.METHODS.items():
    model = method if method == "pixeldp" else f"{method}-2"
    trained = results.get(f"{model}/train", {})
    attacked = [results.get(f"{model}/linf-{s:g}") for s in dpal_cells.SIZES]
    radii = results.get(f"{model}/radii")
    proven = [percent(_proven_at(radii, size)) for size in _SHOWN]
    budgets = grid_page.budgets(trained) if trained else [grid_page.NOT_RUN] * 3
    rows.append(
      [
        label,
        " / ".join(budgets),
        "-" if method == "pixeldp" else _of_a_step(audits.get(method)),
        percent(trained.get("clean", {}).get("accuracy")),
        *(percent(_mean(result) if result else None) for result in attacked),
        *_claimed_robust(method, radii),
        *(proven if method in dpal_cells.RADII_METHODS else ["-"] * 2),
        _in_the_text(method),
      ]
    )
  head = ["model", "claimed / proven / audited", "audit of one step", "clean"]
  head += [f"under attack, {size:g}" for size in dpal_cells.SIZES]
  head += [f"claimed robust at {size:g}, fallen" for size in _SHOWN]
  head += [f"proven at {size:g}" for size in _SHOWN]
  head.append("claimed in the paper at 0.05 and 0.6")
  title = "Six models in the setting of DPAL's paper, MNIST, in %"
  return Table(title, head, rows)


def _of_a_step(audit) -> str:
  """What an audit of one step says."""
  if audit is None:
    return grid_page.NOT_RUN
  return f"{' / '.join(grid_page.budgets(audit))}: {audit['verdict']}"


def _claimed_robust(method: str, radii) -> list[str]:
  """Shares by the paper's formula, or that of the code, and what fell."""
  if method not in ("dpal", "secure_sgd"):
    return ["-"] * len(_SHOWN)
  if radii is None:
    return [grid_page.NOT_RUN] * len(_SHOWN)
  curve = radii["claimed"]["curves"][
    "paper" if method == "dpal" else "released"
  ]
  points = {point["attack_eps"]: point for point in curve}
  return [
    f"{percent(points[size]['accuracy'])}, {points[size]['fallen']} of"
    f" {points[size]['claimed']} fell"
    for size in _SHOWN
  ]


def _in_the_text(method: str) -> str:
  """What DPAL's paper says of a method, "-" if nothing."""
  rows = sheets.by_value(PUBLISHED, "mnist", "size", method)
  known = [percent(rows[size].figures["claimed"]) for size in sorted(rows)]
  return " and ".join(known) or "-"


# Figures.


def figures(experiment, results: Results) -> Iterator[grid_plots.Figure]:
  """As in the paper; what was not run is left out."""
  for size in dpal_cells.SIZES:
    yield from _accuracy_figure(experiment, results, size)
  yield from _radii_figure(experiment, results)
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
  for name, points in dpal["claimed"]["curves"].items() if dpal else ():
    color, marker = _CLAIMS[name]
    label = f"DPAL claimed, {dpal_measure.COMPOSITIONS[name]}"
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
  published = _published(experiment, "size")
  if published:
    shares = [row.figures["claimed"] for row in published.values()]
    label, more = "claimed in the paper's text", {"markersize": 10}
    line = Line(list(published), shares, label, "black", "*", more=more)
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


def _fallen_figure(results: Results):
  """Images claimed to be robust at mu, and those that an attack took."""
  dpal = radii_of(results, "dpal")
  if not dpal:
    return
  curves, count = dpal["claimed"]["curves"], dpal["count"]
  most = max(point["claimed"] for row in curves.values() for point in row)
  panels = []
  for name, points in curves.items():
    places, sizes = range(len(points)), _sizes(points)
    claimed, fallen = (
      [point[key] / count for point in points] for key in ("claimed", "fallen")
    )
    proven = [_proven_at(dpal, size) for size in sizes]
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
        dpal_measure.COMPOSITIONS[name],
        "size mu",
        "" if panels else "share of test images",
        x_ticks=dict(zip(places, (f"{size:g}" for size in sizes))),
        y_limits=(0, max(1.1 * most / count, 0.1)),
      )
    )
  caption = "What became of the images claimed to be robust"
  yield grid_plots.Figure("fallen", caption, panels, (11.5, 3.7), columns=3)


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  del results
  scale = experiment["settings"]
  dp_delta = formats.dp_delta(dpal_cells.DP_DELTA)
  return [
    "Budgets of DPAL and AdLM are claimed by their papers; proven: none known."
    " So is that of SecureSGD's released code, whose accountant stops at the"
    " total or before. Those of DP-SGD and SoundDPAL are proven, at delta"
    f" {dp_delta}. One axis, two meanings. PixelDP is trained without any.",
    f"Attacks are white-box on what is deployed: {scale['num_attacked']} test"
    f" images, {scale['attack_steps']} steps, inputs in [-1, 1]. DPAL,"
    " SecureSGD and PixelDP are attacked through the mean of"
    f" {scale['eot_draws']} draws at every step, and judged by the majority of"
    f" {scale['verdict_draws']} fresh ones. A stronger attack may lower every"
    " accuracy.",
    f"Claimed sizes: {scale['num_radii']} test images, {scale['num_draws']}"
    " draws, the bounds on votes of the released code, at the clean image. The"
    " four formulas read the same draws. None of them is proven: see"
    " docs/soundness.md.",
    "Proven radii: of DPAL from its one noise layer at the input, of SecureSGD"
    " and PixelDP from theirs behind the first weights, of SoundDPAL"
    " by smoothing, each with confidence 99.9 %; in l_inf the l_2 radius over"
    " the root of the number of values. They are about the smoothed"
    " classifiers.",
    "AdLM is deployed without noise, with the statistics of clean training"
    " images in place of those of the test batch.",
  ]
