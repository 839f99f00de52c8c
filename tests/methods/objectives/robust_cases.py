"""Tiny networks, data and settings of all objectives but smoothing's."""

import numpy as np
import tensorflow as tf

from tf_privrob import methods
from tf_privrob import models

SHAPE, CLASSES, COUNT = (4, 4, 1), 3, 64
SMALL = {"batch_size": 16, "epochs": 1.0, "learning_rate": 0.05, "seed": 0}
PRIVATE = {
  "dp_epsilon": 50.0,
  "dp_delta": 1e-3,
  "noise_multiplier": 1.0,
  "optimizer": "adam",
}

CASES = {
  "natural": methods.Natural(),
  "pgd": methods.Adversarial(attack_steps=2, natural_share=0.3),
  "pgd_half": methods.Adversarial(attack_steps=2, adversarial_ratio=0.5),
  "trades": methods.Trades(attack_steps=2, beta=3.0),
  "wrm_linf": methods.WRM(attack_steps=2, mean_over="example"),
  "wrm_l2": methods.WRM(attack_steps=2, norm="l2"),
  "ibp": methods.IBP(),
  "box": methods.DiffAI(),
  "zonotope": methods.DiffAI(domain="hybrid_zonotope", relu="smooth"),
  "dual": methods.DualLoss(),
  "dual_median": methods.DualLoss(norm="l1_median", projections=5),
}
VERIFIED = ("ibp", "box", "zonotope", "dual", "dual_median")


def arrays(count=COUNT, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.random((count, *SHAPE), "float32")
  return x, (x[:, 0, 0, 0] * CLASSES).astype("int64").clip(0, CLASSES - 1)


def tensors(count, seed=0):
  return tuple(tf.constant(array) for array in arrays(count, seed))


def network(seed=0):
  return models.mlp(SHAPE, CLASSES, hidden=(6,), seed=seed)


def linear(weights, bias=0.0):
  """A linear network, so that losses and gradients are known by hand."""
  weights = np.asarray(weights, np.float32)
  layer = tf.keras.layers.Dense(weights.shape[1])
  net = tf.keras.Sequential([tf.keras.Input((weights.shape[0],)), layer])
  layer.set_weights([weights, np.full(weights.shape[1], bias, np.float32)])
  return net


def settings(case, private=False, **changes):
  """Settings with the objective of a case; changes are of either."""
  kind = methods.DPSGDConfig if private else methods.TrainingConfig
  own = {**SMALL, **(PRIVATE if private else {})}
  return kind(**own, objective=CASES[case]).changed(**changes)


def build(case, net=None, private=False, **changes):
  kind = methods.DPSGD if private else methods.Trainer
  return kind(net or network(), settings(case, private, **changes))


def prepared(case, net=None, count=COUNT, **changes):
  return prepare(build(case, net, **changes), count)


def prepare(method, count=COUNT, value_range=(0.0, 1.0)):
  method.simulate(count, value_range)
  return method


def example_losses(method, x, y, seed):
  return method.objective.example_losses(method.context, x, y, seed)


def row_losses(method, x, y, seed=(7, 8), **more):
  seed = tf.constant(seed)
  return method.objective.row_losses(method.context, x, y, seed, **more)


def softmax(logits):
  powers = np.exp(logits - logits.max(1, keepdims=True))
  return powers / powers.sum(1, keepdims=True)


def cross_entropy(logits, labels):
  return -np.log(softmax(np.asarray(logits)))[np.arange(len(labels)), labels]
