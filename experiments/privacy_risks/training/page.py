"""The page of `privacy_risks.training`: tables, a figure and notes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.grid import plots as grid_plots
from experiments.grid import sheets
from experiments.privacy_risks.training import cells as robust_training_cells

PUBLISHED = sheets.published(__file__)
Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
WHO = ["trainer", *grid_page.BUDGETS]
BOUNDS = ["ver-train", "ver-test"]
COLUMNS = ["train", "test", "adv-train", "adv-test", *BOUNDS]
NO_BOUND = "no bound"
# Part of the grid: what its series is called, and its colour.
_SERIES = {
  "clean": ("clean", "blue"),
  "attack": ("attacked", "orange"),
  "verify": ("verified (proven)", "green"),
}


def tables(experiment, results: Results) -> list[Table]:
  """One for each data set, then the trainings."""
  del experiment
  made = [_accuracy_table(name, results) for name in _datasets(results)]
  return [*made, training_table(results)]


def _trained(results: Results) -> list[Mapping[str, Any]]:
  return grid_page.of_part(results, "train")


def _datasets(results: Results) -> list[str]:
  return list(dict.fromkeys(result["dataset"] for result in _trained(results)))


def who(result) -> list[str]:
  """Label and the three figures of the budget: a claim never stands alone."""
  return [result["label"], *grid_page.budgets(result)]


def _accuracy_table(dataset: str, results: Results) -> Table:
  rows = []
  for result in _trained(results):
    if result["dataset"] == dataset:
      rows.append(_measured_row(result, results))
      published = _published(result)
      if published:
        rows.append(_published_row(result, published))
  head = [*WHO, "radius", *COLUMNS]
  head += ["attacked examples", "verified examples"]
  return Table(f"{dataset}: accuracy in %, l_inf", head, rows)


def published_row(
  dataset: str, trainer: str, attack_eps: float | None = None
) -> sheets.Published | None:
  """What was published of this trainer on this data set; None: nothing.

  Args:
    dataset: by name.
    trainer: by name.
    attack_eps: of the evaluation, where rows of several radii were published.
  """
  for row in PUBLISHED:
    if (row.dataset, row.model) == (dataset, trainer):
      if row.value in (None, attack_eps):
        return row
  return None


def _published(result) -> sheets.Published | None:
  """The row of the same trainer, none for one that is private."""
  if result["dp_epsilon"] is not None:
    return None
  place = (result["dataset"], result["trainer"])
  return published_row(*place, result["attack_eps"])


def has_bounds(result) -> bool:
  """Whether the trainer of a model has bounds that it is verified with."""
  return result["trainer"] in robust_training_cells.VERIFIED


def _measured_row(result, results: Results) -> list[str]:
  found = {part: results.get(f"{result['model']}/{part}") for part in _SERIES}
  verified = found["verify"]
  if verified and verified["kinds"] != ["proven"]:
    verified = None  # whatever it is, it is not verified
  return [
    *who(result),
    f"{result['attack_eps']:.4g}",
    *_pair(found["clean"], grid_page.NOT_RUN),
    *_pair(found["attack"], grid_page.NOT_RUN),
    *_pair(verified, grid_page.NOT_RUN if has_bounds(result) else NO_BOUND),
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
  return grid_page.with_interval(found["accuracy"], found["interval"])


def _counts(result) -> str:
  if not result:
    return "-"
  return f"{result['train']['count']:,} and {result['test']['count']:,}"


def published_values(row: sheets.Published, columns) -> list[str]:
  """Published figures in percent; what rests on estimates is called so."""
  made = []
  for name in columns:
    text = f"{row.figures[name]:.2f}" if name in row.figures else "-"
    if row.estimated and text != "-" and name in (*BOUNDS, "I_V"):
      text += " estimated"
    made.append(text)
  return made


def _published_row(result, published: sheets.Published) -> list[str]:
  values = published_values(published, COLUMNS)
  if not has_bounds(result):
    values[-2:] = [NO_BOUND] * 2
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


# The figure.


def figures(experiment, results: Results) -> Iterator[grid_plots.Figure]:
  """Test accuracy by trainer, a panel for each data set."""
  del experiment
  panels = []
  for name in _datasets(results):
    group = [r for r in _trained(results) if r["dataset"] == name]
    lines = []
    for place, result in enumerate(group):
      lines += _measured_points(place, result, results)
      lines += _published_points(place, result)
    panels.append(
      grid_plots.Panel(
        lines,
        name,
        "",
        "" if panels else "accuracy on test examples",
        x_ticks=dict(enumerate(result["label"] for result in group)),
        x_limits=(-0.6, len(group) - 0.4),
        tilted=True,
      )
    )
  size = (max(9, 4.2 * len(panels)), 5.2)
  caption = "Test accuracy by trainer"
  yield grid_plots.Figure("accuracy", caption, panels, size, columns=4)


def _measured_points(place: int, result, results: Results):
  for part, (label, color) in _SERIES.items():
    found = results.get(f"{result['model']}/{part}")
    if found and found.get("kinds", ["proven"]) == ["proven"]:
      test = found["test"]
      points = ([place - 0.12], [test["accuracy"]])
      ends = [test["interval"]]
      yield grid_plots.Line(*points, label, color, "o", "bars", ends)


def _published_points(place: int, result):
  published = _published(result)
  for name, (part, (label, color)) in zip(COLUMNS[1::2], _SERIES.items()):
    if published and name in published.figures:
      estimated = part == "verify" and published.estimated
      words = f"{label.split(' (')[0]}, as published"
      yield grid_plots.Line(
        [place + 0.12],
        [published.figures[name] / 100],
        "estimated bound, as published" if estimated else words,
        color,
        "D" if estimated else "o",
        more={"markerfacecolor": "none"},
      )


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  settings = experiment["settings"]
  count = settings["num_attacked"]
  attacked = (
    "all test examples and up to 10,000 training examples, evenly spread"
    if count is None
    else f"up to {count:,} test and training examples each, evenly spread"
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
