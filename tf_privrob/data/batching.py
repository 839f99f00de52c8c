"""Logical batches of any size in physical chunks of one static size.

A logical batch is what the privacy analysis sees; a physical chunk is what fits
into memory. One element of the pipeline is one logical batch,

  x: [k, P, ...],  y: [k, P],  mask: [k, P],

k >= 1 chunks of P rows. P is static and k is not, so that a graph is traced
once whatever the draw. Every drawn example is in exactly one row with mask 1;
the rows that fill the last chunk are zeros with mask 0. An empty draw is one
chunk of padding, since an empty Poisson batch still takes its noisy step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob import validate

_CPU_ROWS, _VALUES = 128, 28 * 28  # of a chunk of MNIST; see benchmarks
_GPU_FACTOR = 8
_STRETCH = 1.5  # a chunk may be longer or shorter, if fewer rows are padding
_PACKET = 16


def default_physical_batch_size(
  input_shape: tuple[int, ...],
  batch_size: float | None = None,
  fixed_size: bool = False,
  device: str | None = None,
) -> int:
  """A chunk size that keeps the device busy and wastes little on padding.

  It changes speed and memory, never the result: chunks of one logical batch
  are summed before the noise is added. With chunks of exactly the expected
  batch size, every second Poisson draw would need one more chunk for a few
  examples; two standard deviations of room make that 2 % of the steps. On a
  processor small chunks stay in its cache.

  Args:
    input_shape: Shape of one example.
    batch_size: Expected size of a logical batch, to fit the chunks to; None:
      by input size alone.
    fixed_size: Whether all batches have that size (no room is needed).
    device: "CPU" or "GPU"; None: GPU if TensorFlow sees one.

  Returns:
    About 128 for MNIST and 64 for CIFAR-10 on a CPU, eight times that on a GPU;
    by input size alone a power of two, within [16, 512] and [128, 4096].
  """
  if device is None:
    device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
  validate.one_of(("CPU", "GPU"), device=device)
  factor = _GPU_FACTOR if device == "GPU" else 1
  values = max(1, math.prod(input_shape))
  wanted = _CPU_ROWS * factor * math.sqrt(_VALUES / values)
  power = 2 ** round(math.log2(wanted))
  size = int(min(max(power, 16 * factor), 512 * factor))
  if batch_size is None:
    return size
  validate.positive(batch_size=batch_size)
  room = 0 if fixed_size else 2 * math.sqrt(batch_size)
  rows = math.ceil(batch_size + room)
  fewest = math.ceil(rows / size / _STRETCH)
  most = max(fewest, int(rows / size * _STRETCH))
  sizes = [whole_packets(-(-rows // k)) for k in range(fewest, most + 1)]
  return min(sizes, key=lambda size: -(-rows // size) * size)


def whole_packets(rows: int) -> int:
  """So many rows, or the next multiple of 16, the largest packet of numbers.

  Processors compute exponentials, logistic functions and quotients of up to 16
  float32 numbers at a time, and what is left at the end one by one, which may
  round otherwise. In a chunk of whole packets a row comes out the same at every
  place, so that nobody's part depends on how many come before.
  """
  return -(-rows // _PACKET) * _PACKET


def whole_batches(
  count: int, batch_size: int
) -> Iterator[tuple[np.ndarray, int]]:
  """Rows 0, ..., count - 1 in batches of whole packets, all of one size.

  Yields:
    Indices, the last one again and again at the end; and how many count.
  """
  size = whole_packets(batch_size)
  for start in range(0, count, size):
    rows = np.minimum(np.arange(start, start + size), count - 1)
    yield rows, min(size, count - start)


def gather_chunks(
  x: np.ndarray, y: np.ndarray, indices: np.ndarray, physical_batch_size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Copies the rows `indices` into padded chunks.

  Args:
    x: Inputs, `[n, ...]`.
    y: Labels, `[n]`.
    indices: Rows of the logical batch; may be empty.
    physical_batch_size: P.

  Returns:
    x `[k, P, ...]`, y `[k, P]` and the float32 mask `[k, P]`, with
    k = max(1, ceil(len(indices) / P)) and sum(mask) = len(indices).
  """
  count = len(indices)
  chunks = max(1, -(-count // physical_batch_size))
  rows = chunks * physical_batch_size

  def pad(values):
    padded = np.zeros((rows, *values.shape[1:]), values.dtype)
    padded[:count] = values
    return padded.reshape(chunks, physical_batch_size, *values.shape[1:])

  return pad(x[indices]), pad(y[indices]), pad(np.ones(count, np.float32))


def pipeline(
  element: Callable[[int], tuple[np.ndarray, ...]],
  signature: tuple[tf.TensorSpec, ...],
  start_step: int,
  steps: int,
) -> tf.data.Dataset:
  """One element for each step, gathered while another trains.

  Memory: the element in use, one that waits and one in the making; the data
  themselves are read where they are, not copied.

  Args:
    element: Maps a step to its element.
    signature: What the parts of an element are.
    start_step: First step.
    steps: Number of steps.

  Returns:
    A `tf.data.Dataset` of known cardinality `steps`.
  """

  def generate():
    for step in range(start_step, start_step + steps):
      yield element(step)

  elements = tf.data.Dataset.from_generator(
    generate, output_signature=signature
  )
  return elements.apply(
    tf.data.experimental.assert_cardinality(steps)
  ).prefetch(1)
