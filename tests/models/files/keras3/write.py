"""Writes models of Keras 3, and what they compute; run by Keras 3.

  python write.py <folder> [<case> ...]

For each case: <case>.keras, <case>.h5 and <case>.npz, which has the inputs
x0, x1, ... and the outputs y0, y1, ..., both in the order of flattened nests.
"""

import pathlib
import sys

import cases
import keras
import numpy as np


def examples(model, rng):
  """Inputs of the model's own shapes, as they are nested."""

  def draw(tensor):
    shape = (3, *tensor.shape[1:])
    if "int" in tensor.dtype:
      return rng.integers(0, 9, shape).astype(tensor.dtype)
    return rng.normal(size=shape).astype(tensor.dtype)

  nest = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
  return keras.tree.map_structure(draw, nest)


def write(name, folder):
  """One case; its weights are drawn anew, none stays as it starts."""
  rng = np.random.default_rng(len(name))
  model = cases.CASES[name]()
  for weight in model.weights:
    value = rng.uniform(0.1, 0.7, weight.shape)
    if "variance" not in weight.path and "scale" not in weight.path:
      value = value * rng.choice([-1.0, 1.0], weight.shape)
    weight.assign(value)
  for layer in model.layers:
    if isinstance(layer, keras.layers.Normalization):
      layer.finalize_state()  # what it computes with follows from its weights
  x = examples(model, rng)
  y = model(x, training=False)
  model.save(folder / f"{name}.keras")
  model.save(folder / f"{name}.h5")
  arrays = {f"x{i}": v for i, v in enumerate(keras.tree.flatten(x))}
  arrays |= {
    f"y{i}": keras.ops.convert_to_numpy(v)
    for i, v in enumerate(keras.tree.flatten(y))
  }
  np.savez(folder / f"{name}.npz", **arrays)


if __name__ == "__main__":
  for case in sys.argv[2:] or cases.CASES:
    write(case, pathlib.Path(sys.argv[1]))
