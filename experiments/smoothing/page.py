"""Tables and figures of `experiments.smoothing`, from its results alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.smoothing import cells as smoothing_cells
from tf_privrob.report import formats

Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
_COLORS = ("green", "blue", "orange", "purple", "pink", "olive", "black")
_STYLES = ("-", "--", ":", "-.")


def tables(experiment, results: Results) -> list[Table]:
  """Those that have rows."""
  made = [
    _radius_table(experiment, results),
    *_accuracy_tables(experiment, results),
    _attack_table(results),
    _claimed_table(results),
    _rules_table(results),
    _training_table(results),
  ]
  return [table for table in made if table.rows]


def _published(experiment) -> Mapping[str, Mapping]:
  nothing = {"mean_radius": {}, "accuracy": {}}
  return smoothing_cells.PUBLISHED.get(experiment["dataset"], nothing)


def _trained(results: Results, result) -> Mapping[str, Any]:
  return results.get(f"{result['model']}/train", {})


def _certified(results: Results) -> list[Mapping[str, Any]]:
  return [r for r in results.values() if r["part"].startswith("certify")]


def _who(results: Results, result) -> list[str]:
  """Label and the three figures of the budget: a claim never stands alone."""
  trained = _trained(results, result)
  return [
    trained.get("label", result["recipe"]),
    grid_page.budget(trained.get("claimed"), "none"),
    grid_page.proven(trained),
    grid_page.audited(trained.get("audited")),
  ]


_WHO = ["method", "claimed budget", "proven budget", "audited"]


def _radius_table(experiment, results: Results) -> Table:
  published = _published(experiment)["mean_radius"]
  rows = []
  for result in _certified(results):
    known = published.get(result["stddev"])
    rows.append(
      [
        *_who(results, result),
        f"{result['stddev']:g}",
        f"{result['draws']:,}",
        f"{result['mean_radius']:.3f} +- {result['standard_error']:.3f}",
        "-" if known is None else f"{known:.3f}",
        grid_page.percent(_trained(results, result).get("clean_accuracy")),
        f"{result['abstained']} of {result['count']}",
      ]
    )
  head = [*_WHO, "noise", "draws", "average certified radius, standard error"]
  head += ["published best", "clean accuracy in %", "abstained"]
  return Table("Average certified radius in l_2, proven", head, rows)


def _accuracy_tables(experiment, results: Results) -> list[Table]:
  """Certified accuracy at whole multiples of the noise and published radii."""
  made = []
  for stddev in experiment["settings"]["stddevs"]:
    marks = _published(experiment)["accuracy"].get(stddev, {})
    radii = sorted({0.0, *(i * stddev / 2 for i in range(1, 7)), *marks})
    rows = []
    if marks:
      cells = [grid_page.percent(marks[r]) if r in marks else "" for r in radii]
      draws = f"{smoothing_cells.PUBLISHED_DRAWS:,}"
      best = ["published best", "about 3 by RDP", "not stated", "not run"]
      rows.append([*best, draws, *cells])
    for result in _certified(results):
      if result["stddev"] == stddev:
        cells = [
          grid_page.percent(grid_page.accuracy_at(result, r)) for r in radii
        ]
        draws = f"{result['draws']:,}"
        rows.append([*_who(results, result), draws, *cells])
    head = [*_WHO, "draws", *(f"{radius:g}" for radius in radii)]
    title = f"Certified accuracy in % by l_2 radius, noise {stddev:g}"
    made.append(Table(title, head, rows if len(rows) > bool(marks) else []))
  return made


def _attack_table(results: Results) -> Table:
  rows = [
    [
      *_who(results, result),
      f"{result['stddev']:g}",
      str(result["attacked"]),
      str(result["fallen"]),
      f"{result['expected_at_most']:.1f}",
    ]
    for result in results.values()
    if result["part"].startswith("attack")
  ]
  head = [*_WHO, "noise", "certified images attacked", "class changed"]
  head.append("failures the confidence allows, in expectation")
  return Table("EOT-PGD inside each image's own certified radius", head, rows)


def _claimed_table(results: Results) -> Table:
  rows = []
  for result in results.values():
    if result["part"] == "claimed":
      kinds = (result["claimed"], result["proven"])
      sizes = [f"{kind['median_size']:.4f}" for kind in kinds]
      fallen = [f"{kind['fallen']} of {kind['attacked']}" for kind in kinds]
      rows.append([*_who(results, result), *sizes, *fallen])
  head = [*_WHO, "median claimed l_inf size", "median proven l_inf radius"]
  head += ["of the claimed, class changed", "of the proven, class changed"]
  return Table("Claimed sizes and proven radii, attacked inside", head, rows)


def _rules_table(results: Results) -> Table:
  rows, radii = [], []
  names = {"pixeldp": "the paper's search", "tight": "tight"}
  for result in results.values():
    for rule, found in result.get("rules", {}).items():
      radii = [point["radius"] for point in found["curve"]]
      rows.append(
        [
          *_who(results, result),
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
  for result in results.values():
    if result["part"] != "train":
      continue
    config = result["config"]
    noise = result["noise_multiplier"]
    rows.append(
      [
        *_who(results, result),
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


def notes(experiment) -> list[str]:
  """What the figures mean, in sentences."""
  scale = experiment["settings"]
  delta = formats.dp_delta(smoothing_cells.DP_DELTA)
  return [
    "Every radius that is called certified is proven: it holds for the smoothed"
    " classifier with confidence 99.9 %, each image on its own, whatever the"
    " weights. Sizes that are called claimed are not.",
    f"Proven budgets are at delta {delta}, by PLD with Poisson sampling,"
    " add-or-remove-one. Choosing settings is not charged.",
    f"{scale['num_images']} test images, evenly spread, or fewer where the"
    " table says so. The average certified radius counts wrong and abstained"
    " images as 0; it grows with the number of draws, which caps every radius,"
    " so compare equal draws only.",
    "Published: Wu et al., Augment then Smooth (TMLR 2024), the best of their"
    " methods for each noise, at dp_epsilon about 3 by RDP. The number of draws"
    f" is inferred: {smoothing_cells.PUBLISHED_DRAWS:,}, the default of their"
    " inference script, fits their accuracies; their training script has"
    " 100,000. A difference below two standard errors may be chance.",
    "Methods with noise inside the network (PixelDP, SecureSGD) are certified"
    " by their own layer and the norm of the trained weights before it. Their"
    " noise is set so that it is worth about the stated one at the input.",
  ]


def curves_figure(experiment, results: Results, dp_epsilon: float):
  """A panel a noise: certified accuracy by radius, at the most draws run."""
  stddevs = experiment["settings"]["stddevs"]
  best = {}
  for result in _certified(results):
    key = (result["recipe"], result["stddev"])
    if result["dp_epsilon"] == dp_epsilon and (
      key not in best or best[key]["draws"] < result["draws"]
    ):
      best[key] = result
  if not best:
    return None
  figure, panels = grid_plots.panels(len(stddevs), 11.5, 4.4)
  names = list(experiment["settings"]["recipes"])
  for axes, stddev in zip(panels, stddevs):
    for number, name in enumerate(names):
      result = best.get((name, stddev))
      if result:
        _curve(axes, results, result, number)
    marks = _published(experiment)["accuracy"].get(stddev, {})
    if marks:
      axes.plot(
        list(marks),
        list(marks.values()),
        "*",
        color=grid_plots.COLORS["black"],
        markersize=10,
        label="published best, dp_epsilon about 3 by RDP",
      )
    axes.set_title(f"noise {stddev:g}")
    axes.set_xlabel("l_2 radius")
    axes.set_xlim(left=0)
  panels[0].set_ylabel("certified accuracy")
  trained = (_trained(results, result) for result in best.values())
  grid_plots.legend(figure, 2, grid_page.conditions(trained))
  return figure


def _curve(axes, results: Results, result, number: int) -> None:
  """As steps: between two radii what holds at the larger one is shown."""
  points = result["curve"]
  trained = _trained(results, result)
  proven = grid_page.budget(trained.get("proven"), grid_page.NONE_KNOWN)
  axes.step(
    [point["radius"] for point in points],
    [point["accuracy"] for point in points],
    _STYLES[number // len(_COLORS) % len(_STYLES)],
    where="pre",
    color=grid_plots.COLORS[_COLORS[number % len(_COLORS)]],
    label=f"{trained.get('label', result['recipe'])}, proven {proven}",
  )
