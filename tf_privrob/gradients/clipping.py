"""Sums of per-example gradients, each clipped jointly over all variables."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Callable
from typing import NamedTuple

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.gradients import factors
from tf_privrob.gradients import recording
from tf_privrob.gradients import rules

ENGINES = ("ghost", "vectorized", "loop")
NEIGHBOURING = ("add_or_remove_one", "replace_one")

# Clipped norms stay below the bound in spite of float32 rounding.
ROUNDING_MARGIN = 1 - 1e-6

LossFn = Callable[..., tf.Tensor]


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


class ClippedGradients:
  """Clipped gradients of a per-example loss, and their sensitivity.

  Guarantee: for inputs that differ by one example, the sums differ by at most
  `sensitivity(neighbouring)` in the l2 norm over all variables together:
  C = `l2_clip_norm` when one example is added or removed, 2 C when one is
  replaced (Abadi et al. 2016, Algorithm 1). It holds if each loss depends on
  its own example only; `check` compares the engine with the definition on a
  given batch and catches losses that mix examples.

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
      None takes "ghost" unless a variable belongs to no layer. The engine
      never changes the result.
    jit_compile: compiles the sum with XLA. It pays on a GPU; convolutions on a
      CPU become several times slower.
  """

  def __init__(
    self,
    loss_fn: LossFn,
    network: tf.keras.layers.Layer,
    l2_clip_norm: float,
    engine: str | None = None,
    jit_compile: bool = False,
  ):
    validate.positive(l2_clip_norm=l2_clip_norm)
    self._refuse(network)
    self.l2_clip_norm = float(l2_clip_norm)
    self.variables = list(network.trainable_variables)
    if not self.variables:
      raise ValueError(
        "Expected a network with trainable weights, received none. Build the"
        " network (call it once) and leave at least one layer trainable."
      )
    self._loss_fn = loss_fn
    self._layers = recording.layers_with_weights(network)
    covered = {w.ref() for la in self._layers for w in la.trainable_weights}
    complete = all(v.ref() in covered for v in self.variables)
    self.engine = engine or ("ghost" if complete else "vectorized")
    validate.one_of(ENGINES, engine=self.engine)
    if self.engine == "ghost" and not complete:
      raise ValueError(
        "Expected every trainable variable to belong to a layer for"
        " engine='ghost'. Use engine='vectorized'."
      )
    self._compiled_sum = (
      tf.function(self._sum, jit_compile=True) if jit_compile else self._sum
    )

  def _refuse(self, network: tf.keras.layers.Layer) -> None:
    """Refuses layers whose gradients cannot be clipped one by one."""
    refuse_batch_normalization(network)

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
    total = self._compiled_sum(batch, mask, seed)
    # A gradient that is not finite stays so through norm, factor and sum.
    checked = tf.nest.map_structure(
      lambda gradient: tf.debugging.assert_all_finite(
        gradient,
        "A per-example gradient is NaN or infinite, so it cannot be clipped."
        " The weights diverged or the loss overflows: lower the learning rate.",
      ),
      total.gradients,
    )
    return total._replace(gradients=checked)

  def _sum(self, batch, mask, seed) -> ClippedSum:
    found, norms, losses, metrics = self._per_example(batch, seed)
    factor = self.l2_clip_norm / tf.maximum(norms, self.l2_clip_norm)
    weights = mask * ROUNDING_MARGIN * factor
    return ClippedSum(
      gradients=[factor.weighted_sum(weights) for factor in found],
      loss=tf.reduce_sum(mask * losses),
      metrics=sums(metrics, mask),
      clipped=tf.reduce_sum(tf.where(norms > self.l2_clip_norm, mask, 0)),
      count=tf.reduce_sum(mask),
    )

  def over_chunks(
    self,
    chunks: Sequence[tf.Tensor],
    mask: tf.Tensor,
    seed: tf.Tensor | None = None,
  ) -> ClippedSum:
    """The clipped sum of a logical batch that comes in physical chunks.

    Args:
      chunks: tensors [k, P, ...]; memory grows with P, not with k.
      mask: [k, P].
      seed: shape [2]; every chunk gets a seed of its own.
    """
    chunks = tuple(chunks)
    seed = tf.zeros([2], tf.int32) if seed is None else seed

    def one(index):
      return self(
        [tensor[index] for tensor in chunks],
        mask[index],
        tf.random.experimental.stateless_fold_in(seed, index),
      )

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
    return self._per_example(tuple(batch), seed)[1]

  def check(self, batch, seed: tf.Tensor | None = None) -> None:
    """Compares every example's gradient with the definition, on one batch.

    Methods call it with a few synthetic examples before the first step, so it
    costs no privacy. The other engines see one example at a time and need none.

    Raises:
      ValueError: a loss depends on other examples of the batch, or copies of
        an example are not next to each other.
    """
    if self.engine != "ghost":
      return
    batch = tuple(tf.convert_to_tensor(tensor) for tensor in batch)
    seed = tf.zeros([2], tf.int32) if seed is None else seed
    inputs = [tensor for tensor in batch if tensor.dtype.is_floating]
    tape = tf.GradientTape(persistent=True)
    with tape:
      tape.watch(inputs)
    calls, losses, _ = self._forward(batch, seed, tape)
    attributed = [
      factor.materialise().gradients
      for factor in self._factored(calls, losses, tape)
    ]
    for row, indicator in enumerate(tf.eye(losses.shape[0])):
      expected = _gradients(tape, losses, self.variables, indicator)
      found = [gradient[row] for gradient in attributed]
      misattributed = _relative_distance(found, expected)
      by_input = _gradients(tape, losses, inputs, indicator)
      own = [_only_row(gradient, row) for gradient in by_input]
      if max(misattributed, _relative_distance(own, by_input)) > 1e-3:
        raise ValueError(
          "Expected a loss in which each example stands alone, but the loss of"
          f" example {row} depends on others, or its gradient was attributed to"
          " others, so clipping would not bound one example's influence. Usual"
          " causes: a layer or a loss that mixes the batch (batch statistics, a"
          " mean over the batch), a weight used outside its own layer, or"
          " copies joined by tf.concat, not tf.repeat."
        )

  def _per_example(self, batch, seed):
    """Factors (one a variable), norms, losses and metrics."""
    if self.engine == "ghost":
      tape = tf.GradientTape(watch_accessed_variables=False)
      calls, losses, metrics = self._forward(batch, seed, tape)
      found = self._factored(calls, losses, tape)
    else:
      found, losses, metrics = self._one_by_one(batch, seed)
    return found, norms(found), losses, metrics

  def _losses(self, batch, seed):
    """Runs the loss function and checks what it returns."""
    result = self._loss_fn(batch, seed)
    losses, metrics = result if isinstance(result, tuple) else (result, {})
    if losses.shape.rank != 1 or losses.shape[0] != batch[0].shape[0]:
      raise ValueError(
        f"Expected one loss per example, shape [{batch[0].shape[0]}], received"
        f" shape {losses.shape}. Use a loss with reduction='none' and do not"
        " average over the batch; the batch size must be static."
      )
    return losses, metrics

  def _forward(self, batch, seed, tape):
    with tape, recording.record(self._layers, tape) as calls:
      losses, metrics = self._losses(batch, seed)
    return calls, losses, metrics

  def _factored(self, calls, losses, tape) -> list[factors.Factor]:
    """Each variable's per-example gradients, over all calls that use it."""
    deltas = tape.gradient(losses, [call.output for call in calls])
    by_variable = collections.defaultdict(list)
    for call, delta in zip(calls, deltas):
      if delta is None:  # e.g. calls made to craft an attack
        continue
      delta = tf.cast(delta, losses.dtype)
      for variable, factor in rules.rule_for(call.layer)(call, delta):
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
      row_seed = tf.random.experimental.stateless_fold_in(seed, index)
      with tf.GradientTape() as tape:
        losses, metrics = self._losses(
          tuple(tensor[tf.newaxis] for tensor in tensors), row_seed
        )
      gradients = _gradients(tape, losses, self.variables)
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
    return [factors.Materialised(g) for g in gradients], losses, metrics


def norms(found: Sequence[factors.Factor]) -> tf.Tensor:
  """|g_i| over all variables; in float64 where float32 squares overflow."""

  def computed_in(dtype):
    squares = tf.add_n([factor.squared_norms(dtype) for factor in found])
    return tf.cast(tf.sqrt(squares), tf.float32)

  single = computed_in(tf.float32)
  return tf.cond(
    tf.reduce_all(tf.math.is_finite(single)),
    lambda: single,
    lambda: computed_in(tf.float64),
  )


def sums(metrics, mask) -> dict[str, tf.Tensor]:
  """Of per-example metrics, over the rows that are not masked."""
  return {
    name: tf.reduce_sum(mask * tf.cast(metric, mask.dtype))
    for name, metric in metrics.items()
  }


def _gradients(tape, losses, variables, weights=None) -> list[tf.Tensor]:
  """Dense gradients of sum_i weights_i losses_i."""
  gradients = tape.gradient(
    losses,
    variables,
    output_gradients=weights,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
  return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _relative_distance(found, expected) -> float:
  distance = tf.linalg.global_norm([f - e for f, e in zip(found, expected)])
  return float(distance / (tf.linalg.global_norm(expected) + 1e-6))


def _only_row(tensor: tf.Tensor, row: int) -> tf.Tensor:
  """The tensor with every other row zero."""
  return tf.scatter_nd([[row]], tensor[row : row + 1], tensor.shape)


def refuse_batch_normalization(network: tf.keras.layers.Layer) -> None:
  """Raises where a batch statistic would tie the examples together."""
  for layer in [network, *network.submodules]:
    if (
      isinstance(layer, tf.keras.layers.BatchNormalization) and layer.trainable
    ):
      raise ValueError(
        f"Expected per-example layers, received BatchNormalization"
        f" {layer.name!r}: it normalises by statistics of the whole batch, so"
        " no example's gradient can be clipped on its own and its moving"
        " averages store data without noise. Replace it by"
        " GroupNormalization or LayerNormalization, or freeze it"
        " (trainable=False)."
      )
