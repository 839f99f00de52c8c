"""A proven certificate without noise: bounds of the network itself."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import validate
from tf_privrob.bounds import domain as domain_lib
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier

# Inputs at a time: what other domains carry is as wide as the input.
_BATCH, _WIDE_BATCH = 256, 8


@dataclasses.dataclass(frozen=True)
class VerifiedBound(certifier.Certifier):
  """Certifies the network's own prediction by bounds of its logits.

  Formal guarantee: the network, computed in float32, returns the row's class
  for every input within l_inf distance `radius` of this one, and inside
  `value_range` if there is one. There is no randomness in it: confidence 1. It
  is read off upper bounds v_j of z_j - z_y, y the prediction, that are all
  below 0; they are computed with arithmetic="outward", whatever the domain
  says, so that rounding is paid for (`bounds.rounding` says under which
  assumptions).

  The row keeps its prediction and has radius 0 where nothing can be verified.
  That says nothing about the input: bounds are not exact, and a domain may
  fail where another succeeds. A wrong prediction is verified like a right one.

  Attributes:
    attack_eps: the radius asked for; with `largest`, the largest one tried.
    domain: a domain that is a bound; an estimate is refused.
    value_range: what inputs can be; the statement is then about inputs inside
      it only, and the rows' method ends in "_in_range".
    largest: look for the largest radius up to `attack_eps` by bisection. Every
      radius in a row was verified itself, so that it holds even where a
      domain's bounds do not grow with the radius; then it need not be the
      largest.
    tolerance: how far bisection may stay below; attack_eps / 1000 if None.
    batch_size: inputs at a time; None chooses by domain.
  """

  attack_eps: float
  domain: bounds.Domain = dataclasses.field(default_factory=bounds.Interval)
  value_range: tuple[float, float] | None = None
  largest: bool = False
  tolerance: float | None = None
  batch_size: int | None = None

  def __post_init__(self):
    validate.positive(attack_eps=self.attack_eps)
    if not isinstance(self.domain, bounds.Domain):
      raise ValueError(
        "Expected a domain of tf_privrob.bounds, e.g. bounds.Interval(),"
        f" received {type(self.domain).__name__}."
      )
    if not self.domain.is_bound:
      raise ValueError(
        f"Expected a domain that is a bound, received {self.domain!r}, an"
        " estimate that can be too small. Certify with norm='l1'."
      )
    if self.value_range is not None:
      validate.value_range(self.value_range)
      # JSON has no tuples of NumPy numbers.
      ends = tuple(float(end) for end in self.value_range)
      object.__setattr__(self, "value_range", ends)
    if not self.largest:
      domain_lib.check_radius(self.attack_eps, self.value_range)
    if self.tolerance is not None:
      validate.positive(tolerance=self.tolerance)
    if self.batch_size is not None:
      validate.positive_int(batch_size=self.batch_size)

  @property
  def method(self) -> str:
    """The name in the rows."""
    where = "" if self.value_range is None else "_in_range"
    return f"verified_{self.domain.name}{where}"

  @property
  def _sound(self) -> bounds.Domain:
    return dataclasses.replace(self.domain, arithmetic="outward")

  def settings(self) -> dict[str, Any]:
    """All settings but `batch_size`, which changes no row."""
    return {
      "certifier": type(self).__name__,
      "attack_eps": self.attack_eps,
      "domain": repr(self._sound),
      "value_range": self.value_range and list(self.value_range),
      "largest": self.largest,
      "tolerance": self._tolerance if self.largest else None,
    }

  @property
  def _tolerance(self) -> float:
    return self.tolerance or self.attack_eps / 1000

  def stream(
    self, logits_fn, x, y=None, seed=0, indices=None
  ) -> Iterator[certificate.Certificate]:
    """Yields one proven row an input; `logits_fn` is a Keras network.

    A model whose calls are those of a network inside it says so by a property
    `bounded_network`, as robust trainers do.
    """
    del seed
    logits_fn = getattr(logits_fn, "bounded_network", logits_fn)
    if not isinstance(logits_fn, tf.keras.Model):
      raise ValueError(
        "Expected a Keras network, whose layers bounds can be pushed through,"
        f" received {type(logits_fn).__name__}."
      )
    x = certifier.check_inputs(logits_fn, x)
    if self.value_range is not None:
      validate.examples(self.value_range, x=x)
    predict = certifier.as_logits_fn(logits_fn)
    num_classes = certifier.num_classes_of(predict, x, None)
    labels = certifier.check_labels(y, num_classes, len(x))
    indices = certifier.check_indices(indices, len(x))
    verify = self._verifier(logits_fn)
    size = self.batch_size or self._default_batch()
    size = min(size, len(x))
    for start in range(0, len(x), size):
      started = time.perf_counter()
      # All batches are of one size, so that the graph is traced once.
      rows = np.minimum(np.arange(start, start + size), len(x) - 1)
      batch = tf.constant(x[rows])
      classes = tf.argmax(predict(batch), axis=1)
      radii = self._radii(
        lambda eps, b=batch, c=classes: verify(b, c, eps), size
      )
      count = min(size, len(x) - start)
      seconds = (time.perf_counter() - started) / count
      for row in range(count):
        yield certificate.Certificate(
          index=indices[start + row],
          label=labels[start + row],
          prediction=int(classes[row]),
          radius=float(radii[row]),
          norm="linf",
          abstained=False,
          confidence=1.0,
          kind="proven",
          method=self.method,
          seconds=seconds,
        )

  def _default_batch(self) -> int:
    narrow = isinstance(self.domain, bounds.Interval)
    return _BATCH if narrow else _WIDE_BATCH

  def _verifier(self, network):
    """A traced function: whether each input of a batch is verified."""
    domain = self._sound

    @tf.function
    def verify(x, classes, attack_eps):
      worst = domain.worst_case_logits(
        network, x, classes, attack_eps, self.value_range
      )
      own = tf.one_hot(classes, worst.shape[1], on_value=True, off_value=False)
      return tf.reduce_all((worst < 0) | own, axis=1)  # NaN < 0 is false

    return verify

  def _radii(self, verify, count: int) -> np.ndarray:
    """The radius of each input of a batch."""
    whole = np.full(count, float(self.attack_eps))
    verified = np.where(verify(tf.constant(whole)), whole, 0.0)
    if not self.largest:
      return verified
    low, high = verified, whole
    steps = math.ceil(math.log2(max(self.attack_eps / self._tolerance, 1.0)))
    for _ in range(steps):
      if np.all(low == high):
        break
      middle = (low + high) / 2
      found = verify(tf.constant(middle)).numpy()
      low, high = np.where(found, middle, low), np.where(found, high, middle)
    return low
