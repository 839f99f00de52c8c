"""Models of Keras in SavedModel folders, whose graphs are never run."""

from __future__ import annotations

import pathlib

import tensorflow as tf
from google.protobuf import message

from tf_privrob import compat
from tf_privrob.models.files import archive
from tf_privrob.models.files import known
from tf_privrob.models.files import rebuilding
from tf_privrob.models.files import stored_weights

_metadata = compat.keras_module("protobuf.saved_metadata_pb2")
_DESCRIPTION = "keras_metadata.pb"
_WEIGHTS = ("variables.index", "variables.data-00000-of-00001")
_AGAIN = " Load it yourself and save it as .keras."


def load(path: pathlib.Path) -> tf.keras.Model:
  """The model that keras_metadata.pb describes, with the folder's weights.

  `saved_model.pb`, which holds the graphs, is not opened.

  Raises:
    RefusedError: there is no description, it names something that is not known,
      or the weights are not those of its layers.
  """
  if not (path / _DESCRIPTION).exists():
    raise known.RefusedError(
      f"is a folder without {_DESCRIPTION}: graphs without a description of"
      " layers would have to be run." + _AGAIN
    )
  value = _root(archive.read(path / _DESCRIPTION, 4 * archive.MAX_JSON))
  files = {name: archive.read(path / "variables" / name) for name in _WEIGHTS}
  with rebuilding.limited(2 * sum(map(len, files.values())) + 2**16):
    model = rebuilding.rebuild(value)
  stored_weights.copy_checkpoint(model, files)
  return model


def _root(content: bytes) -> dict:
  """What the folder's root says of itself."""
  found = _metadata.SavedMetadata()
  try:
    found.ParseFromString(content)
  except message.DecodeError as error:
    raise known.RefusedError(
      f"has a broken {_DESCRIPTION}." + _AGAIN
    ) from error
  texts = [node.metadata for node in found.nodes if node.node_path == "root"]
  value = archive.parse(texts[0]) if len(texts) == 1 else None
  if not isinstance(value, dict) or not isinstance(value.get("config"), dict):
    raise known.RefusedError(
      f"has a {_DESCRIPTION} without the config of its model." + _AGAIN
    )
  return {key: value.get(key) for key in ("class_name", "config")}
