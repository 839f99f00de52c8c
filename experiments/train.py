"""Trains a model into a run folder.

python -m experiments.train --dataset=mnist_5k --preset=mnist_5k \
  --run_dir=runs/first --config.dp_epsilon=3

A killed run goes on with the same command and --resume.
"""

from __future__ import annotations

from absl import flags

from experiments import command
from tf_privrob.runs import train as training

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
  "network",
  "tutorial_cnn_tanh",
  "Network by name, or the path of a .keras; with --classifier a denoiser.",
)
_CLASSIFIER = flags.DEFINE_string(
  "classifier",
  None,
  "Keras file of a classifier to stay as it is: --network is trained as a"
  " denoiser in front of it (transdenoiser, secure_sgd).",
)
_PUBLIC_SHARE = flags.DEFINE_float(
  "public_share",
  None,
  "Share of the training data that the classifier was trained on and that is"
  " declared public; training uses the rest.",
)
_PUBLIC_WEIGHTS = flags.DEFINE_string(
  "public_weights",
  None,
  "Why the weights of --network=<file> do not depend on the private data; a"
  " private method then starts from them instead of drawing its own.",
)
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to write.")
_RESUME = flags.DEFINE_bool("resume", False, "Go on with the run in run_dir.")


def _settings():
  from tf_privrob import methods

  return methods.preset(_METHOD.value, _PRESET.value)


def main() -> None:
  """Trains as the flags say and prints the privacy statement."""
  from tf_privrob import data

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  if _PUBLIC_SHARE.value is not None and not _CLASSIFIER.value:
    raise ValueError(
      "Expected --classifier with --public_share: the public part is what a"
      " frozen classifier was trained on."
    )
  value_range = _VALUE_RANGE.value and data.parse_range(_VALUE_RANGE.value)
  dataset = data.load(_DATASET.value, _DATA_DIR.value, value_range)
  public = None
  if _PUBLIC_SHARE.value is not None:
    public, dataset = data.split_public(dataset, _PUBLIC_SHARE.value)
  model = training.run(
    _METHOD.value,
    command.chosen(_settings()),
    dataset,
    _NETWORK.value,
    _RUN_DIR.value,
    _RESUME.value,
    {
      "preset": _PRESET.value,
      "value_range": _VALUE_RANGE.value,
      "classifier": _CLASSIFIER.value,
      "public_share": _PUBLIC_SHARE.value,
      "public_weights": _PUBLIC_WEIGHTS.value,
    },
    _CLASSIFIER.value,
    public,
    _PUBLIC_WEIGHTS.value,
  )
  print(model.privacy_statement().text())
  print(
    f"Next: python -m experiments.evaluate --run_dir={_RUN_DIR.value} &&"
    f" python -m experiments.report --run_dir={_RUN_DIR.value}"
  )


if __name__ == "__main__":
  command.run(main, _settings)
