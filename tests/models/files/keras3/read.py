"""Reads files as any program does that knows nothing of tf_privrob.

  python read.py <folder> <folder of files>

Every .keras and .h5 file of the second folder is loaded and called on the
inputs in <case>.npz of the first. Printed is one JSON object: for each file,
how far its outputs are from those in the npz, in units of 1 or of the largest
one, or what was raised. Keras 2 and Keras 3 run this file alike.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

keras = tf.keras


def difference(path, arrays):
  """The largest one of all outputs; a sentence where there is none."""
  xs = [arrays[f"x{i}"] for i in range(len(arrays)) if f"x{i}" in arrays]
  ys = [arrays[f"y{i}"] for i in range(len(arrays)) if f"y{i}" in arrays]
  try:
    model = keras.models.load_model(path, compile=False)
    x = xs[0] if len(xs) == 1 else tf.nest.pack_sequence_as(model.input, xs)
    found = tf.nest.flatten(model(x, training=False))
    shapes = [[tuple(part.shape) for part in parts] for parts in (found, ys)]
    if shapes[0] != shapes[1]:
      return f"{shapes[0]} for {shapes[1]}"
    return max(
      float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b))))
      for a, b in zip(found, ys)
    )
  except Exception as error:
    return f"{type(error).__name__}: {str(error)[:300]}"


if __name__ == "__main__":
  cases, files = map(pathlib.Path, sys.argv[1:])
  seen = {
    path.name: difference(path, np.load(cases / f"{path.stem}.npz"))
    for path in sorted(files.iterdir())
    if path.suffix in (".keras", ".h5")
  }
  assert "tf_privrob" not in sys.modules
  print(json.dumps({"keras": 3 if hasattr(keras, "ops") else 2, "files": seen}))
