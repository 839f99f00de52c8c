"""Norms of linear layers, against the explicit matrix."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob.certify.norms import keras_norms
from tf_privrob.certify.norms import linear_norms


def matrix(kernel, input_shape, strides, padding):
  """The convolution as [outputs, inputs], one basis vector at a time."""
  size = int(np.prod(input_shape))
  basis = np.eye(size).reshape(size, *input_shape)
  images = tf.nn.conv2d(basis, kernel, strides, padding.upper()).numpy()
  return images.reshape(size, -1).T, images.shape[1:]


def exact_from_linf(a):
  """max ||A s||_1 over sign vectors s: the maximum of a convex function."""
  signs = np.array(list(itertools.product([-1, 1], repeat=a.shape[1])))
  return np.abs(signs @ a.T).sum(axis=1).max()


def exact_from_l2(a):
  """max ||A^T s||_2 over sign vectors s, by duality."""
  signs = np.array(list(itertools.product([-1, 1], repeat=a.shape[0])))
  return np.linalg.norm(signs @ a, axis=1).max()


def random_kernel(shape, seed=0):
  return np.random.RandomState(seed).randn(*shape)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2, (2, 1), 3])
@pytest.mark.parametrize(
  ("input_shape", "taps"), [((6, 5, 2), (3, 2)), ((7, 7, 1), (5, 5))]
)
def test_conv2d_equals_the_explicit_matrix(input_shape, taps, strides, padding):
  kernel = random_kernel([*taps, input_shape[2], 3])
  a, output_shape = matrix(kernel, input_shape, strides, padding)
  found = linear_norms.conv2d_map(kernel, input_shape, strides, padding).norms()
  columns = np.abs(a).sum(axis=0)
  assert found.output_shape == output_shape
  assert found.bound("l1", "l1") == pytest.approx(columns.max(), rel=1e-9)
  assert found.bound("l2", "l1") <= np.linalg.norm(columns) * (1 + 1e-9)
  assert found.bound("linf", "l1") <= columns.sum() * (1 + 1e-9)
  assert found.bound("l2", "l1") >= np.linalg.norm(a, 2)
  rng = np.random.RandomState(1)
  for vector in rng.randn(200, a.shape[1]):
    image = np.abs(a @ vector).sum()
    assert image <= found.bound("l1", "l1") * np.abs(vector).sum()
    assert image <= found.bound("l2", "l1") * np.linalg.norm(vector)
    assert image <= found.bound("linf", "l1") * np.abs(vector).max()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_conv2d_bounds_the_exact_norms(padding, seed):
  kernel = random_kernel([2, 2, 1, 2], seed)
  a, _ = matrix(kernel, (4, 3, 1), 2, padding)
  found = linear_norms.conv2d_map(kernel, (4, 3, 1), 2, padding).norms()
  exact = exact_from_l2(a), exact_from_linf(a)
  assert exact[0] <= found.bound("l2", "l1") <= 2 * exact[0]
  assert exact[1] <= found.bound("linf", "l1") <= 2 * exact[1]


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_bounds_are_exact_without_cancellation(padding):
  kernel = np.abs(random_kernel([2, 2, 1, 2]))
  a, _ = matrix(kernel, (4, 3, 1), 2, padding)
  found = linear_norms.conv2d_map(kernel, (4, 3, 1), 2, padding).norms()
  assert found.bound("l2", "l1") == pytest.approx(exact_from_l2(a), rel=1e-9)
  assert found.bound("linf", "l1") == pytest.approx(
    exact_from_linf(a), rel=1e-9
  )


@pytest.mark.parametrize("seed", range(3))
def test_dense_bounds_the_exact_norms(seed):
  kernel = random_kernel([6, 5], seed)
  found = linear_norms.dense_map(kernel).norms()
  exact = exact_from_l2(kernel.T), exact_from_linf(kernel.T)
  assert found.bound("l1", "l1") == pytest.approx(
    np.abs(kernel).sum(axis=1).max()
  )
  assert exact[0] <= found.bound("l2", "l1") <= 2 * exact[0]
  assert exact[1] <= found.bound("linf", "l1") <= 2 * exact[1]
  assert found.output_shape == (5,)


def test_one_output_is_exact():
  found = linear_norms.dense_map([[2.0], [-1.0]]).norms()
  assert found.bound("l1", "l1") == pytest.approx(2)
  assert found.bound("linf", "l1") == pytest.approx(3)
  assert found.bound("l2", "l1") == pytest.approx(np.sqrt(5))


def test_orthogonal_rows_gain_from_the_second_bound():
  """Hadamard: sum c = 16, the largest ||A a||_1 over signs is 8."""
  hadamard = np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]])
  found = linear_norms.dense_map(hadamard).norms()
  assert exact_from_linf(hadamard) == 8
  assert found.bound("linf", "l1") == pytest.approx(8)
  assert found.bound("l2", "l1") == pytest.approx(4)
  assert exact_from_l2(hadamard) == pytest.approx(4)


def test_released_mnist_layer_golden():
  """The l1 norm that Laplace noise needs, at initialisation: 6679, not 102."""
  limit = np.sqrt(6 / (25 + 25 * 32))
  kernel = np.random.RandomState(0).uniform(-limit, limit, [5, 5, 1, 32])
  assert 196 * np.abs(kernel).sum() == pytest.approx(6679, rel=0.03)
  found = linear_norms.conv2d_map(kernel, (28, 28, 1), 2, "same").norms()
  assert found.output_shape == (14, 14, 32)
  assert 102 < found.bound("linf", "l1") < 196 * np.abs(kernel).sum()
  rng = np.random.RandomState(1)
  change = rng.choice([-1.0, 1.0], [50, 28, 28, 1])
  moved = tf.nn.conv2d(change, kernel, 2, "SAME").numpy()
  largest = np.abs(moved).sum(axis=(1, 2, 3)).max()
  assert 102 * 5 < largest <= found.bound("linf", "l1")


def test_layers_give_their_own_geometry():
  conv = tf.keras.layers.Conv2D(3, (3, 2), strides=(2, 1), padding="valid")
  dense = tf.keras.layers.Dense(4, activation="relu")
  inputs = tf.keras.Input((6, 5, 2))
  dense(tf.keras.layers.Flatten()(conv(inputs)))
  assert (
    keras_norms.linear_map(conv).norms()
    == linear_norms.conv2d_map(
      conv.kernel.numpy(), (6, 5, 2), (2, 1), "valid"
    ).norms()
  )
  assert (
    keras_norms.linear_map(conv).norms().output_shape == conv.output_shape[1:]
  )
  assert keras_norms.linear_map(conv, (9, 9, 2)).norms().output_shape == (
    4,
    8,
    3,
  )
  assert (
    keras_norms.linear_map(dense).norms()
    == linear_norms.dense_map(dense.kernel.numpy()).norms()
  )


def test_bound_knows_its_norms():
  found = linear_norms.dense_map(np.eye(3)).norms()
  assert found.bound("linf", "l1") == pytest.approx(3)
  with pytest.raises(ValueError, match="Did you mean 'linf'"):
    found.bound("inf", "l1")


def built(layer, shape):
  layer.build((None, *shape))
  return layer


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: linear_norms.dense_map(np.ones(3)).norms(), "kernel of rank 2"),
    (
      lambda: linear_norms.dense_map([[np.nan]]).norms(),
      "1 values that are not",
    ),
    (
      lambda: linear_norms.conv2d_map(np.ones([2, 2, 3, 1]), (4, 4, 1)).norms(),
      "kernel's 3 channels",
    ),
    (
      lambda: linear_norms.conv2d_map(
        np.ones([5, 5, 1, 1]), (4, 4, 1), padding="valid"
      ).norms(),
      "no larger than the input",
    ),
    (
      lambda: linear_norms.conv2d_map(
        np.ones([2, 2, 1, 1]), (4, 4, 1), padding="sam"
      ).norms(),
      "Did you mean 'same'",
    ),
    (
      lambda: linear_norms.conv2d_map(
        np.ones([2, 2, 1, 1]), (4, 4, 1), 0
      ).norms(),
      r"strides\[0\]=0",
    ),
    (
      lambda: linear_norms.conv2d_map(
        np.ones([2, 2, 1, 1]), (4, 4, 1), (1, 2, 3)
      ).norms(),
      "two whole numbers",
    ),
    (
      lambda: keras_norms.linear_map(tf.keras.layers.Dense(2)).norms(),
      "built layer",
    ),
    (
      lambda: keras_norms.linear_map(tf.keras.layers.ReLU()).norms(),
      "Dense or Conv2D layer, received ReLU",
    ),
    (
      lambda: keras_norms.linear_map(
        built(tf.keras.layers.Conv2D(2, 3, dilation_rate=2), (8, 8, 1))
      ).norms(),
      "dilation_rate=1",
    ),
    (
      lambda: keras_norms.linear_map(
        built(tf.keras.layers.Conv2D(2, 3), (8, 8, 1))
      ).norms(),
      "Pass input_shape",
    ),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()
