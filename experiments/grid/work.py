"""What cells of several studies do: a training, a choice of test images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Callable
from typing import Optional

import numpy as np

from tf_privrob.runs import train as training

NO_BOX = (-100.0, 100.0)  # a radius holds outside the value range, too

# Of the noise of certificates, so that a cell that is measured again finds the
# same. Public: the models of studies were made without a look at its draws.
DRAWS = 0


def chosen_rows(dataset, count: int) -> np.ndarray:
  """Every k-th test image: every 20th of 10,000 for 500."""
  stride = max(1, dataset.num_test // count)
  return np.arange(0, dataset.num_test, stride)[:count]


def share(right: np.ndarray) -> dict[str, Any]:
  """Share of right ones, their number and a 95 % interval."""
  from tf_privrob import binomial

  count = int(np.sum(right))
  return {
    "accuracy": count / len(right),
    "count": len(right),
    "interval": binomial.interval(count, len(right)),
  }


def clean(model, dataset) -> dict[str, Any]:
  """The share of all test images that a model classifies correctly.

  With the noise of training, if it has any.
  """
  logits = model.predict(dataset.x_test, batch_size=500, verbose=0)
  return share(logits.argmax(axis=1) == dataset.y_test)


def train(
  make: Callable[[Any], Any],
  settings: Any,
  dataset,
  network: str,
  folder,
  flags: Optional[Mapping[str, str]] = None,
) -> tuple[Any, dict[str, Any]]:
  """Trains, or goes on with a training that was killed.

  Args:
    make: gives the method from its settings, whose seed is public.
    settings: of the method.
    dataset: it is trained on.
    network: what it is called in the run folder.
    folder: `RunFolder` of the model; the run folder is inside.
    flags: of the command line that would do the same.

  Returns:
    The method, and what the results of all studies say of a training.
  """
  from tf_privrob import run_folder
  from tf_privrob.methods import settings as settings_lib

  run = run_folder.RunFolder(folder.file(training.RUN))
  # Without its cell's result the file may be half of one.
  run.file("model.keras").unlink(missing_ok=True)
  settings = training.repeatable(settings)
  model = make(settings)
  training.fit(model, dataset, network, run, None, dict(flags or {}))
  statement = model.privacy_statement()
  return model, {
    **training.stated(statement),
    "caveats": list(statement.caveats),
    "network": network,
    "noise_multiplier": model.run_record.get("noise_multiplier"),
    "steps": model.run_record["steps"],
    "sessions": model.run_record["sessions"],
    "config": settings_lib.described(settings),
  }


def build(method: str, network: str, dataset, settings: Any):
  """The method around a network by name, whose seed follows the settings."""
  from tf_privrob import methods
  from tf_privrob import models

  seed = training.network_seed(settings)
  made = models.by_name(network, dataset.input_shape, dataset.num_classes, seed)
  return methods.build(method, made, settings)
