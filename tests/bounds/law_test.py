"""Laws of all domains on random networks: what is reached is inside."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.bounds import networks
from tf_privrob import attacks
from tf_privrob import bounds
from tf_privrob.bounds import domain as domain_lib
from tf_privrob.bounds import projection

EPS = 0.1
RANGE = (0.0, 1.0)
FORWARD = {
  "interval": bounds.Interval(),
  "interval_box": bounds.Interval(elide=False),
  "zonotope_box": bounds.HybridZonotope("box"),
  "zonotope_switch": bounds.HybridZonotope("switch"),
  "zonotope_smooth": bounds.HybridZonotope("smooth", elide=False),
}
DUALS = {
  "dual": bounds.Dual(),
  "dual_published": bounds.Dual(intersect=False),
  "dual_some_rows": bounds.Dual(intersect=False, rows_at_once=4),
}
DOMAINS = {**FORWARD, **DUALS}
PAIRS = [
  (domain, network)
  for network in networks.NAMES
  for domain in DOMAINS
  if domain in FORWARD or network in networks.RELU_ONLY
  if domain != "dual_some_rows" or network in ("mlp", "conv")
]
FEWER = [
  (domain, network)
  for domain, network in PAIRS
  if domain in ("interval", "zonotope_smooth", "dual_published")
]


@functools.cache
def reached(name, value_range=RANGE):
  """Logits of random points, corners and attacks, [points, batch, classes]."""
  network = networks.build(name)
  x, _ = networks.inputs(name)
  rng = np.random.RandomState(3)
  moves = rng.uniform(-EPS, EPS, (120, *x.shape))
  moves = np.concatenate([moves, EPS * np.sign(moves)])
  points = x + moves.astype(np.float32)
  if value_range is not None:
    points = np.clip(points, *value_range)
  whole = value_range or (-10.0, 10.0)
  points = np.concatenate([points, _attacked(network, x, whole)])
  # An attack may leave the ball by a rounding.
  low = np.maximum(x - np.float32(EPS), whole[0])
  points = np.clip(points, low, np.minimum(x + np.float32(EPS), whole[1]))
  flat = tf.constant(points.reshape(-1, *x.shape[1:]), tf.float32)
  return network(flat).numpy().reshape(len(points), len(x), 3)


def _attacked(network, x, value_range):
  """Points that raise one logit over another, [6, batch, ...]."""
  pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
  rows = tf.repeat(tf.one_hot(pairs, 3), len(x), axis=0)

  def two_logits(v):
    return tf.linalg.matvec(rows, network(v))

  attack = attacks.PGD(EPS, steps=10, value_range=value_range, loss="margin")
  tiled = tf.tile(x, [len(pairs)] + [1] * (x.ndim - 1))
  found = tf.function(attack)(
    two_logits, tiled, tf.zeros(len(rows), tf.int32), 0
  )
  return found.numpy().reshape(len(pairs), *x.shape)


def outside(domain, name, tolerance, value_range=RANGE):
  """How many reached logits or differences are outside of the bounds."""
  network = networks.build(name)
  x, y = networks.inputs(name)
  # The ball of float32 points whose ends are rounded outwards.
  eps = EPS + 1e-7 if domain.arithmetic == "outward" else EPS
  logits = reached(name, value_range).astype(float)
  low, high = domain.output_bounds(network, x, eps, value_range)
  worst = domain.worst_case_logits(network, x, y, eps, value_range).numpy()
  own = np.take_along_axis(logits, y[None, :, None], -1)
  np.testing.assert_array_equal(worst[np.arange(len(y)), y], 0)
  others = y[:, None] != np.arange(3)
  return int(
    np.sum(logits < low.numpy() - tolerance)
    + np.sum(logits > high.numpy() + tolerance)
    + np.sum((logits - own > worst + tolerance) & others)
  )


@pytest.mark.parametrize(("domain", "network"), PAIRS)
def test_all_that_is_reached_is_inside(domain, network):
  assert outside(DOMAINS[domain], network, 1e-5) == 0


@pytest.mark.parametrize(("domain", "network"), FEWER)
def test_outward_needs_no_tolerance(domain, network):
  sound = dataclasses.replace(DOMAINS[domain], arithmetic="outward")
  assert outside(sound, network, 0.0) == 0


@pytest.mark.parametrize("domain", ["interval", "zonotope_box", "dual"])
def test_without_a_value_range(domain):
  assert outside(DOMAINS[domain], "conv", 1e-5, None) == 0


@pytest.mark.parametrize(("domain", "network"), PAIRS)
def test_radius_0_is_the_forward_pass(domain, network):
  model = networks.build(network)
  x, y = networks.inputs(network)
  logits = model(x).numpy()
  for found in DOMAINS[domain].output_bounds(model, x, 0.0):
    np.testing.assert_allclose(found, logits, atol=2e-6)
  own = np.take_along_axis(logits, y[:, None], 1)
  found = DOMAINS[domain].worst_case_logits(model, x, y, 0.0)
  np.testing.assert_allclose(found, logits - own, atol=2e-6)


@pytest.mark.parametrize("network", networks.NAMES)
@pytest.mark.parametrize("domain", ["interval", "interval_box", "zonotope_box"])
def test_bounds_grow_with_the_radius(domain, network):
  # "switch", "smooth" and Dual change their relaxation with it: no law.
  model = networks.build(network)
  x, y = networks.inputs(network)
  last = None
  for eps in (0.0, 0.01, 0.05, 0.2, 0.5):
    low, high = DOMAINS[domain].output_bounds(model, x, eps, RANGE)
    worst = DOMAINS[domain].worst_case_logits(model, x, y, eps, RANGE)
    now = np.stack([-low, high, worst])
    if last is not None:
      assert np.all(now >= last - 1e-6)
      assert np.any(now > last + 1e-4)
    last = now


@pytest.mark.parametrize("eps", [0.02, 0.3])
@pytest.mark.parametrize("network", networks.RELU_ONLY)
def test_dual_is_inside_interval(network, eps):
  model = networks.build(network)
  x, y = networks.inputs(network)
  ours, theirs = (
    [
      *domain.output_bounds(model, x, eps, RANGE),
      domain.worst_case_logits(model, x, y, eps, RANGE),
    ]
    for domain in (bounds.Dual(), bounds.Interval())
  )
  assert np.all(ours[0] >= theirs[0] - 1e-6)
  assert np.all(ours[1] <= theirs[1] + 1e-6)
  assert np.all(ours[2] <= theirs[2] + 1e-6)


@pytest.mark.parametrize(
  ("first", "second"),
  [
    (bounds.Interval(), bounds.Interval(elide=False)),
    *(
      (bounds.HybridZonotope(relu), bounds.HybridZonotope(relu, elide=False))
      for relu in ("box", "switch", "smooth")
    ),
  ],
)
@pytest.mark.parametrize("network", networks.NAMES)
def test_elision_is_never_worse(network, first, second):
  model = networks.build(network)
  x, y = networks.inputs(network)
  with_elision = first.worst_case_logits(model, x, y, EPS, RANGE)
  without = second.worst_case_logits(model, x, y, EPS, RANGE)
  assert np.all(with_elision <= without + 1e-5)
  if network == "mlp":
    assert np.any(with_elision < without - 1e-3) or first.relu == "switch"


@pytest.mark.parametrize(
  "domain", ["zonotope_box", "zonotope_switch", "dual_published"]
)
def test_affine_networks_are_exact(domain):
  model = networks.build("affine")
  x, y = networks.inputs("affine")
  first, second = model.layers[0].kernel, model.layers[2].kernel
  matrix = tf.matmul(first, second).numpy()
  logits = model(x).numpy()
  low, high = DOMAINS[domain].output_bounds(model, x, EPS)
  reach = EPS * np.abs(matrix).sum(0)
  np.testing.assert_allclose(low, logits - reach, atol=1e-6)
  np.testing.assert_allclose(high, logits + reach, atol=1e-6)
  worst = DOMAINS[domain].worst_case_logits(model, x, y, EPS)
  for row, label in enumerate(y):
    change = matrix - matrix[:, [label]]
    expected = logits[row] - logits[row, label] + EPS * np.abs(change).sum(0)
    np.testing.assert_allclose(worst[row], expected, atol=1e-6)


@pytest.mark.parametrize(("domain", "network"), FEWER)
def test_a_batch_is_its_examples(domain, network):
  model = networks.build(network)
  x, y = networks.inputs(network)
  eps = np.array([0.0, 0.05, 0.2], np.float32)
  found = DOMAINS[domain].worst_case_logits(model, x, y, eps, RANGE)
  low, high = DOMAINS[domain].output_bounds(model, x, eps, RANGE)
  for row in range(len(x)):
    one = slice(row, row + 1)
    alone = DOMAINS[domain].worst_case_logits(
      model, x[one], y[one], float(eps[row]), RANGE
    )
    np.testing.assert_allclose(found[one], alone, atol=2e-6)
    alone = DOMAINS[domain].output_bounds(model, x[one], float(eps[row]), RANGE)
    np.testing.assert_allclose([low[one], high[one]], alone, atol=2e-6)


# Broken rules are seen by the laws above.


class _ByAffine(bounds.Interval):
  rounded = domain_lib.ForwardDomain.rounded  # outward too


class _NoAbsolute(_ByAffine):
  def affine(self, operation, element):
    found = super().affine(operation, element)
    return found._replace(radius=tf.abs(operation.linear(element.radius)))


class _NoBias(_ByAffine):
  def affine(self, operation, element):
    found = super().affine(operation, element)
    return found._replace(centre=operation.linear(element.centre))


class _SlopeAtTheCentre(bounds.Interval):
  def activation(self, operation, element):
    active = tf.cast(element.centre > 0, element.centre.dtype)
    return type(element)(active * element.centre, active * element.radius)


class _FreeRadiusForgotten(bounds.HybridZonotope):
  def activation(self, operation, element):
    found = super().activation(operation, element)
    return found._replace(free=tf.zeros_like(found.free))


class _SignedErrors(bounds.HybridZonotope):
  def box(self, element):
    grouped = self._grouped(element.errors, element.centre)
    radius = element.free + tf.abs(tf.reduce_sum(grouped, 1))
    return super().box(element)._replace(radius=radius)


BROKEN = {
  type(broken).__name__: broken
  for broken in (
    _NoAbsolute(),
    _NoBias(),
    _SlopeAtTheCentre(),
    _FreeRadiusForgotten("switch"),
    _SignedErrors("box"),
  )
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_caught(broken):
  found = [outside(broken, name, 1e-5) for name in ("mlp", "conv", "kink")]
  assert sum(found) > 0


_band = projection.relu_band


def _no_offset(low, high):
  slope, below = _band(low, high)
  return slope, tf.zeros_like(below)


def _half_slope(low, high):
  slope, below = _band(low, high)
  return tf.where(below < 0, slope / 2, slope), below


BANDS = {"no_offset": _no_offset, "half_slope": _half_slope}


@pytest.mark.parametrize("mistake", BANDS)
def test_a_broken_band_is_caught(monkeypatch, mistake):
  monkeypatch.setattr(projection, "relu_band", BANDS[mistake])
  broken = bounds.Dual(intersect=False)
  found = [outside(broken, name, 1e-5) for name in networks.RELU_ONLY]
  assert sum(found) > 0
