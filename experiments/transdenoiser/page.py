"""The page of `experiments.transdenoiser`: tables, figures and notes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.grid import sheets
from experiments.transdenoiser import cells as transdenoiser_cells
from tf_privrob.report import formats

PUBLISHED = sheets.published(__file__)
Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
_RADII = (0.0, 0.25, 0.5, 0.75)
_BEYOND = "beyond"  # what so many draws can certify
_SIZE = (11.5, 6.4)  # of figures, in inches
_WHO = ["method", *grid_page.BUDGETS]
_WAYS = {"transfer": "on the classifier", "adaptive": "through all, EOT"}


def tables(experiment, results: Results) -> list[Table]:
  """All of them, some perhaps without rows."""
  return [
    _certified_table(results),
    _order_table(experiment, results),
    *_attack_tables(experiment, results),
    _saving_table(results),
    _training_table(experiment, results),
  ]


def _of(results: Results, part: str) -> list[Mapping[str, Any]]:
  """Results of one part of all models; no training of the public one."""
  found = grid_page.of_part(results, part)
  if part == "train":
    public = transdenoiser_cells.PUBLIC
    found = [result for result in found if result["recipe"] != public]
  return found


def _who(results: Results, result) -> list[str]:
  """Label and the three figures of the budget: a claim never stands alone."""
  if result["recipe"] == transdenoiser_cells.PUBLIC:
    return [transdenoiser_cells.ALONE.label, *["public data"] * 2, "-"]
  return grid_page.who(results, result)


def _certified_table(results: Results) -> Table:
  """Radii that no vote of so many draws can reach are not shown."""
  found = _of(results, "certify")
  farthest = max((result["reach"] for result in found), default=0.0)
  radii = [radius for radius in _RADII if radius <= farthest]
  rows = [
    [
      *_who(results, result),
      f"{result['count']}",
      f"{result['draws']:,}",
      f"{result['reach']:.3f}",
      f"{result['mean_radius']:.3f}",
      *(
        grid_page.percent(grid_page.accuracy_at(result, radius))
        if radius <= result["reach"]
        else _BEYOND
        for radius in radii
      ),
    ]
    for result in found
  ]
  head = [*_WHO, "images", "draws", "largest possible radius"]
  head += ["average certified radius", *(f"{radius:g}" for radius in radii)]
  return Table("Certified accuracy in % by l_2 radius, proven", head, rows)


_ORDER = {1: "similar", 2: "significantly below"}


def _order_table(experiment, results: Results) -> Table:
  """What the text says of Figure 2, beside our own differences in points."""
  paper = _paper(results, "certify")
  rows = []
  for row in PUBLISHED:
    model = row.model
    ours = _of_first_budget(experiment, results, model, "certify")
    if (row.dataset, row.study) != (experiment["dataset"], "order"):
      continue
    if paper is None or ours is None:
      continue
    reach = min(paper["reach"], ours["reach"])
    rows.append(
      [
        results[f"{ours['model']}/train"]["label"],
        *grid_page.budgets(results[f"{ours['model']}/train"]),
        _ORDER[row.figures["order"]],
        *(
          _difference(paper, ours, radius) if radius <= reach else _BEYOND
          for radius in _RADII
        ),
      ]
    )
  head = ["method", *grid_page.BUDGETS, "Figure 2, as its text says"]
  head += [f"ours at {radius:g}" for radius in _RADII]
  title = "Certified accuracy beside TransDenoiser's, in points"
  return Table(title, head, rows)


def _paper(results: Results, part: str):
  """A result of TransDenoiser as published, or of what stands for it."""
  for name in ("paper", "paper_kept"):
    found = [r for r in _of(results, part) if r["recipe"] == name]
    if found:
      return found[0]
  return None


def _of_first_budget(experiment, results: Results, recipe: str, part: str):
  found = _first(experiment, results, part)
  return next((r for r in found if r["recipe"] == recipe), None)


def _difference(paper, ours, radius: float) -> str:
  at = [grid_page.accuracy_at(result, radius) for result in (ours, paper)]
  return f"{100 * (at[0] - at[1]):+.1f}"


def _attack_tables(experiment, results: Results) -> Iterator[Table]:
  names = transdenoiser_cells.ATTACKS
  for norm in experiment["settings"]["attack_norms"]:
    rows = []
    for result in _of(results, "attack"):
      if result["attack_norm"] != norm:
        continue
      found = {attack["name"]: attack for attack in result["attacks"]}
      values = [found[name][way] for way in _WAYS for name in names]
      rows.append(
        [
          *_who(results, result),
          str(result["count"]),
          grid_page.percent(result["clean_accuracy"]),
          *map(grid_page.percent, values),
        ]
      )
    head = [*_WHO, "images", "clean"]
    head += [f"{name} {way}" for way in _WAYS.values() for name in names]
    title = f"Accuracy in % of the majority of draws, l_2 attacks of {norm:g}"
    yield Table(title, head, rows)


def _saving_table(results: Results) -> Table:
  rows = []
  for result in _of(results, "train"):
    for number, part in enumerate(result.get("tally", ())):
      rows.append(
        [
          *_who(results, result),
          f"{number + 1}",
          f"{part['parameters']:,}",
          grid_page.percent(part["zero"]),
          f"{100 * part['saving']:.2g}",
          f"{100 * part['saving_without_T']:.2g}",
          part["proof"] or "none: computed at every step",
        ]
      )
  head = [*_WHO, "slice", "parameters", "steps with S_min = 0, in %"]
  head += ["noise variance saved by the rule, in %", "without the factor T"]
  head.append("proof that S_min = 0 for any data")
  return Table("What the input noise was counted for", head, rows)


def _training_table(experiment, results: Results) -> Table:
  rows = [
    [
      *_who(results, result),
      result["network"],
      str(result["steps"]),
      f"{result['config']['batch_size']:,}",
      f"{result['seconds'] / 60:.1f}",
    ]
    for result in _of(results, "train")
  ]
  public = results.get(f"{transdenoiser_cells.PUBLIC}/train")
  if public:
    accuracy = grid_page.percent(public["clean"]["accuracy"])
    label = f"public classifier: {accuracy} % of clean test images"
    known = sheets.by_value(PUBLISHED, experiment["dataset"], "clean")
    if None in known:
      share = grid_page.percent(known[None].figures["accuracy"])
      label += f", the paper's {share} %"
    minutes = f"{public['seconds'] / 60:.1f}"
    rows.append([label, "public data", "public data", "-", "-", "-", "-"])
    rows[-1].append(minutes)
  head = [*_WHO, "network", "steps", "batch", "minutes"]
  return Table("Trainings", head, rows)


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  del results
  delta = formats.dp_delta(transdenoiser_cells.DP_DELTA)
  share = transdenoiser_cells.PUBLIC_SHARE
  return [
    f"The classifier was trained on {100 * share:.0f} % of the training images,"
    " declared public; budgets are about the others. That the two have no image"
    " in common is checked by hash.",
    "Certified radii are proven, with confidence 99.9 % for each image, and"
    " hold whatever the weights are. They are in units of [0, 1]. The largest"
    " possible one is that of a unanimous vote: beyond it nothing is certified,"
    " whatever the model.",
    grid_page.PUBLIC_DRAWS,
    f"Budgets are at delta {delta}. A claimed budget without a proven one means"
    " that no finite bound is known; the study of audits shows what one step"
    " gives away.",
    "Attacks stay in the value range. The prediction is the majority of draws"
    " of the noise that each model is deployed with.",
    "SecureSGD stands here in its sound form, with radii from its own noise"
    " layer; StoBatch as published, with what can be proven of its noise.",
    "Choosing settings is not charged to any budget.",
  ]


# Figures.


def figures(experiment, results: Results) -> Iterator[grid_plots.Figure]:
  """Figures 2, 3, 4 and 7; what was not run is left out."""
  found = _first(experiment, results, "certify")
  if found:
    lines = [
      grid_plots.certified(
        result["curve"],
        label_of(results, result),
        **_look(experiment, result),
      )
      for result in found
    ]
    caption = "Certified accuracy by l_2 radius"
    panel = grid_plots.Panel(
      lines, "", "l_2 radius", "certified accuracy", x_limits=(0, None)
    )
    yield grid_plots.Figure("certified", caption, [panel], _SIZE, columns=1)
  found = _first(experiment, results, "attack")
  if found:
    caption, label = "Accuracy by size of the attack", "l_2 size of the attack"
    panels = _panels(experiment, results, found, "model", "attack_norm", label)
    yield grid_plots.Figure("attacks", caption, panels, _SIZE, columns=1)
  norm = experiment["settings"]["swept_norm"]
  found = [
    result
    for result in _of(results, "attack")
    if result["attack_norm"] == norm and result["dp_epsilon"] is not None
  ]
  if len({result["dp_epsilon"] for result in found}) > 1:
    caption = "Accuracy by budget"
    label = f"dp_epsilon that was aimed at; attacks of l_2 size {norm:g}"
    panels = _panels(experiment, results, found, "recipe", "dp_epsilon", label)
    yield grid_plots.Figure("budgets", caption, panels, _SIZE, columns=1)


def _look(experiment, result) -> dict[str, str]:
  names = [*experiment["settings"]["recipes"], transdenoiser_cells.PUBLIC]
  return grid_plots.look(names.index(result["recipe"]))


def label_of(results: Results, result) -> str:
  """The model with its budget as claimed, proven and audited."""
  name, claimed, proven, audited = _who(results, result)
  return f"{name}: claimed {claimed} / proven {proven} / audited {audited}"


def _first(experiment, results: Results, part: str) -> list:
  """Results at the first budget, and of models without one."""
  budgets = (None, experiment["settings"]["dp_epsilons"][0])
  return [r for r in _of(results, part) if r["dp_epsilon"] in budgets]


def _panels(experiment, results, found, series: str, place: str, label: str):
  """A panel for each way of crafting: the mean of the four attacks.

  Args:
    experiment: what was run.
    results: by cell name.
    found: the results that are shown.
    series: the key of what one line has in common.
    place: the key of the x axis.
    label: of the x axis.
  """
  groups = {}
  for result in sorted(found, key=lambda result: result[place]):
    groups.setdefault(result[series], []).append(result)
  panels = []
  for way, text in _WAYS.items():
    lines = []
    for key in dict.fromkeys(result[series] for result in found):
      group = groups[key]
      look = _look(experiment, group[0])
      look["style"] = f"o{look['style']}"
      means = [_mean(result, way) for result in group]
      places = [result[place] for result in group]
      name = label_of(results, group[0])
      lines.append(grid_plots.Line(places, means, name, **look))
    title = f"attacks crafted {text}"
    side = "" if panels else "accuracy, mean of four attacks"
    panels.append(grid_plots.Panel(lines, title, label, side))
  return panels


def _mean(result, way: str) -> float:
  return sum(a[way] for a in result["attacks"]) / len(result["attacks"])
