"""Trains a method into a run folder: what all binaries do alike, no flags."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import time
from importlib import metadata


def versions() -> dict[str, str]:
  """Of everything that a figure may depend on."""
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


def describe_run(model, dataset, started: float) -> dict:
  """The contents of run.json."""
  import tensorflow as tf

  gpus = tf.config.list_physical_devices("GPU")
  return {
    "created": datetime.datetime.now(datetime.timezone.utc).isoformat(
      timespec="seconds"
    ),
    "train_seconds": round(time.monotonic() - started, 2),
    "sessions": model.run_record["sessions"],
    "steps": model.run_record["steps"],
    "parameters": model.network.count_params(),
    "versions": versions(),
    "device": f"GPU x{len(gpus)}" if gpus else f"CPU x{os.cpu_count()}",
    "dataset": {
      "name": dataset.name,
      "source": dataset.source,
      "split": dataset.split,
      "num_train": len(dataset.x_train),
      "num_test": len(dataset.x_test),
      "num_classes": dataset.num_classes,
      "value_range": list(dataset.value_range),
    },
  }


def fit(method, model, dataset, network, folder, resume, flag_values) -> None:
  """Trains and writes config, run, privacy and the model.

  Args:
    method: name of the method.
    model: the method around its network.
    dataset: training and test data.
    network: name or file of the network.
    folder: the `RunFolder`.
    resume: go on with the run in it.
    flag_values: of the binary, for config.json.
  """
  import tensorflow as tf

  config = model.config
  variant = getattr(config, "variant", None)
  description = {
    "method": f"{method} ({variant.replace('_', ' ')})" if variant else method,
    "dataset": dataset.name,
    "network": network,
    "config": {
      **dataclasses.asdict(config),
      "seed": None if config.seed is None else "kept out of the run folder",
    },
    "flags": flag_values,
  }
  # Written once the ledger has accepted the run: never over another run's.
  note = tf.keras.callbacks.LambdaCallback(
    on_train_begin=lambda logs: folder.write_json("config.json", description)
  )
  started = time.monotonic()
  model.fit(dataset, run_dir=folder.path, resume=resume, callbacks=[note])
  folder.write_json("run.json", describe_run(model, dataset, started))
  folder.write_text("privacy.json", model.privacy_statement().to_json())
  model.save(folder.file("model.keras"))
