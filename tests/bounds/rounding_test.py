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
  beyond = rounding.slack(step, [size], tf.constant([[1e38]], tf.float64))
  assert np.isinf(beyond.numpy()).all()
