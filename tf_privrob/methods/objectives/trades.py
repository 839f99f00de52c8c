"""TRADES (Zhang et al. 2019): accuracy, and agreement with the neighbours."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob.methods.objectives import adversarial
from tf_privrob.methods.objectives import adversarial_config
from tf_privrob.methods.objectives import robust


@tf.keras.saving.register_keras_serializable("tf_privrob")
class Trades(adversarial.StepsTraining):
  """Trains for the label at x, and for the same answer around it.

  The loss of an example is

    CE(f(x), y) + beta KL(p(x) || p(x_adv)), p = softmax(f),

  up to a factor CCS 2019's Eq. 6 with alpha = 1 / (1 + beta). x_adv climbs the
  same divergence (Eq. 12) from x + 0.001 N(0, I), against the network in
  inference mode and with p(x) held fixed. CCS 2019 writes the divergence of
  Eq. 11 with its arguments exchanged; its code and Zhang et al.'s are as here.

  Guarantee: privacy none, or with private=True that of DP-SGD: x_adv is made
  from the example itself, and both terms are one clipped gradient. Robustness
  is measured by attacks; nothing is proven.
  """

  config_class = adversarial_config.TradesConfig

  def _row_losses(self, rows, labels, chosen, seed):
    del chosen
    config = self.config
    found = self.adversarial_examples(rows, seed)
    clean = self.network(rows, training=True)
    moved = self.network(found, training=True)
    target = tf.stop_gradient(clean) if config.detach_clean else clean
    weight = tf.where(self._warm(), config.beta, 0.0)
    total = robust.cross_entropy(labels, clean) + weight * kl(target, moved)
    return total, {
      "correct": robust.correct(labels, clean),
      "robust_correct": robust.correct(labels, moved),
    }

  def adversarial_examples(self, rows: tf.Tensor, seed) -> tf.Tensor:
    """What a training step makes of these examples, at this step's radius."""
    clean = tf.stop_gradient(self.network(rows, training=False))
    noise = tf.random.stateless_normal(tf.shape(rows), seed, dtype=rows.dtype)
    return self._walk(
      lambda x: kl(clean, self.network(x, training=False)),
      rows,
      rows + self.config.start_stddev * noise,
    )


def kl(logits: tf.Tensor, other_logits: tf.Tensor) -> tf.Tensor:
  """KL(softmax(logits) || softmax(other_logits)), one value a row."""
  log_p, log_q = (tf.nn.log_softmax(z) for z in (logits, other_logits))
  return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=1)
