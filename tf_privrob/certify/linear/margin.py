"""The exact radius of a linear classifier, alone or behind fixed features."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.certify import alone
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier
from tf_privrob.certify import rounding
from tf_privrob.certify.audit import targets as audit_targets
from tf_privrob.certify.linear import feature_bounds
from tf_privrob.certify.linear import linear_head
from tf_privrob.certify.norms import operator_norms

# The order of the norm that is dual to each norm of a radius.
DUAL_ORDERS = {"l1": np.inf, "l2": 2, "linf": 1}
_BLOCK = 256  # inputs a pass
_DOWN = 1 - 1e-12  # makes inequalities strict, and covers a few float64
_UP = 1 + 1e-10  # sums of up to 10^5 float64 are off by less


@dataclasses.dataclass(frozen=True)
class LinearMargin(certifier.Certifier):
  """Certifies argmax_j <w_j, x> + b_j without randomness; rows are proven.

  **Linear models**, method "linear_margin". With c the model's own class,

    radius = min_{j != c} (<w_c - w_j, x> + b_c - b_j) / ||w_c - w_j||_dual,

  the dual of l2, linf and l1 being l2, l1 and linf: by Hölder's inequality no
  smaller change lets j overtake c, and one of this size along the dual vector
  makes them equal. So it is exact over all of R^d; inputs confined to a box
  may be safer still. A tie has radius 0.

  **Fixed features before the linear layer**, method "lipschitz_margin". The
  radius of the features in l2, by the same formula, over a Lipschitz constant
  of the front end from `norm` to l2 (Tsuzuku, Sato and Sugiyama 2018). It is a
  lower bound, no longer exact. The constant of `RandomFourierFeatures` and of
  `Scattering` comes from `feature_bound`; any other front end is refused
  unless `lipschitz` is given, and then the certificate rests on the caller's
  proof of `lipschitz` and `feature_error`.

  **Rounding.** The statement is about the model that is deployed, which
  computes in float32. With g the bound of `rounding.growth` and e_j(x) =
  g (sum_i |w_ij x_i| + |b_j|), its logits at x' are within e_j(x') <= e_j(x) +
  g r ||w_j||_dual of the exact ones for every x' within r, so that c wins
  there as long as

    r < (margin_j - e_c - e_j) / (||w_c - w_j||_dual
                                  + g (||w_c||_dual + ||w_j||_dual)).

  This is the radius that is given, up to where a sum could overflow; g is 5e-5
  for 784 inputs. Features that are
  off by at most t (`FeatureBound`) lose 2 t of their radius. That the model's
  logits are within this bound of those computed here in float64 is checked for
  every input: a model that was misread is refused.

  Formal guarantee: the model returns the row's class for every float32 input
  within the radius, with certainty (confidence 1). Where the margin is within
  rounding the radius is 0, and the class is the one of this very pass.

  Attributes:
    norm: "l2", "linf" or "l1": the norm of the radius.
    lipschitz: Lipschitz constant of all layers before the linear ones, from
      `norm` to l2, or None to have it computed. None for a linear model.
    feature_error: With `lipschitz`, an l2 bound on the rounding of these
      layers.
  """

  norm: str = "l2"
  lipschitz: float | None = None
  feature_error: float = 0.0

  def __post_init__(self):
    validate.one_of(certificate.NORMS, norm=self.norm)
    validate.non_negative(feature_error=self.feature_error)
    if self.lipschitz is not None:
      validate.positive(lipschitz=self.lipschitz)
    elif self.feature_error:
      raise ValueError(
        f"Expected feature_error=0 without lipschitz, received"
        f" {self.feature_error!r}: the rounding of known features is computed."
      )

  def target(self, model, x, draws=None):
    """The model itself."""
    del x, draws
    return audit_targets.Deterministic(model)

  def _stream(self, door, x, y, seed, indices):
    """Yields one proven row an input; the model is a Keras model."""
    del seed  # nothing is drawn
    network = door.network()
    front, head = linear_head.split(linear_head.chain_of(network))
    x = certifier.check_inputs(network, x)
    model, apply = (
      alone.as_logits_fn(door.model),
      functools.partial(_apply, front),
    )
    num_classes = certifier.num_classes_of(model, x, None)
    labels = certifier.check_labels(y, num_classes, len(x))
    indices = certifier.check_indices(indices, len(x))
    bound = self._front_bound(front, x.shape[1:])
    if self.lipschitz is not None:  # of layers that nobody read
      door.rows(model, [x[np.arange(_BLOCK) % len(x)]])
      mixing = alone.not_row_wise(network)
      model, apply = alone.each(model, mixing), alone.each(apply, mixing)
    shape = apply(x[:1]).shape[1:]
    rule = _Rule(
      linear_head.LinearHead.of(head, shape), "l2" if front else self.norm
    )
    for start in range(0, len(x), _BLOCK):
      began = time.monotonic()
      part = x[start : start + _BLOCK]
      logits = np.asarray(model(tf.constant(part)), np.float64)
      features = np.asarray(apply(part)).reshape(len(part), -1)
      predictions = logits.argmax(axis=1)
      radii = rule.radii(features.astype(np.float64), logits)
      if bound is not None:
        radii = self._through(radii, bound, part.reshape(len(part), -1))
      seconds = (time.monotonic() - began) / len(part)
      for row, prediction in enumerate(predictions):
        yield certificate.Certificate(
          index=indices[start + row],
          label=labels[start + row],
          prediction=int(prediction),
          radius=float(radii[row]),
          norm=self.norm,
          abstained=False,
          confidence=1.0,
          kind="proven",
          method="lipschitz_margin" if front else "linear_margin",
          seconds=seconds,
        )

  def _front_bound(
    self, front: Sequence[tf.keras.layers.Layer], input_shape: Sequence[int]
  ) -> feature_bounds.FeatureBound | None:
    """What is known of the layers before the head; None: there is none."""
    if not front:
      if self.lipschitz is not None:
        raise ValueError(
          "Expected lipschitz=None for a model that is linear itself, received"
          f" {self.lipschitz!r}: its exact radius needs no constant."
        )
      return None
    if self.lipschitz is not None:
      return feature_bounds.FeatureBound(
        (self.lipschitz,) * 3, self.feature_error, 0.0
      )
    before = linear_head.Elementwise.identity(input_shape)
    for layer in front[:-1]:
      if not linear_head.is_elementwise(layer):
        raise ValueError(
          "Expected at most one feature layer before the linear ones, behind"
          f" Flatten, Reshape, Permute or Rescaling, received"
          f" {type(layer).__name__} {layer.name!r} before"
          f" {type(front[-1]).__name__} {front[-1].name!r}. Pass a constant"
          " that you can prove as LinearMargin(lipschitz=...)."
        )
      before = before.then(layer)
    found = feature_bounds.feature_bound(front[-1], before.place.shape)
    return found.after(before)

  def _through(
    self,
    radii: np.ndarray,
    bound: feature_bounds.FeatureBound,
    x: np.ndarray,
  ) -> np.ndarray:
    """Radii of the inputs, from those of the features.

    Computed features of x and of x' within r are at most L r + t(x) + t(x')
    apart, with t(x) = error + error_slope ||x||_2 and ||x'||_2 <= ||x||_2 +
    c r, c the norm of the identity from `norm` to l2.
    """
    size = np.linalg.norm(x.astype(np.float64), axis=1)
    error = 2 * _UP * (bound.error + bound.error_slope * size)
    identity = operator_norms.elementwise_norms(x.shape[1:])
    slope = bound.lipschitz(self.norm)
    slope += bound.error_slope * identity.bound(self.norm, "l2")
    with np.errstate(divide="ignore", invalid="ignore"):
      found = _DOWN * (radii - error) / (_UP * slope)
    # A front end that is constant moves nowhere.
    return np.where(radii > error, found, 0.0)


class _Rule:
  """The radii of a linear head, rounding taken off."""

  def __init__(self, head: linear_head.LinearHead, norm: str):
    self._head = head
    weights, order = head.weights, DUAL_ORDERS[norm]
    self._sizes = sizes = np.linalg.norm(head.reach, order, axis=0)
    gaps = np.stack(
      [
        np.linalg.norm(weights - column[:, np.newaxis], order, axis=0)
        for column in weights.T
      ]
    )
    # What a change of size 1 takes from the margin of c (row) over j.
    self._costs = _UP * (gaps + head.growth * (sizes[:, np.newaxis] + sizes))

  def radii(self, x: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """One radius per input [inputs]; `logits` are the model's own."""
    scores, errors = self._head.scores(x), self._head.errors(x)
    _check_read(np.abs(scores - logits), errors)
    classes = logits.argmax(axis=1)
    rows = np.arange(len(x))
    own = (rows, classes)
    room = scores[own][:, np.newaxis] - scores
    room -= _UP * (errors[own][:, np.newaxis] + errors)
    with np.errstate(divide="ignore", invalid="ignore"):
      reach = room / self._costs[classes]
    reach = np.where(room > 0, reach, 0.0)  # equal weights: inf, or 0
    reach[own] = np.inf
    safe = self._head.safe(x, self._sizes)
    return _DOWN * np.minimum(reach.min(axis=1), safe)


def _apply(layers: Sequence[tf.keras.layers.Layer], x) -> tf.Tensor:
  """The layers at inference, as the model applies them."""
  values = tf.convert_to_tensor(x)
  for layer in layers:
    inference = {"training": False} if isinstance(layer, tf.keras.Model) else {}
    values = layer(values, **inference)
  return values


def _check_read(difference: np.ndarray, errors: np.ndarray) -> None:
  worst = ~(difference <= errors + rounding.SUBNORMAL)  # NaN is not
  if worst.any():
    row, column = np.argwhere(worst)[0]
    raise ValueError(
      "Expected logits within rounding of those of the weights that were read,"
      f" received a difference of {difference[row, column]:.3g} in class"
      f" {column}, more than {errors[row, column]:.3g}. The model computes"
      " something else at inference, or in lower precision."
    )
