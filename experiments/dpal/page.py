"""The table and the page of `experiments.dpal`.

Every budget is shown as claimed, proven and audited, every radius as claimed,
proven and attacked, side by side, and the paper's own numbers beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.dpal import cells as dpal_cells
from experiments.dpal import measure as dpal_measure
from experiments.dpal import plots as dpal_plots
from experiments.grid import page as grid_page
from tf_privrob.report import formats

_FIGURES = {
  "mnist": {0.1: "Figure 4", 0.2: "Figures 2, 5", "radii": "Figures 3, 8"},
  "cifar10": {0.1: "Figure 6", 0.2: "Figure 7", "radii": "Figure 9"},
}
percent, budget = grid_page.percent, grid_page.budget
_NONE = grid_page.NONE_KNOWN
Table = grid_page.Table


def tables(results: Mapping[str, Any], family: str) -> list[Table]:
  """Title, head and rows of each table; empty ones are left out."""
  made = [
    _accuracy_table(results),
    _radii_table(results, family),
    _fallen_table(results),
    _paper_table(results, family),
  ]
  return [table for table in made if table.rows]


def _accuracy_table(results) -> Table:
  rows = []
  for result in results.values():
    if not result["part"].startswith("linf"):
      continue
    trained = results.get(f"{result['model']}/train", {})
    points = [row["accuracy"] for row in result["attacks"]]
    rows.append(
      [
        dpal_cells.METHODS[result["method"]],
        budget(trained.get("claimed"), "-"),
        grid_page.proven(trained),
        grid_page.audited(trained.get("audited")),
        f"{result['attack_eps']:g}",
        percent(result["clean_accuracy"]),
        *map(percent, points),
        percent(sum(points) / len(points)),
      ]
    )
  head = ["method", "claimed budget", "proven budget", "audited", "l_inf size"]
  head += ["clean", *dpal_cells.ATTACKS.values(), "mean"]
  return Table("Accuracy in %, under white-box attacks", head, rows)


def _radii_table(results, family: str) -> Table:
  dpal, sound = (
    dpal_plots.radii_of(results, name) for name in dpal_cells.RADII_METHODS
  )
  published = dpal_cells.PAPER[family].get("claimed_at_size", {})
  names = dpal_measure.COMPOSITIONS
  rows = []
  for number, size in enumerate(dpal_cells.RADII if dpal or sound else ()):
    row = [f"{size:g}", percent(published.get(f"{size:g}"))]
    row[1] = row[1].replace("not run", "-")
    if dpal:
      claimed = dpal["claimed"]
      points = [claimed["curves"][name][number] for name in names]
      row += [percent(point["accuracy"]) for point in points]
      row.append(percent(claimed["attacked"][number]["accuracy"]))
    else:
      row += ["not run"] * (len(names) + 1)
    row += [_proven_at(dpal, size), _proven_at(sound, size)]
    rows.append(row)
  head = ["l_inf size", "claimed in the paper's text"]
  head += [f"claimed, {label}" for label in names.values()]
  head += ["DPAL under EOT-PGD", "proven, DPAL", "proven, SoundDPAL"]
  return Table(
    "Right and robust at a size, in % of the test images", head, rows
  )


def _fallen_table(results) -> Table:
  """Of the images that each formula claims to be robust, how many fell."""
  dpal = dpal_plots.radii_of(results, "dpal")
  rows = []
  for number, size in enumerate(dpal_cells.RADII if dpal else ()):
    points = [
      dpal["claimed"]["curves"][name][number]
      for name in dpal_measure.COMPOSITIONS
    ]
    fallen = [f"{point['fallen']} of {point['claimed']}" for point in points]
    share = percent(dpal["claimed"]["attacked"][number]["accuracy"])
    rows.append([f"{size:g}", *fallen, share, _proven_at(dpal, size)])
  head = ["l_inf size"]
  head += [f"claimed, {name}" for name in dpal_measure.COMPOSITIONS.values()]
  head += ["% of all standing", "% proven"]
  title = "Images claimed to be robust that an EOT-PGD attack took"
  return Table(title, head, rows)


def _proven_at(result, size: float) -> str:
  if not result:
    return "not run"
  points = result["proven"]["linf"]
  return percent(next(p["accuracy"] for p in points if p["radius"] == size))


def _paper_table(results, family: str) -> Table:
  """The few numbers in the paper's text, and what came out here."""
  published, rows = dpal_cells.PAPER[family], []
  if "mean_drop" in published:
    drops = _mean_drops(results)
    mean = sum(drops) / len(drops) if drops else None
    rows.append(
      [
        "DPAL, mean over budgets and attacks: points lost from size 0.1 to 0.2",
        percent(published["mean_drop"]),
        percent(mean),
      ]
    )
  for total, value in published.get("attacked_at_total", {}).items():
    names = [f"dpal-{total}/linf-{size:g}" for size in dpal_cells.SIZES]
    run = [_mean(results[name]) for name in names if name in results]
    rows.append(
      [
        f"DPAL under attack, mean, claimed budget {total}, proven: {_NONE}",
        percent(value),
        percent(sum(run) / len(run) if run else None),
      ]
    )
  dpal = dpal_plots.radii_of(results, "dpal")
  for size, value in published.get("claimed_at_size", {}).items():
    number = [f"{s:g}" for s in dpal_cells.RADII].index(size)
    for name in ("paper", "released_v0"):
      point = dpal and dpal["claimed"]["curves"][name][number]
      proven = _proven_at(dpal, float(size))
      rows.append(
        [
          f"DPAL claimed robust at {size},"
          f" {dpal_measure.COMPOSITIONS[name]} (proven here: {proven})",
          percent(value),
          percent(point and point["accuracy"]),
        ]
      )
  return Table("Beside the paper's numbers, in %", ["", "paper", "here"], rows)


def _mean(result) -> float:
  rows = result["attacks"]
  return sum(row["accuracy"] for row in rows) / len(rows)


def _mean_drops(results) -> list[float]:
  """Of DPAL, from the smaller to the larger size, for each budget."""
  small, large = (f"linf-{size:g}" for size in dpal_cells.SIZES)
  return [
    _mean(result) - _mean(results[f"{result['model']}/{large}"])
    for result in results.values()
    if (result["method"], result["part"]) == ("dpal", small)
    and f"{result['model']}/{large}" in results
  ]


def notes(experiment: Mapping[str, Any]) -> list[str]:
  """What the figures mean, in sentences."""
  scale = experiment["settings"]
  dp_delta = formats.dp_delta(dpal_cells.DP_DELTA)
  return [
    "Budgets of DPAL and AdLM are claimed by their papers; proven: none known."
    f" Those of DP-SGD and SoundDPAL are proven, at delta {dp_delta}. One axis,"
    " two meanings.",
    f"Attacks are white-box on what is deployed: {scale['num_attacked']} test"
    f" images, {scale['attack_steps']} steps, inputs in [-1, 1]. DPAL is"
    f" attacked through the mean of {scale['eot_draws']} draws at every step,"
    f" and judged by the majority of {scale['verdict_draws']} fresh ones. A"
    " stronger attack may lower every accuracy.",
    f"Claimed sizes: {scale['num_radii']} test images, {scale['num_draws']}"
    " draws, the bounds on votes of the released code, at the clean image. The"
    " four formulas read the same draws. None of them is proven: see"
    " docs/soundness.md.",
    "Proven radii: of DPAL from its one noise layer at the input, of SoundDPAL"
    " by smoothing, each with confidence 99.9 %; in l_inf the l_2 radius over"
    " the root of the number of values. They are about the smoothed"
    " classifiers.",
    "AdLM is deployed without noise, with the statistics of clean training"
    " images in place of those of the test batch.",
  ]


def caption(key: Any, family: str, experiment) -> str:
  """Of the figure for an attack size, "radii" or "fallen"."""
  if key == "fallen":
    return "What became of the images claimed to be robust"
  number = _FIGURES[family][key]
  if key == "radii":
    total = experiment["settings"]["radii_total"]
    return (
      f"Claimed and proven robustness (the paper's {number}), budget"
      f" {total:g}: claimed for DPAL, proven for SoundDPAL"
    )
  return f"Accuracy under l_inf({key:g}) (the paper's {number})"
