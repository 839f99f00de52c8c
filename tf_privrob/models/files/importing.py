"""Weights from files of other programs; nothing of such a file is run.

What a format allows: npz files and the checkpoints of TensorFlow (version 1 or
2: <path>.index beside <path>.data-...) hold arrays by name, and are read as
such; the graph in a checkpoint's .meta file is not opened. Files of PyTorch
(.pt, .pth) and of programs like DiffAI (.net) are pickles: to read one is to
run it, and they are refused. Whoever trusts one writes its arrays to an npz
file, kernels as Keras has them: [height, width, in, out] of a convolution, [in,
out] of a dense layer, whose inputs are flattened with the channels last.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import files
from tf_privrob.models.files import archive
from tf_privrob.models.files import known
from tf_privrob.models.files import stored_weights

_PICKLES = (".pt", ".pth", ".net", ".pkl", ".pickle", ".tar")


def import_weights(
  network: tf.keras.Model,
  path: str | os.PathLike,
  names: Sequence[str] | None = None,
) -> None:
  """Gives a network the weights of a file: all of them, or none.

  Args:
    network: Built; its weights are replaced.
    path: An npz file, or a checkpoint without its ending.
    names: Of the arrays, in the order of `network.weights`, such as
      `names_of_ccs_2019(network)`. None: each weight takes the one array of its
      shape, and is refused where there are several or none.

  Raises:
    ValueError: The file is no such file, or lacks an array.
  """
  try:
    found = _arrays(pathlib.Path(path))
    values = [
      _of_shape(found, weight) if name is None else _named(found, name, weight)
      for weight, name in _pairs(network, names)
    ]
  except known.RefusedError as error:
    raise ValueError(f"The file {os.fspath(path)!r} {error}") from error
  for weight, value in zip(network.weights, values):
    weight.assign(value)


def names_of_ccs_2019(network: tf.keras.Model) -> list[str]:
  """Names in checkpoints of the code of Song, Shokri and Mittal.

  Its natural, PGD and WRM training has conv_<i>/DW for the kernels of
  convolutions, logit/DW_<j> and logit/biases_<j> for dense layers.

  Args:
    network: `yale_cnn` or `fashion_mnist_cnn` of style "plain".
  """
  found, convs, dense = [], 0, 0
  for layer in network.layers:
    if isinstance(layer, tf.keras.layers.Conv2D):
      found.append(f"conv_{convs}/DW")
      convs += 1
    elif isinstance(layer, tf.keras.layers.Dense):
      found += [f"logit/DW_{dense}", f"logit/biases_{dense}"]
      dense += 1
  return found


def _pairs(network, names):
  if names is None:
    names = [None] * len(network.weights)
  if len(names) != len(network.weights):
    raise known.RefusedError(
      f"was asked for {len(names)} names, and {network.name!r} has"
      f" {len(network.weights)} weights."
    )
  return zip(network.weights, names)


def _arrays(path: pathlib.Path) -> Mapping[str, np.ndarray]:
  """Arrays of floats by name."""
  if path.suffix in _PICKLES:
    raise known.RefusedError(
      "is a pickle: to read it is to run it. Where you trust it, write its"
      " arrays to an npz file."
    )
  found = files.read_arrays(path) if path.suffix == ".npz" else _stored(path)
  return {k: v for k, v in found.items() if v.dtype.kind == "f"}


def _stored(prefix: pathlib.Path) -> dict[str, np.ndarray]:
  """What a checkpoint holds, besides an optimizer's slots."""
  parts = sorted(prefix.parent.glob(f"{prefix.name}.data-*"))
  index = prefix.with_name(prefix.name + ".index")
  if not (parts and index.exists()):
    raise known.RefusedError(
      f"is no npz file and no checkpoint: there is no {index.name} beside"
      f" {prefix.name}.data-... in {prefix.parent}."
    )
  size = sum(len(archive.read(part)) for part in (index, *parts))
  try:
    stored_weights.require_size(str(prefix), size)
    reader = tf.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    # A slot has its weight's name, and its own behind.
    own = [n for n in shapes if n.rpartition("/")[0] not in shapes]
    return {name: np.asarray(reader.get_tensor(name)) for name in own}
  except known.RefusedError:
    raise
  except Exception as error:  # whatever a broken checkpoint makes it raise
    raise known.RefusedError(
      f"is a checkpoint that cannot be read ({type(error).__name__}:"
      f" {str(error)[:200]})."
    ) from error


def _named(found: Mapping[str, np.ndarray], name: str, weight) -> np.ndarray:
  if name not in found:
    raise known.RefusedError(
      f"has no array {name!r}; there are {', '.join(sorted(found)) or 'none'}."
    )
  if found[name].shape != tuple(weight.shape):
    raise known.RefusedError(
      f"has {name!r} of shape {found[name].shape}, expected"
      f" {tuple(weight.shape)} for {weight.name}."
    )
  return _finite(found[name], name)


def _of_shape(found: Mapping[str, np.ndarray], weight) -> np.ndarray:
  """The one array of this shape."""
  fitting = [n for n, v in found.items() if v.shape == tuple(weight.shape)]
  if len(fitting) != 1:
    listed = f" ({', '.join(sorted(fitting))})" if fitting else ""
    raise known.RefusedError(
      f"has {len(fitting)} arrays of shape {tuple(weight.shape)} for"
      f" {weight.name}{listed}. Say which by names=."
    )
  return _finite(found[fitting[0]], fitting[0])


def _finite(values: np.ndarray, name: str) -> np.ndarray:
  if not np.isfinite(values).all():
    raise known.RefusedError(f"has NaN or infinity in {name!r}.")
  return values
