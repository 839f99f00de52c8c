"""TRADES (Zhang et al. 2019): accuracy, and agreement with the neighbours."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods.objectives import adversarial


@dataclasses.dataclass(frozen=True)
class Trades(adversarial.SignSteps):
  """Training for the label at x, and for the same answer around it.

  The loss of an example is

    CE(f(x), y) + beta KL(p(x) || p(x_adv)), p = softmax(f),

  up to a factor CCS 2019's Eq. 6 with alpha = 1 / (1 + beta). x_adv climbs the
  same divergence (Eq. 12) from x + 0.001 N(0, I), against the network in
  inference mode and with p(x) held fixed. CCS 2019 writes the divergence of
  Eq. 11 with its arguments exchanged; its code and Zhang et al.'s are as here.

  Robustness is measured by attacks; nothing is proven. x_adv is made from the
  example itself, so that both terms can be one clipped gradient.

  Attributes:
    beta: weight of the divergence beside the cross-entropy.
    detach_clean: no gradient through the clean side of the divergence, as in
      CCS 2019's code; Zhang et al. let it flow.
    start_stddev: of the noise at the start; at the clean input itself the
      divergence has no gradient.
  """

  beta: float = 1.0
  detach_clean: bool = False
  start_stddev: float = 0.001

  def __post_init__(self):
    super().__post_init__()
    validate.boolean(detach_clean=self.detach_clean)
    validate.non_negative(beta=self.beta)
    validate.positive(start_stddev=self.start_stddev)

  def row_losses(self, context, rows, labels, seed):
    """Cross-entropy at x, and the divergence around it after the warm-up."""
    found = self.adversarial_examples(context, rows, seed)
    clean = context.network(rows, training=True)
    moved = context.network(found, training=True)
    target = tf.stop_gradient(clean) if self.detach_clean else clean
    weight = tf.where(self.ramp.is_warm(context), self.beta, 0.0)
    natural = objective_lib.cross_entropy(labels, clean)
    return natural + weight * kl(target, moved), {
      "correct": objective_lib.correct(labels, clean),
      "robust_correct": objective_lib.correct(labels, moved),
    }

  def adversarial_examples(self, context, rows, seed) -> tf.Tensor:
    """What a training step makes of these examples, at this step's radius."""
    network = context.network
    clean = tf.stop_gradient(network(rows, training=False))
    noise = tf.random.stateless_normal(tf.shape(rows), seed, dtype=rows.dtype)
    return self.walk(
      context,
      lambda x: kl(clean, network(x, training=False)),
      rows,
      rows + self.start_stddev * noise,
    )


def kl(logits: tf.Tensor, other_logits: tf.Tensor) -> tf.Tensor:
  """KL(softmax(logits) || softmax(other_logits)), one value a row."""
  log_p, log_q = (tf.nn.log_softmax(z) for z in (logits, other_logits))
  return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=1)
