"""Tables and figure of `privacy_risks.training`, from its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import published as published_rows

Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
WHO = ["trainer", "claimed budget", "proven budget", "audited"]
_NO_BOUND = "no bound"
_NOT_RUN = "not run"
# Part of the grid: what its series is called, and its colour.
_SERIES = {
  "clean": ("clean", "blue"),
  "attack": ("attacked", "orange"),
  "verify": ("verified (proven)", "green"),
}


def tables(results: Results) -> list[Table]:
  """One for each data set, then the trainings."""
  made = [_accuracy_table(name, results) for name in _datasets(results)]
  return [*made, training_table(results)]


def _trained(results: Results) -> list[Mapping[str, Any]]:
  return [result for result in results.values() if result["part"] == "train"]


def _datasets(results: Results) -> list[str]:
  return list(dict.fromkeys(result["dataset"] for result in _trained(results)))


def who(result) -> list[str]:
  """Label and the three figures of the budget: a claim never stands alone."""
  return [
    result["label"],
    grid_page.budget(result["claimed"], "none"),
    grid_page.proven(result),
    grid_page.audited(result["audited"]),
  ]


def _accuracy_table(dataset: str, results: Results) -> Table:
  rows = []
  for result in _trained(results):
    if result["dataset"] == dataset:
      rows.append(_measured_row(result, results))
      published = _published(result)
      if published:
        rows.append(_published_row(result, published))
  head = [*WHO, "radius", *published_rows.COLUMNS]
  head += ["attacked examples", "verified examples"]
  return Table(f"{dataset}: accuracy in %, l_inf", head, rows)


def _published(result) -> published_rows.Published | None:
  """The row of the same trainer, none for one that is private."""
  if result["dp_epsilon"] is not None:
    return None
  return published_rows.row(
    result["dataset"], result["trainer"], result["attack_eps"]
  )


def _measured_row(result, results: Results) -> list[str]:
  found = {part: results.get(f"{result['model']}/{part}") for part in _SERIES}
  verified = found["verify"]
  if verified and verified["kinds"] != ["proven"]:
    verified = None  # whatever it is, it is not verified
  absent = _NOT_RUN
  if result["trainer"] not in robust_training_cells.VERIFIED:
    absent = _NO_BOUND
  return [
    *who(result),
    f"{result['attack_eps']:.4g}",
    *_pair(found["clean"], _NOT_RUN),
    *_pair(found["attack"], _NOT_RUN),
    *_pair(verified, absent),
    _counts(found["attack"]),
    _counts(verified),
  ]


def _pair(result, absent: str) -> list[str]:
  """Accuracy and interval on training and on test examples."""
  if not result:
    return [absent] * 2
  return [shown(result["train"]), shown(result["test"])]


def shown(found) -> str:
  """An accuracy and its interval, in percent."""
  low, high = found["interval"]
  return f"{100 * found['accuracy']:.2f} ({100 * low:.1f} to {100 * high:.1f})"


def _counts(result) -> str:
  if not result:
    return "-"
  return f"{result['train']['count']:,} and {result['test']['count']:,}"


def _published_row(result, published) -> list[str]:
  values = [
    "-" if value is None else f"{value:.2f}" for value in published.percent
  ]
  if published.estimated:
    values[4:] = [f"{value} estimated" for value in values[4:]]
  values += [_NO_BOUND] * (len(published_rows.COLUMNS) - len(values))
  where = f"in Table {published.table}" if published.table else "by its authors"
  label = f"{published.label or result['label']}, as published {where}"
  return [label, "-", "-", "-", "-", *values, "-", "-"]


def training_table(results: Results) -> Table:
  """How every model was trained."""
  rows = [
    [
      *who(result),
      result["dataset"],
      result["network"],
      f"{result['parameters']:,}",
      f"{result['num_train']:,}",
      "own length" if result["dp_epsilon"] else f"{result['factor']:g}",
      f"{result['epochs']:.4g}",
      f"{result['steps']:,}",
      _radius(result["trained_attack_eps"]),
      _changes(result),
      f"{result['seconds'] / 60:.1f}",
    ]
    for result in _trained(results)
  ]
  head = [*WHO, "data set", "network", "weights", "training examples"]
  head += ["factor of the preset's length", "epochs", "steps"]
  head += ["trained at radius", "changes to the preset", "minutes"]
  return Table("Trainings", head, rows)


def _changes(result) -> str:
  found = [f"{name} {value}" for name, value in result["changes"].items()]
  return ", ".join(found) or "none"


def _radius(attack_eps: float | None) -> str:
  return "no radius" if attack_eps is None else f"{attack_eps:.4g}"


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  settings = experiment["settings"]
  count = settings["num_attacked"]
  attacked = (
    "all test examples and as many training examples, evenly spread"
    if count is None
    else f"up to {count:,} test and as many training examples, evenly spread"
  )
  found = {}
  for result in _trained(results):
    found.setdefault(f"{result['dataset']}: {result['data']}")
  return [
    "Published figures are those of Song, Shokri and Mittal (CCS 2019), as"
    " printed, and for MNIST those of Gowal et al.'s code (2018); nothing of"
    " them was measured or checked here. Their networks,"
    " lengths and training sets are the paper's, ours those of the table of"
    " trainings; a factor below 1 is a shortened run, and no reproduction.",
    *found,
    f"adv: l_inf PGD on {attacked}: {robust_training_cells.ATTACK_STEPS} steps"
    " of 2.5 radius / 20 from the example itself, in the value range of the"
    " data set. A stronger attack may go lower. As in the paper, an adversarial"
    " example counts by itself; results.json also has the share that is right"
    " with and without attack (strict).",
    "ver, measured: right, and proven so for every input within the radius, by"
    " bounds with outward rounding: intervals for IBP and DiffAI, the exact"
    " dual for dual training. That one is run on few examples, or on none where"
    " it would take days, as its cost grows with the square of the width."
    " Nothing else is called verified. The published figures of dual training"
    " rest on random projections: estimates, which can be too high.",
    "Brackets are 95 % Clopper-Pearson intervals over the choice of examples;"
    " train and test are of all examples. One training run each: what another"
    " seed would change is not covered.",
    "Trained at another radius than evaluated: dual on yale_b (twice the"
    " radius, as the released code has it), IBP on mnist (beyond the radius, as"
    " Gowal et al.). WRM has no radius. Optimizer, length and attack of"
    " uci_har were not published: they are our choice.",
    "Without privacy there is no budget: none claimed, none known to hold. The"
    " private model is DP-SGD on adversarial examples, one clipped gradient an"
    " example. Choosing its settings, and its accuracies on training examples"
    " shown here, are not charged to the budget.",
    *_remarks(results),
  ]


def _remarks(results: Results) -> list[str]:
  found = []
  for result in _trained(results):
    published = _published(result)
    if published and published.remark:
      name = f"{result['dataset']}, {result['label']}"
      found.append(f"{name}: {published.remark}")
  warned = {}
  for result in results.values():
    for warning in result.get("warnings", ()):
      warned.setdefault(warning, []).append(result["model"])
  for warning, names in warned.items():
    found.append(f"Attack on {', '.join(names)}: {warning}")
  return found


def figure(results: Results):
  """Test accuracy by trainer, a panel for each data set."""
  names = _datasets(results)
  if not names:
    return None
  made, panels = grid_plots.panels(len(names), max(9, 4.2 * len(names)), 5.2)
  for axes, name in zip(panels, names):
    group = [r for r in _trained(results) if r["dataset"] == name]
    for place, result in enumerate(group):
      _draw_measured(axes, place, result, results)
      _draw_published(axes, place, result)
    axes.set_title(name)
    axes.set_xticks(
      range(len(group)), [r["label"] for r in group], rotation=35, ha="right"
    )
    axes.set_xlim(-0.6, len(group) - 0.4)
  panels[0].set_ylabel("accuracy on test examples")
  grid_plots.legend(made, columns=4)
  return made


def _draw_measured(axes, place: int, result, results: Results) -> None:
  for part, (label, color) in _SERIES.items():
    found = results.get(f"{result['model']}/{part}")
    if not found or found.get("kinds", ["proven"]) != ["proven"]:
      continue
    value = found["test"]["accuracy"]
    low, high = found["test"]["interval"]
    axes.errorbar(
      place - 0.12,
      value,
      [[max(0.0, value - low)], [max(0.0, high - value)]],
      fmt="o",
      color=grid_plots.COLORS[color],
      capsize=3,
      label=label,
    )


def _draw_published(axes, place: int, result) -> None:
  published = _published(result)
  if not published:
    return
  for (part, (label, color)), percent in zip(
    _SERIES.items(), published.percent[1::2]
  ):
    estimated = part == "verify" and published.estimated
    name = f"{label.split(' (')[0]}, as published"
    if estimated:
      name = "estimated bound, as published"
    axes.plot(
      place + 0.12,
      percent / 100,
      "D" if estimated else "o",
      color=grid_plots.COLORS[color],
      markerfacecolor="none",
      label=name,
    )


FIGURE = ("accuracy", "Test accuracy by trainer", figure)
