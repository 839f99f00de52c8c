"""Outward arithmetic holds for what float32 computes, where float32's fails."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.bounds import networks
from tf_privrob import bounds
from tf_privrob.bounds import program as program_lib
from tf_privrob.bounds import rounding

DOMAINS = [bounds.Interval(), bounds.HybridZonotope("switch"), bounds.Dual()]


def cancelling(width=4096):
  """Large terms that cancel: float32 loses most digits of the logits."""
  network = tf.keras.Sequential(
    [
      tf.keras.Input((2,)),
      tf.keras.layers.Dense(width, "relu"),
      tf.keras.layers.Dense(2),
    ]
  )
  rng = np.random.RandomState(0)
  kernel = rng.randn(width, 2) * 100
  kernel[width // 2 :] = -kernel[: width // 2]
  first = np.abs(rng.randn(2, width)) * 100
  first[:, width // 2 :] = first[:, : width // 2] * (1 + 1e-6)
  network.set_weights([first, np.ones(width), kernel, np.zeros(2)])
  return network


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_outward_bounds_contain_the_computed_logits(domain):
  network = cancelling()
  x = np.random.RandomState(1).rand(4, 2).astype(np.float32)
  sound = dataclasses.replace(domain, arithmetic="outward")
  exact = network.layers
  # The network as it is meant, in float64.
  hidden = x.astype(float) @ exact[0].kernel.numpy().astype(float) + 1
  truth = hidden @ exact[1].kernel.numpy().astype(float)
  low, high = (end.numpy() for end in sound.output_bounds(network, x, 0.0))
  shuffled = np.random.RandomState(2).permutation(4096)
  orders = [
    network(x).numpy(),
    np.concatenate([network(x[i : i + 1]) for i in range(4)]),
    # The same sum in another order.
    (
      network.layers[0](x).numpy()[:, shuffled]
      @ exact[1].kernel.numpy()[shuffled]
    ),
  ]
  assert np.abs(orders[0] - truth).max() > 0.1  # it does lose digits
  for logits in [truth, *orders]:
    assert np.all((low <= logits) & (logits <= high))
  worst = sound.worst_case_logits(network, x, np.zeros(4, int), 0.0).numpy()
  for logits in [truth, *orders]:
    assert np.all(logits[:, 1] - logits[:, 0] <= worst[:, 1])


def test_float32_bounds_do_not_contain_them():
  network = cancelling()
  x = np.random.RandomState(1).rand(4, 2).astype(np.float32)
  kernel = network.layers[1].kernel.numpy()
  order = np.random.RandomState(2).permutation(len(kernel))
  logits = network.layers[0](x).numpy()[:, order] @ kernel[order]
  low, high = bounds.Interval().output_bounds(network, x, 0.0)
  assert np.any((logits < low.numpy()) | (logits > high.numpy()))


@pytest.mark.parametrize("name", networks.RELU_ONLY)
@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_outward_is_outside_and_near(domain, name):
  network = networks.build(name)
  x, y = networks.inputs(name)
  sound = dataclasses.replace(domain, arithmetic="outward")
  plain = domain.worst_case_logits(network, x, y, 0.1).numpy()
  wide = sound.worst_case_logits(network, x, y, 0.1)
  assert wide.dtype == tf.float64
  other = y[:, None] != np.arange(3)
  assert np.all((wide - plain)[other] > -1e-6)
  assert np.all((wide - plain)[other] < 1e-4)


def test_the_slack_of_one_layer_by_hand():
  network = tf.keras.Sequential(
    [tf.keras.Input((2,)), tf.keras.layers.Dense(1)]
  )
  network.set_weights([np.array([[3.0], [-4.0]]), np.array([0.5])])
  (step,) = program_lib.read(network).steps
  size = tf.constant([[1.0, 2.0]], tf.float64)
  found = rounding.slack(step, [size], tf.constant([[11.5]], tf.float64))
  # Two products, a sum, a bias: 4 roundings of 3 + 8 + 1/2.
  np.testing.assert_allclose(found, [[1.01 * 4 * 2**-24 * 11.5]], rtol=1e-6)
  # |W| (r + share (|h| + r)) and the bias' share, in one.
  radius = tf.constant([[0.25, 0.5]], tf.float64)
  joined = rounding.spread(step.operation, size, radius)
  np.testing.assert_allclose(joined - found, [[0.75 + 2.0]], rtol=1e-6)
  for huge in (1e38, np.inf, np.nan):
    beyond = rounding.spread(step.operation, size + huge, radius)
    assert not np.isfinite(beyond.numpy()).any()


def _dense(kernel, activation=None):
  kernel = np.asarray(kernel, np.float32)
  layers = [tf.keras.layers.Dense(kernel.shape[1], activation, use_bias=False)]
  if activation:
    layers.append(tf.keras.layers.Dense(2, use_bias=False))
  network = tf.keras.Sequential([tf.keras.Input(kernel.shape[:1]), *layers])
  network.set_weights([kernel, np.eye(2)][: len(layers)])
  return network


def _mean():
  network = tf.keras.Sequential(
    [
      tf.keras.Input((20, 20, 1)),
      tf.keras.layers.GlobalAveragePooling2D(),
      tf.keras.layers.Dense(2, use_bias=False),
    ]
  )
  network.set_weights([np.array([[1e-36, -1e-36]])])
  return network


@pytest.mark.parametrize(
  ("network", "size"),
  [
    (_dense([[3e38, 1], [-3e38, 1]]), 2.0),  # 6e38 - 6e38, but the first is inf
    (_dense([[3e38, 3e38], [-3e38, 3e38]], "tanh"), 2.0),
    (_mean(), 5e36),  # of 400 values, whose sum is inf
  ],
  ids=["products", "bounded_activation", "mean"],
)
@pytest.mark.parametrize("domain", DOMAINS[:2], ids=lambda domain: domain.name)
def test_nothing_is_said_where_a_partial_sum_may_overflow(
  domain, network, size
):
  x = np.full((1, *network.input_shape[1:]), size, np.float32)
  sound = dataclasses.replace(domain, arithmetic="outward")
  low, high = sound.output_bounds(network, x, 0.0)
  worst = sound.worst_case_logits(network, x, [0], 0.0)
  assert not np.isfinite([low[0, 0], high[0, 0], worst[0, 1]]).any()


@pytest.mark.parametrize(
  ("kernel", "size"), [(1e25, 1e-39), (1e-39, 1e30), (1e-20, 1e-20)]
)
@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_numbers_below_2_to_the_minus_126_are_kept_or_flushed(
  domain, kernel, size
):
  """Whether a machine takes them for 0 is its own choice."""
  network = _dense([[kernel, -kernel]])
  x = np.array([[size]], np.float32)
  sound = dataclasses.replace(domain, arithmetic="outward")
  low, high = (end.numpy() for end in sound.output_bounds(network, x, 0.0))
  worst = sound.worst_case_logits(network, x, [1], 0.0).numpy()
  exact = float(np.float32(size)) * float(np.float32(kernel))
  for logits in (np.array([[exact, -exact]]), np.zeros([1, 2])):
    assert np.all((low <= logits) & (logits <= high))
    assert logits[0, 0] - logits[0, 1] <= worst[0, 0]
  assert high[0, 0] < 100 * exact + 1e-29  # and no more than that is paid


def test_a_small_gamma_is_kept_or_flushed_before_it_is_divided():
  layer = tf.keras.layers.BatchNormalization(epsilon=1e-12)
  network = tf.keras.Sequential([tf.keras.Input((2,)), layer])
  gamma = np.array([1e-39, -1e-39], np.float32)
  network.set_weights([gamma, np.zeros(2), np.zeros(2), np.zeros(2)])
  x = np.full((1, 2), 1e25, np.float32)
  sound = bounds.Interval(arithmetic="outward")
  low, high = (end.numpy() for end in sound.output_bounds(network, x, 0.0))
  exact = gamma.astype(float) * x.astype(float) * 1e6
  for logits in (exact, np.zeros([1, 2]), network(x).numpy()):
    assert np.all((low <= logits) & (logits <= high))
