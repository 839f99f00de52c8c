"""Distributional adversarial training, WRM (Sinha, Namkoong, Duchi 2018)."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods.objectives import inner

NORMS = ("l2", "linf")
SCOPES = ("batch", "example")


@dataclasses.dataclass(frozen=True)
class WRM(objective_lib.Objective):
  """Training on examples that pay for the distance they move.

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

  Robustness is measured by attacks; Sinha et al.'s statement about l2 needs
  smooth losses and is not claimed. With means over examples x' is made from the
  example itself, as DP-SGD needs it.

  Attributes:
    norm: "linf" as in CCS 2019, or "l2" as in Sinha et al.
    attack_steps: k.
    step_scale: a of "linf"; of "l2" 1 / (2 gamma), gamma the price of moving.
    mean_over: of "linf": mean |G| over the "batch", as published, or over each
      "example", which DP-SGD needs.
    label_smoothing: share of the label that goes to all classes alike.
  """

  norm: str = "linf"
  attack_steps: int = 10
  step_scale: float = 1.0
  mean_over: str = "batch"
  label_smoothing: float = 0.0

  def __post_init__(self):
    validate.one_of(NORMS, norm=self.norm)
    validate.one_of(SCOPES, mean_over=self.mean_over)
    validate.positive_int(attack_steps=self.attack_steps)
    validate.positive(step_scale=self.step_scale)
    validate.closed_probability(label_smoothing=self.label_smoothing)

  @property
  def mixes(self) -> str:
    """The published mean is over a batch."""
    if self.norm != "linf" or self.mean_over != "batch":
      return ""
    return (
      "mean_over='batch', a mean by which one example's attack depends on the"
      " others. Set mean_over='example'"
    )

  def check_copies(self, augmentation: str) -> None:
    """Refuses copies that leave the value range."""
    objective_lib.require_shifts(augmentation)

  def row_losses(self, context, rows, labels, seed):
    """The cross-entropy of rows that were moved."""
    del seed
    found = self.adversarial_examples(context, rows, labels)
    logits = context.network(found, training=True)
    return self.cross_entropy(labels, logits), {
      "robust_correct": objective_lib.correct(labels, logits)
    }

  def cross_entropy(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """With smoothed labels, one value a row."""
    smoothing, classes = self.label_smoothing, logits.shape[-1]
    if not smoothing:
      return objective_lib.cross_entropy(labels, logits)
    target = (1 - smoothing) * tf.one_hot(labels, classes) + smoothing / classes
    # TensorFlow's function of both goes by the place of a row.
    return -tf.reduce_sum(target * tf.nn.log_softmax(logits), axis=-1)

  def adversarial_examples(self, context, rows, labels) -> tf.Tensor:
    """What a training step makes of these examples."""
    move, steps = self._linf_move(rows, context.value_range), self.attack_steps
    if self.norm == "l2":
      move, steps = self._l2_move(rows), self.attack_steps + 1
    network = context.network
    return inner.ascend(
      lambda x: self.cross_entropy(labels, network(x, training=False)),
      rows,
      move,
      steps,
    )

  def _l2_move(self, rows):
    def move(number, x, grad):
      # Number 0 is the whole step from x; t = number - 1 after it.
      share = tf.math.rsqrt(tf.cast(number + 1, x.dtype))
      return x + share * (self.step_scale * grad - (x - rows))

    return move

  def _linf_move(self, rows, value_range):
    axes = list(range(len(rows.shape)))
    if self.mean_over == "example":
      axes = axes[1:]

    def move(number, x, grad):
      del number
      change = self.step_scale * grad
      mean = tf.reduce_mean(tf.abs(change), axes, keepdims=True)
      x = x + change - mean * tf.sign(x + change - rows)
      return tf.clip_by_value(x, *value_range)

    return move
