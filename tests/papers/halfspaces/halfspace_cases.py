"""Small data for halfspaces, and the algorithm as a plain loop."""

import dataclasses

import numpy as np

from tests.methods import drawn
from tf_privrob import models
from tf_privrob import papers

DIMENSION, CLASSES, COUNT = 6, 3, 90
BASE = papers.HalfspacesConfig(
  dp_epsilon=8.0,
  dp_delta=1e-3,
  noise_multiplier=0.0,
  batch_size=15,
  epochs=2.0,
  margin=0.2,
  accountant="rdp",  # calibrates four times faster than "pld"
  seed=0,
)


def arrays(count=COUNT, seed=0):
  """Three classes around three directions; inputs in [0, 1]."""
  rng = np.random.default_rng(seed)
  y = np.arange(count) % CLASSES
  centre = np.eye(CLASSES, DIMENSION)[y]
  x = 0.6 * centre + 0.4 * rng.random((count, DIMENSION))
  return x.astype("float32"), y.astype("int64")


def unit(x):
  """Rows of norm 1."""
  return x / np.linalg.norm(x, axis=1, keepdims=True)


def method(**changes):
  """Halfspaces on a linear network."""
  network = models.linear((DIMENSION,), CLASSES)
  return papers.Halfspaces(network, dataclasses.replace(BASE, **changes))


def fitted(x=None, y=None, **changes):
  """Trained without a word."""
  if x is None:
    x, y = arrays()
  found = method(**changes)
  found.fit(x, y, verbose=0)
  return found


def rows_of(found, x, y):
  """Trains; returns the rows of every step."""
  rows = drawn.Rows()
  found.fit(x, y, verbose=0, callbacks=[rows])
  return rows.found


def raw(found):
  """The weights as they were trained, before their common scale is set."""
  return found.raw_weights.numpy()


def binary_step(x, y, w, k, margin):
  """Lines 5 to 11 of Algorithm 1 for one class, in one loop."""
  total = np.zeros_like(w)
  for row, label in zip(x, y):
    sign = 1 if label == k else -1
    if sign * (w @ row) <= margin * np.linalg.norm(w):
      total += sign * row
  return total


def kesler_step(x, y, weights, margin):
  """The multiclass update, in one loop."""
  total = np.zeros_like(weights)
  for row, label in zip(x, y):
    scores = row @ weights
    others = np.where(np.arange(len(scores)) == label, -np.inf, scores)
    rival = others.argmax()
    gap = scores[label] - scores[rival]
    if gap <= np.sqrt(2) * margin * np.linalg.norm(weights):
      total[:, label] += row
      total[:, rival] -= row
  return total


def by_loop(config, x, y, drawn_rows):
  """Weights without noise, from the batches that the method drew."""
  x = unit(x.astype("float64"))
  steps = round(config.epochs * len(x) / config.batch_size)
  weights = np.zeros((x.shape[1], CLASSES))
  by_class = config.composition in ("independent_batches", "paper_literal")
  assert len(drawn_rows) == steps * (CLASSES if by_class else 1)
  for step, rows in enumerate(drawn_rows):
    batch = x[rows], y[rows]
    if by_class:
      k = step % CLASSES
      weights[:, k] += binary_step(*batch, weights[:, k], k, config.margin)
    elif config.composition == "kesler":
      weights += kesler_step(*batch, weights, config.margin)
    else:
      weights += np.stack(
        [
          binary_step(*batch, weights[:, k], k, config.margin)
          for k in range(CLASSES)
        ],
        axis=1,
      )
  return weights
