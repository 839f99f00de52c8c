"""Tables and figures of `experiments.halfspaces`, from its results alone."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.halfspaces import cells as halfspaces_cells
from tf_privrob.report import formats

Results = Mapping[str, Mapping[str, Any]]
Table = grid_page.Table
Row = Mapping[str, Any]
NAMES = {
  "joint": "perceptron",
  "literal": "perceptron, the paper's noise",
  "shared": "perceptron, shared batch",
  "kesler": "perceptron, Kesler",
}
_BUDGET = ["claimed dp_epsilon", "proven dp_epsilon", "audited", "dp_delta"]
_NOT_AUDITED = grid_page.audited(None)


def _rows(results: Results) -> Iterator[dict[str, Any]]:
  """All settings of all perceptrons, each with its batch and accounting."""
  for result in results.values():
    if result["recipe"] == halfspaces_cells.PERCEPTRON:
      accounting, batch = result["part"].split("-")
      for row in result["rows"]:
        yield {**row, "accounting": accounting, "batch": int(batch)}


def best(
  results: Results,
  accounting: str,
  dp_epsilon: float | None,
  dp_delta: float | None,
  place: int | None = None,
) -> Row | None:
  """The setting with the highest accuracy; `place` is that of a radius.

  Chosen on the test images, as in the paper; no budget is charged for it.
  """
  found = [
    row
    for row in _rows(results)
    if row["accounting"] == accounting
    and (row["dp_epsilon"], row["dp_delta"]) == (dp_epsilon, dp_delta)
  ]

  def value(row):
    return row["accuracy"] if place is None else row["robust"][place]

  return max(found, key=value, default=None)


def own_delta(experiment) -> float:
  """The dp_delta of the data set."""
  return halfspaces_cells.dp_delta(experiment["dataset"])


def _who(row: Row) -> list[str]:
  """Accounting and the three figures: a claim never stands alone."""
  name = NAMES[row["accounting"]]
  if row["dp_epsilon"] is None:
    return [f"{name}, no noise", "none", grid_page.NONE_KNOWN, "not run", "-"]
  return [
    name,
    formats.dp_epsilon(row["claimed"]),
    formats.dp_epsilon(row["proven"]) + grid_page.beside(row),
    _NOT_AUDITED,
    formats.dp_delta(row["dp_delta"]),
  ]


def tables(experiment, results: Results) -> list[Table]:
  """Those that have rows."""
  made = [
    _accuracy_table(experiment, results),
    *_grid_tables(experiment, results),
    _robust_table(experiment, results),
    _network_table(results),
    _crossing_table(experiment, results),
    _speed_table(results),
  ]
  return [table for table in made if table.rows]


def _accuracy_table(experiment, results: Results) -> Table:
  scale, own = experiment["settings"], own_delta(experiment)
  budgets = [(e, own) for e in scale["dp_epsilons"]]
  budgets += [(1.0, d) for d in scale["dp_deltas"] if d != own]
  rows = []
  for accounting in halfspaces_cells.ACCOUNTINGS:
    for budget in [*budgets, (None, None)]:
      row = best(results, accounting, *budget)
      if row is not None:
        stddev = row.get("stddev")
        rows.append(
          [
            *_who(row),
            str(row["batch"]),
            f"{row['margin']:g}",
            "0" if stddev is None else f"{stddev:.3f}",
            f"{100 * row['accuracy']:.2f} +- {100 * row['standard_error']:.2f}",
            grid_page.percent(row["unit_accuracy"]),
          ]
        )
  head = ["method", *_BUDGET, "batch", "gamma'", "noise", "accuracy in %"]
  head.append("with weights of norm 1")
  return Table("Accuracy by budget, best of the grid", head, rows)


def _grid_tables(experiment, results: Results) -> Iterator[Table]:
  """Accuracy at dp_epsilon 1 by batch size and margin."""
  margins = experiment["settings"]["margins"]
  for accounting, text in halfspaces_cells.ACCOUNTINGS.items():
    found = [
      row
      for row in _rows(results)
      if row["accounting"] == accounting
      and (row["dp_epsilon"], row["dp_delta"]) == (1.0, own_delta(experiment))
    ]
    rows = []
    for batch in sorted({row["batch"] for row in found}):
      mine = {row["margin"]: row for row in found if row["batch"] == batch}
      one = next(iter(mine.values()))
      cells = [
        grid_page.percent(mine[margin]["accuracy"]) for margin in margins
      ]
      rows.append([*_who(one), str(batch), f"{one['stddev']:.3f}", *cells])
    head = ["method", *_BUDGET, "batch", "noise"]
    head += [f"gamma' {margin:g}" for margin in margins]
    title = f"Accuracy in % at dp_epsilon 1; budget of {text}"
    yield Table(title, head, rows)


def _places(experiment, radii) -> list[int]:
  known = experiment["settings"]["radii"]
  return [known.index(radius) for radius in radii if radius in known]


def _robust_table(experiment, results: Results) -> Table:
  scale = experiment["settings"]
  places = _places(experiment, (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0))
  rows = []
  for accounting in halfspaces_cells.ACCOUNTINGS:
    for dp_epsilon in scale["dp_epsilons"]:
      row = best(results, accounting, dp_epsilon, own_delta(experiment))
      if row is not None:
        cells = [grid_page.percent(row["robust"][place]) for place in places]
        rows.append([*_who(row), *cells])
  head = ["method", *_BUDGET]
  head += [f"{scale['radii'][place]:g}" for place in places]
  return Table("Robust accuracy in % by l_2 radius, exact", head, rows)


def networks(results: Results) -> Iterator[tuple[Row, Row | None]]:
  """Training and attack of each network."""
  for result in results.values():
    if result["recipe"] == halfspaces_cells.CNN and result["part"] == "train":
      yield result, results.get(f"{result['model']}/attack")


def _proven_of(trained: Row) -> str:
  """The proven dp_epsilon of a network, with its condition."""
  dp_epsilon = formats.dp_epsilon(trained["proven"]["dp_epsilon"])
  return dp_epsilon + grid_page.beside(trained)


def conditions(results: Results) -> str:
  """What the proven figures of networks and perceptrons depend on."""
  return grid_page.conditions([*results.values(), *_rows(results)])


def _network_table(results: Results) -> Table:
  rows, radii = [], []
  for trained, attacked in networks(results):
    budget = [
      formats.dp_epsilon(trained["claimed"]["dp_epsilon"]),
      _proven_of(trained),
      grid_page.audited(trained["audited"]),
      formats.dp_delta(trained["proven"]["dp_delta"]),
    ]
    clean = grid_page.percent(trained["accuracy"])
    if attacked is None:
      rows.append([trained["network"], *budget, clean, "not run"])
      continue
    radii = attacked["radii"]
    for name, key in (("anywhere", "free"), ("inside [0, 1]", "boxed")):
      cells = [grid_page.percent(value) for value in attacked[key]]
      rows.append([trained["network"], *budget, clean, name, *cells])
  head = ["network", *_BUDGET, "clean, all", "attack"]
  head += [f"{radius:g}" for radius in radii]
  title = "DP-SGD network: accuracy in % under targeted PGD by l_2 radius"
  return Table(title, head, rows)


def crossing(robust, radii, attacked: Row) -> float | None:
  """The first attacked radius where the perceptron is ahead; None: nowhere.

  Args:
    robust: accuracy of the perceptron at each of `radii`.
    radii: where it is known.
    attacked: result of the attack on the network.
  """
  for radius, value in zip(attacked["radii"], attacked["free"]):
    if radius in radii and robust[radii.index(radius)] > value:
      return radius
  return None


def _crossing_table(experiment, results: Results) -> Table:
  radii, rows = experiment["settings"]["radii"], []
  own = own_delta(experiment)
  for trained, attacked in networks(results):
    for accounting in halfspaces_cells.ACCOUNTINGS:
      budget = (trained["dp_epsilon"], own)
      row = best(results, accounting, *budget)
      if row is None or attacked is None:
        continue
      each = [
        best(results, accounting, *budget, place)["robust"][place]
        for place in range(len(radii))
      ]
      curves = (row["robust"], each)
      found = [crossing(curve, radii, attacked) for curve in curves]
      rows.append(
        [
          *_who(row),
          _proven_of(trained),
          grid_page.percent(row["accuracy"]),
          grid_page.percent(attacked["free"][0]),
          *("nowhere" if r is None else f"{r:g}" for r in found),
        ]
      )
  head = ["method", *_BUDGET, "network's proven dp_epsilon"]
  head += ["accuracy in %", "network's", "ahead from l_2 radius"]
  head.append("with settings best at each radius")
  return Table("Where the perceptron overtakes the network", head, rows)


def _speed_table(results: Results) -> Table:
  rows = [
    [
      *result["part"].split("-"),
      f"{result['steps']:,}",
      f"{result['updates_per_second']:,.0f}",
      f"{result['training_seconds']:.0f}",
      f"{result['calibration_seconds']:.0f}",
    ]
    for result in results.values()
    if result["recipe"] == halfspaces_cells.PERCEPTRON
  ]
  head = ["accounting", "batch", "steps", "updates a second", "seconds"]
  head.append("seconds of calibration")
  return Table("Trainings, all settings of a batch size at once", head, rows)


def notes(experiment) -> list[str]:
  """What the figures mean, in sentences."""
  scale = experiment["settings"]
  return [
    "Claimed is what the paper's accounting says: noise for the halfspace of"
    " one class, by RDP. Proven is the joint figure of all classes, by PLD,"
    " add-or-remove-one, with Poisson batches.",
    f"{scale['trials']} independent trials, +- standard error of their mean."
    " The settings of one trial share batches and noise.",
    "The best batch size and gamma' are chosen by accuracy on the test images,"
    " as in the paper; no budget is charged for the choice.",
    "Radii are l_2, in pixels of [0, 1], for images that are not normalised. A"
    " perceptron's robust accuracy is exact and proven; a network's is what an"
    " attack left, an upper bound.",
    f"Targeted PGD, {scale['attack_steps']} steps towards each other class,"
    f" {scale['num_attacked']} test images; what falls at one radius has fallen"
    " at all larger ones.",
  ]
