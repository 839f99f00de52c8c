"""PixelDP (Lecuyer et al. 2019): noise inside a network, and what it proves."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob import certify
from tf_privrob import layers
from tf_privrob import mechanisms
from tf_privrob import models
from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import hidden_noise
from tf_privrob.methods import noise_place
from tf_privrob.methods import trainer
from tf_privrob.papers.pixeldp import layer as noise_layer
from tf_privrob.papers.pixeldp import projection

_DRAW_STREAM = 7  # of the step's seed for copies
_RAMP_DECAY, _RAMP_START, _RAMP_END = 0.99975, 0.9, 0.9


@dataclasses.dataclass(frozen=True)
class PixelDPConfig(trainer.PlainConfig):
  """Settings of `PixelDP`, which trains without privacy.

  Attributes:
    layer: the noise; `augmentation_multiplicity` is also the number K of noise
      draws an example.
  """

  learning_rate_schedule: str = "cosine"
  layer: noise_layer.NoiseLayer = noise_layer.PUBLISHED

  def __post_init__(self):
    super().__post_init__()
    validate.instance(noise_layer.NoiseLayer, layer=self.layer)

  @classmethod
  def presets(cls) -> dict[str, PixelDPConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    return {
      "mnist": cls(batch_size=128, epochs=12),
      "mnist_5k": cls(batch_size=64, epochs=20),
    }


@dataclasses.dataclass(frozen=True)
class PrivatePixelDPConfig(dp_sgd.BudgetConfig):
  """Settings of `PrivatePixelDP`: those of DP-SGD, and of the noise.

  Attributes:
    layer: the noise; `augmentation_multiplicity` is also the number K of noise
      draws an example.
  """

  layer: noise_layer.NoiseLayer = noise_layer.PUBLISHED

  def __post_init__(self):
    super().__post_init__()
    validate.instance(noise_layer.NoiseLayer, layer=self.layer)

  @classmethod
  def presets(cls) -> dict[str, PrivatePixelDPConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    common = {"epochs": 40, "l2_clip_norm": 0.5, "ema_decay": 0.95}
    return {
      "mnist_private": cls(batch_size=2048, learning_rate=4.0, **common),
      "mnist_5k_private": cls(batch_size=512, learning_rate=2.0, **common),
    }


class _UnderNoise(hidden_noise.HiddenNoise):
  """What both trainings share: the noise, the projection, the certificate.

  With h(x) the network up to the noise and g the rest, the loss of an example
  is the mean cross-entropy of g(h(x) + noise) over K fresh draws. After each
  step the kernels before the noise are projected, so that a change of x by L
  moves h by about L at most, the size the noise is made for.

  Robustness: `certifier()` gives a proven radius for the smoothed classifier
  argmax_k E g_k(h(x) + noise). It divides by the certified norm of the trained
  layers before the noise; the projection only keeps it small.

  A call is the network without noise: deterministic, as `predict` and
  `evaluate` of any Keras model. Certification draws the noise itself;
  `noisy_logits` is one draw of it, for attacks.
  """

  def _find_place(self, network: tf.keras.Model) -> noise_place.NoisePlace:
    layer = self.config.layer
    return noise_place.find(network, layer.noise_after, layer.noise_position)

  # Noise.

  def noisy_logits(self, x: tf.Tensor, seed) -> tf.Tensor:
    """One fresh draw of what is certified, for attacks with EOT."""
    hidden = self._place.before(x)
    return self._place.after(hidden + self._draw(tf.shape(hidden), seed))

  def _draw(self, shape: tf.Tensor, seed) -> tf.Tensor:
    laplace = self.config.layer.noise == "laplace"
    kind = layers.LaplaceNoise if laplace else layers.GaussianNoise
    noise = kind(self.config.layer.noise_scale, fixed=False)
    return noise.draw(shape, mechanisms.stateless_seed(seed))

  def training_logits(self, images: tf.Tensor, seed) -> tf.Tensor:
    hidden = self._place.before(images, training=True)
    seed = randomness.fold_in(seed, _DRAW_STREAM)
    noise = self._draw(tf.shape(hidden), seed)
    if self.config.layer.noise_ramp:
      noise *= noise_ramp(self.run_state.step)
    return self._place.after(hidden + noise, training=True)

  # Training.

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Projects the initial weights, then builds what the training needs."""
    layer = self.config.layer
    self._projection = projection.Projection(
      self._place,
      layer.projection,
      layer.attack_norm,
      layer.hidden_norm,
      layer.parseval_loops,
    )
    self._projection.start()
    super().prepare(plan, shape, value_range, num_classes)

  def after_update(self) -> None:
    self._projection()

  # Guarantees.

  def certifier(
    self, norm: str | None = None, **settings
  ) -> certify.SingleLayerCertificate:
    """The certificate for the weights as they are now.

    Args:
      norm: of the radius; the config's attack_norm by default.
      **settings: of `SingleLayerCertificate`: rule ("tight"; "pixeldp" or
        "pure_dp" as in the paper), bound, num_estimation, confidence, ...
    """
    norm = norm or self.config.layer.attack_norm
    hidden = self.config.layer.noise_after > 0
    return certify.SingleLayerCertificate(
      self.config.layer.noise_scale,
      position="hidden" if hidden else "input",
      norm=norm,
      operator_norm=(
        self._place.norms().bound(norm, self.config.layer.hidden_norm)
        if hidden
        else None
      ),
      distribution=self.config.layer.noise,
      weights=models.fingerprint(self),
      **settings,
    )


@tf.keras.saving.register_keras_serializable("tf_privrob")
class PixelDP(_UnderNoise, trainer.Trainer):
  """Trains a network under noise behind its first layers, and certifies it.

  The loss, the projection and the certificate are those of `_UnderNoise`.

  Guarantee: privacy none. "Differential privacy" of the score in this paper is
  about pixels, not about the training data; see `PrivatePixelDP`. Robustness:
  proven radii by `certifier()`.

  Args:
    network: functional or sequential Keras classifier that returns logits.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  config_class = PixelDPConfig
  not_private = (
    "Trained without privacy: gradients were neither clipped nor noisy, so"
    " nothing is known to protect the training examples. The noise inside the"
    " network hides changes of the input from the score; it hides no training"
    " example."
  )


@tf.keras.saving.register_keras_serializable("tf_privrob")
class PrivatePixelDP(_UnderNoise, dp_sgd.DPSGD):
  """The same by DP-SGD: K draws of an example are one clipped gradient.

  Guarantee: privacy that of DP-SGD; a projection is post-processing.
  Robustness: proven radii by `certifier()`.

  Args: see `PixelDP`; the network is without batch normalisation.
  """

  config_class = PrivatePixelDPConfig


def noise_ramp(step: tf.Tensor) -> tf.Tensor:
  """PixelDP's factor 1 - min(.99975^t, .9), and 1 once it exceeds .9."""
  decay = tf.pow(_RAMP_DECAY, tf.cast(step, tf.float32))
  factor = 1 - tf.minimum(decay, _RAMP_START)
  return tf.where(factor > _RAMP_END, 1.0, factor)
