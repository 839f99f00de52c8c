from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.certify.linear import margin_test
from tf_privrob import certify
from tf_privrob import layers
from tf_privrob.certify.linear import linear_head

keras = tf.keras.layers
chain = margin_test.chain
DUAL = margin_test.DUAL


def dense(classes, seed=1, **settings):
  """With the same weights and biases in every run."""
  normal = tf.keras.initializers.RandomNormal
  return keras.Dense(
    classes,
    kernel_initializer=normal(stddev=0.3, seed=seed),
    bias_initializer=normal(stddev=0.3, seed=seed + 1),
    **settings,
  )


@pytest.mark.parametrize("norm", certify.NORMS)
def test_layers_before_are_read(norm):
  """Against the Jacobian of the whole model."""
  model = chain(
    keras.Rescaling([2.0, -0.5, 3.0], [1.0, 0.0, -4.0]),
    keras.Dropout(0.5),
    keras.Permute((3, 1, 2)),
    keras.Rescaling(0.25),
    keras.Reshape((6, 2)),
    keras.Activation("linear"),
    keras.Flatten(),
    dense(4),
    shape=(2, 2, 3),
  )
  x = np.random.default_rng(3).normal(size=(6, 2, 2, 3)).astype("f4")
  with tf.GradientTape() as tape:
    inputs = tf.constant(x)
    tape.watch(inputs)
    logits = model(inputs)
  jacobian = tape.batch_jacobian(logits, inputs).numpy().reshape(6, 4, 12)
  rows = certify.LinearMargin(norm).certify(model, x)
  for row, scores, slopes in zip(rows, logits.numpy(), jacobian):
    top = scores.argmax()
    found = [
      (scores[top] - scores[j])
      / np.linalg.norm(slopes[top] - slopes[j], DUAL[norm])
      for j in range(4)
      if j != top
    ]
    assert row.method == "linear_margin"
    assert row.radius == pytest.approx(min(found), rel=1e-3, abs=5e-5)


def test_models_inside_models_are_taken_apart():
  model, x = margin_test.problem()
  nested = chain(chain(keras.Rescaling(1.0), shape=(20,)), model, shape=(20,))
  found = certify.LinearMargin().certify(nested, x)
  plain = certify.LinearMargin().certify(model, x)
  np.testing.assert_allclose(
    [row.radius for row in found], [row.radius for row in plain], atol=2e-5
  )
  assert {row.method for row in found} == {"linear_margin"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_bound_holds_and_is_not_idle(dtype):
  rng = np.random.default_rng(5)
  model = chain(
    keras.Rescaling(1 / 3, 0.7, dtype=dtype),
    dense(10, dtype=dtype),
    shape=(300,),
  )
  x = rng.normal(size=(200, 300)).astype("f4")
  front, parts = linear_head.split(linear_head.chain_of(model))
  assert front == []
  head = linear_head.LinearHead.of(parts, (300,))
  difference = np.abs(model(x).numpy() - head.scores(x.astype(float)))
  share = (difference / head.errors(x.astype(float))).max()
  assert 1e-4 < share <= 1
  assert head.growth < (1e-3 if dtype == "float32" else 1e-12)


class Doubled(tf.keras.Sequential):
  def call(self, inputs, training=None, mask=None):
    return 2 * super().call(inputs, training=training)


class Free(tf.keras.Model):
  def __init__(self):
    super().__init__()
    self.last = keras.Dense(2)

  def call(self, inputs):
    return self.last(inputs)


def shared():
  layer = keras.Dense(2)
  inputs = keras.Input((2,))
  return tf.keras.Model(inputs, layer(layer(inputs)))


def joining():
  inputs = keras.Input((2,))
  both = keras.Concatenate(name="both")([inputs, inputs])
  return tf.keras.Model(inputs, keras.Dense(2)(both))


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: lambda x: x, "Expected a Keras network, whose layers"),
    (Free, "Expected a functional or sequential Keras model"),
    (
      lambda: chain(keras.Dense(2, activation="softmax", name="end")),
      "Dense 'end', without an activation, received 'softmax'",
    ),
    (
      lambda: chain(keras.Dense(2), keras.Softmax(name="end")),
      "ends with a Dense layer, received Softmax 'end'",
    ),
    (
      lambda: chain(keras.Dense(3, "relu", name="first"), keras.Dense(2)),
      "Dense 'first', whose Lipschitz constant is not known",
    ),
    (
      lambda: chain(
        keras.ReLU(name="odd"),
        layers.RandomFourierFeatures(3, name="features"),
        keras.Dense(2),
      ),
      "ReLU 'odd' before RandomFourierFeatures 'features'",
    ),
    (shared, "whose Lipschitz constant is not known"),
    (joining, "Concatenate 'both' with several inputs"),
    (lambda: chain(keras.Dense(1)), "at least 2 classes"),
    (
      lambda: chain(keras.Dense(2, dtype="mixed_float16", name="half")),
      "Dense 'half' to compute in float32",
    ),
    (
      lambda: chain(keras.Reshape((1, 2)), keras.Dense(2, name="end")),
      r"shape \[batch, num_classes\]",
    ),
    (
      lambda: Doubled([keras.Input((2,)), dense(2)]),
      "functional or sequential Keras model .*received Doubled",
    ),
  ],
)
def test_other_models_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    certify.LinearMargin().certify(make(), np.ones([3, 2], "f4"))


def test_weights_that_are_not_finite_are_refused():
  model = margin_test.linear([[1, np.nan], [0, 0]], [0, 0])
  with pytest.raises(ValueError, match="finite weights in Dense"):
    certify.LinearMargin().certify(model, np.ones([1, 2], "f4"))
