"""Training for randomised smoothing: K noisy copies, one gradient."""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import Optional  # flags read these annotations on Python 3.9

import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import losses
from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.methods import objective as objective_lib

_SHIFT_STREAM, _NOISE_STREAM, _ATTACK_STREAM = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Smooth(objective_lib.Objective):
  """Training of a classifier that is deployed smoothed.

  After the idea of Wu et al., "Augment then Smooth" (2024). The loss of an
  example (x, y) is

    mean_k CE(f(x + noise_k), y) + weight * R(f(x + noise_1), ...),

  with K fresh Gaussian draws a step (`augmentation_multiplicity` of the
  training) and a regulariser R of the copies of this one example
  (`losses.smoothing`). With SmoothAdv (Salman et al. 2019) x is first moved
  against the soft vote of the same K copies. All of it is one loss and hence
  one clipped gradient: under DP-SGD neither K nor R nor the attack costs
  privacy. Shifts, if the training has them, come before the noise;
  `augmentation_stddev` is not used.

  Robustness: `certifier()` smooths the released model; its certificates hold
  for any weights, and training only makes them larger.

  Attributes:
    smoothing_stddev: of the noise under which the model will be certified.
    training_stddev: of the noise of the copies. None: the same.
    regularizer: "none", "stability", "consistency" or "macer".
    regularizer_weight: of its term beside the cross-entropy.
    entropy_weight: of "consistency".
    macer_margin: gamma of "macer".
    macer_sharpness: beta of "macer".
    attack_steps: of SmoothAdv, l_2 steps against the soft smoothed classifier
      over the same K copies; 0 trains on clean examples.
    attack_eps: its radius. None: twice `smoothing_stddev`.
    attack_warmup: steps over which the radius grows from 0, in a line; large
      radii from the start can keep a network from learning anything.
  """

  smoothing_stddev: float = 0.25
  training_stddev: Optional[float] = None
  regularizer: str = "none"
  regularizer_weight: float = 1.0
  entropy_weight: float = 0.5
  macer_margin: float = 8.0
  macer_sharpness: float = 16.0
  attack_steps: int = 0
  attack_eps: Optional[float] = None
  attack_warmup: int = 0

  def __post_init__(self):
    validate.positive(
      smoothing_stddev=self.smoothing_stddev,
      macer_margin=self.macer_margin,
      macer_sharpness=self.macer_sharpness,
    )
    if self.training_stddev is not None:
      validate.non_negative(training_stddev=self.training_stddev)
    validate.one_of(losses.smoothing.REGULARIZERS, regularizer=self.regularizer)
    validate.non_negative(
      regularizer_weight=self.regularizer_weight,
      entropy_weight=self.entropy_weight,
    )
    validate.non_negative_int(
      attack_steps=self.attack_steps, attack_warmup=self.attack_warmup
    )
    if self.attack_eps is not None:
      validate.positive(attack_eps=self.attack_eps)

  def check_copies(self, augmentation: str) -> None:
    """Refuses a second kind of noise."""
    if augmentation == "noise":
      raise ValueError(
        "Expected augmentation='none', 'shift' or 'shift_flip', received"
        " 'noise': the copies have noise in any case, set training_stddev."
      )

  @property
  def copies_stddev(self) -> float:
    """Of the noise of the copies."""
    if self.training_stddev is None:
      return self.smoothing_stddev
    return self.training_stddev

  def attack_radius(self, context: objective_lib.Context) -> tf.Tensor:
    """The radius of SmoothAdv at this step: all of it after the warm-up."""
    step = tf.cast(context.step, tf.float32)
    share = tf.minimum((step + 1) / max(self.attack_warmup, 1), 1.0)
    return self._full_radius * share

  @property
  def _full_radius(self) -> float:
    if self.attack_eps is None:
      return 2 * self.smoothing_stddev
    return self.attack_eps

  def example_losses(self, context, images, labels, seed):
    """The loss of each example over its K copies."""
    fold_in = randomness.fold_in
    copies, count = context.copies.count, images.shape[0]
    # Before the noise one shift for all copies: they are to agree.
    images = data.augment(
      images, context.copies.kind, fold_in(seed, _SHIFT_STREAM)
    )
    noise = self.copies_stddev * tf.random.stateless_normal(
      [count, copies, *images.shape[1:]], fold_in(seed, _NOISE_STREAM)
    )

    def logits_of(rows):  # [B, R, ...] -> [B, R, C], an example's rows together
      flat = tf.reshape(rows, [-1, *images.shape[1:]])
      logits = context.network(flat, training=True)
      return tf.reshape(logits, [count, rows.shape[1], logits.shape[-1]])

    if self.attack_steps:
      attack = attacks.PGD(
        self._full_radius,
        "l2",
        context.value_range,
        steps=self.attack_steps,
        random_start=False,
      )
      images = attack(
        lambda x: losses.smoothing.soft_vote(logits_of(x[:, None] + noise)),
        images,
        labels,
        fold_in(seed, _ATTACK_STREAM),
        self.attack_radius(context),
      )
    rows = images[:, tf.newaxis] + noise
    if self.regularizer == "stability":
      rows = tf.concat([images[:, tf.newaxis], rows], axis=1)
    logits = logits_of(rows)
    noisy = logits[:, -copies:]  # a clean row, if any, comes first
    votes = losses.smoothing.soft_vote(noisy)
    predictions = tf.argmax(votes, axis=1, output_type=labels.dtype)
    value = losses.smoothing.mean_cross_entropy(noisy, labels)
    if self.regularizer != "none":
      term = self._regularization(noisy, logits[:, 0], labels)
      value += self.regularizer_weight * term
    return value, {"correct": predictions == labels}

  def _regularization(self, noisy, first, labels) -> tf.Tensor:
    """R of an example's copies; `first` is the clean row of "stability"."""
    if self.regularizer == "stability":
      return losses.smoothing.stability(noisy, first)
    if self.regularizer == "consistency":
      return losses.smoothing.consistency(noisy, self.entropy_weight)
    return losses.smoothing.macer(
      noisy,
      labels,
      self.copies_stddev,
      self.macer_margin,
      self.macer_sharpness,
    )

  def certifier(self, model, **settings: Any) -> certify.RandomizedSmoothing:
    """Smoothing with `smoothing_stddev`; `settings` are the certifier's."""
    del model
    return certify.RandomizedSmoothing(self.smoothing_stddev, **settings)
