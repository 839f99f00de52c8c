"""What makes a run the same run: settings, data, network, and its folder.

The ledger keeps the settings in the open. What depends on the private data, or
tells the seed, is kept apart under `nonprivate/` of the run folder, for resumed
sessions to compare: a hash of a data set tells whoever guesses it that the
guess was right.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import models
from tf_privrob import randomness
from tf_privrob import run_folder
from tf_privrob.methods import settings as settings_lib

# Settings that bear on speed and memory only: a resumed run may have others.
_FREE = ("checkpoint_every", "engine", "jit_compile", "physical_batch_size")
_PASSING = ("seed", "build_config", "build_input_shape")
_FILE = "nonprivate/resume.json"
_LEFT_BY_A_RUN = (
  "ledger.jsonl",
  "checkpoints",
  _FILE,
  "history.jsonl",
  "run.json",
  "privacy.json",
  "model.keras",
)


def parameters(model, data, value_range) -> dict[str, Any]:
  """Method, settings, shapes: all that two sessions of a run share."""
  x, _ = data
  settings = settings_lib.described(model.config)
  seeded = settings.pop("seed", None) is not None
  for name in _FREE:
    settings.pop(name, None)
  return {
    "method": type(model).__name__,
    "settings": settings,
    "seeded": seeded,
    "given": model.given(),  # always: runs that kept facts elsewhere lack it
    "public_weights": model.public_weights,
    "num_examples": len(x),
    "input_shape": list(x.shape[1:]),
    "value_range": [float(end) for end in value_range],
    "optimizer": _plain(model.optimizer.get_config()),
    "network": [
      f"{tuple(weight.shape)} {weight.dtype.name}"
      for weight in model.network.weights
    ],
    "layers": network_hash(model.network),
    "kept_weights": models.fingerprint_of(_kept(model)),
  }


def _kept(model) -> list[tf.Variable]:
  """The weights that `fit` does not draw, as they were given: all are public.

  A resumed run goes on with those of its checkpoint, whatever it is given, so
  that what is said of the ones must be true of the others.
  """
  if model.public_weights is not None:
    return model.network.weights
  if not model.draws_initial_weights:  # of a training without privacy
    return []
  drawn = {weight.ref() for weight in model.drawn_part.weights}
  return [w for w in model.network.weights if w.ref() not in drawn]


def public_hash(*arrays: np.ndarray | None) -> str | None:
  """A hash for all to see, of what is public; None where nothing was given."""
  if not arrays or arrays[0] is None:
    return None
  return _keyed("", *(part for array in arrays for part in _parts(array)))


def _plain(config: dict[str, Any]) -> dict[str, Any]:
  """An optimizer's settings as JSON gives them back."""
  return json.loads(json.dumps(config, default=_number, sort_keys=True))


def _number(value: Any) -> Any:
  """NumPy scalars and variables as numbers."""
  return np.asarray(value).item()


def require_fresh(folder: pathlib.Path) -> None:
  """Refuses to begin a run where an earlier one left its weights."""
  left = [name for name in _LEFT_BY_A_RUN if os.path.exists(folder / name)]
  if left:
    raise ValueError(
      f"Expected a fresh run_dir, found {left[0]} of an earlier run in {folder}"
      ": pass resume=True to go on with it, or choose another folder."
    )


def make_folder(folder: pathlib.Path) -> None:
  """Makes the run folder, before anything is paid."""
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise ValueError(
      f"Expected run_dir to be a folder that can be made, received {folder}"
      f" ({error.strerror}). Choose another."
    ) from error


def digest(model, parameters: dict[str, Any], data, callbacks=()) -> str:
  """A hash of all that is known of a seeded run, for its key.

  Two runs with one seed then share noise only if they are the same run: between
  others the noise would cancel, whoever knows the seed or not. What it cannot
  know, such as what a callback does, the statement's caveat is about.
  """
  known = {
    **parameters,
    "all_settings": {**settings_lib.described(model.config), "seed": None},
    "layers": _layers(model.network),
    "weights": models.fingerprint(model),
    "callbacks": [type(callback).__qualname__ for callback in callbacks],
  }
  found = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
  for array in data:
    for part in _parts(array):
      found.update(part)
  return found.hexdigest()


def network_hash(network) -> str:
  """A hash of what a network, which is public, is made of.

  Weights and seeds are left out: what a seed drew is among the weights.
  """
  text = json.dumps(_lasting(_layers(network)), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def _lasting(value: Any) -> Any:
  """A configuration without what saving, loading or drawing anew changes."""
  if isinstance(value, dict):
    return {k: _lasting(v) for k, v in value.items() if k not in _PASSING}
  return [*map(_lasting, value)] if isinstance(value, list) else value


def _layers(network) -> list[Any]:
  """What the network is made of, as far as its layers tell."""
  parts, found = [network, *network.submodules], []
  # Keras numbers names on through a process: a place says the same.
  places = {part.name: place for place, part in enumerate(parts)}
  for part in parts:
    try:
      config = part.get_config()
    except (AttributeError, NotImplementedError, TypeError, ValueError):
      config = None
    found.append([type(part).__qualname__, _placed(config, places)])
  return found


def _placed(value: Any, places: dict[str, int]) -> Any:
  """A configuration in which layers are called by their place.

  What JSON does not know is the name of a function or of a class.
  """
  if isinstance(value, dict):
    return {str(k): _placed(v, places) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [_placed(item, places) for item in value]
  if isinstance(value, (np.ndarray, np.generic)):
    return value.tolist()
  if isinstance(value, str):
    return places.get(value, value)
  if value is None or isinstance(value, (bool, int, float)):
    return value
  return getattr(value, "__qualname__", type(value).__qualname__)


def bind(
  folder: pathlib.Path, run: str, data, seed: int | None, resume: bool
) -> None:
  """Notes data and seed of a new run; refuses a resume with others."""
  place = run_folder.RunFolder(folder)
  if not resume:
    salt = os.urandom(32).hex()
    place.write_json(_FILE, _described(run, salt, data, seed))
    return
  known = place.read_json(_FILE)
  if known is None:
    raise ValueError(
      f"Expected {_FILE} in {folder}, by which a resumed run knows its data and"
      " seed, found none. Begin a new run_dir."
    )
  found = _described(run, str(known.get("salt", "")), data, seed)
  for name, meaning in (
    ("run", "a ledger of this run"),
    ("data", "the training data that the run began with"),
    ("seed", "the seed that the run began with"),
  ):
    if known.get(name) != found[name]:
      raise ValueError(
        f"Cannot resume {folder}: expected {meaning}, received another."
        " Use the same, or begin a new run_dir."
      )


def lasting_key(folder: pathlib.Path) -> randomness.Key:
  """A secret that a run without a seed keeps under `nonprivate/`.

  It is made of the random salt there, which no other file has.
  """
  salt = run_folder.RunFolder(folder).read_json(_FILE)["salt"]
  return randomness.Key(bytes.fromhex(salt)).child("lasting")


def trained_on(folder: pathlib.Path, data) -> bool | None:
  """Whether the run in a folder was trained on these inputs and labels.

  None where nothing is left that could tell.
  """
  known = run_folder.RunFolder(folder).read_json(_FILE) or {}
  if not all(isinstance(known.get(name), str) for name in ("salt", "data")):
    return None
  return known["data"] == _described("", known["salt"], data, None)["data"]


def _described(run: str, salt: str, data, seed: int | None) -> dict[str, Any]:
  return {
    "run": run,
    "salt": salt,
    "data": _keyed(salt, *(part for array in data for part in _parts(array))),
    "seed": None if seed is None else _keyed(salt, str(seed).encode()),
  }


def _parts(array: np.ndarray) -> tuple[bytes, memoryview]:
  array = np.ascontiguousarray(array)
  return f"{array.dtype.str} {array.shape}".encode(), array.data


def _keyed(salt: str, *parts) -> str:
  digest = hmac.new(bytes.fromhex(salt), digestmod=hashlib.sha256)
  for part in parts:
    digest.update(part)
  return digest.hexdigest()
