"""Trains a classifier on public data, to be frozen behind a denoiser.

python -m experiments.public_classifier --dataset=mnist --share=0.5 \
  --network=residual_mnist --epochs=8 --out=runs/public_mnist.keras

`data.split_public(dataset, share, split_seed)` gives the public examples it
was trained on, and the private ones that are left.
"""

from __future__ import annotations

import json

from absl import flags

from experiments import command
from tf_privrob.runs import public_classifier as public_training

_DATASET = flags.DEFINE_string("dataset", "mnist", "Name of a data set.")
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_SHARE = flags.DEFINE_float(
  "share", 0.5, "Share of the training examples that is public."
)
_SPLIT_SEED = flags.DEFINE_integer("split_seed", 0, "Which ones are public.")
_NETWORK = flags.DEFINE_string("network", "residual_mnist", "Network by name.")
_EPOCHS = flags.DEFINE_integer("epochs", 8, "Passes over the public examples.")
_SEED = flags.DEFINE_integer("seed", 0, "Of weights, order and shifts.")
_OUT = flags.DEFINE_string("out", None, "The .keras file to write.")


def main() -> None:
  """Trains, writes the file and prints what was measured."""
  from tf_privrob import data
  from tf_privrob import models

  if not (_OUT.value or "").endswith(".keras"):
    raise ValueError(f"Expected --out={_OUT.value} to be a .keras file.")
  public, _ = data.split_public(
    data.load(_DATASET.value, _DATA_DIR.value), _SHARE.value, _SPLIT_SEED.value
  )
  network = models.by_name(
    _NETWORK.value, public.input_shape, public.num_classes, _SEED.value
  )
  result = public_training.train_public_classifier(
    network, public, _EPOCHS.value, _SEED.value, path=_OUT.value
  )
  print(json.dumps(result, indent=2))


if __name__ == "__main__":
  command.run(main)
