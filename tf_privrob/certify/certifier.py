"""What every certifier answers, random or deterministic."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.certify import certificate

LogitsFn = Callable[[tf.Tensor], tf.Tensor]
_COMPANY = 8  # inputs of a batch that must not change the first one's logits


class Certifier(abc.ABC):
  """Turns inputs into certificates.

  A certifier is a frozen dataclass of its settings. A subclass gives `stream`;
  `certify` and `certify.run` follow from it. A deterministic certifier ignores
  `seed` and states confidence 1.
  """

  @abc.abstractmethod
  def stream(
    self,
    logits_fn: LogitsFn,
    x: np.ndarray,
    y: np.ndarray | None = None,
    seed: int | Sequence[int] = 0,
    indices: Sequence[int] | None = None,
  ) -> Iterator[certificate.Certificate]:
    """Yields one certificate an input, in order, each as soon as it is known.

    The certificate of an input depends on the input, its index, the seed and
    the settings; never on the other inputs or on how they are batched.

    Args:
      logits_fn: a Keras model (called with training=False) or a function from
        a batch of inputs to logits.
      x: inputs, with a batch axis.
      y: true classes, for the record only.
      seed: int or two ints.
      indices: the inputs' positions in their data set, 0, 1, ... by default.
    """

  def certify(
    self,
    logits_fn: LogitsFn,
    x: np.ndarray,
    y: np.ndarray | None = None,
    seed: int | Sequence[int] = 0,
    indices: Sequence[int] | None = None,
  ) -> list[certificate.Certificate]:
    """The certificates of all inputs; see `stream`."""
    return list(self.stream(logits_fn, x, y, seed, indices))

  def for_radii(self, radii: Sequence[float]) -> Certifier:
    """A certifier that may save work that matters for no radius in `radii`."""
    del radii
    return self

  def settings(self) -> dict[str, Any]:
    """All that determines the certificates, as JSON values."""
    return {"certifier": type(self).__name__, **dataclasses.asdict(self)}


def as_logits_fn(logits_fn: LogitsFn) -> LogitsFn:
  """Calls a Keras model in inference mode; leaves functions alone."""
  if isinstance(logits_fn, tf.keras.Model):
    return functools.partial(logits_fn, training=False)
  if not callable(logits_fn):
    raise ValueError(
      "Expected logits_fn to be a Keras model or a function of a batch,"
      f" received {type(logits_fn).__name__}."
    )
  return logits_fn


def check_inputs(logits_fn: LogitsFn, x: Any, name: str = "x") -> np.ndarray:
  """Returns finite float32 inputs whose rank the model understands."""
  shape = getattr(logits_fn, "input_shape", None)
  rank = len(shape) if isinstance(shape, tuple) else None
  x = np.asarray(x)
  validate.examples((-math.inf, math.inf), rank=rank, **{name: x})
  if x.ndim < 2:
    raise ValueError(
      f"Expected {name} with a batch axis and at least one feature axis,"
      f" received shape {x.shape}."
    )
  return x.astype(np.float32, copy=False)


def check_labels(y: Any, num_classes: int, count: int) -> list[int | None]:
  """Returns one true class, or None, an input."""
  if y is None:
    return [None] * count
  validate.labels(num_classes, count=count, y=y)
  return [int(label) for label in np.asarray(y)]


def check_indices(indices: Any, count: int) -> list[int]:
  """Returns distinct non-negative positions, one an input."""
  if indices is None:
    return list(range(count))
  values = [int(index) for index in indices]
  wrong = min(values, default=0) < 0 or max(values, default=0) >= 2**31
  if len(values) != count or len(set(values)) != count or wrong:
    raise ValueError(
      f"Expected {count} distinct indices in [0, 2^31), one an input, received"
      f" {values[:5]}{'...' if len(values) > 5 else ''}."
    )
  return values


def check_no_coupling(logits_fn: LogitsFn, x: np.ndarray, remedy: str) -> None:
  """Requires that an input's logits do not depend on the rest of its batch.

  With batch statistics at inference the draws of one input are not independent
  votes of one classifier, and no radius is about a single input.
  """
  company = np.concatenate([x[:_COMPANY], x[:1] + 1])
  alone, among = (
    np.asarray(logits_fn(tf.constant(batch)))[:1] for batch in (x[:1], company)
  )
  if not np.allclose(alone, among, rtol=1e-3, atol=1e-4, equal_nan=True):
    raise ValueError(
      "Expected logits that depend on their own input alone, received others"
      f" (by {np.abs(alone - among).max():.3g}) when further inputs were in the"
      " batch: batch statistics at inference, or noise of the model's own."
      f" {remedy}"
    )


def check_deterministic(logits_fn: LogitsFn, x: np.ndarray) -> None:
  """Requires equal logits for equal inputs, up to rounding.

  A vote is to be a function of the noisy input alone: noise that the model
  draws itself (fresh noise layers, dropout at inference) is not the noise that
  the radius is computed for.
  """
  batch = tf.constant(np.repeat(x[:1], 2, axis=0))
  first, second = (np.asarray(logits_fn(batch)) for _ in range(2))
  calls, rows = np.abs(first - second), np.abs(first[0] - first[1])
  size = max(calls.max(initial=0.0), rows.max(initial=0.0))
  if size > 1e-3 * (1 + np.abs(first).max(initial=0.0)):
    raise ValueError(
      "Expected a model that is deterministic once the noise is fixed, received"
      f" logits that differ by {size:.3g} for equal inputs. Turn dropout and"
      " noise layers off at inference, or certify a model with noise inside by"
      " its own certifier()."
    )


def num_classes_of(
  logits_fn: LogitsFn, x: np.ndarray, expected: int | None
) -> int:
  """Reads the number of classes off one clean forward pass, and checks it."""
  logits = np.asarray(logits_fn(tf.constant(x[:1])))
  want = "num_classes" if expected is None else expected
  if logits.ndim != 2 or logits.shape[0] != 1:
    raise ValueError(
      f"Expected logits_fn to return logits of shape [batch, {want}], received"
      f" shape {logits.shape} for a batch of 1."
    )
  if expected is not None and logits.shape[1] != expected:
    raise ValueError(
      f"Expected logits of num_classes={expected} classes, received"
      f" {logits.shape[1]}. Pass num_classes={logits.shape[1]}, or None."
    )
  if logits.shape[1] < 2:
    raise ValueError(
      "Expected logits of at least 2 classes, received 1. Return [0, logit]"
      " for a binary classifier with one output."
    )
  return logits.shape[1]
