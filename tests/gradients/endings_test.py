"""Operations by which one example may end a pass."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob import papers
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


def _large_branch(x):
  """Of few operations and one shape, and 640 GB on the way."""
  a, b, c = (tf.ones(s) for s in ([1, 400_000], [400_000, 1], [400_000, 6]))
  return tf.cond(
    x[0, 0] >= 1, lambda: a @ ((b @ a) @ c), lambda: tf.zeros([1, 6])
  )


def _one_of_two_lists(x):
  """Which have different lengths."""
  none = tf.raw_ops.EmptyTensorList(
    element_shape=[1, 6], max_num_elements=2, element_dtype=tf.float32
  )
  one = tf.raw_ops.TensorListPushBack(input_handle=none, tensor=x)
  chosen = tf.raw_ops.SelectV2(condition=x[0, 0] > 0, t=one, e=none)
  length = tf.raw_ops.TensorListLength(input_handle=chosen)
  return x + tf.cast(length, x.dtype)


def _end_in_a_branch(x):
  def end():
    with tf.control_dependencies([tf.raw_ops.Abort()]):
      return tf.zeros([1, 6])

  return tf.cond(x[0, 0] >= 1, end, lambda: tf.zeros([1, 6])) + x


def _hue(x):
  """TensorFlow 2.15 never comes back from a change of 1e8 or more."""
  image = tf.stop_gradient(tf.reshape(x, [1, 1, 2, 3]))
  change = tf.stop_gradient(tf.math.log(1 - tf.reduce_mean(x)))
  return tf.reshape(tf.raw_ops.AdjustHue(images=image, delta=change), [1, 6])


def _found(*layers, shape=(6,)):
  network = tf.keras.Sequential([_layers.Input(shape), *layers])

  def differentiated(rows):
    with tf.GradientTape() as tape:
      total = tf.reduce_sum(network(rows, training=True))
    return tape.gradient(total, network.trainable_variables)

  return gradients.may_end(differentiated, tf.TensorSpec([1, *shape]))


@pytest.mark.parametrize(
  ("function", "operation"),
  [
    (_gather, "GatherV2"),
    (_divide, "FloorDiv"),
    (_slice, "Slice"),
    (_in_a_branch, "If"),
    (_in_a_map, "GatherV2"),
    (_loop, "While"),
    (_mask, "Where"),
    (_invert, "MatrixInverse"),
    (_power, "Pow"),
    (_roll, "Roll"),
    (_one_more_element, "If"),
    (_large_branch, "If"),
    (_one_of_two_lists, "SelectV2"),
    (_end_in_a_branch, "If"),
    (_hue, "AdjustHue"),
  ],
)
def test_an_operation_that_may_end_the_pass_is_named(function, operation):
  found = _found(_layers.Lambda(function), _layers.Dense(2))
  assert operation in found


def test_so_is_one_in_the_gradient():
  """Of a sort, which is within range; but that is not known."""
  found = _found(_layers.Dense(6), _layers.Lambda(tf.sort), _layers.Dense(2))
  assert "ScatterNd" in found


@pytest.mark.parametrize(
  ("shape", "layers"),
  [
    ((6,), [_layers.Lambda(lambda x: tf.gather(x, [0, 2], axis=1))]),
    ((6,), [_layers.Lambda(lambda x: x % 0.3)]),
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


def _trained(function, objective=None, run_dir=None, resume=False, **kwargs):
  inputs = tf.keras.Input((6,))
  network = tf.keras.Model(inputs, _layers.Dense(2)(function(inputs)))
  config = methods.DPSGDConfig(
    dp_epsilon=1.0, batch_size=16, epochs=1, **{"seed": 0, **kwargs}
  )
  model = methods.DPSGD(network, config, objective=objective)
  rng = np.random.default_rng(0)
  x = 0.99 * rng.random((64, 6), np.float32)
  model.fit(x, np.arange(64) % 2, verbose=0, run_dir=run_dir, resume=resume)
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


class _Codebook(_layers.Layer):
  """Soft where it is trained, a look-up where it is only used."""

  def call(self, x, training=None):
    table = tf.range(16.0)
    if training:
      near = -tf.square(16 * x[..., None] - table)
      return tf.reduce_sum(tf.nn.softmax(near) * table, -1)
    return tf.gather(table, tf.cast(16 * x, tf.int32)) + 0 * x


def test_a_pass_that_only_crafts_examples_counts():
  """With one image of 1.0 the first step of TRADES raised; 1.0 was stated."""
  with pytest.warns(UserWarning, match=r"may end this training .*Gather"):
    model = _trained(
      _Codebook(), methods.Trades(attack_eps=0.005, attack_steps=1)
    )
  assert model.privacy_statement().proven is None


def test_features_of_halfspaces_count():
  network = tf.keras.Sequential(
    [
      _layers.Input((6,)),
      _Codebook(),
      _layers.Dense(2, use_bias=False),
    ]
  )
  config = papers.HalfspacesConfig(batch_size=16, epochs=1.0, seed=0)
  x = 0.99 * np.random.default_rng(0).random((64, 6), np.float32)
  model = papers.Halfspaces(network, config)
  with pytest.warns(UserWarning, match=r"may end this training .*Gather"):
    model.fit(x, np.arange(64) % 2, verbose=0)
  assert model.privacy_statement().proven is None


@tf.custom_gradient
def _without_gradient(x):
  def gradient(upstream):
    raise ValueError("inputs are not differentiated")

  return tf.floor(64 * x) / 64, gradient


class _Implicit(_layers.Layer):
  """Inverts a matrix that is made of the input, in its gradient alone."""

  def build(self, shape):
    self.w = self.add_weight("w", (shape[-1],))

  def call(self, z):
    @tf.custom_gradient
    def solved(z, w):
      def gradient(upstream):
        inverse = tf.linalg.inv(tf.linalg.diag(1.0 - z))
        found = tf.linalg.matvec(inverse, upstream)
        return found, tf.reduce_sum(found, 0)

      return tf.tanh(z + w), gradient

    return solved(z, self.w)


def test_the_gradient_by_the_weights_counts_though_none_is_by_the_input():
  def function(x):
    return _Implicit()(_layers.Lambda(_without_gradient)(x))

  with pytest.warns(UserWarning, match="may end this training .*Inverse"):
    model = _trained(function)
  assert model.privacy_statement().proven is None


def test_a_resume_remembers_what_may_end_the_run(tmp_path):
  """A layer whose code was mended since looks like what was trained."""

  class Levels(_layers.Layer):
    mended = False

    def call(self, x):
      levels = tf.cast(16 * x, tf.int32)
      if Levels.mended:
        return tf.reduce_sum(tf.one_hot(levels, 16) * tf.range(16.0), -1)
      return tf.gather(tf.range(16.0), levels)

  def run(resume):
    return _trained(
      Levels(), run_dir=tmp_path / "run", resume=resume, seed=None
    )

  with pytest.warns(UserWarning, match="may end this training"):
    run(resume=False)
  Levels.mended = True
  model = run(resume=True)
  statement = model.privacy_statement()
  assert statement.proven is None
  assert any("an earlier session" in caveat for caveat in statement.caveats)
