"""Layers as Keras makes them, and layers that somebody changed."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models
from tf_privrob.models import untouched
from tf_privrob.models.files import known

_layers = tf.keras.layers
_MODELS = {"Functional", "InputLayer", "Model", "Sequential"}
_MERGING = {
  *"Add AdditiveAttention Attention Average Concatenate Dot Maximum".split(),
  *"Minimum Multiply Subtract".split(),
}
# What a class must be told, by the first word of its name that is known here.
_ARGUMENTS = {
  "ActivityRegularization": (0.1,),
  "Activation": ("relu",),
  "AlphaDropout": (0.3,),
  "Bidirectional": (_layers.LSTM(3),),
  "CategoryEncoding": (8,),
  "CenterCrop": (4, 4),
  "Conv": (2, 3),
  "Dense": (4,),
  "Depthwise": (3,),
  "Dot": (1,),
  "Dropout": (0.3,),
  "Einsum": ("ab,bc->ac", 4, "relu", "c"),
  "Embedding": (10, 4),
  "GRU": (4,),
  "GaussianDropout": (0.3,),
  "GaussianNoise": (0.3,),
  "GroupNorm": (2,),
  "LSTM": (4,),
  "MultiHead": (2, 2),
  "Permute": ((2, 1),),
  "RandomCrop": (4, 4),
  "RandomFlip": (),
  "RandomTranslation": (0.1, 0.1),
  "Random": (0.1,),
  "Repeat": (2,),
  "Rescaling": (0.5,),
  "Reshape": ((2, 4),),
  "Resizing": (4, 4),
  "Separable": (2, 3),
  "SimpleRNN": (4,),
  "Spatial": (0.3,),
  "Spectral": (_layers.Conv2D(2, 3),),
  "TimeDistributed": (_layers.Dense(3),),
}
_SHAPES = ((6, 6, 4), (8,), (6, 8), (6, 6, 6, 4), (3, 6, 6, 6, 4))


def _network(name):
  """A network of one layer of this class, whatever shape it takes."""
  kind = known.TABLES["layer"][name]
  given = [args for start, args in _ARGUMENTS.items() if name.startswith(start)]
  config = kind(*(given or [()])[0]).get_config()
  for shape in _SHAPES:
    try:
      inputs = [tf.keras.Input(shape) for _ in range(2)]
      layer = kind.from_config(config)
      if name == "MultiHeadAttention":
        outputs = layer(*inputs)
      elif name in _MERGING:
        outputs = layer(inputs)
      else:
        inputs = inputs[0]
        outputs = layer(inputs)
      return layer, tf.keras.Model(inputs, outputs), shape
    except (TypeError, ValueError):
      continue
  raise AssertionError(f"no shape for {name}")


@pytest.mark.parametrize("name", sorted({*known.TABLES["layer"]} - _MODELS))
def test_every_layer_is_as_keras_makes_it(name, tmp_path):
  layer, model, shape = _network(name)
  assert untouched.exchanged(layer) is None
  x = np.random.default_rng(0).integers(0, 8, (2, *shape)).astype(np.float32)
  x = [x] * len(model.inputs) if len(model.inputs) > 1 else x
  model(x)
  model(x, training=True)
  assert untouched.exchanged(layer) is None
  if name == "SpectralNormalization":
    return  # Keras cannot save it
  model.save(tmp_path / "model.keras")
  assert untouched.exchanged(layer) is None
  loaded = models.load_model(tmp_path / "model.keras")
  assert [untouched.exchanged(part) for part in loaded.layers] == [None] * len(
    loaded.layers
  )


def test_training_leaves_a_layer_as_it_is():
  parts = [
    _layers.Conv2D(2, 3, activation="relu", kernel_regularizer="l2"),
    _layers.BatchNormalization(),
    _layers.PReLU(activity_regularizer="l2"),
    _layers.Dropout(0.5),
    _layers.Flatten(),
    _layers.Dense(2, tf.nn.leaky_relu, kernel_constraint="non_neg"),
  ]
  model = tf.keras.Sequential([_layers.Input((5, 5, 1)), *parts])
  model.compile("adam", "mse")
  model.fit(np.ones([4, 5, 5, 1]), np.ones([4, 2]), verbose=0)
  model.predict(np.ones([4, 5, 5, 1]), verbose=0)
  model.layers[0].trainable = False
  assert [untouched.exchanged(layer) for layer in parts] == [None] * len(parts)


def test_a_layer_that_was_adapted_is_as_it_is():
  layer = _layers.Normalization()
  layer.adapt(np.random.default_rng(0).normal(size=(20, 3)))
  tf.keras.Sequential([_layers.Input((3,)), layer])
  assert untouched.exchanged(layer) is None


@pytest.mark.parametrize(
  "inner",
  [
    _layers.BatchNormalization(),
    _layers.Conv2D(2, 2),
    _layers.Dense(3),
    _layers.LayerNormalization(),
    _layers.PReLU(),
    _layers.SeparableConv2D(2, 2),
  ],
  ids=lambda layer: type(layer).__name__,
)
def test_a_layer_that_another_one_built_is_as_it_is(inner):
  """Nobody notes for which shapes."""
  inputs = tf.keras.Input((3, 4, 4, 2))
  tf.keras.Model(inputs, _layers.TimeDistributed(inner)(inputs))
  assert untouched.exchanged(inner) is None
  object.__setattr__(inner, "weight", [0.5])
  assert untouched.exchanged(inner) == "weight"


@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16"])
def test_every_precision_is_as_keras_makes_it(policy):
  parts = [
    _layers.Conv2D(2, 3, dtype=policy),
    _layers.BatchNormalization(dtype=policy),
    _layers.LeakyReLU(np.float32(0.1), dtype=policy),
    _layers.Rescaling([0.5, 2.0], dtype=policy),
  ]
  tf.keras.Sequential([_layers.Input((5, 5, 1), dtype="float32"), *parts])
  assert [untouched.exchanged(layer) for layer in parts] == [None] * len(parts)


def test_a_comparison_draws_nothing_and_spends_no_time_on_weights():
  layer = _layers.Dense(300, kernel_initializer=_Refusing())
  layer.build((None, 200))
  tf.keras.utils.set_random_seed(3)
  expected = tf.keras.initializers.GlorotUniform()((3, 3)).numpy()
  tf.keras.utils.set_random_seed(3)
  _Refusing.refuses = True
  try:
    assert untouched.exchanged(layer) is None
  finally:
    _Refusing.refuses = False
  found = tf.keras.initializers.GlorotUniform()((3, 3)).numpy()
  np.testing.assert_array_equal(found, expected)


class _Refusing(tf.keras.initializers.Initializer):
  refuses = False

  def __call__(self, shape, dtype=None, **kwargs):
    assert not self.refuses
    return tf.zeros(shape, dtype)


def test_a_layer_may_be_compared_while_a_function_is_traced():
  layer = _layers.Dense(2)
  layer.build((None, 3))

  @tf.function
  def traced(x):
    assert untouched.exchanged(layer) is None
    return layer(x)

  assert traced(tf.ones([1, 3])).shape == (1, 2)


# What an attacker may put in the place of something.


def _other_pool(x, **kwargs):
  return tf.nn.max_pool1d(x, 2, 2, "VALID")


class _Own:
  pass


@pytest.mark.parametrize(
  ("name", "attribute", "value"),
  [
    ("Conv2D", "_is_causal", True),
    ("Conv2D", "kernel", [[1.0]]),
    ("Conv2D", "kernel", tf.ones([3, 3, 4, 2])),
    ("Conv2D", "strides", [2, 2]),  # no tuple: the configuration says so
    ("PReLU", "alpha", [[[0.5] * 4] * 6] * 6),
    ("Attention", "concat_score_weight", 2.0),
    ("BatchNormalization", "_USE_V2_BEHAVIOR", False),
    ("BatchNormalization", "fused", 2),
    ("BatchNormalization", "moving_mean", None),
    ("AveragePooling2D", "pool_function", tf.nn.max_pool),
    ("AveragePooling1D", "pool_function", _other_pool),
    ("AveragePooling1D", "pool_function", functools.partial(_other_pool)),
    ("Flatten", "_channels_first", True),
    ("Dense", "_input_spec", _Own()),
    ("Dense", "note", "of the owner's"),
    ("Dropout", "rate", _Own()),
    ("Dense", "_activity_regularizer", _Own()),
  ],
)
def test_what_keras_does_not_make_is_seen(name, attribute, value):
  layer, _, _ = _network(name)
  assert untouched.exchanged(layer) is None
  object.__setattr__(layer, attribute, value)
  assert untouched.exchanged(layer)


class _Array(np.ndarray):
  """Of a foreign class, which names another home."""

  __module__ = "numpy"

  def __array__(self, *args, **kwargs):
    return np.zeros(2)


@pytest.mark.parametrize("value", [np.ones(2).view(_Array), _Own()])
def test_a_setting_that_is_an_object_of_its_own_is_seen(value):
  """The configuration hands it on as it is."""
  layer, _, _ = _network("Rescaling")
  object.__setattr__(layer, "offset", value)
  assert untouched.exchanged(layer) == "offset"


def test_a_partial_of_other_arguments_is_seen():
  layer, _, _ = _network("AveragePooling1D")
  whole = layer.pool_function
  changed = functools.partial(whole.func, *whole.args, pool_mode="max")
  object.__setattr__(layer, "pool_function", changed)
  assert untouched.exchanged(layer) == "pool_function"


def test_a_deleted_attribute_is_seen():
  layer, _, _ = _network("BatchNormalization")
  vars(layer).pop("moving_variance")
  assert untouched.exchanged(layer) == "moving_variance"


def test_an_initialiser_that_nobody_can_name_hides_nothing():
  """Such a layer could not be made again, and was believed."""
  layer, _, _ = _network("Conv2D")
  layer.kernel_initializer = _Refusing()
  assert untouched.exchanged(layer) is None
  object.__setattr__(layer, "_is_causal", True)
  assert untouched.exchanged(layer) == "_is_causal"


def test_a_configuration_that_makes_no_layer_is_not_believed():
  layer, _, _ = _network("Dense")
  layer.units = -1
  assert untouched.exchanged(layer) == "configuration"


def test_activations_are_left_to_the_reader():
  for activation in (lambda x: -x, tf.exp, _layers.LeakyReLU(0.1)):
    layer = _layers.Dense(2, activation)
    layer.build((None, 3))
    assert untouched.exchanged(layer) is None


# Methods and homes.


def test_a_method_of_one_layer_is_seen():
  layer = _layers.Dense(2)
  assert untouched.overridden(layer) is None
  layer.call = lambda x: x
  assert untouched.overridden(layer) == "call"


def test_a_class_is_known_by_its_home():
  borrowed = type("Scattering", (), {"__module__": "tf_privrob.layers"})
  assert not untouched.is_ours(borrowed)
  assert not untouched.is_ours(_layers.Dense)
  assert untouched.is_known("layer", _layers.Dense)
  assert not untouched.is_known("layer", type("Dense", (_layers.Dense,), {}))
