"""What `experiments.halfspaces` runs: scales, recipes and cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from experiments.grid import engine as grid

DATASETS = ("digits", "mnist", "mnist_5k", "usps")
DP_DELTAS = {"usps": 1e-4}  # of the paper; 1e-5 for all others
PERCEPTRON, CNN, RATES = "perceptron", "cnn", "rates"
ACCOUNTINGS = {
  "joint": "all classes together, batches of their own",
  "literal": "the paper's: one class alone",
  "shared": "all classes together, one batch for all",
  "kesler": "one multiclass perceptron",
}
BATCHES = (1, 10, 50, 100, 500, 1000)  # of the paper, as the margins
MARGINS = (1.0, 0.1, 0.01, 0.001, 0.0001)
SWEPT_DELTAS = (1e-2, 1e-3, 1e-4, 1e-5)  # at dp_epsilon 1


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is done.

  Attributes:
    batches: batch sizes of each accounting, by name.
    margins: values of gamma'.
    dp_epsilons: budgets of Figure 1, at the data set's dp_delta.
    dp_deltas: of the second column of Figure 1, at dp_epsilon 1.
    trials: independent runs.
    radii: l_2 sizes in pixels of [0, 1], for robust accuracies.
    cnn_dp_epsilons: budgets of Figure 2.
    cnn_epochs: of DP-SGD; the paper has 60.
    num_attacked: test images under attack.
    attack_steps: of targeted PGD, for each of the other classes.
    attack_radii: those of `radii` that the network is attacked at.
    rates: scale of the sample-complexity demonstration.
  """

  batches: dict[str, tuple[int, ...]]
  margins: tuple[float, ...]
  dp_epsilons: tuple[float, ...]
  dp_deltas: tuple[float, ...]
  trials: int
  radii: tuple[float, ...]
  cnn_dp_epsilons: tuple[float, ...]
  cnn_epochs: float
  num_attacked: int
  attack_steps: int
  attack_radii: tuple[float, ...]
  rates: str


@dataclasses.dataclass(frozen=True)
class Cell(grid.BudgetCell):
  """One piece of work.

  The recipe is PERCEPTRON, CNN or RATES, only networks have a budget, and the
  part is "<accounting>-<batch size>", "train", "attack", or one of the rates.
  """

  @property
  def training(self) -> Cell:
    """What must be done before."""
    return super().training if self.recipe == CNN else self

  @property
  def accounting(self) -> str:
    """Of a perceptron."""
    return self.part.split("-")[0]

  @property
  def batch_size(self) -> int:
    """Of a perceptron."""
    return int(self.part.split("-")[1])


def cells(scale: Scale, rates: Sequence[str]) -> list[Cell]:
  """Perceptrons, networks, rates."""
  found = [
    Cell(PERCEPTRON, None, f"{accounting}-{batch_size}")
    for accounting, sizes in scale.batches.items()
    for batch_size in sizes
  ]
  found += [
    Cell(CNN, dp_epsilon, part)
    for dp_epsilon in scale.cnn_dp_epsilons
    for part in ("train", "attack")
  ]
  return found + [Cell(RATES, None, part) for part in rates]


def dp_delta(dataset: str) -> float:
  """The one that budgets are stated at."""
  return DP_DELTAS.get(dataset, 1e-5)


def budgets(scale: Scale, dataset: str) -> list[tuple[float, float]]:
  """All (dp_epsilon, dp_delta) of a perceptron, each once."""
  own = dp_delta(dataset)
  found = [(dp_epsilon, own) for dp_epsilon in scale.dp_epsilons]
  return found + [(1.0, delta) for delta in scale.dp_deltas if delta != own]


def _radii(largest: float, step: float) -> tuple[float, ...]:
  return tuple(round(i * step, 4) for i in range(round(largest / step) + 1))


SCALES = {
  "smoke": Scale(
    batches={"joint": (50, 500), "literal": (500,), "kesler": (500,)},
    margins=(1.0, 0.1),
    dp_epsilons=(0.5, 1.0, 4.0),
    dp_deltas=(1e-3, 1e-5),
    trials=5,
    radii=_radii(2.0, 0.1),
    cnn_dp_epsilons=(2.0,),
    cnn_epochs=4.0,
    num_attacked=40,
    attack_steps=10,
    attack_radii=(0.0, 0.5, 1.0),
    rates="smoke",
  ),
  "small": Scale(
    batches={
      "joint": (100, 500, 1000),
      "literal": (100, 500),
      "shared": (500,),
      "kesler": (500,),
    },
    margins=MARGINS,
    dp_epsilons=(0.25, 0.5, 1.0, 2.0),
    dp_deltas=SWEPT_DELTAS,
    trials=10,
    radii=_radii(4.0, 0.1),
    cnn_dp_epsilons=(1.0,),
    cnn_epochs=15.0,
    num_attacked=200,
    attack_steps=40,
    attack_radii=(0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
    rates="small",
  ),
  "full": Scale(
    batches={
      "joint": BATCHES,
      "literal": BATCHES,
      "shared": (100, 500, 1000),
      "kesler": (100, 500, 1000),
    },
    margins=MARGINS,
    dp_epsilons=(0.1, 0.25, 0.5, 1.0, 2.0, 4.0),
    dp_deltas=SWEPT_DELTAS,
    trials=20,
    radii=_radii(4.0, 0.1),
    cnn_dp_epsilons=(0.5, 1.0, 2.0),
    cnn_epochs=60.0,
    num_attacked=250,
    attack_steps=40,
    attack_radii=(0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5),
    rates="full",
  ),
}
