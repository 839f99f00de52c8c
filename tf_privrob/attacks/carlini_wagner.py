"""The attack of Carlini and Wagner in l_2, run by cleverhans."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from tf_privrob import compat
from tf_privrob import validate
from tf_privrob.attacks import base
from tf_privrob.attacks import randomness


@dataclasses.dataclass(frozen=True, repr=False)
class CarliniWagnerL2(base.Attack):
  """Smallest l_2 perturbation by Adam in tanh space (Carlini and Wagner 2017).

  The search itself is `cleverhans.tf2.attacks.carlini_wagner_l2`. It is called
  one image at a time, because cleverhans 4.0.0 multiplies its trade-off
  constants of the image's shape with the losses of the whole batch, and because
  Keras 2.15's Adam refuses the variable of a second batch. The constant is
  divided by the number of coordinates, over which cleverhans sums it. Any rank
  of input works (cleverhans expects images), and untargeted attacks work with
  labels (cleverhans treats every label as a target): an example whose
  prediction is not its label is returned as it is. The seed is not used unless
  the model takes one: the search is deterministic. Thousands of steps an image:
  minutes for a hundred images on CPU.

  Attributes:
    attack_eps: Perturbations longer than this are scaled back to it (they then
      seldom succeed); None returns the smallest perturbation found.
    value_range: Valid inputs.
    targeted: `y` holds the labels to reach.
    confidence: Margin by which the prediction must change.
    binary_search_steps: Number of trade-off constants tried.
    max_iterations: Adam steps for each constant.
    learning_rate: Learning rate of Adam.
    initial_const: First trade-off constant.
  """

  attack_eps: float | None = None
  value_range: tuple[float, float] = (0.0, 1.0)
  targeted: bool = False
  confidence: float = 0.0
  binary_search_steps: int = 5
  max_iterations: int = 1000
  learning_rate: float = 5e-3
  initial_const: float = 1e-2

  name = "cw_l2"
  norm = "l2"
  in_graph = False

  def __post_init__(self):
    if self.attack_eps is not None:
      validate.non_negative(attack_eps=self.attack_eps)
    validate.value_range(self.value_range)
    validate.boolean(targeted=self.targeted)
    validate.non_negative(confidence=self.confidence)
    validate.positive_int(
      binary_search_steps=self.binary_search_steps,
      max_iterations=self.max_iterations,
    )
    validate.positive(
      learning_rate=self.learning_rate, initial_const=self.initial_const
    )

  def __call__(self, logits_fn, x, y, seed, attack_eps=None):
    """Runs the attack eagerly; see `Attack.__call__`."""
    x, y = base.eager_arrays(self, logits_fn, x, y)
    model = randomness.seeded(logits_fn)
    seed = randomness.as_seed(seed)
    flat = x.astype(np.float32).reshape(len(x), 1, 1, -1)

    def flat_model(images):
      shape = [-1, *x.shape[1:]]
      return model(tf.reshape(images, shape), seed)

    predicted = np.argmax(flat_model(tf.constant(flat)), axis=-1)
    done = predicted == y if self.targeted else predicted != y
    search = self._search(flat_model, math.prod(x.shape[1:]))
    found = flat.copy()
    for row in np.flatnonzero(~done):
      target = y[row : row + 1] if self.targeted else None
      found[row] = search(flat[row : row + 1], target)[0]
    radius = self.attack_eps if attack_eps is None else float(attack_eps)
    if radius is not None:
      found = _within(flat, found, radius)
    found = np.clip(found, *self.value_range)
    return tf.constant(found.reshape(x.shape).astype(x.dtype))

  def _search(self, flat_model, dim):
    """Returns cleverhans' search, traced once for all images."""
    cleverhans = compat.optional("cleverhans.tf2.attacks.carlini_wagner_l2")
    low, high = self.value_range
    attack = cleverhans.CarliniWagnerL2(
      flat_model,
      batch_size=1,
      clip_min=low,
      clip_max=high,
      binary_search_steps=self.binary_search_steps,
      max_iterations=self.max_iterations,
      confidence=self.confidence,
      initial_const=self.initial_const / dim,
    )

    def search(image, target):
      attack.y, attack.targeted = target, target is not None
      attack.optimizer = tf.keras.optimizers.Adam(self.learning_rate)
      return attack.attack(image)

    return search


def _within(x: np.ndarray, x_adv: np.ndarray, radius: float) -> np.ndarray:
  """Scales perturbations that are too long back to the radius."""
  delta = x_adv - x
  length = np.sqrt(np.square(delta).sum(axis=(1, 2, 3), keepdims=True))
  return x + delta * np.minimum(1.0, radius / np.maximum(length, 1e-12))
