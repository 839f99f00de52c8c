"""Bounds inside a training step: traced once, with right gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.bounds import networks
from tf_privrob import bounds

RANGE = (0.0, 1.0)
DOMAINS = [
  bounds.Interval(),
  bounds.HybridZonotope("smooth"),
  bounds.Dual(),
  bounds.Dual(norm="l1_median", projections=4),
]


def loss_of(domain, network, x, y, eps):
  worst = domain.worst_case_logits(network, x, y, eps, RANGE)
  return tf.reduce_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(y, worst)
  )


@pytest.mark.parametrize(
  "domain", DOMAINS, ids=lambda domain: repr(domain)[:22]
)
@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_gradients_against_differences(domain, name):
  network = networks.build(name)
  x, y = networks.inputs(name)
  weights = network.trainable_weights
  before = [weight.numpy() for weight in weights]

  @tf.function
  def loss_and_gradients(eps):
    with tf.GradientTape() as tape:
      loss = loss_of(domain, network, tf.constant(x), tf.constant(y), eps)
    return loss, tape.gradient(loss, weights)

  eps = tf.constant(0.05)
  try:
    loss, gradients = loss_and_gradients(eps)
    eager = loss_of(domain, network, x, y, 0.05)
    np.testing.assert_allclose(loss, eager, rtol=1e-5)
    assert all(gradient is not None for gradient in gradients)
    size = np.sqrt(sum(np.sum(g.numpy() ** 2) for g in gradients))
    step, ends = 2e-3 / size, []
    for sign in (1, -1):
      for weight, value, gradient in zip(weights, before, gradients):
        weight.assign(value + sign * step * gradient)
      ends.append(float(loss_and_gradients(eps)[0]))
    np.testing.assert_allclose(
      (ends[0] - ends[1]) / (2 * step), size**2, rtol=0.05
    )
  finally:
    for weight, value in zip(weights, before):
      weight.assign(value)


def test_a_batch_of_unknown_size_is_traced_once():
  network, traces = networks.build("conv"), []

  @tf.function(
    input_signature=[
      tf.TensorSpec([None, *networks.IMAGE]),
      tf.TensorSpec([None], tf.int64),
      tf.TensorSpec([]),
    ]
  )
  def worst(x, y, eps):
    traces.append(1)
    return [
      domain.worst_case_logits(network, x, y, eps, RANGE) for domain in DOMAINS
    ]

  for count, eps in ((3, 0.1), (5, 0.2)):
    x, y = networks.inputs("conv", count)
    found = worst(x, y, tf.constant(eps))
    for domain, values in zip(DOMAINS, found):
      expected = domain.worst_case_logits(network, x, y, eps, RANGE)
      np.testing.assert_allclose(values, expected, atol=1e-5)
  assert len(traces) == 1


def test_pieces_change_nothing(monkeypatch):
  network = networks.build("conv")
  x, y = networks.inputs("conv", 12)

  def found(size):
    monkeypatch.setattr(bounds.Interval, "piece_size", size)
    domain = bounds.Interval()
    eps = tf.linspace(0.0, 0.2, 12)
    traced = tf.function(
      lambda x, y: (
        domain.worst_case_logits(network, x, y, eps, RANGE),
        *domain.output_bounds(network, x, eps, RANGE),
      )
    ).get_concrete_function(tf.constant(x), tf.constant(y))
    splits = [op for op in traced.graph.get_operations() if op.type == "Split"]
    return np.stack(traced(tf.constant(x), tf.constant(y))), bool(splits)

  whole, cut = found(None)
  assert not cut
  for size, expected in ((3, True), (5, True), (7, False), (50, False)):
    values, cut = found(size)
    assert cut == expected
    np.testing.assert_allclose(values, whole, atol=2e-6)


def test_training_on_the_bound_verifies_more():
  rng = np.random.RandomState(0)
  x = rng.rand(200, 4).astype(np.float32)
  y = (x[:, 0] + 0.5 * x[:, 1] > 0.75).astype(np.int64)
  network = tf.keras.Sequential(
    [
      tf.keras.Input((4,)),
      tf.keras.layers.Dense(16, "relu", kernel_initializer=_initial(1)),
      tf.keras.layers.Dense(2, kernel_initializer=_initial(2)),
    ]
  )
  optimizer = tf.keras.optimizers.Adam(0.02)

  def verified():
    worst = bounds.Interval().worst_case_logits(network, x, y, 0.05, RANGE)
    return float(tf.reduce_mean(tf.cast(tf.reduce_max(worst, 1) <= 0, float)))

  @tf.function
  def step():
    with tf.GradientTape() as tape:
      loss = loss_of(bounds.Interval(), network, x, y, tf.constant(0.05))
    weights = network.trainable_weights
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

  before = verified()
  for _ in range(60):
    step()
  assert verified() > max(before + 0.2, 0.7)


def _initial(seed):
  return tf.keras.initializers.GlorotUniform(seed)
