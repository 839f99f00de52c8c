"""What every certifier answers, random or deterministic."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify import gate
from tf_privrob.certify.smoothing import sequential
from tf_privrob.certify.smoothing import votes

if TYPE_CHECKING:
  from tf_privrob.certify.audit import targets

LogitsFn = Callable[[tf.Tensor], tf.Tensor]


class Certifier(abc.ABC):
  """Turns inputs into certificates.

  A certifier is a frozen dataclass of its settings. A subclass gives `_stream`;
  `stream`, `certify` and `certify.run` follow from it. A deterministic
  certifier ignores `seed` and states confidence 1.

  Attributes:
    kind: "proven" or "claimed", as in its rows.
    randomised: Whether its rows hold with a probability, over draws. Where they
      are proven, the fields num_selection, num_estimation and confidence tell
      these draws.

  Every proven row comes through a `gate.Gate`: `stream`, which no subclass may
  replace, opens it, and refuses rows of a certifier that did not let the model
  pass.
  """

  kind: ClassVar[str] = "proven"
  randomised: ClassVar[bool] = False

  def __init_subclass__(cls, **kwargs):
    super().__init_subclass__(**kwargs)
    for name in {"stream", "certify"} & set(vars(cls)):
      raise TypeError(
        f"Expected {cls.__name__} to define _stream, received {name}, by which"
        " its rows would pass the gate by."
      )

  @abc.abstractmethod
  def _stream(
    self,
    door: gate.Gate,
    x: np.ndarray,
    y: np.ndarray | None,
    seed: votes.Seed,
    indices: Sequence[int] | None,
  ) -> Iterator[certificate.Certificate]:
    """Yields the rows of `door.model`; see `stream`.

    A proven row needs `door.network()`, for a certifier that reads the layers,
    or `door.rows(...)`, for one that counts what the model returns.
    """

  def stream(
    self,
    logits_fn: LogitsFn,
    x: np.ndarray,
    y: np.ndarray | None = None,
    seed: votes.Seed = None,
    indices: Sequence[int] | None = None,
    model_id: str = "",
  ) -> Iterator[certificate.Certificate]:
    """Yields one certificate per input, in order, soon after it is known.

    The certificate of an input depends on the input, its index, the draws and
    the settings; never on the other inputs or on how they are batched. What
    float32 rounds off an input is taken off its radius.

    Args:
      logits_fn: A Keras model (called with training=False) or a function from
        a batch of inputs to logits.
      x: Inputs, with a batch axis.
      y: True classes, for the record only.
      seed: None draws from the operating system. An int or two ints, which
        draw the same again, may be known to whoever made the model; the rows
        have the condition `randomness.SEEDED` then.
      indices: The inputs' positions in their data set, 0, 1, ... by default.
      model_id: The caller's name for a function, or for a model with layers of
        the caller's own; see `models.model_hash`.
    """
    door = gate.Gate(logits_fn, model_id)
    rows = door.stamped(self._stream(door, x, y, seed, indices))
    repeated = self.randomised and votes.is_repeated(seed)
    for number, row in enumerate(rows):
      row = _about(row, np.asarray(x[number]))
      if repeated:
        row = dataclasses.replace(row, condition=randomness.SEEDED)
      yield row

  def certify(
    self,
    logits_fn: LogitsFn,
    x: np.ndarray,
    y: np.ndarray | None = None,
    seed: votes.Seed = None,
    indices: Sequence[int] | None = None,
    model_id: str = "",
  ) -> list[certificate.Certificate]:
    """The certificates of all inputs; see `stream`."""
    return list(self.stream(logits_fn, x, y, seed, indices, model_id))

  def for_radii(self, radii: Sequence[float]) -> Certifier:
    """A certifier that may save work that matters for no radius in `radii`."""
    sequential.check_radii(radii)
    return self

  def with_draws(
    self, num_selection: int, num_estimation: int, confidence: float
  ) -> Certifier:
    """The same certifier with other draws, where it draws and they are its own.

    Those of a claim belong to the claim.
    """
    if self.kind == "claimed" or not self.randomised:
      return self
    return dataclasses.replace(
      self,
      num_selection=num_selection,
      num_estimation=num_estimation,
      confidence=confidence,
    )

  def target(
    self, model: Any, x: np.ndarray, draws: int | None = None
  ) -> targets.Target:
    """The classifier that the rows are about, for an audit.

    Args:
      model: What was certified.
      x: Inputs, for their shape and the number of classes.
      draws: Draws of a verdict; None: as many as the certifier estimates with.
    """
    raise ValueError(
      "Expected a certifier that says which classifier its rows are about, by"
      f" `target`, received {type(self).__name__}."
    )

  def settings(self) -> dict[str, Any]:
    """All that determines the certificates, as JSON values."""
    return {"certifier": type(self).__name__, **dataclasses.asdict(self)}


def check_statement(
  certifier: Certifier, rows: Sequence[certificate.Certificate], where: str
) -> None:
  """Refuses rows that a certifier with these settings does not make.

  Args:
    certifier: What is said to have made them; where it does not say its norm,
      method or confidence, nobody asks.
    rows: The rows.
    where: Where they are, for the error.
  """
  certain = None if certifier.randomised else 1.0
  stated = {
    "kind": certifier.kind,
    "norm": getattr(certifier, "norm", None),
    "method": getattr(certifier, "method", None),
    "confidence": getattr(certifier, "confidence", certain),
  }
  for row in rows:
    for name, value in stated.items():
      if value is not None and getattr(row, name) != value:
        raise ValueError(
          f"Expected rows of {name} {value!r}, that of the certifier, in"
          f" {where}, received {getattr(row, name)!r} in that of input"
          f" {row.index}. They were made otherwise: certify again."
        )


def _about(
  row: certificate.Certificate, point: np.ndarray
) -> certificate.Certificate:
  """A row about the float32 that a point was rounded to, about the point."""
  away = point.astype(np.float64) - point.astype(np.float32)
  if point.dtype.kind != "f" or not away.any():
    return row
  size = np.linalg.norm(away.ravel(), certificate.ORDERS[row.norm])
  radius = row.radius - (1 + 1e-9) * size
  if radius > 0 or not row.radius:
    return dataclasses.replace(row, radius=max(0.0, float(radius)))
  if row.confidence == 1:
    return dataclasses.replace(row, radius=0.0)
  return dataclasses.replace(
    row, radius=0.0, prediction=certificate.ABSTAIN, abstained=True
  )


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
  """Returns distinct non-negative positions, one per input."""
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
