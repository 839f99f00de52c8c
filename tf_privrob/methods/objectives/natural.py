"""Natural training: the cross-entropy of clean examples."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob.methods import objective as objective_lib


@dataclasses.dataclass(frozen=True)
class Natural(objective_lib.Objective):
  """CE(f(x), y), the mean over the copies of an example (CCS 2019, Eq. 2).

  Robustness: none. This is what the other objectives, with the same optimizer,
  are compared with.
  """

  def example_losses(self, context, images, labels, seed):
    """The cross-entropy of each example, averaged over its copies."""
    copies = context.copies
    losses, metrics = self.row_losses(
      context, copies.of(images, seed), tf.repeat(labels, copies.count), seed
    )
    correct = metrics["correct"][:: copies.count]
    return copies.average(losses), {"correct": correct}

  def row_losses(self, context, rows, labels, seed):
    """Of rows, under the noise that a method may draw inside the network."""
    logits = context.logits(rows, seed)
    return objective_lib.cross_entropy(labels, logits), {
      "correct": objective_lib.correct(labels, logits)
    }


NATURAL = Natural()
