"""Trains a model into a run folder.

python -m experiments.train --dataset=mnist_5k --preset=mnist_5k \
  --run_dir=runs/first --config.dp_epsilon=3

A killed run goes on with the same command and --resume.
"""

from __future__ import annotations

from absl import flags

from experiments import command
from experiments import training

_METHOD = flags.DEFINE_string("method", "dp_sgd", "Training method.")
_PRESET = flags.DEFINE_string(
  "preset", None, "Settings to start from; --config.<field> overrides one."
)
_DATASET = flags.DEFINE_string("dataset", "mnist_5k", "Name of a data set.")
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_VALUE_RANGE = flags.DEFINE_string(
  "value_range", None, "Rescale inputs to this range, e.g. -1,1."
)
_NETWORK = flags.DEFINE_string(
  "network", "tutorial_cnn_tanh", "Network by name, or the path of a .keras."
)
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to write.")
_RESUME = flags.DEFINE_bool("resume", False, "Go on with the run in run_dir.")


def _settings():
  from tf_privrob import methods

  return methods.preset(_METHOD.value, _PRESET.value)


def load_network(name: str, dataset, seed: int | None):
  """A network by name, or a user's Keras classifier from a file."""
  import tensorflow as tf

  from tf_privrob import models

  if not name.endswith(".keras"):
    return models.by_name(
      name, dataset.input_shape, dataset.num_classes, seed or 0
    )
  network = models.as_logits(tf.keras.models.load_model(name, compile=False))
  if tuple(network.input_shape[1:]) != dataset.input_shape:
    raise ValueError(
      f"Expected a network for inputs {dataset.input_shape}, received one for"
      f" {tuple(network.input_shape[1:])} in {name}."
    )
  return network


def train(
  method: str,
  config,
  dataset,
  network: str,
  run_dir: str,
  resume: bool = False,
  flag_values: dict | None = None,
):
  """Trains and writes the run folder; returns the trained model."""
  from tf_privrob import methods
  from tf_privrob import run_folder

  folder = run_folder.RunFolder(run_dir)
  if resume and folder.has("model.keras"):
    raise ValueError(
      f"The run in {run_dir} is complete: there is nothing to resume. Evaluate"
      f" it, python -m experiments.evaluate --run_dir={run_dir}, or choose"
      " another run_dir."
    )
  model = methods.build(
    method, load_network(network, dataset, config.seed), config
  )
  training.fit(
    method, model, dataset, network, folder, resume, flag_values or {}
  )
  return model


def main() -> None:
  """Trains as the flags say and prints the privacy statement."""
  from tf_privrob import data

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  value_range = _VALUE_RANGE.value and data.parse_range(_VALUE_RANGE.value)
  dataset = data.load(_DATASET.value, _DATA_DIR.value, value_range)
  model = train(
    _METHOD.value,
    command.chosen(_settings()),
    dataset,
    _NETWORK.value,
    _RUN_DIR.value,
    _RESUME.value,
    {
      "preset": _PRESET.value,
      "value_range": _VALUE_RANGE.value,
    },
  )
  print(model.privacy_statement().text())
  print(
    f"Next: python -m experiments.evaluate --run_dir={_RUN_DIR.value} &&"
    f" python -m experiments.report --run_dir={_RUN_DIR.value}"
  )


if __name__ == "__main__":
  command.run(main, _settings)
