"""What a training leaves in its run folder beside ledger and checkpoints.

config.json says what is trained, and is written once the ledger has accepted
the run. When the training ends, privacy.json and model.keras follow, and
run.json comes last: it names the run and the weights of both, so that a run
whose end was cut short is known by it and is finished from its last checkpoint.
"""

from __future__ import annotations

import datetime
import os
import platform
import time
import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import tensorflow as tf

from tf_privrob import data
from tf_privrob import files
from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.methods import settings
from tf_privrob.privacy import stated

MODEL = "model.keras"


def describe_data(
  given: Any, classes: int, value_range: Any, validation_data: Any
) -> records.Data:
  """What run.json says of the data; arrays have neither name nor source.

  Args:
    given: A `Dataset`, or the training inputs.
    classes: Outputs of the network. The labels are private, and the largest of
      them would tell whether a class is there.
    value_range: Declared range of the inputs.
    validation_data: Public inputs and labels, or None.
  """
  if isinstance(given, data.Dataset):
    named = (given.name, given.source, given.split)
    inputs, tests = given.x_train, given.x_test
    classes, value_range = given.num_classes, given.value_range
  else:
    named, inputs = (None, None, None), given
    tests = validation_data[0] if validation_data else ()
  low, high = map(float, value_range)
  return records.Data(*named, len(inputs), len(tests), classes, (low, high))


def begin(
  folder: run_folder.RunFolder,
  model,
  dataset: records.Data,
  about: Mapping[str, Any],
) -> None:
  """Writes config.json, which never tells the seed."""
  from tf_privrob.methods import registry  # it imports the methods

  config = model.config
  known = registry.name_of(model)
  method = known or type(model).__name__
  variant = getattr(config, "variant", None)
  flags = about.get("flags")
  if flags is None:
    flags = {"value_range": "{},{}".format(*dataset.value_range)}
  record = records.Config(
    method=f"{method} ({variant.replace('_', ' ')})" if variant else method,
    dataset=dataset.name,
    network=model.network.name,
    config={
      **settings.described(config),
      "seed": None if config.seed is None else "kept out of the run folder",
    },
  )
  preset = known and registry.preset_of(known, config)
  folder.write_json(
    "config.json",
    {**record.to_json(), **about, "flags": {"preset": preset, **flags}},
  )


def finish(
  folder: run_folder.RunFolder,
  model,
  dataset: records.Data,
  started: float,
) -> None:
  """Writes the statement, the model, and run.json when both are there."""
  stated.state(folder, model.privacy_statement())
  files.remove_drafts(folder.path, "model")
  try:
    files.write_model(folder.file(MODEL), model)
  except files.DiskError:
    raise
  except Exception as error:  # whatever Keras says of a layer of the user's
    files.remove(folder.file(MODEL))
    warnings.warn(
      f"{folder.file(MODEL)} was not written, since Keras cannot save this"
      f" model ({error}). The weights are those of model.network.",
      RuntimeWarning,
      stacklevel=3,
    )
  described = _described(model, dataset, started)
  folder.write_json("run.json", described.to_json())


def _described(model, dataset: records.Data, started: float) -> records.Run:
  """The contents of run.json."""
  gpus = tf.config.list_physical_devices("GPU")
  record = model.run_record
  return records.Run(
    created=datetime.datetime.now(datetime.timezone.utc).isoformat(
      timespec="seconds"
    ),
    train_seconds=round(time.monotonic() - started, 2),
    sessions=record["sessions"],
    steps=record["steps"],
    run_id=record.get("run"),
    weights=record.get("weights"),
    parameters=model.network.count_params(),
    versions=versions(),
    device=f"GPU x{len(gpus)}" if gpus else f"CPU x{os.cpu_count()}",
    dataset=dataset,
  )


def versions() -> dict[str, str]:
  """Versions of everything that a figure may depend on."""
  names = {
    "tf_privrob": "tf_privrob",
    "tensorflow": "tensorflow",
    "tensorflow_privacy": "tensorflow-privacy",
    "dp_accounting": "dp-accounting",
    "numpy": "numpy",
  }
  found = {"python": platform.python_version()}
  for key, name in names.items():
    try:
      found[key] = metadata.version(name)
    except metadata.PackageNotFoundError:
      found[key] = "not installed as a package"
  return found
