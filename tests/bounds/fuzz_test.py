"""Random networks in all sizes of float32: nothing computed is outside.

Unlike in law_test, points are in the exact ball, and no tolerance is left: the
bounds are outward, and every number that float32 computes, eagerly and in a
graph, one by one and in a batch, is inside. A bound that is NaN or infinite
says nothing, so how many are finite is counted too; where the network computes
NaN, no bound may be finite.
"""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.bounds import law_test
from tests.bounds import random_networks
from tf_privrob import bounds
from tf_privrob.bounds import projection
from tf_privrob.bounds import rounding

NUM_NETWORKS = 216
# All kinds of weights and of inputs; 92 escaped before overflow was seen behind
# activations, most others see a broken rule.
QUICK = (3, 7, 20, 32, 41, 58, 74, 92, 110, 148)
_INTERVALS = [bounds.Interval(), bounds.Interval(elide=False)]
_ZONOTOPES = [
  bounds.HybridZonotope("box"),
  bounds.HybridZonotope("switch"),
  bounds.HybridZonotope("smooth"),
  bounds.HybridZonotope("smooth", elide=False),
]
_DUALS = [bounds.Dual(), bounds.Dual(intersect=False)]


def domain_of(seed, number, relu_only):
  """The number-th of a network's four domains."""
  if relu_only and number >= 2:
    domain = _DUALS[number - 2]
  elif number == 0:
    domain = _INTERVALS[seed // 2 % 2]
  else:
    domain = _ZONOTOPES[(seed + number) % len(_ZONOTOPES)]
  return dataclasses.replace(domain, arithmetic="outward")


@functools.lru_cache(maxsize=16)
def reached(seed):
  """A case and the logits of points of its ball, [points, 2, classes]."""
  case = random_networks.build(seed)
  low, high = ball(case)
  rng = np.random.RandomState(seed)
  share = rng.rand(24, *case.x.shape)
  share = np.concatenate([share, np.round(share)])
  points = low + share * (high.astype(float) - low)
  points = [case.x[None], points.astype(np.float32), *climbed(case, low, high)]
  points = np.clip(np.concatenate(points), low, high)
  flat = tf.constant(points.reshape(-1, *case.x.shape[1:]))
  logits = [
    case.network(flat).numpy(),
    tf.function(case.network)(flat).numpy(),
    np.concatenate([case.network(flat[i : i + 1]) for i in range(4)]),
  ]
  logits = np.concatenate(logits).astype(float)
  return case, logits.reshape(-1, 2, logits.shape[-1])


def ball(case):
  """The least and the largest float32 input inside the exact ball."""
  x = case.x.astype(float)
  low, high = x - case.attack_eps, x + case.attack_eps
  if case.value_range is not None:
    low, high = (np.clip(end, *case.value_range) for end in (low, high))
  inner = low.astype(np.float32), high.astype(np.float32)
  up, down = np.float32(np.inf), np.float32(-np.inf)
  return (
    np.where(inner[0] < low, np.nextafter(inner[0], up), inner[0]),
    np.where(inner[1] > high, np.nextafter(inner[1], down), inner[1]),
  )


def climbed(case, low, high, steps=4):
  """Corners that gradients point to: up and down each logit and difference."""
  count = case.network.output_shape[-1]
  own = np.eye(count)[case.y]
  rows = [np.stack([row, row]) for row in (*np.eye(count), *-np.eye(count))]
  rows += [np.eye(count)[[j, j]] - own for j in range(count)]
  rows = tf.constant(np.concatenate(rows), tf.float32)
  copies = len(rows) // 2
  low, high = (np.concatenate([end] * copies) for end in (low, high))
  point = tf.constant(np.concatenate([case.x] * copies))
  found = []
  for _ in range(steps):
    with tf.GradientTape() as tape:
      tape.watch(point)
      value = tf.reduce_sum(rows * case.network(point))
    grad = tape.gradient(value, point).numpy()
    corner = np.where(grad > 0, high, np.where(grad < 0, low, point))
    point = tf.constant(corner)
    found.append(corner.reshape(copies, *case.x.shape))
  return found


def escapes(domain, seed):
  """How many logits are outside, and whether all bounds are finite."""
  case, logits = reached(seed)
  args = case.attack_eps, case.value_range
  low, high = (
    end.numpy() for end in domain.output_bounds(case.network, case.x, *args)
  )
  worst = domain.worst_case_logits(case.network, case.x, case.y, *args).numpy()
  own = np.take_along_axis(logits, case.y[None, :, None], -1)
  others = case.y[:, None] != np.arange(logits.shape[-1])
  with np.errstate(invalid="ignore"):
    gaps = logits - own
  said = np.isfinite(low) | np.isfinite(high)
  found = np.sum(
    (logits < low) | (logits > high) | (np.isnan(logits) & said)
  ) + np.sum(((gaps > worst) | (np.isnan(gaps) & np.isfinite(worst))) & others)
  finite = all(np.isfinite(part).all() for part in (low, high, worst))
  return int(found), finite


def _pairs():
  for seed in range(NUM_NETWORKS):
    for number in range(4):
      marks = () if seed in QUICK else pytest.mark.slow
      yield pytest.param(seed, number, marks=marks)


@functools.cache
def measured(seed, number):
  domain = domain_of(seed, number, reached(seed)[0].relu_only)
  return escapes(domain, seed)


@pytest.mark.parametrize(("seed", "number"), _pairs())
def test_nothing_escapes(seed, number):
  assert measured(seed, number)[0] == 0


def test_most_bounds_say_something():
  finite = [measured(seed, number)[1] for seed in QUICK for number in range(4)]
  assert sum(finite) >= 0.75 * len(finite)


def _without_rounding(step, inputs, output):
  del step, inputs
  return tf.zeros_like(output)


def _spread_without_rounding(operation, size, radius):
  del size
  return operation.absolute(radius)


def _caught(domain, seeds):
  sound = dataclasses.replace(domain, arithmetic="outward")
  return sum(escapes(sound, seed)[0] for seed in seeds)


@pytest.mark.parametrize(
  "broken", law_test.BROKEN.values(), ids=law_test.BROKEN
)
def test_a_broken_rule_escapes(broken):
  assert _caught(broken, QUICK) > 0


def test_rounding_that_nobody_pays_for_escapes(monkeypatch):
  monkeypatch.setattr(rounding, "slack", _without_rounding)
  monkeypatch.setattr(rounding, "spread", _spread_without_rounding)
  assert _caught(bounds.Interval(), QUICK) > 0


@pytest.mark.parametrize("mistake", law_test.BANDS)
def test_a_broken_band_escapes(monkeypatch, mistake):
  monkeypatch.setattr(projection, "relu_band", law_test.BANDS[mistake])
  relu_only = [seed for seed in QUICK if reached(seed)[0].relu_only]
  assert _caught(bounds.Dual(intersect=False), relu_only) > 0
