"""Batches of exactly m examples, as noise calibrated for m rows needs them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.data import batching
from tf_privrob.data import sampling

ORDERS = ("random", "sequential", "partition")


@dataclasses.dataclass(frozen=True)
class FixedBatchSampler(sampling.Sampler):
  """Draws a batch of m examples and, if `paired`, a second, disjoint one.

  The second batch is the one that adversarial examples are made of. Orders:

  - "random": both batches are drawn anew at every step (DPAL, Algorithm 1).
  - "sequential": consecutive slices in the order of the data, starting over
    where a slice would overrun the end (DPAL's released MNIST code). With an
    even number of slices each example keeps its role for ever.
  - "partition": the data are cut once into fixed batches; every epoch walks
    through them in a random order, and takes two at a time (StoBatch).

  No amplification by sampling is claimed for any of them.

  Attributes:
    num_examples: n.
    batch_size: m.
    order: The order, as above.
    paired: Whether each step has a second batch.
  """

  kind: ClassVar[str] = "fixed"

  batch_size: int
  order: str = "random"
  paired: bool = True

  def __post_init__(self):
    validate.positive_int(
      num_examples=self.num_examples, batch_size=self.batch_size
    )
    validate.one_of(ORDERS, order=self.order)
    validate.boolean(paired=self.paired)
    validate.batch_size(self.batch_size, self.num_examples)
    if self._rows > self.num_examples:
      raise ValueError(
        f"Expected at least {self._rows} training examples for a benign and an"
        f" adversarial batch of {self.batch_size} each, received"
        f" {self.num_examples}. Lower batch_size to at most"
        f" {self.num_examples // 2}."
      )

  @property
  def _rows(self) -> int:
    """Rows that one step consumes."""
    return self.batch_size * (2 if self.paired else 1)

  @property
  def expected_batch_size(self) -> float:
    """The batch size."""
    return float(self.batch_size)

  @property
  def steps_per_epoch(self) -> int:
    """Whole steps in a pass over the data."""
    return self.num_examples // self._rows

  def indices(self, key: randomness.Key, step: int) -> np.ndarray:
    """The rows of a step: the benign batch, then the adversarial sources."""
    m, slices = self.batch_size, self.num_examples // self.batch_size
    each = 2 if self.paired else 1
    if self.order == "random":
      order = key.child("pair", step).permutation(self.num_examples)
      return order[: self._rows]
    if self.order == "sequential":
      chosen = [(each * step + i) % slices for i in range(each)]
    else:
      epoch, position = divmod(step, slices // each)
      order = key.child("pair", epoch).permutation(slices)
      chosen = order[each * position : each * (position + 1)]
    return np.concatenate([np.arange(i * m, (i + 1) * m) for i in chosen])

  def describe(self) -> dict[str, str | int | float]:
    """Adds the order."""
    return {
      **super().describe(),
      "order": self.order,
      "paired": int(self.paired),
    }

  def batches(self, x, y, key, start_step, steps) -> tf.data.Dataset:
    """Elements `(x [m, ...], y [m])`, twice that in a pair; see `Sampler`."""
    x, y = self.check_arrays(x, y)
    validate.positive_int(steps=steps)
    validate.non_negative_int(start_step=start_step)

    def element(step):
      rows = self.indices(key, step)
      found = x[rows], y[rows]
      return self._split(*found) if self.paired else found

    signature = tuple(
      tf.TensorSpec((self.batch_size, *a.shape[1:]), tf.as_dtype(a.dtype))
      for a in (x, y, x, y)[: 4 if self.paired else 2]
    )
    return batching.pipeline(element, signature, start_step, steps)

  def rehearsal(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """One element made of the given synthetic rows."""
    rows = np.arange(self._rows) % len(x)
    found = x[rows], y[rows]
    return self._split(*found) if self.paired else found

  def _split(self, x, y):
    m = self.batch_size
    return x[:m], y[:m], x[m:], y[m:]
