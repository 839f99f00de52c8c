"""Published results of membership inference, in percent.

Song, Shokri and Mittal, "Privacy Risks of Securing Machine Learning Models
against Adversarial Examples" (CCS 2019), Tables 2 to 12 and Appendix E. Nothing
here was measured by this project, but for `RELEASED_TEMPERATURES`. Accuracies
of Tables 2, 3, 4, 8, 9 and 12 are in `robust_training_published`.
"""

from __future__ import annotations

from typing import NamedTuple
from typing import Optional

from experiments.privacy_risks.training import (
  published as robust_training_published,
)

STRATEGIES = ("I_B", "I_A", "I_V")
CLASS_STRATEGIES = (
  "confidence, benign",
  "model, benign",
  "confidence, untargeted",
  "model, untargeted",
  "model, targeted",
)


class Published(NamedTuple):
  """One row of a table.

  Attributes:
    table: number, in the paper.
    dataset: by name.
    accuracies: train, test, adv-train, adv-test, ver-train, ver-test, as far as
      they were published.
    inference: accuracies of I_B, I_A and I_V, as far as they were published.
    estimated: whether ver-train, ver-test and I_V rest on random projections.
    remark: what is known about the row.
  """

  table: int
  dataset: str
  accuracies: tuple[float, ...]
  inference: tuple[float, ...]
  estimated: bool = False
  remark: str = ""


# Data set, trainer: I_B, I_A, I_V.
_INFERENCE = {
  ("yale_b", "natural"): (55.85, 54.27),
  ("yale_b", "pgd"): (61.69, 68.83),
  ("yale_b", "wrm"): (62.23, 64.07),
  ("yale_b", "trades"): (58.06, 65.59),
  ("yale_b", "dual"): (55.90, 60.40, 64.48),
  ("yale_b", "diffai"): (65.11, 65.64, 67.05),
  ("yale_b", "ibp"): (60.45, 66.28, 76.05),
  ("fashion_mnist", "natural"): (57.12, 50.95),
  ("fashion_mnist", "pgd"): (58.32, 64.49),
  ("fashion_mnist", "wrm"): (57.35, 59.49),
  ("fashion_mnist", "trades"): (57.02, 58.83),
  ("fashion_mnist", "dual"): (50.58, 50.42, 50.45),
  ("fashion_mnist", "diffai"): (50.79, 50.69, 50.59),
  ("fashion_mnist", "ibp"): (52.13, 52.06, 52.67),
  ("cifar10", "natural"): (57.43, 50.86),
  ("cifar10", "pgd"): (74.89, 75.67),
  ("cifar10", "wrm"): (67.16, 64.24),
  ("cifar10", "trades"): (61.18, 67.08),
  ("uci_har", "natural"): (55.36, 55.03),
  ("uci_har", "pgd"): (58.29, 60.13),
}
# Table 5: share of the training set that has an adversarial loss.
SHARES = {
  0.0: Published(5, "cifar10", (100.0, 95.01, 0.0, 0.0), (57.43, 50.85)),
  0.5: Published(5, "cifar10", (100.0, 87.78, 75.85, 43.23), (67.20, 66.36)),
  0.75: Published(5, "cifar10", (100.0, 86.68, 88.34, 45.66), (71.07, 72.22)),
  1.0: Published(5, "cifar10", (99.99, 87.25, 96.08, 46.61), (74.89, 75.67)),
}
# Table 6: radius of training and inference.
RADII = {
  2 / 255: Published(6, "cifar10", (100.0, 93.74, 99.99, 82.2), (64.48, 66.54)),
  4 / 255: Published(
    6, "cifar10", (100.0, 91.19, 99.89, 70.03), (69.44, 72.43)
  ),
  8 / 255: Published(
    6, "cifar10", (99.99, 87.25, 96.08, 46.61), (74.89, 75.67)
  ),
}
# Table 7: class by class, in the order of CLASS_STRATEGIES; CIFAR-10, PGD.
CLASSES = (
  (70.88, 71.49, 72.21, 72.70, 74.42),
  (63.57, 64.42, 67.52, 67.69, 68.88),
  (80.16, 76.74, 79.71, 80.16, 83.58),
  (90.43, 90.49, 87.64, 87.83, 90.57),
  (82.30, 82.17, 81.83, 81.57, 84.47),
  (81.34, 79.84, 81.57, 81.34, 83.02),
  (75.34, 70.92, 77.66, 76.97, 79.94),
  (69.54, 67.61, 72.92, 72.82, 72.98),
  (69.16, 69.57, 74.36, 74.40, 75.33),
  (68.13, 66.34, 71.86, 72.06, 73.32),
)


def _subset(accuracies, inference) -> Published:
  return Published(
    10, "cifar10", accuracies, inference, estimated=len(inference) > 1
  )


# Table 10: dual training on a fifth of CIFAR-10, by radius; 0 is natural.
SUBSET = {
  0.0: _subset((99.83, 71.80), (71.50,)),
  0.25 / 255: _subset(
    (100.0, 73.10, 99.99, 69.84, 99.99, 68.18), (76.13, 76.18, 76.04)
  ),
  0.5 / 255: _subset(
    (99.98, 69.29, 99.98, 64.51, 99.97, 60.89), (77.06, 77.36, 77.09)
  ),
  0.75 / 255: _subset(
    (100.0, 65.25, 99.95, 59.49, 99.85, 54.71), (77.99, 78.50, 78.20)
  ),
  1 / 255: _subset(
    (99.78, 63.96, 99.44, 57.06, 98.61, 50.74), (76.30, 77.05, 77.16)
  ),
  1.25 / 255: _subset(
    (98.46, 61.79, 97.30, 53.76, 95.36, 46.70), (74.07, 75.10, 75.41)
  ),
  1.5 / 255: _subset(
    (96.33, 60.97, 94.27, 51.72, 90.19, 44.23), (71.08, 72.29, 72.69)
  ),
}
# Table 11: with domain adaptation; without, see Tables 2 and 3.
ADAPTED = {
  "yale_b": Published(
    11, "yale_b", (99.32, 94.75, 99.26, 88.52), (60.73, 63.14)
  ),
  "fashion_mnist": Published(
    11, "fashion_mnist", (88.97, 86.98, 81.59, 78.65), (51.19, 51.49)
  ),
}
# Appendix E: I_B without and with PixelDP's noise layer, CIFAR-10.
NOISE_LAYER = {False: 55.85, True: 64.43}
# Figure 5: the radius of inference that is best, on faces trained at 8/255.
BEST_RADII = {"pgd": 9 / 255, "wrm": 10 / 255, "trades": 10 / 255}
# I_B, I_A by temperature of the published PGD model of faces. Figure 6 has no
# numbers: these were recomputed from the predictions that its authors released
# (I_B at temperature 1 in float64).
RELEASED_TEMPERATURES = {
  1.0: (62.5, 68.8),
  2.0: (61.7, 67.8),
  5.0: (60.2, 63.1),
  10.0: (59.3, 60.9),
  50.0: (58.6, 59.9),
}


def row(dataset: str, trainer: str) -> Optional[Published]:
  """What was published of this trainer on this data set; None: nothing."""
  inference = _INFERENCE.get((dataset, trainer))
  if inference is None:
    return None
  found = robust_training_published.row(dataset, trainer)
  return Published(
    found.table,
    dataset,
    found.percent,
    inference,
    found.estimated,
    found.remark,
  )


def adapted(dataset: str, is_adapted: bool) -> Optional[Published]:
  """Table 11, PGD training with or without domain adaptation."""
  if dataset not in ADAPTED:
    return None
  return ADAPTED[dataset] if is_adapted else row(dataset, "pgd")


def near(rows: dict[float, Published], value: float) -> Optional[Published]:
  """The row of a parameter, whatever its last digits are."""
  for known, found in rows.items():
    if abs(known - value) < 1e-6:
      return found
  return None
