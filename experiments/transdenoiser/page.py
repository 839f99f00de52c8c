"""Tables and figures of `experiments.transdenoiser`, from its results alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.transdenoiser import cells as transdenoiser_cells
from tf_privrob.report import formats

Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
_RADII = (0.0, 0.25, 0.5, 0.75)
_COLORS = ("green", "blue", "orange", "purple", "pink", "olive", "black")
_STYLES = ("-", "--", ":", "-.")
_WHO = ["method", "claimed budget", "proven budget", "audited"]
_WAYS = {"transfer": "on the classifier", "adaptive": "through all, EOT"}


def tables(experiment, results: Results) -> list[Table]:
  """All of them, some perhaps without rows."""
  return [
    _certified_table(results),
    *_attack_tables(experiment, results),
    _saving_table(results),
    _audit_table(results),
    _training_table(results),
  ]


def _of(results: Results, part: str) -> list[Mapping[str, Any]]:
  """Results of one part of all models; no training of the public one."""
  special = {transdenoiser_cells.AUDIT}
  if part == "train":
    special.add(transdenoiser_cells.PUBLIC)
  return [
    result
    for result in results.values()
    if result["part"].startswith(part) and result["recipe"] not in special
  ]


def _who(results: Results, result) -> list[str]:
  """Label and the three figures of the budget: a claim never stands alone."""
  if result["recipe"] == transdenoiser_cells.PUBLIC:
    return [transdenoiser_cells.ALONE.label, *["public data"] * 2, "-"]
  trained = results.get(f"{result['model']}/train", {})
  return [
    trained.get("label", result["recipe"]),
    grid_page.budget(trained.get("claimed"), "none"),
    grid_page.proven(trained),
    grid_page.audited(trained.get("audited")),
  ]


def _certified_table(results: Results) -> Table:
  rows = [
    [
      *_who(results, result),
      f"{result['count']}",
      f"{result['draws']:,}",
      f"{result['mean_radius']:.3f}",
      *(
        grid_page.percent(grid_page.accuracy_at(result, radius))
        for radius in _RADII
      ),
    ]
    for result in _of(results, "certify")
  ]
  head = [*_WHO, "images", "draws", "average certified radius"]
  head += [f"{radius:g}" for radius in _RADII]
  return Table("Certified accuracy in % by l_2 radius, proven", head, rows)


def _attack_tables(experiment, results: Results) -> list[Table]:
  made = []
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
    made.append(Table(title, head, rows))
  return made


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


def _audit_table(results: Results) -> Table:
  rows = [
    [
      result["label"],
      grid_page.budget(result["claimed"], "none"),
      grid_page.proven(result),
      grid_page.audited(result["audited"]),
      f"{result['caught']} of {result['runs']}",
      f"{result['false_alarms']} of {result['runs']}",
      result["canary"],
    ]
    for result in results.values()
    if result["recipe"] == transdenoiser_cells.AUDIT
  ]
  head = [*_WHO, "caught", "false alarms", "canary"]
  return Table("Audits of one step: with and without one record", head, rows)


def _training_table(results: Results) -> Table:
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
    accuracy = grid_page.percent(public["clean_accuracy"])
    label = f"public classifier: {accuracy} % of clean test images"
    minutes = f"{public['seconds'] / 60:.1f}"
    rows.append([label, "public data", "public data", "-", "-", "-", "-"])
    rows[-1].append(minutes)
  head = [*_WHO, "network", "steps", "batch", "minutes"]
  return Table("Trainings", head, rows)


def notes(experiment) -> list[str]:
  """What the figures mean, in sentences."""
  delta = formats.dp_delta(transdenoiser_cells.DP_DELTA)
  share = transdenoiser_cells.PUBLIC_SHARE
  return [
    f"The classifier was trained on {100 * share:.0f} % of the training images,"
    " declared public; budgets are about the others. That the two have no image"
    " in common is checked by hash.",
    "Certified radii are proven, with confidence 99.9 % for each image, and"
    " hold whatever the weights are. They are in units of [0, 1].",
    f"Budgets are at delta {delta}. A claimed budget without a proven one means"
    " that no finite bound is known; audits show what one step gives away.",
    "Attacks stay in the value range. The prediction is the majority of draws"
    " of the noise that each model is deployed with.",
    "SecureSGD stands here in its sound form, with radii from its own noise"
    " layer; StoBatch as published, with what can be proven of its noise.",
    "Choosing settings is not charged to any budget.",
  ]


# Figures.


def _style(experiment, result) -> dict[str, Any]:
  names = [*experiment["settings"]["recipes"], transdenoiser_cells.PUBLIC]
  number = names.index(result["recipe"])
  return {
    "color": grid_plots.COLORS[_COLORS[number % len(_COLORS)]],
    "linestyle": _STYLES[number // len(_COLORS) % len(_STYLES)],
  }


def _label(results: Results, result) -> str:
  name, claimed, proven, audited = _who(results, result)
  return f"{name}: claimed {claimed} / proven {proven} / audited {audited}"


def _first(experiment, results: Results, part: str) -> list:
  """Results at the first budget, and of models without one."""
  budgets = (None, experiment["settings"]["dp_epsilons"][0])
  return [r for r in _of(results, part) if r["dp_epsilon"] in budgets]


def certified_figure(experiment, results: Results):
  """Figure 2: certified accuracy by radius."""
  found = _first(experiment, results, "certify")
  if not found:
    return None
  figure, (axes,) = grid_plots.panels(1, 11.5, 6.4)
  for result in found:
    points = result["curve"]
    axes.step(
      [point["radius"] for point in points],
      [point["accuracy"] for point in points],
      where="pre",
      label=_label(results, result),
      **_style(experiment, result),
    )
  axes.set_xlabel("l_2 radius")
  axes.set_ylabel("certified accuracy")
  axes.set_xlim(left=0)
  grid_plots.legend(figure, columns=1)
  return figure


def _way_panels(figure_of, experiment, results, found, x_of, x_label):
  """A panel for each way of crafting, the mean of the four attacks."""
  if not found:
    return None
  figure, panels = grid_plots.panels(2, 11.5, 6.4)
  lines = {}
  for result in found:
    lines.setdefault(figure_of(result), []).append(result)
  for axes, (way, text) in zip(panels, _WAYS.items()):
    for group in lines.values():
      group = sorted(group, key=x_of)
      axes.plot(
        [x_of(result) for result in group],
        [_mean(result, way) for result in group],
        marker="o",
        label=_label(results, group[0]),
        **_style(experiment, group[0]),
      )
    axes.set_title(f"attacks crafted {text}")
    axes.set_xlabel(x_label)
  panels[0].set_ylabel("accuracy, mean of four attacks")
  grid_plots.legend(figure, columns=1)
  return figure


def _mean(result, way: str) -> float:
  return sum(a[way] for a in result["attacks"]) / len(result["attacks"])


def attack_figure(experiment, results: Results):
  """Figures 3 and 7: accuracy by the size of the attack."""
  return _way_panels(
    lambda result: result["model"],
    experiment,
    results,
    _first(experiment, results, "attack"),
    lambda result: result["attack_norm"],
    "l_2 size of the attack",
  )


def budget_figure(experiment, results: Results):
  """Figure 4: accuracy by the budget, claimed or proven as the label says."""
  norm = experiment["settings"]["swept_norm"]
  found = [
    result
    for result in _of(results, "attack")
    if result["attack_norm"] == norm and result["dp_epsilon"] is not None
  ]
  if len({result["dp_epsilon"] for result in found}) < 2:
    return None
  return _way_panels(
    lambda result: result["recipe"],
    experiment,
    results,
    found,
    lambda result: result["dp_epsilon"],
    f"dp_epsilon that was aimed at; attacks of l_2 size {norm:g}",
  )


FIGURES = (
  ("certified", "Certified accuracy by l_2 radius", certified_figure),
  ("attacks", "Accuracy by size of the attack", attack_figure),
  ("budgets", "Accuracy by budget", budget_figure),
)
