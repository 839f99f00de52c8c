"""Published accuracies of robust models, in percent.

Song, Shokri and Mittal, "Privacy Risks of Securing Machine Learning Models
against Adversarial Examples" (CCS 2019), Tables 2, 3, 4, 8, 9 and 12; for MNIST
the page of Gowal et al.'s code (2018). Nothing here was measured by this
project.
"""

from __future__ import annotations

from typing import NamedTuple
from typing import Optional

COLUMNS = (
  "train",
  "test",
  "adv-train",
  "adv-test",
  "ver-train",
  "ver-test",
)


class Published(NamedTuple):
  """One row of a table.

  Attributes:
    table: number, in the paper; None: not from the paper.
    percent: train, test, adv-train, adv-test, and where the trainer has bounds
      ver-train and ver-test; None: not published.
    estimated: whether the last two rest on the released code's random
      projections, an estimate that can be too high.
    remark: what is known about the row.
    label: of another model than ours; by default ours.
  """

  table: Optional[int]
  percent: tuple[Optional[float], ...]
  estimated: bool = False
  remark: str = ""
  label: str = ""


_TYPO = "The paper prints 69.68 under attack; its own notebook gives 68.68."
_ROWS = {
  ("yale_b", "natural"): Published(2, (100.0, 98.25, 4.53, 2.92)),
  ("yale_b", "pgd"): Published(2, (99.89, 96.69, 99.00, 77.63)),
  ("yale_b", "wrm"): Published(2, (99.58, 93.77, 83.26, 55.06)),
  ("yale_b", "trades"): Published(2, (99.53, 93.77, 99.42, 83.85)),
  ("yale_b", "dual"): Published(
    8, (98.89, 92.80, 98.53, 83.66, 96.37, 68.87), estimated=True
  ),
  ("yale_b", "diffai"): Published(
    8, (99.26, 83.27, 85.68, 50.39, 43.32, 18.09)
  ),
  ("yale_b", "ibp"): Published(
    8, (99.16, 85.80, 94.42, 69.68, 89.58, 36.77), remark=_TYPO
  ),
  ("fashion_mnist", "natural"): Published(3, (100.0, 92.18, 4.35, 4.14)),
  ("fashion_mnist", "pgd"): Published(3, (99.93, 90.88, 96.91, 68.06)),
  ("fashion_mnist", "wrm"): Published(3, (97.98, 90.62, 67.63, 51.61)),
  ("fashion_mnist", "trades"): Published(3, (99.35, 90.92, 90.13, 72.40)),
  ("fashion_mnist", "dual"): Published(
    9, (75.13, 74.29, 65.77, 65.36, 61.77, 61.45), estimated=True
  ),
  ("fashion_mnist", "diffai"): Published(
    9, (86.44, 85.47, 74.12, 73.28, 69.69, 68.89)
  ),
  ("fashion_mnist", "ibp"): Published(
    9, (89.85, 86.26, 82.60, 78.44, 79.20, 74.17)
  ),
  ("cifar10", "natural"): Published(4, (100.0, 95.01, 0.0, 0.0)),
  ("cifar10", "pgd"): Published(4, (99.99, 87.25, 96.08, 46.61)),
  ("cifar10", "wrm"): Published(4, (100.0, 90.10, 40.56, 25.92)),
  ("cifar10", "trades"): Published(4, (99.50, 87.99, 76.06, 46.50)),
  ("uci_har", "natural"): Published(12, (100.0, 96.61, 33.56, 29.69)),
  ("uci_har", "pgd"): Published(12, (96.10, 92.53, 92.51, 73.84)),
}
# By radius of the evaluation, too. That of the training is in the names of
# the models' files only.
_AT_RADIUS = {
  ("mnist", "ibp", 0.1): Published(
    None,
    (None, 98.94, None, 97.99, None, 97.08),
    remark="Published of Gowal et al.'s medium network, trained at 0.2.",
    label="IBP at 0.1, medium",
  ),
  ("mnist", "ibp", 0.3): Published(
    None,
    (None, 98.34, None, 96.03, None, 91.79),
    remark="Published of Gowal et al.'s large network, trained at 0.4.",
    label="IBP at 0.3, large",
  ),
}


def row(
  dataset: str, trainer: str, attack_eps: Optional[float] = None
) -> Optional[Published]:
  """What was published of this trainer on this data set; None: nothing.

  Args:
    dataset: by name.
    trainer: by name.
    attack_eps: of the evaluation, where rows of several radii were published.
  """
  return _ROWS.get((dataset, trainer)) or _AT_RADIUS.get(
    (dataset, trainer, attack_eps)
  )


def rows() -> dict[tuple[str, str], Published]:
  """All of the paper's, by data set and trainer."""
  return dict(_ROWS)
