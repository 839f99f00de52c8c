"""Per-example gradients, clipped slice by slice and summed by group."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Callable
from typing import NamedTuple

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.gradients import clipping
from tf_privrob.gradients import factors
from tf_privrob.gradients import recording

Statistics = Callable[..., list[tf.Tensor]]


class SlicedSum(NamedTuple):
  """What a logical batch contributes to one step.

  As `ClippedSum`, but for `gradients` nothing here is private.
  """

  gradients: list[list[tf.Tensor]]
  """[group][variable]: sums over the group's examples."""
  loss: tf.Tensor
  """Sum of the unmasked losses."""
  metrics: dict[str, tf.Tensor]
  """Sums of the loss function's per-example metrics."""
  clipped: tf.Tensor
  """How many slices of gradients were longer than C."""
  count: tf.Tensor
  """How many examples were not masked."""
  dropped: tf.Tensor
  """How many of them added nothing, as in `ClippedSum`."""
  members: tf.Tensor
  """[group]: how many of them are in each group."""
  statistics: list[tf.Tensor]
  """Sums of what `statistics` returned."""


class SlicedGradients(clipping.ClippedGradients):
  """Clips each slice of an example's gradient to C on its own.

  TransDenoiser trains three slices of the parameters as if they were three
  processes (its appendix L). They are not: all of them are released, so that
  one example moves the whole by up to sqrt(K) C in the l2 norm, which is what
  `sensitivity` says. With `joint` the whole gradient is clipped to C.

  Groups: a Boolean metric of the loss function, `group`, splits the examples;
  those where it is true are group 0, the others group 1. Each sum alone has the
  same sensitivity, and so have both together, an example being in one group.

  Args:
    loss_fn: as for `ClippedGradients`.
    network: whose trainable weights are trained.
    l2_clip_norm: C.
    slices: variables of the network, each in exactly one slice.
    joint: clip over all slices together.
    group: name of the metric; None: all examples are one group.
    statistics: `statistics(batch, coefficients)` with the clipping coefficients
      a_i = min(1, C / |g_i|) of the examples of group 0, [B, K], 0 elsewhere;
      returns tensors that are summed over the chunks of a batch.
    engine: as for `ClippedGradients`.
    jit_compile: as for `ClippedGradients`.
    assume_row_wise: as for `ClippedGradients`.
    most_rows: as for `ClippedGradients`.
  """

  def __init__(
    self,
    loss_fn: clipping.LossFn,
    network: tf.keras.layers.Layer,
    l2_clip_norm: float,
    slices: Sequence[Sequence[tf.Variable]],
    joint: bool = False,
    group: str | None = None,
    statistics: Statistics | None = None,
    engine: str | None = None,
    jit_compile: bool = False,
    assume_row_wise: bool = False,
    most_rows: int | None = None,
  ):
    super().__init__(
      loss_fn,
      network,
      l2_clip_norm,
      engine,
      jit_compile,
      assume_row_wise,
      most_rows,
    )
    self.num_slices = len(slices)
    require_partition(slices, self.variables)
    number = {v.ref(): k for k, part in enumerate(slices) for v in part}
    self.slice_of = [number[variable.ref()] for variable in self.variables]
    self._joint = joint
    self._group = group
    self._statistics = statistics or (lambda batch, coefficients: [])

  def sensitivity(self, neighbouring: str = "add_or_remove_one") -> float:
    """Of all slices together: C, or sqrt(K) C if each is clipped alone."""
    slices = 1 if self._joint else self.num_slices
    return math.sqrt(slices) * super().sensitivity(neighbouring)

  def _sum(self, batch, mask, seed) -> SlicedSum:
    found, losses, metrics = self._per_example(batch, seed)
    by_slice = self._norms_by_slice(found)
    largest = tf.reduce_sum(by_slice, axis=1)  # finite if all of them are
    bad = clipping.bad_rows(largest, losses, metrics)
    kept = tf.where(bad, 0.0, mask)
    coefficients = tf.where(  # a of Eq. 31
      bad[:, tf.newaxis], 0.0, self._clip_factors(by_slice)
    )
    groups = self._groups(kept, metrics)
    sums = factors.without(bad, found)
    longer = tf.cast(by_slice > self.l2_clip_norm, mask.dtype)
    return SlicedSum(
      gradients=[
        [
          factor.weighted_sum(members * coefficients[:, k], self._block)
          for factor, k in zip(sums, self.slice_of)
        ]
        for members in groups
      ],
      loss=clipping.sum_of(losses, kept),
      metrics={
        name: clipping.sum_of(metric, kept) for name, metric in metrics.items()
      },
      clipped=tf.reduce_sum(kept[:, tf.newaxis] * longer),
      count=tf.reduce_sum(mask),
      dropped=tf.reduce_sum(mask - kept),
      members=tf.stack([tf.reduce_sum(members) for members in groups]),
      statistics=self._statistics(
        [factors.zero_rows(bad, tensor) for tensor in batch],
        groups[0][:, tf.newaxis] * coefficients / (1 - self._margin),
      ),
    )

  def _norms_by_slice(self, found) -> tf.Tensor:
    """[batch, slices]; with `joint` the norm of the whole, again and again."""
    squares = [factor.squared_norms() for factor in found]
    if self._joint:
      return tf.stack([factors.norms(squares)] * self.num_slices, axis=1)
    parts = [
      [square for square, s in zip(squares, self.slice_of) if s == k]
      for k in range(self.num_slices)
    ]
    return tf.stack([factors.norms(part) for part in parts], axis=1)

  def _groups(self, kept, metrics) -> list[tf.Tensor]:
    """One mask a group."""
    if self._group is None:
      return [kept]
    first = tf.cast(metrics[self._group], tf.bool)
    return [tf.where(first, kept, 0.0), tf.where(first, 0.0, kept)]


def require_partition(
  slices: Sequence[Sequence[tf.Variable]], variables: Sequence[tf.Variable]
) -> None:
  """Refuses slices that do not hold each trainable variable exactly once."""
  names = {variable.ref(): variable.name for variable in variables}
  given = collections.Counter(v.ref() for part in slices for v in part)
  strange = [r.deref().name for r in given if r not in names]
  double = [r.deref().name for r in given if given[r] > 1]
  missing = [name for ref, name in names.items() if ref not in given]
  empty = [index for index, part in enumerate(slices) if not len(part)]
  if strange or double or missing or empty or not len(slices):
    raise ValueError(
      "Expected each trainable variable in exactly one slice. Not trainable"
      f" variables: {strange}; more than once: {double}; missing: {missing};"
      f" empty slices: {empty}."
    )


def layer_slices(
  network: tf.keras.layers.Layer, count: int = 3
) -> list[list[tf.Variable]]:
  """Splits the trainable variables by layers, in the order of the network.

  As in TransDenoiser's appendix L: the first layer, those in between, the last
  layer; with `count` > 3 those in between are dealt into `count` - 2 runs of
  about equal length.

  Raises:
    ValueError: if there are fewer layers with weights than slices.
  """
  validate.positive_int(count=count)
  order = {v.ref(): n for n, v in enumerate(network.trainable_variables)}
  layers = sorted(
    recording.layers_with_weights(network),
    key=lambda layer: order[layer.trainable_variables[0].ref()],
  )
  if len(layers) < count:
    raise ValueError(
      f"Expected at least {count} layers with trainable weights for {count}"
      f" slices, received {len(layers)}. Lower num_slices."
    )
  if count < 3:
    groups = [layers] if count == 1 else [layers[:1], layers[1:]]
  else:
    middle = layers[1:-1]
    bounds = [len(middle) * k // (count - 2) for k in range(count - 1)]
    runs = [middle[a:b] for a, b in zip(bounds, bounds[1:])]
    groups = [layers[:1], *runs, layers[-1:]]
  return [
    [variable for layer in group for variable in layer.trainable_variables]
    for group in groups
  ]
