"""Private training for randomised smoothing: K noisy copies, one gradient."""

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
from tf_privrob.methods import config as method_config
from tf_privrob.methods import dp_sgd

_SHIFT_STREAM, _NOISE_STREAM, _ATTACK_STREAM = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class DPSmoothConfig(method_config.DPSGDConfig):
  """Settings of `DPSmooth`.

  Attributes:
    augmentation: "none", "shift" or "shift_flip", before the noise.
    augmentation_multiplicity: K noisy copies of an example a step.
    augmentation_stddev: not used: see `smoothing_stddev`, `training_stddev`.
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
    super().__post_init__()
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
    if self.augmentation == "noise":
      raise ValueError(
        "Expected augmentation='none', 'shift' or 'shift_flip', received"
        " 'noise': the copies have noise in any case, set training_stddev."
      )

  @classmethod
  def presets(cls) -> dict[str, DPSmoothConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    common = {
      "dp_delta": 1e-6,
      "l2_clip_norm": 0.5,
      "augmentation_multiplicity": 2,
      "attack_steps": 1,
    }
    return {
      "mnist": cls(
        batch_size=2048,
        epochs=20,
        learning_rate=8.0,
        ema_decay=0.97,
        **common,
      ),
      # For the network scattering_linear: short, and without an attack.
      "scattering": cls(
        batch_size=2048,
        epochs=5,
        learning_rate=8.0,
        ema_decay=0.95,
        **{**common, "attack_steps": 0},
      ),
      "mnist_5k": cls(
        batch_size=512,
        epochs=30,
        learning_rate=4.0,
        ema_decay=0.95,
        **common,
      ),
    }

  @property
  def copies_stddev(self) -> float:
    """Of the noise of the copies."""
    if self.training_stddev is None:
      return self.smoothing_stddev
    return self.training_stddev

  @property
  def attack_radius(self) -> float:
    """Of SmoothAdv."""
    if self.attack_eps is None:
      return 2 * self.smoothing_stddev
    return self.attack_eps


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DPSmooth(dp_sgd.DPSGD):
  """DP-SGD for a classifier that is deployed smoothed.

  After the idea of Wu et al., "Augment then Smooth" (2024). The loss of an
  example (x, y) is

    mean_k CE(f(x + noise_k), y) + weight * R(f(x + noise_1), ...),

  with K fresh Gaussian draws a step and a regulariser R of the copies of this
  one example (`losses.smoothing`). With SmoothAdv (Salman et al. 2019) x is
  first moved against the soft vote of the same K copies. All of it is one loss
  and hence one clipped gradient: neither K nor R nor the attack costs privacy.

  Guarantee: (dp_epsilon, dp_delta)-DP of the weights, add-or-remove-one, as
  for DP-SGD. Robustness: `certifier()` smooths the released model; its
  certificates hold for any weights, and training only makes them larger.

  Args:
    network: any Keras classifier that returns logits, without batch
      normalisation.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  config_class = DPSmoothConfig

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Builds the attack, then what DP-SGD needs."""
    config = self.config
    self._attack = config.attack_steps and attacks.PGD(
      config.attack_radius,
      "l2",
      tuple(value_range),
      steps=config.attack_steps,
      random_start=False,
    )
    super().prepare(plan, shape, value_range, num_classes)

  def _example_losses(self, batch, seed):
    """The loss of each example over its K copies."""
    images, labels = batch
    config = self.config
    fold_in = randomness.fold_in
    copies, count = config.augmentation_multiplicity, images.shape[0]
    # Before the noise one shift for all copies: they are to agree.
    images = data.augment(
      images, config.augmentation, fold_in(seed, _SHIFT_STREAM)
    )
    noise = config.copies_stddev * tf.random.stateless_normal(
      [count, copies, *images.shape[1:]], fold_in(seed, _NOISE_STREAM)
    )

    def logits_of(rows):  # [B, R, ...] -> [B, R, C], an example's rows together
      flat = tf.reshape(rows, [-1, *images.shape[1:]])
      logits = self.network(flat, training=True)
      return tf.reshape(logits, [count, rows.shape[1], logits.shape[-1]])

    if self._attack:
      images = self._attack(
        lambda x: losses.smoothing.soft_vote(logits_of(x[:, None] + noise)),
        images,
        labels,
        fold_in(seed, _ATTACK_STREAM),
        self._attack_radius(),
      )
    rows = images[:, tf.newaxis] + noise
    if config.regularizer == "stability":
      rows = tf.concat([images[:, tf.newaxis], rows], axis=1)
    logits = logits_of(rows)
    votes = losses.smoothing.soft_vote(logits[:, -copies:])
    predictions = tf.argmax(votes, axis=1, output_type=labels.dtype)
    return self._loss(logits, labels), {"correct": predictions == labels}

  def _attack_radius(self) -> tf.Tensor:
    """The radius at this step: the whole of it after the warm-up."""
    config = self.config
    step = tf.cast(self._state.step, tf.float32)
    share = tf.minimum((step + 1) / max(config.attack_warmup, 1), 1.0)
    return config.attack_radius * share

  def _loss(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Cross-entropy and regulariser; a clean row, if any, comes first."""
    config = self.config
    noisy = logits[:, -config.augmentation_multiplicity :]
    value = losses.smoothing.mean_cross_entropy(noisy, labels)
    if config.regularizer == "none":
      return value
    term = {
      "stability": lambda: losses.smoothing.stability(noisy, logits[:, 0]),
      "consistency": lambda: losses.smoothing.consistency(
        noisy, config.entropy_weight
      ),
      "macer": lambda: losses.smoothing.macer(
        noisy,
        labels,
        config.copies_stddev,
        config.macer_margin,
        config.macer_sharpness,
      ),
    }[config.regularizer]()
    return value + config.regularizer_weight * term

  def certifier(self, **settings: Any) -> certify.RandomizedSmoothing:
    """Smoothing with `smoothing_stddev`; `settings` are the certifier's."""
    return certify.RandomizedSmoothing(self.config.smoothing_stddev, **settings)
