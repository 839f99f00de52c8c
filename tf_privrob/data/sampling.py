"""Samplers: which examples take part in which step, and what that is worth.

A draw depends only on the session's key and the step (`randomness.Key`): a run
can begin at any step, and a resumed run has another key, so that its fresh
steps never repeat old randomness. Amplification supposes that nobody knows who
was in which batch: the draws are as good as the noise, from AES-256 in counter
mode.

`describe()` tells the accountant and the ledger what was done. The physical
chunk size is not part of it: it has no bearing on privacy.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.data import batching


@dataclasses.dataclass(frozen=True)
class Sampler(abc.ABC):
  """Chooses the logical batch of every step.

  Attributes:
    num_examples: n, the size of the training set.
  """

  kind: ClassVar[str]

  num_examples: int

  @property
  @abc.abstractmethod
  def expected_batch_size(self) -> float:
    """The public constant that sums of gradients are divided by."""

  @property
  @abc.abstractmethod
  def steps_per_epoch(self) -> int:
    """Steps in which an example takes part once, on average."""

  @property
  def most_rows(self) -> int:
    """The most examples that a logical batch has, or all but surely has."""
    return self.num_examples

  @abc.abstractmethod
  def indices(self, key: randomness.Key, step: int) -> np.ndarray:
    """The rows of the logical batch of `step`, each at most once."""

  def max_participations(self, start_step: int, steps: int) -> int:
    """The most often that one example can be drawn in a range of one session.

    Every step, unless a sampler knows better. Over several sessions the bounds
    add up: a step that is repeated after a crash is drawn anew.

    Args:
      start_step: First step of the range.
      steps: Number of steps.
    """
    del start_step
    return steps

  def describe(self) -> dict[str, str | int | float]:
    """What the accountant and the ledger need, as plain JSON values."""
    return {
      "kind": self.kind,
      "num_examples": self.num_examples,
      "expected_batch_size": self.expected_batch_size,
    }

  def check_arrays(self, *arrays: np.ndarray) -> list[np.ndarray]:
    """The inputs and labels as arrays of as many rows as are sampled from."""
    arrays = [np.asarray(array) for array in arrays]
    for name, array in zip("xy", arrays):
      if array.shape[:1] != (self.num_examples,):
        raise ValueError(
          f"Expected {name} with num_examples={self.num_examples} rows, as the"
          f" sampler was built for, received shape {array.shape}."
        )
    return arrays

  def batches(
    self,
    x: np.ndarray,
    y: np.ndarray,
    key: randomness.Key,
    start_step: int,
    steps: int,
  ) -> tf.data.Dataset:
    """Logical batches of consecutive steps, ready for a train step.

    Each element is `(x, y, mask)` of shapes `[k, P, ...]`, `[k, P]`, `[k, P]`:
    see `data.batching`. Read it once: a second pass repeats the same draws. In
    Keras, one `fit` with `steps_per_epoch` reads on from epoch to epoch.

    Args:
      x: Inputs, `[n, ...]`, such as `dataset.x_train`.
      y: Labels, `[n]`.
      key: Key of the session; a resumed run has another one.
      start_step: First step, counted from the beginning of the run.
      steps: Number of steps.

    Returns:
      A `tf.data.Dataset` of `steps` elements.
    """
    x, y = self.check_arrays(x, y)
    validate.positive_int(steps=steps)
    validate.non_negative_int(start_step=start_step)
    chunk = (None, self.physical_batch_size)
    return batching.pipeline(
      lambda step: self.element(x, y, self.indices(key, step)),
      (
        tf.TensorSpec((*chunk, *x.shape[1:]), tf.as_dtype(x.dtype)),
        tf.TensorSpec(chunk, tf.as_dtype(y.dtype)),
        tf.TensorSpec(chunk, tf.float32),
      ),
      start_step,
      steps,
    )

  def element(
    self, x: np.ndarray, y: np.ndarray, rows: np.ndarray
  ) -> tuple[np.ndarray, ...]:
    """The logical batch of these rows, see `data.batching`."""
    return batching.gather_chunks(x, y, rows, self.physical_batch_size)

  def rehearsal(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """An element of one whole chunk, made of the given synthetic rows."""
    return self.element(x, y, np.arange(self.physical_batch_size) % len(x))


@dataclasses.dataclass(frozen=True)
class PoissonSampler(Sampler):
  """Draws every example independently with probability q at every step.

  This is the sampling that amplification by Poisson subsampling is proven for:
  dp_accounting's `PoissonSampledDpEvent(sampling_prob, ...)`, composed `steps`
  times, for neighbours that differ in one added or removed example. The size
  of a batch is Binomial(n, q): it may be zero, and it may exceed any physical
  size, in which case the logical batch has more chunks and loses nobody.

  Each example compares its own 53-bit uniform number with q, so its inclusion
  probability is exact to 2^-53 (0.4 ms a step for n = 60,000).

  Attributes:
    num_examples: n.
    sampling_prob: q in (0, 1].
    physical_batch_size: Rows in a chunk; a matter of memory and speed only.
  """

  kind: ClassVar[str] = "poisson"

  sampling_prob: float
  physical_batch_size: int

  def __post_init__(self):
    validate.positive_int(
      num_examples=self.num_examples,
      physical_batch_size=self.physical_batch_size,
    )
    validate.probability(sampling_prob=self.sampling_prob)

  @classmethod
  def from_batch_size(
    cls, num_examples: int, batch_size: float, physical_batch_size: int
  ) -> PoissonSampler:
    """The sampler whose batches have `batch_size` examples on average."""
    validate.positive_int(num_examples=num_examples)
    validate.batch_size(batch_size, num_examples)
    return cls(num_examples, batch_size / num_examples, physical_batch_size)

  @property
  def expected_batch_size(self) -> float:
    """The constant q n; dividing by the drawn size instead would leak it."""
    return self.num_examples * self.sampling_prob

  @property
  def slots(self) -> int:
    """Who is drawn from: the n examples, and canaries of an audit."""
    return self.num_examples

  @property
  def steps_per_epoch(self) -> int:
    """1 / q, to the nearest whole number."""
    return max(1, round(1 / self.sampling_prob))

  @property
  def most_rows(self) -> int:
    """Eight deviations above q n, and 64: exceeded less often than 1e-14.

    Bernstein: with m = q n, P[size >= m + t] <= exp(-t^2 / 2 / (m + t / 3)).
    """
    mean = self.slots * self.sampling_prob
    return min(self.slots, math.ceil(mean + 8 * math.sqrt(mean) + 64))

  def indices(self, key: randomness.Key, step: int) -> np.ndarray:
    """The rows drawn at `step`, in increasing order."""
    uniform = key.child("poisson", step).uniform(self.slots)
    return np.flatnonzero(uniform < self.sampling_prob)

  def describe(self) -> dict[str, str | int | float]:
    """Adds the rate that the accountant composes."""
    return {**super().describe(), "sampling_prob": self.sampling_prob}


@dataclasses.dataclass(frozen=True)
class ShuffleSampler(Sampler):
  """Deals out a fresh permutation each epoch, in a public number of batches.

  With S = steps_per_epoch and b = batch_size, place j of the permutation
  belongs to batch min(j // b, S - 1). Nobody is left out: the last batch takes
  what is left, usually fewer than b. S and b are public constants, the same for
  a neighbouring data set with one example more or fewer, whose last batch then
  has one more or fewer and may be empty. Sums are divided by b whatever a batch
  has, so that no size is revealed.

  This is not Poisson sampling, and the Poisson figure does not apply. What
  holds without any amplification is `privacy.shuffled_sgd`, with its proof.

  With drop_last every batch has b examples, as batch normalisation may want it,
  and the n mod b at the end of a permutation sit that epoch out. This is for
  training without privacy: a neighbour can have one step fewer an epoch, which
  changes every batch that follows, and no figure is known for adding or
  removing one.

  Attributes:
    num_examples: n.
    batch_size: b, the size of every batch but the last, and the divisor.
    physical_batch_size: Rows in a chunk; a matter of memory and speed only.
    steps_per_epoch: S; by default n / b, rounded up.
    drop_last: Whether to leave out an incomplete last batch.
  """

  kind: ClassVar[str] = "shuffle"

  batch_size: int
  physical_batch_size: int
  steps_per_epoch: int | None = None
  drop_last: bool = False

  def __post_init__(self):
    validate.positive_int(
      num_examples=self.num_examples,
      batch_size=self.batch_size,
      physical_batch_size=self.physical_batch_size,
    )
    validate.boolean(drop_last=self.drop_last)
    if self.steps_per_epoch is None:
      validate.batch_size(self.batch_size, self.num_examples)
      whole, rest = divmod(self.num_examples, self.batch_size)
      steps = whole + (rest > 0 and not self.drop_last)
      object.__setattr__(self, "steps_per_epoch", steps)
    validate.positive_int(steps_per_epoch=self.steps_per_epoch)
    whole = self.num_examples // self.batch_size
    if self.drop_last and self.steps_per_epoch > whole:
      raise ValueError(
        f"Expected at most {whole} whole batches of {self.batch_size} from n ="
        f" {self.num_examples} examples, received"
        f" steps_per_epoch={self.steps_per_epoch}. Leave it unset with"
        " drop_last."
      )

  @property
  def expected_batch_size(self) -> float:
    """The public divisor, also of a batch that is shorter."""
    return float(self.batch_size)

  @property
  def most_rows(self) -> int:
    """Those of the last batch may be more than the others."""
    last = self.num_examples - (self.steps_per_epoch - 1) * self.batch_size
    return min(self.num_examples, max(self.batch_size, last))

  def places(self, position: int) -> slice:
    """The places of an epoch's permutation that are its batch `position`."""
    first = position * self.batch_size
    if position == self.steps_per_epoch - 1 and not self.drop_last:
      return slice(first, None)
    return slice(first, first + self.batch_size)

  def indices(self, key: randomness.Key, step: int) -> np.ndarray:
    """The rows of `step`, in the order of its epoch's permutation."""
    epoch, position = divmod(step, self.steps_per_epoch)
    order = _permutation(self.num_examples, key, epoch)
    return order[self.places(position)]

  def max_participations(self, start_step: int, steps: int) -> int:
    """Once in each epoch that the range touches."""
    if steps == 0:
      return 0
    last = start_step + steps - 1
    return last // self.steps_per_epoch - start_step // self.steps_per_epoch + 1

  def describe(self) -> dict[str, str | int | float]:
    """Adds the steps that one example takes part in only once."""
    found = {**super().describe(), "steps_per_epoch": self.steps_per_epoch}
    if self.drop_last:
      found["drop_last"] = True  # No figure is known for it.
    return found


@dataclasses.dataclass(frozen=True)
class FullBatchSampler(Sampler):
  """Takes every example at every step: gradient descent, no amplification.

  Attributes:
    num_examples: n.
    physical_batch_size: Rows in a chunk; a matter of memory and speed only.
  """

  kind: ClassVar[str] = "full_batch"

  physical_batch_size: int

  def __post_init__(self):
    validate.positive_int(
      num_examples=self.num_examples,
      physical_batch_size=self.physical_batch_size,
    )

  @property
  def expected_batch_size(self) -> float:
    """The number of all examples."""
    return float(self.num_examples)

  @property
  def steps_per_epoch(self) -> int:
    """One."""
    return 1

  def indices(self, key: randomness.Key, step: int) -> np.ndarray:
    """All rows, whatever the arguments."""
    del key, step
    return np.arange(self.num_examples)


@functools.lru_cache(maxsize=1)
def _permutation(
  num_examples: int, key: randomness.Key, epoch: int
) -> np.ndarray:
  """An epoch's order, kept until another epoch is asked for."""
  order = key.child("shuffle", epoch).permutation(num_examples)
  order.flags.writeable = False
  return order
