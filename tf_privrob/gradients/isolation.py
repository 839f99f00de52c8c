"""Networks that mix the rows of a batch, one row at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob.gradients import places
from tf_privrob.models import row_wise


def row_by_row(
  network: tf.keras.layers.Layer,
) -> Callable[..., tf.Tensor]:
  """The network as a function of each row alone, whatever it is made of.

  Returns:
    `function(inputs, training=False)`: the network itself where it is known to
    act row by row, and every row comes out the same wherever it stands in a
    batch of this size; otherwise, or in a batch of unknown size, every row is a
    batch of one.
  """
  known = row_wise.not_row_wise(network) is None

  @functools.cache
  def alike(size: int) -> bool:
    shape = network.input_shape[1:]
    examples = [_trial_rows(shape)]
    spec = tf.TensorSpec([size, *shape])
    with tf.init_scope():
      concrete = tf.function(network).get_concrete_function(spec)
      return (
        places.sum_by_place(concrete.graph) is None
        and places.differing(network, examples, size) is None
        and not places.differing_results(concrete, examples, size)
      )

  def batches_of_one(inputs, training=False):
    def one(row):
      return network(row[tf.newaxis], training=training)[0]

    return tf.map_fn(one, inputs, fn_output_signature=network.compute_dtype)

  def by_row(inputs, training=False):
    size = inputs.shape[0]
    if known and size is not None and alike(size):
      return network(inputs, training=training)
    return batches_of_one(inputs, training)

  return by_row


def _trial_rows(shape: Sequence[int]) -> np.ndarray:
  """Rows of the usual ranges of values, of both signs, and constant ones."""
  rng = np.random.default_rng(0)
  half = (places.TRIALS // 2, *shape)
  return np.concatenate(
    [
      rng.uniform(0, 1, half),
      rng.uniform(-1, 1, half),
      255 * rng.uniform(0, 1, (2, *shape)),
      *(np.full((1, *shape), value) for value in (-1.0, 0.5, 1.0)),
    ]
  ).astype(np.float32)
