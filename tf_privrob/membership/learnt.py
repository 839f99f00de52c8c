"""A small network that learns, class by class, what members look like.

"model-infer" of Song et al. 2019 (Section 5.2.5, Table 7), after Shokri et al.
2017: for every class, a fully connected network sees whole prediction vectors.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from tf_privrob import validate
from tf_privrob.membership import inference
from tf_privrob.membership import outputs as outputs_lib
from tf_privrob.membership import scores as scores_lib
from tf_privrob.membership import thresholds

FEATURES = ("benign", "adversarial", "targeted")
_UNITS = (200, 20)  # and 2 outputs


def model_inference(
  outputs: outputs_lib.Outputs,
  features: str = "benign",
  num_fit: int = 500,
  seed: int = 0,
  epochs: int = 100,
  batch_size: int = 100,
  learning_rate: float = 1e-3,
  log_features: bool = False,
  confidence: float = 0.95,
) -> inference.Inference:
  """A 200-20-2 ReLU network for each class, on prediction vectors.

  `num_fit` members and as many non-members of a class train its network, all
  others are judged: member iff the network's probability of "member" is at
  least 1/2. Its log-odds are the score of the pooled ROC curve. How the network
  is trained is not published: Adam on the mean cross-entropy here.

  Args:
    outputs: Outputs of the model.
    features: "benign" (k numbers), "adversarial" (k), or "targeted": the
      (k - 1) k probabilities on adversarial examples for all other classes.
    num_fit: Members, and non-members, of each class to learn on.
    seed: Seed of the split, the first weights and the order of batches; the
      same seed gives the same result.
    epochs: Over the points to learn on.
    batch_size: Points in a step.
    learning_rate: Learning rate of Adam.
    log_features: Learn on standardised log-probabilities, not on
      probabilities, which saturate.
    confidence: Confidence of the intervals.
  """
  validate.one_of(FEATURES, features=features)
  validate.positive_int(epochs=epochs, batch_size=batch_size)
  validate.positive(learning_rate=learning_rate)
  pair = [_features(part, log_features) for part in outputs.need(features)]
  splits = list(thresholds.class_splits(outputs, num_fit, seed))
  trainer = _Trainer(pair[0].shape[1], 2 * num_fit, batch_size, learning_rate)
  rows, judged = [], []
  for label, fit, rest in splits:
    known = np.concatenate([part[row] for part, row in zip(pair, fit)])
    centre, scale = np.zeros(1), np.ones(1)
    if log_features:
      centre, scale = known.mean(axis=0), known.std(axis=0) + 1e-6
    trainer.fit((known - centre) / scale, [seed, label], epochs)
    odds = [
      trainer.log_odds((part[row] - centre) / scale)
      for part, row in zip(pair, rest)
    ]
    scores = scores_lib.Scores(f"model_{features}", *odds)
    rows.append(thresholds.class_row(label, scores, 0.0, confidence))
    judged.append(odds)
  return inference.judge(
    scores_lib.Scores(f"model_{features}", *map(np.concatenate, zip(*judged))),
    0.0,
    strategy="model_inference",
    label=f"model-infer ({_WORDS[features]}), a network for each class",
    confidence=confidence,
    per_class=tuple(rows),
  )


_WORDS = {
  "benign": "benign",
  "adversarial": "untargeted",
  "targeted": "targeted",
}


def _features(logits: np.ndarray, log_features: bool) -> np.ndarray:
  logs = special.log_softmax(logits.astype(np.float64), axis=-1)
  flat = logs.reshape(len(logs), -1)
  return flat if log_features else np.exp(flat)


class _Trainer:
  """One network and one traced training loop, started anew for each class."""

  def __init__(self, width: int, count: int, batch_size: int, rate: float):
    import tensorflow as tf

    self._tf = tf
    dense = tf.keras.layers.Dense
    self._network = tf.keras.Sequential(
      [
        tf.keras.layers.Input((width,)),
        *(dense(units, "relu") for units in _UNITS),
        dense(2),
      ]
    )
    self._count, self._batch = count, min(batch_size, count)
    self._optimizer = tf.keras.optimizers.Adam(rate)
    self._optimizer.build(self._network.trainable_variables)
    self._step_all = tf.function(self._loop)

  def _loop(self, x, y, batches):
    tf, variables = self._tf, self._network.trainable_variables
    for rows in batches:
      with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
          tf.gather(y, rows), self._network(tf.gather(x, rows))
        )
        loss = tf.reduce_mean(losses)
      gradients = tape.gradient(loss, variables)
      self._optimizer.apply_gradients(zip(gradients, variables))

  def fit(self, x: np.ndarray, seed: list[int], epochs: int) -> None:
    """Learns that the first half of the rows are members."""
    tf = self._tf
    rng = np.random.default_rng(seed)
    for variable in self._optimizer.variables:
      if variable.dtype.is_floating and variable.shape.rank:
        variable.assign(tf.zeros_like(variable))
    self._optimizer.iterations.assign(0)
    for variable in self._network.trainable_variables:
      shape = variable.shape.as_list()
      bound = np.sqrt(6 / sum(shape)) if len(shape) == 2 else 0  # Glorot
      variable.assign(rng.uniform(-bound, bound, shape).astype(np.float32))
    usable = self._count // self._batch * self._batch
    batches = [
      rng.permutation(self._count)[:usable].reshape(-1, self._batch)
      for _ in range(epochs)
    ]
    half = self._count // 2
    labels = np.repeat([1, 0], [half, self._count - half])
    self._step_all(
      tf.constant(x, tf.float32),
      tf.constant(labels, tf.int32),
      tf.constant(np.concatenate(batches), tf.int32),
    )

  def log_odds(self, x: np.ndarray) -> np.ndarray:
    """Log of P(member) / P(non-member)."""
    tf = self._tf
    logits = self._network(tf.constant(x, tf.float32)).numpy()
    return logits[:, 1].astype(np.float64) - logits[:, 0]
