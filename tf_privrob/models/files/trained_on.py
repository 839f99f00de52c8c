"""What a .keras file tells of the examples that its weights were trained on.

It stands in Keras' own metadata.json, which neither Keras nor `load_model`
makes a model of: the file stays a model file like any other. Whoever loads the
model and saves it again writes a file that tells nothing.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_privrob import files
from tf_privrob.models.files import archive

_ENTRY, _NAME = "metadata.json", "tf_privrob_trained_on"


def write_trained(
  path: str | os.PathLike, network: tf.keras.Model, seen: Mapping[str, Any]
) -> None:
  """Replaces the .keras file `path` by this model.

  Args:
    path: of the .keras file.
    network: what is saved.
    seen: JSON values about the examples, as `data.examples_of` gives them.
  """
  with files.writing(path) as draft:
    network.save(draft)
    draft.write_bytes(_with_entry(draft.read_bytes(), seen))


def trained_on(path: str | os.PathLike) -> dict[str, Any] | None:
  """What a model file tells of the examples; None where it tells nothing."""
  path = pathlib.Path(path)
  if not path.is_file():
    return None
  content = archive.read(path)
  if not content.startswith(b"PK\x03\x04"):
    return None
  metadata = archive.parse(archive.unzip(content).get(_ENTRY, b"{}"))
  found = metadata.get(_NAME) if isinstance(metadata, dict) else None
  return found if isinstance(found, dict) else None


def _with_entry(content: bytes, seen: Mapping[str, Any]) -> bytes:
  """The archive anew: zipfile can add an entry, but not change one."""
  entries = archive.unzip(content)
  metadata = {**archive.parse(entries[_ENTRY]), _NAME: dict(seen)}
  entries[_ENTRY] = json.dumps(metadata).encode()
  found = io.BytesIO()
  with zipfile.ZipFile(found, "w") as store:
    for name, text in entries.items():
      store.writestr(name, text)
  return found.getvalue()
