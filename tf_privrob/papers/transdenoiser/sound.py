"""The sound heir of TransDenoiser: DP-SGD for a denoiser, or none."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import data
from tf_privrob import losses
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import trainer
from tf_privrob.papers.transdenoiser import config as transdenoiser_config
from tf_privrob.papers.transdenoiser import denoising

_SHIFT_STREAM, _NOISE_STREAM = 0, 1


class _Copies(denoising.Denoising):
  """The loss of a denoiser over noisy copies.

  The loss of an example (x, y) is the mean over K fresh copies z = x + noise of

    |g(z) - x|^2                        "mse" (TransDenoiser, Eq. 1),
    CE(argmax h(x), h(g(z)))            "stability" (Salman et al. 2020, Eq. 3),
    CE(y, h(g(z)))                      "classification",

  or of the first until a share `mse_share` of the steps is behind, and of the
  second from then on: "mse_then_stability", their fine-tuning. Which step it is
  depends on no example.
  """

  def example_losses(self, batch, seed):
    """The objective of each example, averaged over its K copies."""
    images, labels = batch
    config = self.config
    fold_in = randomness.fold_in
    count, copies = images.shape[0], config.augmentation_multiplicity
    images = data.augment(
      images, config.augmentation, fold_in(seed, _SHIFT_STREAM)
    )
    clean = tf.repeat(images, copies, axis=0)
    noisy = clean + self.input_noise(
      tf.shape(clean), fold_in(seed, _NOISE_STREAM)
    )
    denoised = self.denoiser(noisy, training=True)
    errors = denoised - clean
    squared = tf.reduce_sum(errors**2, axis=range(1, errors.shape.rank))
    squared = tf.reshape(squared, [count, copies])
    if config.objective == "mse":
      return tf.reduce_mean(squared, axis=1), {}
    logits = self.classifier(denoised, training=True)
    logits = tf.reshape(logits, [count, copies, -1])
    votes = losses.smoothing.soft_vote(logits)
    predictions = tf.argmax(votes, axis=1, output_type=labels.dtype)
    # TensorFlow's function of both goes by the place of a row.
    targets = self._targets(images, labels, logits)
    found = -tf.reduce_sum(targets * tf.nn.log_softmax(logits), axis=-1)
    if config.objective == "mse_then_stability":
      found = tf.where(self._before_stability, squared, found)
    metrics = {"correct": predictions == labels}
    return tf.reduce_mean(found, axis=1), metrics

  def _targets(self, images, labels, logits) -> tf.Tensor:
    """Which class the copies are to have, [B, K, C], as 0 and 1."""
    wanted = labels
    if self.config.objective != "classification":
      wanted = tf.argmax(self.classifier(images), axis=1)
    targets = tf.one_hot(wanted, logits.shape[-1])
    return tf.repeat(targets[:, None], logits.shape[1], axis=1)

  @property
  def _before_stability(self) -> tf.Tensor:
    """Whether the present step still minimises the squared error."""
    context = self.context
    return context.step < round(self.config.mse_share * context.steps)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class SoundTransDenoiser(_Copies, dp_sgd.DPSGD):
  """Trains a denoiser by DP-SGD; the noise at the input costs and saves none.

  The loss of an example is that of `_Copies`: one clipped gradient an example,
  Poisson batches, one draw of noise a step: TransDenoiser's ablation "sepdp"
  with its open ends closed. That the objective may look through the classifier
  costs no privacy, either.

  Guarantee: (dp_epsilon, dp_delta)-DP of the denoiser's weights, add-or-remove-
  one, as for DP-SGD, if the classifier is public. Input noise cannot harm:
  given the noise, each step is a Gaussian mechanism of the same sensitivity.
  Robustness: `certifier()` smooths h(g(.)).

  Args: see `papers.transdenoiser.denoising.Denoising`.
  """

  config_class = transdenoiser_config.SoundTransDenoiserConfig

  def statement(self) -> privacy.PrivacyStatement:
    """DP-SGD's, if the classifier is public."""
    found = super().statement()
    return found.replace(assumptions=(*found.assumptions, *self.assumptions()))


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DenoisedSmoothing(_Copies, trainer.Trainer):
  """Denoised smoothing (Salman et al. 2020): the reference without privacy.

  The loss of an example is that of `_Copies`.

  Guarantee: privacy none. Robustness: `certifier()` smooths h(g(.)).

  Args: see `papers.transdenoiser.denoising.Denoising`.
  """

  config_class = transdenoiser_config.DenoisedSmoothingConfig
  not_private = denoising.NOT_PRIVATE
