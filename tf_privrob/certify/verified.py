"""A proven certificate without noise: bounds of the network itself."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import validate
from tf_privrob.bounds import domain as domain_lib
from tf_privrob.certify import alone
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier
from tf_privrob.certify.audit import targets as audit_targets

# Inputs at a time: what other domains carry is as wide as the input.
_BATCH, _WIDE_BATCH = 256, 8
_READ = 64  # inputs at which the logits are compared with bounds


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
    attack_eps: The radius asked for; with `largest`, the largest one tried.
    domain: A domain that is a bound; an estimate is refused.
    value_range: What inputs can be; the statement is then about inputs inside
      it only, and the rows' method ends in "_in_range".
    largest: Look for the largest radius up to `attack_eps` by bisection. Every
      radius in a row was verified itself, so that it holds even where a
      domain's bounds do not grow with the radius; then it need not be the
      largest.
    tolerance: How far bisection may stay below; attack_eps / 1000 if None.
    batch_size: Inputs at a time; None chooses by domain.
  """

  norm: ClassVar[str] = "linf"

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
    validate.boolean(largest=self.largest)
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

  def target(self, model, x, draws=None):
    """The network, on the inputs that the rows are about."""
    del x, draws
    network = getattr(model, "bounded_network", model)
    return audit_targets.Deterministic(network, self.value_range)

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

  def _stream(self, door, x, y, seed, indices):
    """Yields one proven row an input; the model is a Keras network.

    A model whose calls are those of a network inside it says so by a property
    `bounded_network`, as methods do. What the layers say is compared with what
    the model itself returns: at the first inputs its logits must lie in bounds
    of radius 0, and at all inputs no logit may be above the prediction's by
    more than the bounds allow.
    """
    del seed
    network = door.network()
    x = certifier.check_inputs(network, x)
    if self.value_range is not None:
      validate.examples(self.value_range, x=x)
    predict = alone.as_logits_fn(door.model)
    num_classes = certifier.num_classes_of(predict, x, None)
    labels = certifier.check_labels(y, num_classes, len(x))
    indices = certifier.check_indices(indices, len(x))
    _check_read(network, x[:_READ], predict(tf.constant(x[:_READ])))
    verify = self._verifier(network)
    size = self.batch_size or self._default_batch()
    size = min(size, len(x))
    for start in range(0, len(x), size):
      started = time.perf_counter()
      # All batches are of one size, so that the graph is traced once.
      rows = np.minimum(np.arange(start, start + size), len(x) - 1)
      batch = tf.constant(x[rows])
      logits = predict(batch)
      classes = tf.argmax(logits, axis=1)
      radii = self._radii(
        lambda eps, b=batch, z=logits: _checked(*verify(b, z, eps)), size
      )
      count = min(size, len(x) - start)
      seconds = (time.perf_counter() - started) / count
      for row in range(count):
        yield certificate.Certificate(
          index=indices[start + row],
          label=labels[start + row],
          prediction=int(classes[row]),
          radius=float(radii[row]),
          norm=self.norm,
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
    """A traced function: whether each input of a batch is verified.

    And whether the logits are below what the bounds say of the ball around it.
    """
    domain = self._sound

    @tf.function(autograph=False)
    def verify(x, logits, attack_eps):
      classes = tf.argmax(logits, axis=1)
      worst = domain.worst_case_logits(
        network, x, classes, attack_eps, self.value_range
      )
      own = tf.one_hot(classes, worst.shape[1], on_value=True, off_value=False)
      verified = tf.reduce_all((worst < 0) | own, axis=1)  # NaN < 0 is false
      logits = tf.cast(logits, worst.dtype)
      ahead = logits - tf.reduce_max(logits, axis=1, keepdims=True)
      outside = (ahead > worst) | _lost(ahead, worst)
      return verified, tf.reduce_any(outside & ~own, axis=1)

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
      found = verify(tf.constant(middle))
      low, high = np.where(found, middle, low), np.where(found, high, middle)
    return low


def _check_read(network, x: np.ndarray, logits: tf.Tensor) -> None:
  """Refuses a model whose logits are not in bounds of a ball of radius 0."""
  domain = bounds.Interval(arithmetic="outward")
  low, high = domain.output_bounds(network, tf.constant(x), 0.0)
  logits = tf.cast(logits, low.dtype)
  outside = (logits < low) | (logits > high) | _lost(logits, low)
  _refuse_misread(tf.reduce_any(outside, axis=1))


def _lost(logits: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
  """Where the network has NaN, which is in no interval, and a bound is said."""
  return tf.math.is_nan(logits) & tf.math.is_finite(bound)


def _checked(verified: tf.Tensor, misread: tf.Tensor) -> np.ndarray:
  _refuse_misread(misread)
  return verified.numpy()


def _refuse_misread(misread: tf.Tensor) -> None:
  if tf.reduce_any(misread):
    raise ValueError(
      "Expected logits within the bounds that were read off the layers,"
      f" received others for {np.sum(misread)} of {len(misread)} inputs. The"
      " model computes something else than its layers say: build it of plain"
      " Keras layers in float32."
    )
