"""What a model file may name: an exact name stands for one known class.

Nothing here imports by name or follows a module that a file gives: a name is a
key of a table below or of the program's own registry, or it is refused.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_privrob import compat

_keras = tf.keras
_OUR_ROOMS = ("layers", "methods", "papers")

# Layers that compute a fixed function of inputs, settings and weights. Missing
# are those that hold code (Lambda and the layers of operations), read files
# (StringLookup, TextVectorization), take a cell by name (RNN), loop in Python
# over places (LocallyConnected, UpSampling1D) or are abstract.
_LAYERS = """
Activation ActivityRegularization Add AdditiveAttention AlphaDropout Attention
Average AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization
Bidirectional CategoryEncoding CenterCrop Concatenate Conv1D Conv1DTranspose
Conv2D Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D
Cropping1D Cropping2D Cropping3D Dense DepthwiseConv1D DepthwiseConv2D Dot
Dropout ELU EinsumDense Embedding Flatten GRU GaussianDropout GaussianNoise
GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D GroupNormalization
Identity InputLayer LSTM LayerNormalization LeakyReLU Masking MaxPooling1D
MaxPooling2D MaxPooling3D Maximum Minimum MultiHeadAttention Multiply
Normalization PReLU Permute RandomBrightness RandomContrast RandomCrop
RandomFlip RandomHeight RandomRotation RandomTranslation RandomWidth RandomZoom
ReLU RepeatVector Rescaling Reshape Resizing SeparableConv1D SeparableConv2D
SimpleRNN Softmax SpatialDropout1D SpatialDropout2D SpatialDropout3D
SpectralNormalization Subtract ThresholdedReLU TimeDistributed UnitNormalization
UpSampling2D ZeroPadding1D ZeroPadding2D ZeroPadding3D
""".split()
_INITIALIZERS = """
Constant GlorotNormal GlorotUniform HeNormal HeUniform Identity LecunNormal
LecunUniform Ones Orthogonal RandomNormal RandomUniform TruncatedNormal
VarianceScaling Zeros constant glorot_normal glorot_uniform he_normal he_uniform
identity lecun_normal lecun_uniform ones orthogonal random_normal random_uniform
truncated_normal variance_scaling zeros
""".split()
_REGULARIZERS = """
L1 L1L2 L2 OrthogonalRegularizer l1 l1_l2 l2 orthogonal_regularizer
""".split()
_CONSTRAINTS = """
MaxNorm MinMaxNorm NonNeg RadialConstraint UnitNorm max_norm min_max_norm
non_neg radial_constraint unit_norm
""".split()
_ACTIVATIONS = """
elu exponential gelu hard_sigmoid linear mish relu selu sigmoid softmax softplus
softsign swish tanh
""".split()
FUNCTIONAL = compat.keras_module("src.engine.functional").Functional


def _table(module: types.ModuleType, names: list[str]) -> dict[str, Any]:
  return {name: getattr(module, name) for name in names}


TABLES: Mapping[str, Mapping[str, Any]] = types.MappingProxyType(
  {
    "layer": {
      **_table(_keras.layers, _LAYERS),
      "Functional": FUNCTIONAL,
      "Model": FUNCTIONAL,
      "Sequential": _keras.Sequential,
    },
    "initializer": _table(_keras.initializers, _INITIALIZERS),
    "regularizer": _table(_keras.regularizers, _REGULARIZERS),
    "constraint": _table(_keras.constraints, _CONSTRAINTS),
    "activation": _table(_keras.activations, _ACTIVATIONS),
  }
)
_MODULES = {
  "layer": (
    "keras",
    "keras.layers",
    "keras.models",
    "keras.engine.functional",
    "keras.engine.sequential",
    "keras.src.engine.functional",
    "keras.src.engine.sequential",
    "tf_keras.src.engine.functional",
    "tf_keras.src.engine.sequential",
  ),
  "initializer": ("keras.initializers",),
  "regularizer": ("keras.regularizers",),
  "constraint": ("keras.constraints",),
  "activation": ("keras.activations", "builtins"),
}
_BASES = {
  "layer": _keras.layers.Layer,
  "initializer": _keras.initializers.Initializer,
  "regularizer": _keras.regularizers.Regularizer,
  "constraint": _keras.constraints.Constraint,
}
DTYPES = frozenset(
  """float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32
  uint64 bool mixed_float16 mixed_bfloat16""".split()
)
# Layers without weights that may stand where an activation does.
ACTIVATION_LAYERS = frozenset(
  "Activation ELU LeakyReLU ReLU Softmax ThresholdedReLU".split()
)
# Methods that a `DPSGD` or a `Trainer` with an objective does by now.
_GONE = frozenset(
  f"tf_privrob>{name}"
  for name in """AdversarialTraining DPSmooth DiffAI DistributionalTraining
  DualTraining IBP NaturalTraining Trades""".split()
)
# A program's class may not hand on what classes of these modules run or read.
_REFUSED = frozenset(
  """hashing index_lookup integer_lookup lambda_layer string_lookup
  text_vectorization tf_op_layer""".split()
)
# Arguments of constructors that no file holds: functions, tensors, cells.
_NO_SETTINGS = frozenset(
  """self args kwargs adjustment cell conv_op input_tensor inputs outputs
  pool_function type_spec weights""".split()
)
_OF_KERAS = frozenset({"Custom>CustomScaleLayer"})


class RefusedError(ValueError):
  """What is wrong with a file; whoever knows its name puts it in front."""


def needs_code(name: str) -> RefusedError:
  """The refusal of a class or function that is not known."""
  shown = str(name)[:200].encode("unicode_escape").decode()
  return RefusedError(
    f"needs code: {shown}. If you trust it, register these classes,"
    " or load it yourself and pass the model."
  )


def find(kind: str, name: Any, module: Any, registered: Any) -> Any:
  """The class or function that a description names.

  Keras' own are those of `TABLES`, under a module of Keras and no other
  registered name. All else is what the program itself has registered under
  exactly this name; the module in the file is then of no account, and a class
  that a file knows by its module alone is refused.

  Args:
    kind: of object, a key of `TABLES`.
    name: of class or function.
    module: that the file gives, or None.
    registered: name in the program's registry, or None.

  Raises:
    RefusedError: it is neither.
  """
  label = f"{module}.{name}" if module else f"{name}"
  if not isinstance(name, str) or isinstance(registered, (list, dict)):
    raise needs_code(label)
  if registered in (None, name, "function") and (
    module is None or module in _MODULES[kind]
  ):
    found = TABLES[kind].get(name)
    if found is not None:
      return found
  if kind == "activation":
    return _function(name, label)
  if registered is None and module is not None:
    raise needs_code(label)
  return _registered(kind, name, registered or name, label)


def _registered(kind: str, name: str, key: str, label: str) -> type:
  """The program's own class under this key, of this kind and name."""
  if key in _GONE:
    raise RefusedError(
      f"was trained by {name} of an earlier version of tf_privrob, whose class"
      " is gone. Train it again, or save its network with that version."
    )
  _import_ours(key)
  found = _keras.saving.get_registered_object(key)
  if (
    not isinstance(found, type)
    or not issubclass(found, _BASES[kind])
    or not _REFUSED.isdisjoint(
      base.__module__.rpartition(".")[2] for base in found.__mro__
    )
    or name not in (key, found.__name__)
    or (compat.is_of_keras(found.__module__) and key not in _OF_KERAS)
  ):
    raise needs_code(label)
  return found


def _import_ours(key: str) -> None:
  """Imports the class of this library that a key names, if it is one."""
  package, _, name = key.partition(">")
  if package != "tf_privrob":
    return
  for room in _OUR_ROOMS:
    home = importlib.import_module(f"tf_privrob.{room}")
    if name in home.__all__:
      getattr(home, name)


def _function(name: str, label: str) -> types.FunctionType:
  """The program's own function under this name."""
  found = _keras.saving.get_registered_object(name)
  if not isinstance(found, types.FunctionType):
    raise needs_code(label)
  return found


def is_registered(found: type) -> bool:
  """Whether a class that `find` returned is the program's own."""
  return all(found is not known for known in TABLES["layer"].values())


@functools.lru_cache(maxsize=1024)
def settings_of(layer: type) -> frozenset[str]:
  """What the constructor of a layer of Keras takes, but for initial weights."""
  names = {"name", "trainable", "dtype", "batch_input_shape", "implementation"}
  for base in layer.__mro__[: layer.__mro__.index(_keras.layers.Layer)]:
    if "__init__" in vars(base):
      names.update(inspect.signature(base.__init__).parameters)
  return frozenset(names - _NO_SETTINGS)


def inherited_settings(found: type) -> frozenset[str]:
  """The settings that a program's class hands to a class of Keras."""
  bases = {_keras.layers.Layer, *TABLES["layer"].values()}
  names = {"dtype"} if issubclass(found, _keras.layers.Layer) else set()
  return frozenset(
    names.union(*map(settings_of, bases.intersection(found.__mro__)))
  )


def made_of_layers(found: type, config: Mapping[str, Any]) -> str | None:
  """Whether Keras itself makes a model of this config's layers, and how.

  Returns:
    "stack" or "graph"; None: the class makes itself of its settings.
  """
  rule = getattr(getattr(found, "from_config", None), "__func__", None)
  if rule is _keras.Sequential.from_config.__func__:
    return "stack"
  if (
    rule is _keras.Model.from_config.__func__
    and {"layers", "input_layers", "output_layers"} <= config.keys()
  ):
    return "graph"
  return None
