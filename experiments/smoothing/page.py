"""The page of `experiments.smoothing`: tables, figures and notes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.grid import sheets
from experiments.smoothing import cells as smoothing_cells
from experiments.smoothing import measure as smoothing_measure
from tf_privrob.report import formats

PUBLISHED = smoothing_measure.PUBLISHED
Results = Mapping[str, Mapping[str, Any]]
Table, of_part, who = grid_page.Table, grid_page.of_part, grid_page.who
_WHO = ["method", *grid_page.BUDGETS]


def tables(experiment, results: Results) -> list[Table]:
  """Radii, accuracies, attacks and trainings."""
  return [
    _radius_table(experiment, results),
    *_accuracy_tables(experiment, results),
    _attack_table(results),
    _claimed_table(results),
    _rules_table(results),
    _training_table(results),
  ]


def _trained(results: Results, result) -> Mapping[str, Any]:
  return results.get(f"{result['model']}/train", {})


def _radius_table(experiment, results: Results) -> Table:
  published = sheets.by_value(PUBLISHED, experiment["dataset"], "noise")
  rows = []
  for result in of_part(results, "certify"):
    known = published.get(result["stddev"])
    clean = _trained(results, result).get("clean")
    rows.append(
      [
        *who(results, result),
        f"{result['stddev']:g}",
        f"{result['draws']:,}",
        f"{result['mean_radius']:.3f} +- {result['standard_error']:.3f}",
        f"{known.figures['mean_radius']:.3f}" if known else "-",
        grid_page.percent(clean and clean["accuracy"]),
        f"{result['abstained']} of {result['count']}",
      ]
    )
  head = [*_WHO, "noise", "draws", "average certified radius, standard error"]
  head += ["published best", "clean accuracy in %", "abstained"]
  return Table("Average certified radius in l_2, proven", head, rows)


def _marks(experiment, stddev: float) -> dict[float, float]:
  dataset = experiment["dataset"]
  return smoothing_measure.published_accuracy(dataset, stddev)


def _accuracy_tables(experiment, results: Results) -> Iterator[Table]:
  """Certified accuracy at whole multiples of the noise and published radii."""
  for stddev in experiment["settings"]["stddevs"]:
    marks = _marks(experiment, stddev)
    radii = sorted({0.0, *(i * stddev / 2 for i in range(1, 7)), *marks})
    rows = []
    if marks:
      cells = [grid_page.percent(marks[r]) if r in marks else "" for r in radii]
      draws = f"{smoothing_cells.PUBLISHED_DRAWS:,}"
      best = ["published best", "2.88 by RDP", "not stated", "not run"]
      rows.append([*best, draws, *cells])
    for result in of_part(results, "certify"):
      if result["stddev"] == stddev:
        cells = [
          grid_page.percent(grid_page.accuracy_at(result, r)) for r in radii
        ]
        draws = f"{result['draws']:,}"
        rows.append([*who(results, result), draws, *cells])
    head = [*_WHO, "draws", *(f"{radius:g}" for radius in radii)]
    title = f"Certified accuracy in % by l_2 radius, noise {stddev:g}"
    yield Table(title, head, rows if len(rows) > bool(marks) else [])


def _attack_table(results: Results) -> Table:
  rows = [
    [
      *who(results, result),
      f"{result['stddev']:g}",
      str(result["attacked"]),
      str(result["fallen"]),
      f"{result['expected_at_most']:.1f}",
    ]
    for result in of_part(results, "attack")
  ]
  head = [*_WHO, "noise", "certified images attacked", "class changed"]
  head.append("failures the confidence allows, in expectation")
  return Table("EOT-PGD inside each image's own certified radius", head, rows)


def _claimed_table(results: Results) -> Table:
  rows = []
  for result in of_part(results, "claimed"):
    kinds = (result["claimed"], result["proven"])
    sizes = [f"{kind['median_size']:.4f}" for kind in kinds]
    fallen = [f"{kind['fallen']} of {kind['attacked']}" for kind in kinds]
    rows.append([*who(results, result), *sizes, *fallen])
  head = [*_WHO, "median claimed l_inf size", "median proven l_inf radius"]
  head += ["of the claimed, class changed", "of the proven, class changed"]
  return Table("Claimed sizes and proven radii, attacked inside", head, rows)


def _rules_table(results: Results) -> Table:
  rows, radii = [], []
  names = {"pixeldp": "the paper's search", "tight": "tight"}
  for result in of_part(results, "rules"):
    for rule, found in result["rules"].items():
      radii = [point["radius"] for point in found["curve"]]
      rows.append(
        [
          *who(results, result),
          names[rule],
          f"{result['draws']:,}",
          f"{found['mean_radius']:.3f}",
          *(grid_page.percent(p["accuracy"]) for p in found["curve"]),
        ]
      )
  head = [*_WHO, "bound", "draws", "average certified radius"]
  head += [f"{radius:g}" for radius in radii]
  return Table("PixelDP: certified accuracy in % by l_2 radius", head, rows)


def _training_table(results: Results) -> Table:
  rows = []
  for result in of_part(results, "train"):
    config = result["config"]
    noise = result["noise_multiplier"]
    rows.append(
      [
        *who(results, result),
        "-" if result["trained_for"] is None else f"{result['trained_for']:g}",
        str(result["steps"]),
        f"{config['batch_size']:,}",
        str(config["augmentation_multiplicity"]),
        "-" if noise is None else f"{noise:.3f}",
        f"{result['seconds'] / 60:.1f}",
      ]
    )
  head = [*_WHO, "trained for noise", "steps", "batch", "copies"]
  head += ["noise multiplier", "minutes"]
  return Table("Trainings", head, rows)


# Figures.


def figures(experiment, results: Results) -> Iterator[grid_plots.Figure]:
  """Certified curves, one figure a budget, a panel a noise.

  At the most draws that were run.
  """
  for dp_epsilon in experiment["settings"]["dp_epsilons"]:
    best = {}
    for result in of_part(results, "certify"):
      key = (result["recipe"], result["stddev"])
      if result["dp_epsilon"] == dp_epsilon and (
        key not in best or best[key]["draws"] < result["draws"]
      ):
        best[key] = result
    if best:
      trained = (_trained(results, result) for result in best.values())
      yield grid_plots.Figure(
        f"curves-{dp_epsilon:g}",
        f"Certified accuracy, proven dp_epsilon {dp_epsilon:g}",
        _panels(experiment, results, best),
        (11.5, 4.4),
        title=grid_page.conditions(trained),
      )


def _panels(experiment, results: Results, best) -> list[grid_plots.Panel]:
  names = list(experiment["settings"]["recipes"])
  panels = []
  for stddev in experiment["settings"]["stddevs"]:
    lines = []
    for number, name in enumerate(names):
      result = best.get((name, stddev))
      if result:
        label, look = _label(results, result), grid_plots.look(number)
        lines.append(grid_plots.certified(result["curve"], label, **look))
    marks = _marks(experiment, stddev)
    if marks:
      label = "published best, dp_epsilon 2.88 by RDP"
      points, more = (list(marks), list(marks.values())), {"markersize": 10}
      lines.append(grid_plots.Line(*points, label, style="*", more=more))
    side = "" if panels else "certified accuracy"
    panels.append(
      grid_plots.Panel(
        lines, f"noise {stddev:g}", "l_2 radius", side, x_limits=(0, None)
      )
    )
  return panels


def _label(results: Results, result) -> str:
  trained = _trained(results, result)
  proven = grid_page.budget(trained.get("proven"), grid_page.NONE_KNOWN)
  return f"{trained.get('label', result['recipe'])}, proven {proven}"


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  del results
  scale = experiment["settings"]
  delta = formats.dp_delta(smoothing_cells.DP_DELTA)
  return [
    "Every radius that is called certified is proven: it holds for the smoothed"
    " classifier with confidence 99.9 %, each image on its own, whatever the"
    " weights. Sizes that are called claimed are not.",
    grid_page.PUBLIC_DRAWS,
    f"Proven budgets are at delta {delta}, by PLD with Poisson sampling,"
    " add-or-remove-one. Choosing settings is not charged.",
    f"{scale['num_images']} test images, evenly spread, or fewer where the"
    " table says so. The average certified radius counts wrong and abstained"
    " images as 0; it grows with the number of draws, which caps every radius,"
    " so compare equal draws only.",
    "Published: Wu et al., Augment then Smooth (TMLR 2024), the best of their"
    " methods and training noises for each noise, at dp_epsilon 2.88 by RDP,"
    f" 2.67 by PLD. They have {smoothing_cells.PUBLISHED_DRAWS:,} draws: their"
    " certified accuracies fall to zero where the largest radius of so many"
    " draws is. A difference below two standard errors may be chance.",
    "Methods with noise inside the network (PixelDP, SecureSGD) are certified"
    " by their own layer and the norm of the trained weights before it. Their"
    " noise is set so that it is worth about the stated one at the input.",
  ]
