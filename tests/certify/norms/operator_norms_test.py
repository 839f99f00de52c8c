"""All nine norms of layers and chains, against matrices and by search."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers
from tf_privrob.certify.norms import keras_norms
from tf_privrob.certify.norms import linear_norms
from tf_privrob.certify.norms import operator_norms

_keras = tf.keras.layers
NORMS = operator_norms.NORMS
PAIRS = list(itertools.product(NORMS, NORMS))
ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


def length(values, norm):
  """Norms of the rows of a batch."""
  return np.linalg.norm(np.reshape(values, [len(values), -1]), ORDER[norm], 1)


def explicit(kernel, shape, strides, padding):
  """The convolution as [outputs, inputs]."""
  size = math.prod(shape)
  basis = np.eye(size).reshape(size, *shape)
  images = tf.nn.conv2d(basis, kernel, strides, padding.upper()).numpy()
  return images.reshape(size, -1).T


def random_kernel(shape, seed=0):
  return np.random.RandomState(seed).randn(*shape)


def exact_norms(a):
  """Those that have a closed form."""
  return {
    ("l1", "l1"): np.abs(a).sum(axis=0).max(),
    ("l1", "l2"): np.linalg.norm(a, axis=0).max(),
    ("l1", "linf"): np.abs(a).max(),
    ("l2", "l2"): np.linalg.norm(a, 2),
    ("l2", "linf"): np.linalg.norm(a, axis=1).max(),
    ("linf", "linf"): np.abs(a).sum(axis=1).max(),
  }


# Linear layers.


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2, (2, 1)])
def test_conv2d_has_the_norms_of_its_matrix(strides, padding):
  kernel = random_kernel([3, 2, 2, 3])
  a = explicit(kernel, (7, 6, 2), strides, padding)
  found = linear_norms.conv2d_map(kernel, (7, 6, 2), strides, padding).norms()
  for pair, exact in exact_norms(a).items():
    assert exact <= found.bound(*pair) <= 1.001 * exact


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (5, 5)])
def test_dense_has_the_norms_of_its_matrix(shape):
  kernel = random_kernel(shape)
  found = linear_norms.dense_map(kernel).norms()
  for pair, exact in exact_norms(kernel.T).items():
    assert exact * (1 - 1e-14) <= found.bound(*pair) <= 1.00001 * exact


@pytest.mark.parametrize("seed", range(3))
def test_hard_norms_are_bounded_and_not_far(seed):
  """inf->2, 2->1 and inf->1 by enumeration of signs."""
  kernel = random_kernel([6, 5], seed)
  found = linear_norms.dense_map(kernel).norms()
  inputs, outputs = (
    np.array(list(itertools.product([-1, 1], repeat=n))) for n in (6, 5)
  )
  exact = {
    ("linf", "l2"): np.linalg.norm(inputs @ kernel, axis=1).max(),
    ("linf", "l1"): np.abs(inputs @ kernel).sum(axis=1).max(),
    ("l2", "l1"): np.linalg.norm(outputs @ kernel.T, axis=1).max(),
  }
  for pair, value in exact.items():
    assert value <= found.bound(*pair) <= 2 * value


def test_l2_norm_of_the_mnist_layer():
  """Power iteration below, Gram iteration above, under 0.1% apart."""
  limit = math.sqrt(6 / (25 + 25 * 32))
  kernel = np.random.RandomState(0).uniform(-limit, limit, [5, 5, 1, 32])
  found = linear_norms.conv2d_map(kernel, (28, 28, 1), 2, "same")
  start = tf.constant(random_kernel([1, 28, 28, 1]))
  below, _ = found.l2_estimate(start, 300)
  above = found.l2_bound()
  assert float(below) <= above <= 1.001 * float(below)
  released = 3 * np.linalg.norm(kernel.reshape(25, 32), 2)  # ceil(5 / 2) = 3
  assert above <= released
  assert found.l2_bound(quick=True) == pytest.approx(released, rel=1e-9)


def test_inputs_too_large_for_a_gram_matrix_take_the_patch_bound(monkeypatch):
  kernel = random_kernel([3, 3, 1, 2])
  exact = linear_norms.conv2d_map(kernel, (9, 9, 1)).l2_bound()
  monkeypatch.setattr(linear_norms, "_LARGEST_GRAM", 80)
  coarse = linear_norms.conv2d_map(kernel, (9, 9, 1)).l2_bound()
  assert (
    exact < coarse == pytest.approx(3 * np.linalg.norm(kernel.reshape(9, 2), 2))
  )


def test_quick_norms_are_larger_and_otherwise_the_same():
  kernel = random_kernel([3, 3, 1, 2])
  found = linear_norms.conv2d_map(kernel, (9, 9, 1))
  exact, quick = found.norms(), found.norms(quick=True)
  assert exact.bound("l2", "l2") < quick.bound("l2", "l2")
  assert exact.bound("l1", "l2") == quick.bound("l1", "l2")
  assert quick.bound("l2", "l2") <= 3 * exact.bound("l2", "l2")


def test_large_inputs_are_bounded_by_fewer_squarings(monkeypatch):
  """As for CIFAR-10: above the eigenvalue, and within 1%."""
  a = random_kernel([60, 50])
  gram, exact = a.T @ a, np.linalg.norm(a, 2) ** 2
  monkeypatch.setattr(linear_norms, "_LARGE", 40)
  found = linear_norms.gram_iteration(gram)
  assert exact <= found <= 1.02 * exact
  assert 1 <= linear_norms.gram_iteration(np.eye(300)) < 1.03


@pytest.mark.parametrize("size", [1, 2, 40])
@pytest.mark.parametrize("rank", [1, 3, 40])
def test_gram_iteration_is_above_the_eigenvalue_and_near(size, rank):
  a = random_kernel([rank, size])
  gram = a.T @ a
  exact = np.linalg.eigvalsh(gram)[-1]
  assert exact * (1 - 1e-13) <= linear_norms.gram_iteration(gram)
  assert linear_norms.gram_iteration(gram) <= 1.001 * exact


def test_gram_iteration_with_equal_eigenvalues_and_none():
  """The identity is the worst case: its powers never become rank one."""
  assert 1 <= linear_norms.gram_iteration(np.eye(300)) < 1.01
  assert linear_norms.gram_iteration(np.zeros([3, 3])) == 0
  assert linear_norms.gram_iteration(1e-200 * np.eye(3)) >= 1e-200


# Whitening.


def whitened(layers, shape, stddev, norm):
  found = keras_norms.prefix_norms(layers, shape, stddev=stddev)
  return found.bound(norm, "l2")


@pytest.mark.parametrize("norm", NORMS)
def test_whitened_norm_equals_that_of_the_scaled_matrix(norm):
  layer = _keras.Conv2D(3, 3, 2, "same", activation="relu")
  shape = (6, 5, 2)
  layer.build((None, *shape))
  a = explicit(layer.kernel.numpy().astype(float), shape, 2, "same")
  stddev = np.random.RandomState(1).uniform(0.1, 2, a.shape[0])
  scaled = a / stddev[:, None]
  found = whitened([layer], shape, stddev.reshape(3, 3, 3), norm)
  exact = {
    "l1": np.linalg.norm(scaled, axis=0).max(),
    "l2": np.linalg.norm(scaled, 2),
    "linf": min(
      math.sqrt(a.shape[1]) * np.linalg.norm(scaled, 2),
      np.linalg.norm(np.abs(scaled).sum(axis=1)),
    ),
  }[norm]
  assert exact * (1 - 1e-12) <= found <= 1.001 * exact
  # One stddev for all is a division.
  plain = keras_norms.prefix_norms([layer], shape).bound(norm, "l2")
  same = whitened([layer], shape, np.full([3, 3, 3], 0.5), norm)
  assert same == pytest.approx(2 * plain, rel=1e-3)


def test_whitening_behind_other_layers():
  """Activations may follow the kernel; with pooling the least stddev counts."""
  dense = _keras.Dense(4)
  dense.build((None, 6))
  stddev = np.array([0.5, 1.0, 2.0, 4.0])
  alone = whitened([dense], (6,), stddev, "l2")
  exact = np.linalg.norm(dense.kernel.numpy() / stddev, 2)
  assert alone == pytest.approx(exact, rel=1e-6)
  behind = [_keras.Flatten(), dense, _keras.ReLU()]
  found = whitened(behind, (3, 2, 1), stddev, "l2")
  assert found == pytest.approx(alone, rel=1e-9)
  pool = _keras.MaxPooling2D(2)
  shapes = np.full([2, 2, 1], 3.0)
  shapes[0, 0] = 0.5
  assert whitened([pool], (4, 4, 1), shapes, "l2") == pytest.approx(2.0)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_a_coordinate_without_noise_is_refused(wrong):
  dense = _keras.Dense(2)
  dense.build((None, 3))
  with pytest.raises(ValueError, match="stddev > 0"):
    whitened([dense], (3,), np.array([1.0, wrong]), "l2")


# Composition and layers without kernels.


def test_composition_takes_the_best_norm_in_between():
  first = linear_norms.dense_map(np.diag([3.0, 1.0])).norms()
  second = linear_norms.dense_map(np.ones([2, 1])).norms()
  both = first.then(second)
  assert both.bound("l1", "l1") == pytest.approx(3)
  # By l1 in between; l2 would give 3 sqrt(2), linf 6.
  assert both.bound("l2", "l2") == pytest.approx(math.sqrt(10))
  assert both.bound("linf", "linf") == pytest.approx(4)
  assert both.output_shape == (1,)
  with pytest.raises(ValueError, match=r"Expected \(2,\) values"):
    second.then(first)


def test_identity_by_hand():
  found = operator_norms.elementwise_norms((2, 8))
  assert found.table == ((1, 1, 1), (4, 1, 1), (16, 4, 1))


def random_search(function, shape, seed=0, count=400):
  """Pairs of inputs, near and far, dense and sparse: what each pair attains."""
  rng = np.random.RandomState(seed)
  a = rng.randn(count, *shape)
  step = rng.randn(count, *shape) * 10.0 ** rng.uniform(-2, 1, [count, 1, 1, 1])
  step[: count // 3] = np.sign(step[: count // 3])
  sparse = rng.rand(*step[count // 2 :].shape) < 0.05
  step[count // 2 :] *= sparse
  step[-1] = 0
  step[-1, 2, 2, 0] = 1
  moved = np.asarray(function(a + step), float) - np.asarray(function(a), float)
  kept = length(step, "l1") > 0
  return {
    (p, q): (length(moved[kept], q) / length(step[kept], p)).max()
    for p, q in PAIRS
  }


@pytest.mark.parametrize(
  "layer",
  [
    lambda: _keras.MaxPooling2D(2),
    lambda: _keras.MaxPooling2D(3, 1, "same"),
    lambda: _keras.MaxPooling2D((3, 2), (2, 1)),
    lambda: _keras.AveragePooling2D(2),
    lambda: _keras.AveragePooling2D(3, 1, "same"),
    lambda: _keras.AveragePooling2D((2, 3), (1, 2), "valid"),
    lambda: _keras.GlobalAveragePooling2D(),
    lambda: _keras.GlobalMaxPooling2D(),
    lambda: _keras.ZeroPadding2D((1, 2)),
    lambda: _keras.Flatten(),
    lambda: _keras.Reshape((3, 20)),
    lambda: _keras.Dropout(0.5),
    lambda: _keras.ReLU(),
    lambda: _keras.ReLU(max_value=0.5, negative_slope=1.5),
    lambda: _keras.LeakyReLU(0.3),
    lambda: _keras.LeakyReLU(1.7),
    lambda: _keras.ELU(1.0),
    lambda: _keras.ELU(2.5),
    lambda: layers.BoundedActivation(0.5),
    *(lambda name=name: _keras.Activation(name) for name in keras_norms.SLOPES),
  ],
)
def test_no_pair_of_inputs_exceeds_a_bound(layer):
  layer, shape = layer(), (6, 5, 2)
  layer = type(layer).from_config({**layer.get_config(), "dtype": "float64"})
  found = keras_norms.prefix_norms([layer], shape)
  attained = random_search(layer, shape)
  for pair, value in attained.items():
    assert value <= found.bound(*pair) * (1 + 1e-9)
  # Nor is it idle: a single value is moved by almost what is allowed.
  assert attained["l1", "linf"] > 0.4 * found.bound("l1", "linf")


@pytest.mark.parametrize("last_activation", [True, False])
def test_no_pair_of_inputs_exceeds_the_bound_of_a_chain(last_activation):
  chain = [
    _keras.Conv2D(4, 3, 2, "same", activation="tanh"),
    _keras.MaxPooling2D(2, 1),
    _keras.Flatten(),
    _keras.Dense(5, activation="sigmoid"),
  ]
  network = tf.keras.Sequential([_keras.Input((6, 5, 2)), *chain])
  if not last_activation:
    chain[-1].activation = None
  found = keras_norms.prefix_norms(
    chain, (6, 5, 2), last_activation=last_activation
  )
  assert found.output_shape == (5,)
  attained = random_search(network, (6, 5, 2))
  for pair, value in attained.items():
    assert value <= found.bound(*pair)
  chain[-1].activation = tf.keras.activations.sigmoid
  with_it = keras_norms.prefix_norms(chain, (6, 5, 2))
  without = keras_norms.prefix_norms(chain, (6, 5, 2), last_activation=False)
  assert with_it.bound("l2", "l2") == pytest.approx(
    without.bound("l2", "l2") / 4
  )


def test_a_norm_too_small_is_caught_by_the_search():
  """The search has teeth: 90% of a norm is exceeded."""
  kernel = np.random.RandomState(0).rand(3, 3, 2, 2)
  found = linear_norms.conv2d_map(kernel, (6, 5, 2)).norms()
  attained = random_search(
    lambda x: tf.nn.conv2d(x, kernel, 1, "SAME").numpy(), (6, 5, 2)
  )
  assert attained["l1", "l1"] > 0.9 * found.bound("l1", "l1")


class Doubling(_keras.Flatten):
  """A subclass may do anything."""

  def call(self, inputs):
    return 2 * super().call(inputs)


@pytest.mark.parametrize(
  ("chain", "message"),
  [
    (
      lambda: [_keras.BatchNormalization()],
      "BatchNormalization.*sensitivity is unknown.*noise_after=0",
    ),
    (lambda: [_keras.Lambda(tf.square)], "Lambda.*sensitivity is unknown"),
    (lambda: [_keras.Activation("swish")], "'swish'.*sensitivity is unknown"),
    (
      lambda: [_keras.Conv2D(2, 3, activation="gelu")],
      "'gelu'.*noise_position='before_activation'",
    ),
    (lambda: [_keras.Conv2DTranspose(2, 3)], "Conv2DTranspose"),
    (lambda: [_keras.ReLU(threshold=0.5)], "threshold=0.*it jumps there"),
    (lambda: [_keras.ThresholdedReLU(0.5)], "ThresholdedReLU.*unknown"),
    (lambda: [Doubling()], "Doubling.*sensitivity is unknown"),
    (lambda: [_keras.DepthwiseConv2D(3)], "DepthwiseConv2D"),
    (lambda: [_keras.Dense(3)], "Put a Flatten layer before it"),
  ],
)
def test_unknown_sensitivity_is_refused(chain, message):
  chain = chain()
  tf.keras.Sequential([_keras.Input((6, 5, 2)), *chain])
  with pytest.raises(ValueError, match=message):
    keras_norms.prefix_norms(chain, (6, 5, 2))


def test_an_activation_in_disguise_is_refused():
  """A function that is called tanh is not tanh."""

  def tanh(x):
    return 3 * x

  with pytest.raises(ValueError, match="sensitivity is unknown"):
    keras_norms.prefix_norms([_keras.Activation(tanh)], (6,))
