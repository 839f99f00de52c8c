"""Seeds of an attack, and randomised models: how a draw reaches the model.

A logits function is `fn(x)` or, where the model draws noise, `fn(x, seed)`
with `seed` a shape-[2] int32 tensor. Attacks hand a fresh seed to every step,
derived from their own seed by folding in the numbers of the restart and of
the step, so that a `tf.while_loop` needs no state and the same seed always
gives the same adversarial examples.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from typing import Any
from typing import Callable

import tensorflow as tf

from tf_privrob import validate

_LOW_BITS = 0x7FFFFFFF


def as_seed(seed: Any) -> tf.Tensor:
  """Turns an int, or a shape-[2] int tensor, into a shape-[2] int32 tensor."""
  if isinstance(seed, int) and not isinstance(seed, bool):
    seed = tf.constant(seed, tf.int64)
  seed = tf.convert_to_tensor(seed)
  if not seed.dtype.is_integer or seed.shape.as_list() not in ([], [2]):
    raise ValueError(
      "Expected seed to be an int or an int tensor of shape [2], received"
      f" dtype {seed.dtype.name} and shape {seed.shape}."
    )
  if seed.shape.rank == 0:
    wide = tf.cast(seed, tf.int64)
    seed = tf.stack([wide & _LOW_BITS, (wide // 2**31) & _LOW_BITS])
    seed = tf.cast(seed, tf.int32)
  return seed if seed.dtype == tf.int64 else tf.cast(seed, tf.int32)


def fold(seed: tf.Tensor, *numbers: Any) -> tf.Tensor:
  """Derives an independent seed from `seed` and each of `numbers` in turn."""
  for number in numbers:
    # A seed of 64-bit words, as training has, keeps 64 bits.
    seed = tf.random.experimental.stateless_fold_in(
      seed, tf.cast(number, seed.dtype)
    )
  return seed


def _parameters(logits_fn: Callable) -> set[str]:
  inside = logits_fn
  if isinstance(logits_fn, tf.keras.layers.Layer):
    inside = logits_fn.call
  try:
    names = set(inspect.signature(inside).parameters)
  except (TypeError, ValueError):
    return set()
  if isinstance(inside, functools.partial):
    names -= set(inside.keywords)
  return names


def takes_seed(logits_fn: Callable) -> bool:
  """Whether `logits_fn` has a parameter `seed`, i.e. draws its own noise."""
  return "seed" in _parameters(logits_fn)


def seeded(logits_fn: Callable) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """Returns `fn(x, seed) -> logits` for any of the accepted callables.

  A Keras model is called as it is deployed, with `training=False`, also inside
  `train_step`. The seed reaches only functions that have such a parameter.
  """
  names = _parameters(logits_fn)
  fixed = {}
  if isinstance(logits_fn, tf.keras.layers.Layer) and "training" in names:
    fixed["training"] = False
  if "seed" in names:
    return lambda x, seed: logits_fn(x, seed=seed, **fixed)
  return lambda x, seed: logits_fn(x, **fixed)


@dataclasses.dataclass(frozen=True)
class EOT:
  """Expectation over transformation: a randomised model, averaged.

  Returns `log((1 / draws) sum_k softmax(fn(x, seed_k)))` with fresh seeds, the
  log-probabilities of the soft-voting classifier (Salman et al. 2019, Eq. 5).
  Probabilities are averaged, not losses: the mean loss is ruled by the few
  draws that are already fooled and its gradient keeps pushing there, whereas a
  deployed randomised model is judged by the probability of each class over its
  noise. Log-probabilities are valid logits, so cross-entropy, margin and DLR
  all apply to the averaged model, and `draws=1` leaves these losses as they
  are. The draws run one after another with seeds of their own: a model that
  shares one noise between the images of a batch is still averaged.

  Attributes:
    logits_fn: `fn(x, seed) -> logits`, or `fn(x)` with stateful noise.
    draws: Number of draws per call, i.e. per step of an attack.
  """

  logits_fn: Callable
  draws: int

  def __post_init__(self):
    validate.positive_int(draws=self.draws)
    if isinstance(self.logits_fn, EOT):
      raise ValueError(
        "Expected a model to average, received one that eot() has wrapped"
        " already. Multiply the draws instead."
      )

  def __call__(self, x: tf.Tensor, seed: Any) -> tf.Tensor:
    """Returns the log of the mean probability of each class."""
    model = seeded(self.logits_fn)
    seed = as_seed(seed)

    def one_draw(number):
      logits = model(x, fold(seed, number))
      return tf.nn.log_softmax(tf.cast(logits, tf.float32))

    log_probs = tf.map_fn(
      one_draw,
      tf.range(self.draws),
      fn_output_signature=tf.float32,
      parallel_iterations=1,
    )
    return tf.reduce_logsumexp(log_probs, axis=0) - math.log(self.draws)


def eot(logits_fn: Callable, draws: int) -> EOT:
  """Wraps a randomised model for an attack: see `EOT`."""
  return EOT(logits_fn, draws)


def without_eot(logits_fn: Callable) -> Callable:
  """Returns the model itself, of which one call is one draw."""
  return logits_fn.logits_fn if isinstance(logits_fn, EOT) else logits_fn
