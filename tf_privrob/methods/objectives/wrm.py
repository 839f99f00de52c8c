"""Distributional adversarial training, WRM (Sinha, Namkoong, Duchi 2018)."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob.methods.objectives import adversarial_config
from tf_privrob.methods.objectives import inner
from tf_privrob.methods.objectives import robust


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DistributionalTraining(robust.RobustTraining):
  """Trains on examples that pay for the distance they move.

  The loss of an example is CE(f(x'), y) (CCS 2019, Eq. 6 with alpha = 0) with
  x' an approximate maximiser of CE(f(x'), y) - gamma |x' - x|^p (Eq. 10), found
  from x with g the gradient of CE at the present x', a = `step_scale`:

  * "l2", Sinha et al.: first x' = x + a g, then for t = 0, ..., k - 1

      x' <- x' + (a g - (x' - x)) / sqrt(t + 2), a = 1 / (2 gamma),

    free to leave the value range;
  * "linf", the heuristic of CCS 2019's code: k times, with G = a g,

      x' <- clip(x' + G - mean|G| sign(x' + G - x)) to the value range,

    mean|G| over the whole batch as published, or over each example.

  Nothing is projected onto a ball. The network is in inference mode.

  Guarantee: privacy none, or with private=True (per-example means only) that of
  DP-SGD: x' is made from the example itself. Robustness is measured by attacks;
  Sinha et al.'s statement about l2 needs smooth losses and is not claimed.
  """

  config_class = adversarial_config.WRMConfig

  def _row_losses(self, rows, labels, chosen, seed):
    del chosen, seed
    found = self.adversarial_examples(rows, labels)
    logits = self.network(found, training=True)
    return self._cross_entropy(labels, logits), {
      "robust_correct": robust.correct(labels, logits)
    }

  def _cross_entropy(self, labels, logits):
    smoothing, classes = self.config.label_smoothing, logits.shape[-1]
    if not smoothing:
      return robust.cross_entropy(labels, logits)
    target = (1 - smoothing) * tf.one_hot(labels, classes) + smoothing / classes
    # TensorFlow's function of both goes by the place of a row.
    return -tf.reduce_sum(target * tf.nn.log_softmax(logits), axis=-1)

  def adversarial_examples(
    self, rows: tf.Tensor, labels: tf.Tensor
  ) -> tf.Tensor:
    """What a training step makes of these examples."""
    config = self.config
    move, steps = self._linf_move(rows), config.attack_steps
    if config.norm == "l2":
      move, steps = self._l2_move(rows), config.attack_steps + 1
    return inner.ascend(
      lambda x: self._cross_entropy(labels, self.network(x, training=False)),
      rows,
      move,
      steps,
    )

  def _l2_move(self, rows):
    def move(number, x, grad):
      # Number 0 is the whole step from x; t = number - 1 after it.
      share = tf.math.rsqrt(tf.cast(number + 1, x.dtype))
      return x + share * (self.config.step_scale * grad - (x - rows))

    return move

  def _linf_move(self, rows):
    axes = list(range(len(rows.shape)))
    if self.config.mean_over == "example":
      axes = axes[1:]

    def move(number, x, grad):
      del number
      change = self.config.step_scale * grad
      mean = tf.reduce_mean(tf.abs(change), axes, keepdims=True)
      x = x + change - mean * tf.sign(x + change - rows)
      return tf.clip_by_value(x, *self._value_range)

    return move
