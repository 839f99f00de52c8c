"""A sound heir of SecureSGD: fresh noise at h, DP-SGD, a proven radius."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.mechanisms import heterogeneous
from tf_privrob.methods import checks
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import hidden_noise
from tf_privrob.methods import identity
from tf_privrob.methods import plan as training_plan
from tf_privrob.methods import relevance
from tf_privrob.papers.secure_sgd import config as secure_sgd_config

_NOISE_STREAM = 1  # the copies of an example use the seed as it is
_PUBLIC_REDISTRIBUTION = privacy.Assumption(
  "the redistribution vector that was given, or the data behind it, are public",
  "the caller",
)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class SoundSecureSGD(hidden_noise.HiddenNoise, dp_sgd.DPSGD):
  """DP-SGD under fresh heterogeneous Gaussian noise at the first hidden layer.

  With h = A x + b the first layer before its activation, the network is trained
  and certified under

    h_k + N(0, stddev^2 r_k),   stddev = hidden_noise s_max(W_1),   sum r = K,

  a fresh draw for every example, copy and step. r is uniform, public, or
  released once under DP: the sum of every example's |dL/dh| under the starting
  weights, clipped to l2 norm C, plus Gaussian noise. The floor that keeps r > 0
  and the normalisation are post-processing.

  Privacy: (dp_epsilon, dp_delta)-DP of r and weights together, add-or-remove-
  one, by composition of that release with all steps of DP-SGD. The noise at h
  plays no part in it: it is part of the loss of an example.

  Robustness: `certifier()` proves radii of the smoothed classifier from that
  one noise layer, with the norm ||D^-1 A||_{p->2} of the trained weights,
  D = diag(stddev sqrt(r)).

  Only trainable layers are trained: with `models.denoised_classifier` that is a
  denoiser in front of a classifier which stays as it is, and privacy and
  radius are those of the two together.

  Args:
    network: Keras classifier that begins with Conv2D or Dense, the only way
      from the input to the logits, without batch normalisation.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    redistribution: a public r of the shape of h, with sum K, > 0.
    public_data: instead, (x, y) of a public data set to compute r from.
    **kwargs: Keras' own.
  """

  config_class = secure_sgd_config.SoundSecureSGDConfig

  def __init__(
    self,
    network: tf.keras.Model,
    config: secure_sgd_config.SoundSecureSGDConfig | None = None,
    record: dict[str, Any] | None = None,
    redistribution: np.ndarray | None = None,
    public_data: tuple[np.ndarray, np.ndarray] | None = None,
    **kwargs,
  ):
    super().__init__(network, config, record, **kwargs)
    self._public = _PublicSource(
      redistribution, public_data, self.hidden_noise_shape
    )
    if self._public.given:
      if self.config.redistribution.kind == "private":
        raise ValueError(
          "Expected kind='uniform' in the settings of the redistribution where"
          " a public one is given: received 'private', which would release"
          " another."
        )
      self._run_record["redistribution"] = "public"
    self.redistribution = self.add_weight(
      "redistribution",
      self.hidden_noise_shape,
      initializer="ones",
      trainable=False,
    )

  # The redistribution vector.

  @property
  def _source(self) -> str:
    """Where r comes from: uniform, private or public."""
    return self._run_record.get(
      "redistribution", self.config.redistribution.kind
    )

  @property
  def mechanism(self) -> mechanisms.GaussianMechanism:
    """Of the release of r; its sensitivity is the clipping norm."""
    return mechanisms.GaussianMechanism.analytic(
      self.config.redistribution.release_clip_norm,
      self.config.redistribution.release_dp_epsilon,
      self.config.dp_delta,
    )

  def check_data(self, x, y, value_range) -> None:
    """Refuses public data that do not fit."""
    if self._public.data is not None:
      public_x, public_y = self._public.data
      validate.examples(value_range, x.ndim, public_x=public_x)
      validate.labels(
        self.network.output_shape[-1], len(public_x), public_y=public_y
      )

  def given(self) -> dict[str, Any]:
    """A public r, or the public data behind it."""
    public = self._public
    return {
      "redistribution": identity.public_hash(public.redistribution),
      "public_data": identity.public_hash(*(public.data or ())),
    }

  def begin(self, x, y, value_range) -> None:
    """Releases r, or reads that of a resumed run."""
    found = self._public.redistribution
    if self._public.data is not None:
      found = self.redistribution_of(self.importance(*self._public.data))
    elif self._source == "private":
      released, releases = self.outlet.once(
        "redistribution",
        lambda key: self.noisy_importance(x, y, key),
        {"noise_multiplier": self.mechanism.noise_multiplier},
      )
      self._run_record["redistribution_releases"] = releases
      found = self.redistribution_of(released)
    if found is not None:
      self.redistribution.assign(found)

  def may_end(self) -> str | None:
    """An operation in the release of r, or in the pass of a batch."""
    found = super().may_end()
    if found is None and self._source == "private":
      found = hidden_noise.hidden_gradients_may_end(self.place)
    return found

  def importance(self, x, y) -> np.ndarray:
    """Sum over examples of |dL/dh|, each clipped in the l2 norm; no noise."""
    clip_norm = self.config.redistribution.release_clip_norm
    total = np.zeros(self.hidden_noise_shape)
    for gradients in hidden_noise.hidden_gradients(self._place, x, y):
      magnitudes = np.abs(gradients.astype(np.float64))
      total += relevance.clip(magnitudes, clip_norm, 2).sum(axis=0)
    return total

  def noisy_importance(self, x, y, key: randomness.Key) -> np.ndarray:
    """The noisy sum, of sensitivity C for one added or removed example.

    What is released, once it has been paid for.
    """
    total = tf.constant(self.importance(x, y), tf.float64)
    return self.mechanism.add_noise(total, key).numpy()

  def redistribution_of(self, importance: np.ndarray) -> np.ndarray:
    """R from an importance of any scale: floor, power, sum K."""
    settings = self.config.redistribution
    relative = hidden_noise.normalised(np.maximum(importance, 0.0))
    floored = relative + settings.floor
    return hidden_noise.normalised(floored**settings.power)

  def _redistribution_releases(self) -> int:
    if self._source != "private":
      return 0
    return self._run_record.get("redistribution_releases", 1)

  # Training.

  def hidden_stddev(self) -> tf.Tensor:
    """Of the noise at each hidden unit, under the weights as they are."""
    kernel = hidden_noise.first_kernel(self._place)
    scale = self.config.hidden_noise * hidden_noise.kernel_norm(kernel)
    return scale * tf.sqrt(self.redistribution)

  def training_logits(self, images: tf.Tensor, seed) -> tf.Tensor:
    """Logits of each copy under a fresh draw of its own."""
    seed = randomness.fold_in(seed, _NOISE_STREAM)
    hidden = self._place.before(images, training=True)
    noise = tf.random.stateless_normal(tf.shape(hidden), seed)
    return self._place.after(
      hidden + tf.stop_gradient(self.hidden_stddev()) * noise, training=True
    )

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Noise and steps for what the release of r leaves of the budget."""
    shape = tuple(input_shape or checks.input_shape(self.network))
    return training_plan.make(
      self.config, num_examples, shape, tuple(self.extra_releases())
    )

  def extra_releases(self) -> list[privacy.Release]:
    """R, as often as its release was begun."""
    count = self._redistribution_releases()
    if not count:
      return []
    return [
      privacy.Release(
        "noisy redistribution",
        self.mechanism.event(),
        count=count,
        description="sum of |dL/dh|, clipped per example, plus Gaussian noise",
      )
    ]

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """Adds what was released besides the gradients."""
    return {
      **super().ledger_parameters(plan),
      "redistribution": self._source,
      "extra": [release.record() for release in self.extra_releases()],
    }

  def state_variables(self) -> list[tf.Variable]:
    """Adds r."""
    return [*super().state_variables(), self.redistribution]

  def statement(self) -> privacy.PrivacyStatement:
    """DP-SGD's, with r composed and what is taken to be public."""
    found = super().statement()
    if self._source != "public":
      return found
    assumed = (*found.assumptions, _PUBLIC_REDISTRIBUTION)
    return found.replace(assumptions=assumed)

  # Robustness.

  def certifier(
    self, norm: str | None = None, **settings
  ) -> certify.SingleLayerCertificate:
    """Proves radii from the noise at h, with the trained weights.

    Args:
      norm: "l1", "l2" or "linf"; None: that of the settings.
      **settings: of `certify.SingleLayerCertificate`, e.g. `num_estimation`.
    """
    return self.gaussian_certificate(
      self.hidden_stddev().numpy(), norm or self.config.norm, **settings
    )

  def noisy_logits(self, x: tf.Tensor, seed) -> tf.Tensor:
    """Logits under one fresh draw an example, for attacks with EOT."""
    x = tf.convert_to_tensor(x)
    noise = tf.random.stateless_normal(
      [tf.shape(x)[0], *self.hidden_noise_shape],
      mechanisms.stateless_seed(seed),
    )
    return self.logits_with_noise(
      x, hidden_noise=tf.stop_gradient(self.hidden_stddev()) * noise
    )


class _PublicSource:
  """What the caller gave; an object of its own, so that Keras saves none."""

  def __init__(self, redistribution, public_data, shape):
    if redistribution is not None and public_data is not None:
      raise ValueError("Expected redistribution or public_data, received both.")
    self.data = public_data
    self.redistribution = None
    if public_data is not None and len(public_data) != 2:
      raise ValueError("Expected public_data to be (x, y).")
    if redistribution is not None:
      self.redistribution = heterogeneous.check_redistribution(redistribution)
      if self.redistribution.shape != tuple(shape):
        raise ValueError(
          f"Expected redistribution of shape {tuple(shape)}, that of the first"
          f" hidden layer, received {self.redistribution.shape}."
        )
      if self.redistribution.min() == 0:
        raise ValueError(
          "Expected redistribution > 0 everywhere, received zeros: a hidden"
          " unit without noise leaves no radius."
        )

  @property
  def given(self) -> bool:
    """Whether anything was given."""
    return self.data is not None or self.redistribution is not None
