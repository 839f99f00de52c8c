"""Sums of per-example gradients, each clipped jointly over all variables."""

from __future__ import annotations

import collections
import copy
import sys
import warnings
from collections.abc import Sequence
from typing import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.gradients import checking
from tf_privrob.gradients import draws
from tf_privrob.gradients import endings
from tf_privrob.gradients import factors
from tf_privrob.gradients import places
from tf_privrob.gradients import recording
from tf_privrob.gradients import rules
from tf_privrob.gradients import state
from tf_privrob.gradients import vectorizing
from tf_privrob.models import precision
from tf_privrob.models import row_wise

ENGINES = ("ghost", "vectorized", "loop")
NEIGHBOURING = ("add_or_remove_one", "replace_one")

LossFn = Callable[..., tf.Tensor]
Plant = Callable[[list[factors.Factor], tf.Tensor], list[factors.Factor]]

_NOT_VECTORIZED = (
  "The examples are taken one after the other, which is slower: {} is not known"
  " to keep examples apart when a pass is vectorised."
)
_BY_PLACE = (
  "A row of this network may come out otherwise at another place of its batch"
  " ({}), so that gradients are computed one example after the other, which"
  " takes several times as long. Usual cause: an average over pixels of"
  " channels that are no multiple of 16."
)


class ClippedSum(NamedTuple):
  """What a logical batch contributes to one step.

  Everything but `gradients` describes private data without any noise: it may
  be shown only as `nonprivate/`.
  """

  gradients: list[tf.Tensor]
  """sum_i min(1, C / |g_i|) g_i, one tensor a variable."""
  loss: tf.Tensor
  """Sum of the unmasked losses."""
  metrics: dict[str, tf.Tensor]
  """Sums of the loss function's per-example metrics."""
  clipped: tf.Tensor
  """How many gradients were longer than C."""
  count: tf.Tensor
  """How many examples were not masked."""
  dropped: tf.Tensor
  """How many of them added nothing, as their gradient, loss or a metric was not
  finite."""


class ClippedGradients:
  """Clipped gradients of a per-example loss, and their sensitivity.

  Guarantee: for inputs that differ by one example, the sums differ by at most
  `sensitivity(neighbouring)` in the l2 norm over all variables together:
  C = `l2_clip_norm` when one example is added or removed, 2 C when one is
  replaced (Abadi et al. 2016, Algorithm 1). It holds if each loss depends on
  its own example only. The engines "vectorized" and "loop" show the loss one
  example at a time, whatever it does; "ghost" shows it the whole batch, and is
  taken only for networks that are known to act row by row (`not_row_wise`).
  The loss function around the network is the caller's: `check` tries to make
  it mix examples.

  A row whose gradient, loss or metric is not finite adds nothing, whatever the
  others are: what one example is decides about itself only.

  All terms of one example (clean, adversarial, several noisy copies) are one
  loss and hence one gradient. A loss may call the network several times on
  [B, ...] or once on [B * k, ...] with the k copies of an example next to each
  other (`tf.repeat`); `tf.concat([x, x_adv], 0)` puts them apart and is
  refused by `check`.

  Args:
    loss_fn: `loss_fn(batch, seed)` for a tuple of tensors that share their
      first axis of B examples and a stateless seed of shape [2]; returns the
      losses [B], or losses and a dict of per-example metrics [B].
    network: the layer or model whose trainable weights are trained. Its
      weights must exist (call or build it first).
    l2_clip_norm: C.
    engine: "ghost" works in factored form (`factors`), "vectorized" forms all
      per-example gradients by `tf.vectorized_map`, "loop" one after the other.
      None takes "ghost" if every variable belongs to a layer and the network
      is known to act row by row, else "vectorized". The engine never changes
      the result where each example stands alone. `check` takes "loop" where a
      row comes out otherwise at another place.
    jit_compile: compiles the sum with XLA. It pays on a GPU; convolutions on a
      CPU become several times slower.
    assume_row_wise: the caller's word that a network of unknown layers acts row
      by row. Then `check`, which only tries, is all that stands behind it.
    most_rows: the most examples that a logical batch can have, which the
      precision of sums follows (`factors.summing`). None: one chunk, or any
      number of chunks in float64.

  Attributes:
    may_end: an operation by which one example may end the training, which
      `check` looks for; None if there is none.
  """

  def __init__(
    self,
    loss_fn: LossFn,
    network: tf.keras.layers.Layer,
    l2_clip_norm: float,
    engine: str | None = None,
    jit_compile: bool = False,
    assume_row_wise: bool = False,
    most_rows: int | None = None,
  ):
    validate.positive(l2_clip_norm=l2_clip_norm)
    self._block, self._margin = factors.summing(most_rows or sys.maxsize)
    self._refuse(network)
    self.l2_clip_norm = float(l2_clip_norm)
    self.variables = list(network.trainable_variables)
    if not self.variables:
      raise ValueError(
        "Expected a network with trainable weights, received none. Build the"
        " network (call it once) and leave at least one layer trainable."
      )
    self._loss_fn = loss_fn
    self._network = network
    self._layers = recording.layers_with_weights(network)
    self.engine = self._choose(engine, assume_row_wise)
    self._jit_compile = jit_compile
    self._plant: Plant | None = None
    self.may_end: str | None = None
    self._compile()

  def _compile(self) -> None:
    self._compiled_sum = (
      tf.function(self._sum, jit_compile=True)
      if self._jit_compile
      else self._sum
    )

  def planting(self, plant: Plant) -> ClippedGradients:
    """The same for rows that have gradients of an auditor's making.

    From there on they go the way of all others: norms, clipping, sums.

    Args:
      plant: Makes them of the factors that the rows would have, and of the last
        tensor of a batch, which tells whose they are and is zero to the loss.
    """
    found = copy.copy(self)
    found._plant = plant
    found._loss_fn = lambda batch, seed: self._loss_fn(
      (*batch[:-1], tf.zeros_like(batch[-1])), seed
    )
    found._compile()
    return found

  def _choose(self, engine: str | None, assume_row_wise: bool) -> str:
    """The engine; "ghost" only where it is known to keep examples apart."""
    covered = {w.ref() for la in self._layers for w in la.trainable_weights}
    complete = all(v.ref() in covered for v in self.variables)
    mixing = None if assume_row_wise else row_wise.not_row_wise(self._network)
    known = complete and mixing is None
    engine = engine or ("ghost" if known else "vectorized")
    validate.one_of(ENGINES, engine=engine)
    if engine == "ghost" and not complete:
      raise ValueError(
        "Expected every trainable variable to belong to a layer for"
        " engine='ghost'. Use engine='vectorized'."
      )
    if engine == "ghost" and not known:
      raise ValueError(
        "Expected a network that is known to act row by row for engine='ghost',"
        f" received one with {mixing}. Use engine=None, which then takes the"
        " examples one by one."
      )
    return engine

  def _refuse(self, network: tf.keras.layers.Layer) -> None:
    """Refuses layers whose gradients cannot be clipped one by one."""
    state.refuse_batch_normalization(network)
    state.refuse_stateful_layers(network)
    _require_float32(network)

  def sensitivity(self, neighbouring: str = "add_or_remove_one") -> float:
    """Largest l2 distance between the sums of two neighbouring batches."""
    validate.one_of(NEIGHBOURING, neighbouring=neighbouring)
    return self.l2_clip_norm * (2.0 if neighbouring == "replace_one" else 1.0)

  def __call__(
    self,
    batch: Sequence[tf.Tensor],
    mask: tf.Tensor | None = None,
    seed: tf.Tensor | None = None,
  ) -> ClippedSum:
    """The clipped sum of one physical batch; rows with mask 0 add nothing."""
    batch = tuple(batch)
    mask = tf.ones([batch[0].shape[0]]) if mask is None else mask
    seed = tf.zeros([2], tf.int32) if seed is None else seed
    found = self._compiled_sum(batch, mask, seed)
    rounded = tf.nest.map_structure(_float32, found.gradients)
    return found._replace(gradients=rounded)

  def _sum(self, batch, mask, seed) -> ClippedSum:
    found, losses, metrics = self._per_example(batch, seed)
    norms = factors.norms([factor.squared_norms() for factor in found])
    bad = bad_rows(norms, losses, metrics)
    kept = tf.where(bad, 0.0, mask)
    weights = tf.where(bad, 0.0, kept * self._clip_factors(norms))
    return ClippedSum(
      gradients=[
        factor.weighted_sum(weights, self._block)
        for factor in factors.without(bad, found)
      ],
      loss=sum_of(losses, kept),
      metrics={name: sum_of(metric, kept) for name, metric in metrics.items()},
      clipped=tf.reduce_sum(tf.where(norms > self.l2_clip_norm, kept, 0)),
      count=tf.reduce_sum(mask),
      dropped=tf.reduce_sum(mask - kept),
    )

  def _clip_factors(self, norms: tf.Tensor) -> tf.Tensor:
    """min(1, C / |g|), less the margin for rounding."""
    bound = self.l2_clip_norm
    return (1 - self._margin) * bound / tf.maximum(norms, bound)

  def over_chunks(
    self,
    chunks: Sequence[tf.Tensor],
    mask: tf.Tensor,
    seed: tf.Tensor | None = None,
  ) -> ClippedSum:
    """The clipped sum of a logical batch that comes in physical chunks.

    Gradients are added up in float64, which is what noise is added to.

    Args:
      chunks: tensors [k, P, ...]; memory grows with P, not with k.
      mask: [k, P].
      seed: shape [2]; every chunk gets a seed of its own.
    """
    chunks = tuple(chunks)
    seed = tf.zeros([2], tf.int32) if seed is None else seed

    def one(index):
      return self._compiled_sum(
        tuple(tensor[index] for tensor in chunks),
        mask[index],
        randomness.fold_in(seed, index),
      )

    if tf.inside_function():
      one = tf.function(one)  # traced once for both of its places

    def body(index, total):
      return index + 1, tf.nest.map_structure(tf.add, total, one(index))

    _, total = tf.while_loop(
      lambda index, _: index < tf.shape(mask)[0],
      body,
      (tf.constant(1), one(tf.constant(0))),
      parallel_iterations=1,
    )
    return total

  def norms(self, batch, seed: tf.Tensor | None = None) -> tf.Tensor:
    """Per-example gradient norms [B] before clipping (not private)."""
    seed = tf.zeros([2], tf.int32) if seed is None else seed
    found = self._per_example(tuple(batch), seed)[0]
    return factors.norms([factor.squared_norms() for factor in found])

  def check(
    self,
    batch: Sequence[tf.Tensor],
    seed: tf.Tensor | None = None,
    sizes: Sequence[int] = (5, 16),
    rows: int = 2 * places.PACKET,
  ) -> None:
    """Refuses what would leave state behind or mix examples, before a step.

    Methods call it with a few synthetic examples, so it costs no privacy. For
    every engine: a pass that writes anything is refused (`refuse_state`). For
    "ghost", which shows the loss the whole batch: rows are replaced, and what
    belongs to the others must not change (`checking`). Randomness must follow
    `seed`, or be that of Keras' own layers.

    "vectorized" is left for "loop", with a warning, where an operation of an
    example's pass is not known to keep rows apart in its vectorised form
    (`vectorizing`).

    A batch of the real size is also filled with one row. Where one of its rows
    comes out otherwise by a single bit in any tensor of the pass, as sums over
    pixels of 9 channels do on some processors, a kink could make clip norms of
    it: the engine then becomes "loop", with a warning (`places`).

    In the pass that is left, an operation by which one example may end the
    training is looked for, and named in `may_end` (`endings`).

    Args:
      batch: whose shapes, types and ranges of values are those of the data.
      seed: shape [2].
      sizes: of the batches to try.
      rows: of a real batch; the very pass of such a batch is looked at.

    Raises:
      ValueError: something is written, a loss depends on other examples of the
        batch, or copies of an example are not next to each other.
    """
    batch = tuple(tf.convert_to_tensor(tensor) for tensor in batch)
    seed = tf.zeros([2], tf.int32) if seed is None else seed
    real = tuple(
      tf.TensorSpec([rows, *tensor.shape[1:]], tensor.dtype) for tensor in batch
    )
    traced = (real, tf.TensorSpec([2], seed.dtype))
    engine = self.engine
    whole = state.refuse_state(self._pass, self._network, traced, (batch, seed))
    if self.engine != "ghost":
      # What a vectorised pass leaves out, another engine might not.
      few = (tuple(tensor[:1] for tensor in batch), seed)
      alone = state.refuse_state(
        self._gradients_of_all, self._network, few, few
      )
      unknown = vectorizing.unknown(alone.graph)
      if self.engine == "vectorized" and unknown:
        warnings.warn(_NOT_VECTORIZED.format(unknown), stacklevel=2)
        self.engine = "loop"
    else:
      for size in sizes:
        tried = tf.function(self._rows_and_sums)
        checking.replace_rows(tried, self.variables, batch, seed, size)
      if self._jit_compile:
        checking.replace_others(self._compiled_sum, batch, seed, min(sizes))
    if self.engine != "loop":
      by_place = places.sum_by_place(whole.graph, rows)
      by_place = by_place or self._by_place(batch, seed, rows, whole)
      if by_place is not None:
        warnings.warn(_BY_PLACE.format(by_place), stacklevel=2)
        self.engine = "loop"
    if self.engine != engine:
      whole = tf.function(self._pass).get_concrete_function(*traced)
    self.may_end = endings.in_graph(
      whole.graph,
      [t for t in whole.graph.inputs[: len(batch)] if t.dtype.is_floating],
    )

  def _by_place(self, batch, seed, size: int, whole) -> str | None:
    """Names what goes by place, at random weights, which hide nothing."""
    examples = checking.random_rows(batch, places.TRIALS)
    seeds = np.random.default_rng(3).integers(0, 2**31, (places.TRIALS, 2))
    # As it is run, operations may be joined, by XLA or before it.
    run = (
      tf.function(self._pass, jit_compile=True) if self._jit_compile else whole
    )
    with checking.random_weights(self.variables, 1.0):
      found = places.differing(
        lambda *rows: self._pass(rows[:-1], rows[-1]),
        examples,
        size,
        seeds.astype(seed.dtype.as_numpy_dtype),
      )
      if found is None and not places.draws(whole.graph):
        if places.differing_results(
          lambda *rows: run(rows, seed), [rows[:4] for rows in examples], size
        ):
          found = "operations that are run as one"
    return found

  def _pass(self, batch, seed):
    """All that a real batch is put through before its sum is taken."""
    found, losses, metrics = self._per_example(batch, seed)
    return [factor.tensors for factor in found], losses, metrics

  def _gradients_of_all(self, batch, seed):
    """Forward and backward pass, as a whole."""
    with tf.GradientTape() as tape:
      losses, _ = self._losses(batch, seed)
    return recording.dense_gradients(tape, losses, self.variables)

  def _rows_and_sums(self, batch, seed):
    """All that belongs to a row; a sum of gradients, also by its definition."""
    tape = tf.GradientTape(persistent=True)
    calls, losses, metrics = self._forward(batch, seed, tape)
    found = self._factored(calls, losses, tape, seed)
    norms = factors.norms([factor.squared_norms() for factor in found])
    weights = self._clip_factors(norms)
    rows = [tensor for factor in found for tensor in factor.tensors]
    return (
      [*rows, weights, losses, *metrics.values()],
      [_float32(factor.weighted_sum(weights)) for factor in found],
      recording.dense_gradients(tape, losses, self.variables, weights),
    )

  def _per_example(self, batch, seed):
    """Factors (one a variable), losses and metrics."""
    if self.engine != "ghost":
      found, losses, metrics = self._one_by_one(batch, seed)
    else:
      tape = tf.GradientTape(watch_accessed_variables=False)
      calls, losses, metrics = self._forward(batch, seed, tape)
      found = self._factored(calls, losses, tape, seed)
    if self._plant is not None:
      found = self._plant(found, batch[-1])
    return found, losses, metrics

  def _losses(self, batch, seed):
    """Runs the loss function and checks what it returns."""
    with draws.following(self._network, seed):
      result = self._loss_fn(batch, seed)
    losses, metrics = result if isinstance(result, tuple) else (result, {})
    if losses.shape.rank != 1 or losses.shape[0] != batch[0].shape[0]:
      raise ValueError(
        f"Expected one loss per example, shape [{batch[0].shape[0]}], received"
        f" shape {losses.shape}. Use a loss with reduction='none' and do not"
        " average over the batch; the batch size must be static."
      )
    if losses.dtype != tf.float32:
      raise ValueError(
        f"Expected losses in float32, received {losses.dtype.name}. Cast the"
        " network's outputs to float32 before the loss."
      )
    return losses, metrics

  def _forward(self, batch, seed, tape):
    with tape, recording.record(self._layers, tape) as calls:
      losses, metrics = self._losses(batch, seed)
    return calls, losses, metrics

  def _factored(self, calls, losses, tape, seed) -> list[factors.Factor]:
    """Each variable's per-example gradients, over all calls that use it."""
    deltas = tape.gradient(losses, [call.output for call in calls])
    by_variable = collections.defaultdict(list)
    for call, delta in zip(calls, deltas):
      if delta is None:  # e.g. calls made to craft an attack
        continue
      delta = tf.cast(delta, losses.dtype)
      with draws.following(self._network, seed):
        contributions = rules.rule_for(call.layer)(call, delta)
      for variable, factor in contributions:
        folded = factors.fold_copies(factor, losses.shape[0])
        by_variable[variable.ref()].append(folded)
    return [
      factors.combine(by_variable[variable.ref()])
      if by_variable[variable.ref()]
      else factors.Materialised(
        tf.zeros([losses.shape[0], *variable.shape], losses.dtype)
      )
      for variable in self.variables
    ]

  def _one_by_one(self, batch, seed):
    """Gradients of batches of one: each loss sees its own example only."""

    def one(example):
      tensors, index = example
      row_seed = randomness.fold_in(seed, index)
      with tf.GradientTape() as tape:
        losses, metrics = self._losses(
          tuple(tensor[tf.newaxis] for tensor in tensors), row_seed
        )
      gradients = recording.dense_gradients(tape, losses, self.variables)
      return gradients, losses[0], {k: v[0] for k, v in metrics.items()}

    rows = tf.range(batch[0].shape[0])
    if self.engine == "vectorized":
      gradients, losses, metrics = tf.vectorized_map(one, (batch, rows))
    else:
      first = tf.nest.map_structure(lambda t: t[0], (batch, rows))
      signature = tf.nest.map_structure(tf.TensorSpec.from_tensor, one(first))
      gradients, losses, metrics = tf.map_fn(
        one, (batch, rows), fn_output_signature=signature
      )
    found = [
      factors.Materialised(tf.reshape(gradient, [-1, *variable.shape]))
      for gradient, variable in zip(gradients, self.variables)
    ]
    return found, losses, metrics


def _float32(tensor: tf.Tensor) -> tf.Tensor:
  return tf.cast(tensor, tf.float32)


def bad_rows(norms, losses, metrics) -> tf.Tensor:
  """Rows that add nothing, since something of theirs is not finite."""
  values = [norms, losses, *metrics.values()]
  finite = [
    tf.math.is_finite(value) for value in values if value.dtype.is_floating
  ]
  return tf.logical_not(tf.reduce_all(tf.stack(finite), axis=0))


def sum_of(values: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
  """Over the rows that are kept; others may hold anything."""
  values = tf.cast(values, kept.dtype)
  return tf.reduce_sum(tf.where(kept > 0, kept * values, 0.0))


def _require_float32(network: tf.keras.layers.Layer) -> None:
  """Refuses a precision that bounds on rounding do not hold for."""
  for variable in network.trainable_variables:
    if variable.dtype != tf.float32:
      raise ValueError(
        f"Expected weights in float32, received {variable.name!r} in"
        f" {variable.dtype.name}: norms are bounded for float32. Build the"
        " network with the dtype policy 'float32' or 'mixed_bfloat16'."
      )
  precision.require_whole_products(
    "a clipped gradient could be longer than l2_clip_norm"
  )
  shortened = tf.config.experimental.tensor_float_32_execution_enabled()
  if shortened and tf.config.list_physical_devices("GPU"):
    raise ValueError(
      "Expected products in float32, received a GPU that may shorten them to 11"
      " bits (TensorFloat-32), by which a clipped gradient could be longer than"
      " l2_clip_norm. Call"
      " tf.config.experimental.enable_tensor_float_32_execution(False) first."
    )
