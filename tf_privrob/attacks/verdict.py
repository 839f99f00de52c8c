"""Who is right in the end: predictions, by majority over repeated draws."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from tf_privrob.attacks import graphs
from tf_privrob.attacks import randomness


def count_votes(
  logits_fn: Callable, x: tf.Tensor, seed: tf.Tensor, draws: int
) -> tf.Tensor:
  """Counts, per example and class, the draws that predict the class."""
  model = randomness.seeded(randomness.without_eot(logits_fn))

  def vote(number):
    logits = model(x, randomness.fold(seed, number))
    return tf.one_hot(tf.argmax(logits, axis=-1), logits.shape[-1])

  if draws == 1:
    return vote(0)
  first = vote(0)
  _, votes = tf.while_loop(
    lambda number, votes: number < draws,
    lambda number, votes: (number + 1, votes + vote(number)),
    (1, first),
    parallel_iterations=1,
  )
  return votes


def predicts(votes: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
  """Whether `label` has strictly more votes than every other class."""
  is_label = tf.one_hot(label, votes.shape[-1], on_value=True, off_value=False)
  other = tf.reduce_max(tf.where(is_label, -1.0, votes), axis=-1)
  return tf.gather(votes, label, axis=-1, batch_dims=1) > other


def judge(logits_fn: Callable, draws: int) -> Callable:
  """Returns a compiled `fn(x, label, seed)` -> bool [n], by majority vote."""
  traced = graphs.Traced(
    lambda x, label, seed: predicts(
      count_votes(logits_fn, x, seed, draws), label
    )
  )
  return lambda x, label, seed: traced(
    x=x, label=tf.cast(label, tf.int32), seed=seed
  )
