"""What the queue runs, in the order of its value.

Minutes are for one cell on two cores. They were derived from what the same or
a shorter cell took (docs/notebook.md), or from the number of steps.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
  """Some cells of a study.

  Attributes:
    study: The name in `studies.STUDIES`.
    scale: The scale by name.
    dataset: The data set by name, "" where records are made up.
    cells: A whole name, or a part of the names of several cells.
    minutes: What one cell is estimated to take.
    why: What is known once the cells are done.
  """

  study: str
  scale: str
  dataset: str
  cells: str
  minutes: float
  why: str


def _rows(study, scale, dataset, why, **minutes: float) -> list[Row]:
  """One row for each text of cells, with its minutes."""
  return [
    Row(study, scale, dataset, cells, value, why)
    for cells, value in minutes.items()
  ]


AGENDA = (
  *_rows(
    "audits",
    "full",
    "",
    "which published claims an audit refutes",
    **{
      "audits/adlm-paper": 1,
      "audits/secure_sgd-released": 1,
      "audits/dpal-paper": 1,
      "audits/transdenoiser-paper": 1,
    },
  ),
  *_rows(
    "halfspaces",
    "full",
    "usps",
    "the paper's USPS figures, and the price of ten classes",
    **{
      "perceptron/joint-100": 3,
      "perceptron/literal-100": 3,
      "perceptron/joint": 3,
      "perceptron/literal": 3,
      "perceptron/kesler": 2,
      "perceptron/shared": 2,
    },
  ),
  *_rows(
    "smoothing",
    "small",
    "mnist",
    "the flagship and its rivals at a quarter of the length",
    **{
      "dp_smooth-3-0.5/train": 8,
      "dp_smooth-3-0.5/certify": 2,
      "dp_smooth-3-0.5/attack": 3,
      "dp_sgd-3/train": 2,
      "dp_sgd-3/certify-0.5": 2,
      "scattering-3-0.5/train": 5,
      "scattering-3-0.5/certify": 4,
      "pixeldp-3-0.5/train": 5,
      "pixeldp-3-0.5/certify": 3,
      "secure_sgd-3-0.5/train": 5,
      "secure_sgd-3-0.5/certify": 3,
      "secure_sgd_released-3/": 15,
    },
  ),
  *_rows(
    "audits",
    "full",
    "",
    "what an audit shows of the sound methods, DP-SGD and halfspaces",
    **{
      "audits/adlm-sound": 3,
      "audits/transdenoiser-sound": 5,
      "audits/halfspaces-sound": 7,
      "audits/dpal-sound": 8,
      "audits/dp_sgd": 12,
      "audits/halfspaces-paper": 35,
      "audits/secure_sgd-sound": 34,
    },
  ),
  *_rows(
    "smoothing",
    "full",
    "mnist",
    "the flagship beside the published record",
    **{
      "dp_smooth-3-0.5/train": 30,
      "dp_smooth-3-0.5/certify-0.5-10000": 5,
      "dp_smooth-3-0.5/certify-0.5-100000": 45,
      "dp_smooth-3-0.5/attack": 8,
      "dp_smooth-3-0.25/train": 30,
      "dp_smooth-3-0.25/certify-0.25-10000": 5,
      "dp_smooth-3-0.25/certify-0.25-100000": 45,
      "dp_smooth-3-1/train": 30,
      "dp_smooth-3-1/certify-1-10000": 5,
      "dp_smooth-3-1/certify-1-100000": 45,
    },
  ),
  *_rows(
    "smoothing",
    "full",
    "fashion_mnist",
    "fixed features beside the published record",
    **{
      "scattering-3-0.25/train": 10,
      "scattering-3-0.25/certify-0.25-10000": 20,
      "scattering-3-0.5/train": 10,
      "scattering-3-0.5/certify-0.5-10000": 20,
      "scattering-3-1/train": 10,
      "scattering-3-1/certify-1-10000": 20,
      "scattering-1-0.5/train": 10,
      "scattering-1-0.5/certify-0.5-10000": 20,
    },
  ),
  *_rows(
    "dpal",
    "small",
    "mnist",
    "claimed, proven and attacked sizes of DPAL beside its sound heir",
    **{
      "sound_dpal-2/train": 5,
      "sound_dpal-2/": 3,
      "dpal-2/train": 12,
      "dpal-2/": 6,
      "dp_sgd-2/train": 3,
      "dp_sgd-2/": 2,
      "adlm-2/train": 5,
      "adlm-2/": 2,
    },
  ),
  *_rows(
    "transdenoiser",
    "small",
    "mnist",
    "what the published rule saves, and what its sound heir gives up",
    **{
      "public/train": 6,
      "public/certify": 2,
      "audit/": 4,
      "sound-1/train": 12,
      "sound-1/": 4,
      "nodp/train": 5,
      "nodp/": 4,
      "sepdp-1/train": 8,
      "sepdp-1/": 4,
      "paper-1/train": 25,
      "paper-1/": 4,
    },
  ),
  *_rows(
    "training",
    "full",
    "uci_har",
    "robust training beside the published figures, and with a budget",
    **{
      "uci_har-natural/": 3,
      "uci_har-pgd/": 6,
      "uci_har-private_pgd-3/": 8,
    },
  ),
  *_rows(
    "membership",
    "full",
    "uci_har",
    "who is inferred from robust and from private models",
    **{"uci_har-natural/": 3, "uci_har-pgd/": 4, "uci_har-private_pgd-3/": 4},
  ),
  *_rows(
    "halfspaces",
    "full",
    "mnist",
    "the paper's MNIST figures and the crossing of Figure 2",
    **{
      "perceptron/joint": 8,
      "perceptron/literal": 8,
      "perceptron/kesler": 5,
      "perceptron/shared": 5,
      "cnn-1/train": 25,
      "cnn-1/attack": 30,
    },
  ),
  *_rows(
    "training",
    "small",
    "yale_b",
    "robust training of faces beside the published figures",
    **{
      "yale_b-natural/": 4,
      "yale_b-pgd/train": 28,
      "yale_b-pgd/": 5,
      "yale_b-trades/train": 20,
      "yale_b-trades/": 5,
      "yale_b-ibp/train": 110,
      "yale_b-ibp/": 10,
    },
  ),
  *_rows(
    "smoothing",
    "ablation",
    "mnist",
    "which parts of the flagship matter",
    **{"/train": 8, "/certify": 2},
  ),
  *_rows(
    "training",
    "full",
    "mnist",
    "verified training beside the published figures",
    **{
      "mnist-ibp_0.1/train": 45,
      "mnist-ibp_0.1/": 5,
      "mnist-ibp_0.3/train": 60,
      "mnist-ibp_0.3/": 5,
      "mnist-ibp_0.1_medium/train": 195,
      "mnist-ibp_0.1_medium/": 10,
    },
  ),
  *_rows(
    "dpal",
    "full",
    "mnist",
    "DPAL at the length of its paper, one budget",
    **{"sound_dpal-2/train": 40, "dpal-2/train": 700, "dpal-2/radii": 90},
  ),
)
