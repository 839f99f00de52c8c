"""Trains a classifier on public data, to be frozen behind a denoiser.

python -m tf_privrob public_classifier --dataset=mnist --share=0.5 \
  --network=residual_mnist --epochs=8 --out=runs/public_mnist.keras

`data.split_public(dataset, share, split_seed)` gives the public examples it
was trained on, and the private ones that are left.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import public_classifier as public_training


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    dataset: Name of a data set.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    share: Share of the training examples that is public.
    split_seed: Seed of the choice of public examples.
    network: Network by name.
    epochs: Passes over the public examples.
    augmentation: How images are moved.
    seed: Seed of weights, order and shifts.
    out: The .keras file to write.
  """

  dataset: str = "mnist"
  data_dir: Optional[str] = None
  share: float = 0.5
  split_seed: int = 0
  network: str = "residual_mnist"
  epochs: int = 8
  augmentation: str = "shift"
  seed: int = 0
  out: Optional[str] = None


def main(options: Options, call: command.Call) -> None:
  """Trains, writes the file and prints what was measured."""
  from tf_privrob import data
  from tf_privrob import models

  del call
  if not (options.out or "").endswith(".keras"):
    raise ValueError(f"Expected --out={options.out} to be a .keras file.")
  public, _ = data.split_public(
    data.load(options.dataset, options.data_dir),
    options.share,
    options.split_seed,
  )
  network = models.by_name(
    options.network, public.input_shape, public.num_classes, options.seed
  )
  result = public_training.train_public_classifier(
    network,
    public,
    options.epochs,
    options.seed,
    augmentation=options.augmentation,
    path=options.out,
  )
  print(json.dumps(result, indent=2))
