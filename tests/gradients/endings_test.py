"""Operations by which one example may end a pass."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob.gradients import endings

_layers = tf.keras.layers


def _gather(x):
  return tf.gather(tf.linspace(0.0, 1.0, 16), tf.cast(16 * x, tf.int32))


def _divide(x):
  return tf.cast(7 // (tf.cast(9 * x, tf.int32) - 20), tf.float32)


def _slice(x):
  # Of whole numbers, whose open shape nobody looked at.
  levels = tf.cast(10 * x, tf.int32)
  rest = tf.slice(levels, [0, levels[0, 0]], [-1, -1])
  return tf.cast(tf.reduce_max(rest, 1, keepdims=True), tf.float32)


def _in_a_branch(x):
  def table():
    return tf.tile(tf.gather(x, tf.constant([5]), axis=1), [1, 6])

  return tf.cond(tf.reduce_sum(x) > 0, table, lambda: x)


def _in_a_map(x):
  return tf.map_fn(_gather, x)


def _loop(x):
  return tf.while_loop(
    lambda v: tf.reduce_sum(v) < -1e3, lambda v: (2 * v,), (x,)
  )[0]


def _mask(x):
  return x + tf.reduce_sum(tf.boolean_mask(x, x > 0))


def _invert(x):
  square = tf.reshape(x[:, :4], [-1, 2, 2]) + 3 * tf.eye(2)
  return tf.reshape(tf.linalg.inv(square), [-1, 4])


def _power(x):
  return tf.cast(tf.pow(2, tf.cast(9 * x, tf.int32) - 20), tf.float32)


def _roll(x):
  return tf.raw_ops.Roll(input=x, shift=1, axis=tf.cast(9 * x[0, 0], tf.int32))


def _one_more_element(x):
  """A list of one length or another, and its last element."""
  three = tf.raw_ops.EmptyTensorList(
    element_shape=[1, 6], max_num_elements=2, element_dtype=tf.float32
  )
  one = tf.raw_ops.TensorListPushBack(input_handle=three, tensor=x)
  chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: one, lambda: three)
  _, last = tf.raw_ops.TensorListPopBack(
    input_handle=chosen, element_shape=[1, 6], element_dtype=tf.float32
  )
  return tf.reshape(last, [1, 6])


def _shape_of_a_branch(x):
  wide = tf.concat([x, x], 1)
  chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: wide)
  return tf.ensure_shape(chosen, [1, 6])


def _found(*layers, shape=(6,)):
  network = tf.keras.Sequential([_layers.Input(shape), *layers])
  return gradients.may_end(network, network.trainable_variables, shape)


@pytest.mark.parametrize(
  ("function", "operation"),
  [
    (_gather, "GatherV2"),
    (_divide, "FloorDiv"),
    (_slice, "Slice"),
    (_in_a_branch, "GatherV2"),
    (_in_a_map, "GatherV2"),
    (_loop, "While"),
    (_mask, "Where"),
    (_invert, "MatrixInverse"),
    (_power, "Pow"),
    (_roll, "Roll"),
    (_one_more_element, "If"),
    (_shape_of_a_branch, "If"),
    (tf.sort, "ScatterNd"),  # in its gradient, and within range; not known
  ],
)
def test_an_operation_that_may_end_the_pass_is_named(function, operation):
  found = _found(_layers.Lambda(function), _layers.Dense(2))
  assert operation in found


@pytest.mark.parametrize(
  ("shape", "layers"),
  [
    ((6,), [_layers.Lambda(lambda x: tf.gather(x, [0, 2], axis=1))]),
    ((6,), [_layers.Lambda(lambda x: x % 0.3)]),
    (
      (6,),
      [_layers.Lambda(lambda x: tf.cond(x[0, 0] > 0, lambda: x, lambda: -x))],
    ),
    ((6,), [_layers.Lambda(lambda x: tf.map_fn(tf.nn.softmax, x))]),
    ((6,), [_layers.Lambda(lambda x: tf.one_hot(tf.argmax(x, 1), 6) * x)]),
    ((8,), [_layers.Lambda(lambda x: tf.abs(tf.signal.rfft(x)))]),
    ((5, 3), [_layers.GRU(4), _layers.Dropout(0.1)]),
    ((5, 3), [_layers.Bidirectional(_layers.LSTM(4))]),
    ((5, 3), [_layers.Conv1D(4, 3, dilation_rate=2), _layers.Flatten()]),
    (
      (8, 8, 2),
      [
        _layers.RandomRotation(0.1),
        _layers.Conv2D(4, 3, activation="relu"),
        _layers.MaxPooling2D(),
        _layers.LayerNormalization(),
        _layers.Conv2DTranspose(2, 3),
        _layers.UpSampling2D(interpolation="bilinear"),
        _layers.Flatten(),
      ],
    ),
  ],
)
def test_operations_that_always_answer_are_known(shape, layers):
  assert _found(*layers, _layers.Dense(2), shape=shape) is None


def test_whatever_is_a_size_or_a_place_is_known_as_one():
  """Inputs that are whole numbers by definition, but for what they count."""
  answering, listed = endings.ANSWERING, endings.ARGUMENTS
  missed = []
  for name in {*answering, *listed} - {"_EagerConst"}:
    definition = op_def_registry.get(name)
    allowed = {a.name: a.allowed_values.list.type for a in definition.attr}
    for number, argument in enumerate(definition.input_arg):
      types = allowed.get(argument.type_attr) or [argument.type]
      is_whole = all(tf.dtypes.as_dtype(t).is_integer for t in types if t)
      if is_whole and any(types) and number not in listed.get(name, ()):
        missed.append((name, number))
  # What is one or zero, and what a step of cuDNN hands to its gradient.
  assert set(missed) == {
    ("OneHot", 0),
    ("CudnnRNNBackpropV2", 11),
    ("CudnnRNNBackpropV3", 12),
  }


def _trained(function, **kwargs):
  inputs = tf.keras.Input((6,))
  network = tf.keras.Model(inputs, _layers.Dense(2)(function(inputs)))
  config = methods.DPSGDConfig(
    dp_epsilon=1.0, batch_size=16, epochs=1, seed=0, **kwargs
  )
  model = methods.DPSGD(network, config)
  rng = np.random.default_rng(0)
  x = 0.99 * rng.random((64, 6), np.float32)
  model.fit(x, np.arange(64) % 2, verbose=0)
  return model


def test_nothing_is_proven_where_one_example_may_end_the_training():
  """With one image of 1.0 more it never ended well; 1.0 was stated."""
  with pytest.warns(UserWarning, match=r"may end this training .*GatherV2"):
    model = _trained(_gather)
  statement = model.privacy_statement()
  assert statement.proven is None
  assert any("GatherV2" in caveat for caveat in statement.caveats)


def test_other_networks_are_proven_without_a_word():
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    model = _trained(_layers.Dense(3, "relu"))
  assert model.privacy_statement().proven is not None
