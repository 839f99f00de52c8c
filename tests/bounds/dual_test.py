"""The dual's estimate, its parity with a plain loop, and its memory."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.bounds import networks
from tf_privrob import bounds
from tf_privrob.bounds import domain as domain_lib
from tf_privrob.bounds import program as program_lib
from tf_privrob.bounds import projection

EPS = 0.2


def dense_by_the_book(network, x, y, eps):
  """Worst-case logits of one input of a dense ReLU network, in NumPy.

  Bounds by pushing the identity and the unstable units forward, layer by layer,
  as Wong and Kolter write it; the objective by going backwards.
  """
  layers = [la for la in network.layers if la.get_weights()]
  weights = [[w.astype(float) for w in la.get_weights()] for la in layers]
  head, nus = x.astype(float), [np.eye(len(x))]
  lows, slopes = [], []
  for kernel, bias in weights[:-1]:
    head = head @ kernel + bias
    nus = [nu @ kernel for nu in nus]
    spread = eps * np.abs(nus[0]).sum(0)
    up, down = head + spread, head - spread
    for low, nu in zip(lows, nus[1:]):
      up = up - (low[:, None] * np.maximum(nu, 0)).sum(0)
      down = down + (low[:, None] * np.maximum(-nu, 0)).sum(0)
    unstable = (down < 0) & (up > 0)
    slope = np.where(down >= 0, 1.0, 0.0)
    slope[unstable] = (up / (up - down))[unstable]
    lows.append(np.where(unstable, down, 0.0))
    slopes.append(slope)
    head, nus = head * slope, [nu * slope for nu in nus]
    nus.append(np.diag(slope * unstable))
  worst = []
  for j in range(weights[-1][1].size):
    nu = np.zeros(weights[-1][1].size)
    nu[j] += 1
    nu[y] -= 1
    total = nu @ weights[-1][1]
    for number in reversed(range(len(slopes))):
      nu = slopes[number] * (weights[number + 1][0] @ nu)
      total += nu @ weights[number][1]
      total -= lows[number] @ np.maximum(nu, 0)
    nu = weights[0][0] @ nu
    worst.append(total + nu @ x + eps * np.abs(nu).sum())
  return worst


@pytest.mark.parametrize("eps", [0.05, 0.3, 1.0])
def test_the_published_bound_in_a_plain_loop(eps):
  network = networks.build("mlp")
  x, y = networks.inputs("mlp")
  found = bounds.Dual(intersect=False).worst_case_logits(network, x, y, eps)
  for row in range(len(x)):
    expected = dense_by_the_book(network, x[row], y[row], eps)
    np.testing.assert_allclose(found[row], expected, atol=1e-5)


# Layers whose outputs are the inputs of the last ReLU.
_BEFORE_LAST_RELU = {"mlp": -3, "residual": -5}


def _exact_and_estimates(name, k, seeds):
  """Radii before the last ReLU: exact, and by k projections for each seed."""
  network = networks.build(name)
  x, _ = networks.inputs(name)
  program = program_lib.read(network)
  box = domain_lib.Box(tf.constant(x), tf.fill(x.shape, EPS))
  last = max(i for i, s in enumerate(program.steps) if s.is_activation)
  before = network.layers[_BEFORE_LAST_RELU[name]].output
  low, high = bounds.Dual(intersect=False).output_bounds(
    tf.keras.Model(network.inputs, before), x, EPS
  )
  radii = []
  for seed in seeds:
    ends = projection.relu_bounds(program, box, k, seed)[last]
    radii.append(np.asarray(ends[1] - ends[0]) / 2)
  return np.asarray(high - low) / 2, np.stack(radii)


@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_many_projections_converge_to_the_norm(name):
  exact, few = _exact_and_estimates(name, 20, range(8))
  _, many = _exact_and_estimates(name, 4000, [0])
  # The median of k sizes has standard deviation pi / (2 sqrt(k)) = 2.5 % of the
  # norm, and the units of a layer share their draws. 3/2 and 2/3 are outside.
  error = np.abs(many[0] / exact - 1)
  assert np.median(error) < 0.04
  assert error.max() < 0.13
  assert np.abs(few / exact - 1).mean() > 3 * error.mean()


def test_the_estimate_can_be_below_the_norm():
  exact, found = _exact_and_estimates("mlp", 25, range(20))
  below = np.mean(found < exact)
  assert 0.25 < below < 0.75


def test_the_estimate_is_no_bound():
  estimate = bounds.Dual(norm="l1_median", projections=3)
  assert not estimate.is_bound
  assert bounds.Dual().is_bound
  assert bounds.Interval().is_bound
  network = networks.build("mlp")
  x, y = networks.inputs("mlp")
  exact = bounds.Dual(intersect=False).worst_case_logits(network, x, y, EPS)
  others = [
    dataclasses.replace(estimate, seed=seed)
    .worst_case_logits(network, x, y, EPS)
    .numpy()
    for seed in range(8)
  ]
  assert np.min(others - exact.numpy()) < -1e-3


def test_the_seed_is_all_the_randomness():
  network = networks.build("conv")
  x, y = networks.inputs("conv")

  def found(seed):
    estimate = bounds.Dual(norm="l1_median", projections=9, seed=seed)
    return estimate.worst_case_logits(network, x, y, EPS).numpy()

  np.testing.assert_array_equal(found(3), found(3))
  np.testing.assert_array_equal(found(3), found(tf.constant([0, 3], tf.int64)))
  assert np.any(found(3) != found(4))


def test_memory_grows_linearly_in_the_batch():
  """The largest tensor of the graph has the batch as a factor, once."""
  network = networks.build("conv")

  def largest(batch):
    x = tf.TensorSpec([batch, *networks.IMAGE])
    y = tf.TensorSpec([batch], tf.int32)
    graph = (
      tf.function(
        lambda x, y: bounds.Dual().worst_case_logits(network, x, y, 0.1)
      )
      .get_concrete_function(x, y)
      .graph
    )
    sizes = [
      out.shape.num_elements()
      for op in graph.get_operations()
      for out in op.outputs
      if out.shape.is_fully_defined()
    ]
    return max(sizes)

  assert largest(8) == 2 * largest(4)
