"""Settings of layers of Keras 3 in the words of Keras 2.

A setting that Keras 3 alone has is taken where its value is what Keras 2 always
does. A setting that Keras 2 alone has is no setting of such a file.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from tf_privrob.models.files import description
from tf_privrob.models.files import known

# Layers of Keras 2 that Keras 3 does not have, or where the two differ: masks
# are operations in Keras 3; what these random layers draw from differs.
_OTHERWISE = frozenset(
  """Functional Masking Model RandomBrightness RandomContrast RandomCrop
  RandomHeight RandomWidth Sequential ThresholdedReLU""".split()
)
LAYERS = frozenset(known.TABLES["layer"]) - _OTHERWISE
_OF_KERAS_2 = frozenset(
  """batch_input_shape batch_size force_generator fused implementation
  input_length input_shape rank rng_type time_major
  virtual_batch_size""".split()
)
_RENAMED = {
  "InputLayer": {"batch_shape": "batch_input_shape"},
  "LeakyReLU": {"negative_slope": "alpha"},
}
# Settings without a form in Keras 2, and the values with which it agrees.
_AGREEING = {
  "antialias": (False,),
  "data_format": ("channels_last",),
  "flash_attention": (None, False),
  "lora_alpha": (None,),
  "lora_rank": (None,),
  "mask_zero": (False,),
  "optional": (False,),
  "output_padding": (None,),
  "pad_to_aspect_ratio": (False,),
  "quantization_config": (None,),
  "renorm": (False,),
  "rms_scaling": (False,),
  "sliding_window": (None,),
  "use_gate": (False,),
}
# Such that decide nothing: seeds of inner dropout, what is padded with where
# nothing is, what is returned where a mask is.
_IDLE = frozenset("fill_mode fill_value seed zero_output_for_mask".split())
_NEW = {
  "CenterCrop": ("data_format",),
  "ConvLSTM1D": ("seed", "zero_output_for_mask"),
  "ConvLSTM2D": ("seed", "zero_output_for_mask"),
  "ConvLSTM3D": ("seed", "zero_output_for_mask"),
  "Dense": ("lora_alpha", "lora_rank", "quantization_config"),
  "EinsumDense": ("lora_alpha", "lora_rank", "quantization_config"),
  "Embedding": ("lora_alpha", "lora_rank", "quantization_config"),
  "GRU": ("zero_output_for_mask",),
  "InputLayer": ("optional",),
  "LSTM": ("zero_output_for_mask",),
  "LayerNormalization": ("rms_scaling",),
  "MultiHeadAttention": (
    "flash_attention",
    "seed",
    "sliding_window",
    "use_gate",
  ),
  "RandomFlip": ("data_format",),
  "RandomRotation": ("data_format",),
  "RandomTranslation": ("data_format",),
  "RandomZoom": ("data_format",),
  "Resizing": (
    "antialias",
    "data_format",
    "fill_mode",
    "fill_value",
    "pad_to_aspect_ratio",
  ),
  "SimpleRNN": ("zero_output_for_mask",),
  "ZeroPadding1D": ("data_format",),
}
# Settings that both have, of which Keras 2 agrees with some values only: what
# output_padding means depends on the version of Keras 3.
_LIMITED = frozenset(["mask_zero", "output_padding", "renorm"])
_NO_DILATION = ("Conv3DTranspose", "dilation_rate")  # Keras 2 passes it over
# What must be there, as the two take other values where it is missing.
_NEEDED = frozenset(["data_format", "pool_size", "recurrent_activation"])
ACTIVATIONS: Mapping[str, Any] = {
  **{
    name: name
    for name in """elu exponential gelu linear mish relu selu sigmoid softmax
    softplus softsign swish tanh""".split()
  },
  "silu": "swish",
  "leaky_relu": {"class_name": "LeakyReLU", "config": {"alpha": 0.2}},
  "relu6": {"class_name": "ReLU", "config": {"max_value": 6.0}},
}
_POLICIES = ("DTypePolicy", "FloatDTypePolicy")
_POLICY_MODULES = (None, "keras", "keras.dtype_policies")
_PART = frozenset(
  "class_name config module registered_name shared_object_id".split()
)
_AXES = ("input_axes", "output_axes")  # of initialisers
_OTHER_NAMES = {"OrthogonalInitializer": "Orthogonal"}  # in earlier versions


def translated(
  name: str,
  config: Mapping[str, Any],
  layer: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
  """The settings of a layer.

  Args:
    name: of its class, one of `LAYERS`.
    config: as Keras 3 wrote it.
    layer: translates a layer that is a setting of this one.

  Raises:
    RefusedError: a setting is unknown, or Keras 2 has none that does the same.
  """
  both = known.settings_of(known.TABLES["layer"][name]) - _OF_KERAS_2
  renamed, new = _RENAMED.get(name, {}), _NEW.get(name, ())
  taken = (both - set(renamed.values())) | renamed.keys() | set(new)
  found = {}
  for key, value in config.items():
    if key not in taken:
      raise known.needs_code(f"{name} with {key}")
    if key in new or is_limited(name, key):
      require_agreement(name, key, value)
    if key == "dtype" and name != "InputLayer":
      _require_float(name, value)
    if key == "seed" and not (value is None or type(value) is int):
      raise description.wrong("a seed", value)
    if key not in new:
      found[renamed.get(key, key)] = _value(key, value, layer)
  missing = (_NEEDED & (taken - set(new))) - config.keys()
  if missing:
    raise known.RefusedError(
      f"has a {name} without {', '.join(sorted(missing))}, expected all of its"
      " settings. Write it by model.save(path)."
    )
  return found


def is_limited(name: str, key: str) -> bool:
  """Whether the two agree on some values only of a setting that both have."""
  return key in _LIMITED or (name, key) == _NO_DILATION


def _require_float(name: str, value: Any) -> None:
  """Refuses a layer of whole numbers: Keras 3 casts inputs, Keras 2 not."""
  if value is not None and not dtype(value).removeprefix("mixed_").startswith(
    ("float", "bfloat")
  ):
    raise known.needs_code(f"{name} of Keras 3 with dtype={dtype(value)}")


def require_agreement(name: str, key: str, value: Any) -> None:
  """Refuses a value of a setting with which Keras 2 and Keras 3 differ."""
  if key in _IDLE:
    return
  if (name, key) == _NO_DILATION:
    sides = value if isinstance(value, list) else [value]
    if any(type(side) is not int or side != 1 for side in sides):
      raise known.needs_code(f"{name} of Keras 3 with {key}={str(value)[:80]}")
    return
  if not any(value is known_value for known_value in _AGREEING[key]) and not (
    isinstance(value, str) and value in _AGREEING[key]
  ):
    raise known.needs_code(f"{name} of Keras 3 with {key}={str(value)[:80]}")


def _value(key: str, value: Any, layer: Callable[[Any], dict[str, Any]]) -> Any:
  kind = description.kind_of(key)
  if kind is None or value is None:
    return value
  if kind == "dtype":
    return dtype(value)
  if kind == "activation":
    return _activation(value, layer)
  if kind == "layer":
    return layer(value)
  return value if isinstance(value, str) else _part(value, kind)


def dtype(value: Any) -> str:
  """The name of a type, or of a policy of types."""
  if isinstance(value, dict):
    name, module = value.get("class_name"), value.get("module")
    config = value.get("config")
    if (
      name not in _POLICIES
      or module not in _POLICY_MODULES
      or value.get("registered_name") is not None
      or value.keys() - _PART
      or not isinstance(config, dict)
      or config.keys() != {"name"}
    ):
      raise known.needs_code(f"{module}.{name}" if module else f"{name}")
    value = config["name"]
  if not isinstance(value, str) or value not in known.DTYPES:
    raise description.wrong("a dtype", value)
  return value


def _activation(value: Any, layer: Callable[[Any], dict[str, Any]]) -> Any:
  if isinstance(value, dict) and value.get("class_name") != "function":
    return layer(value)
  if isinstance(value, str) and value in ACTIVATIONS:
    return ACTIVATIONS[value]
  if value == "hard_sigmoid":
    raise known.RefusedError(
      "has an activation 'hard_sigmoid', whose slope is 1/6 in Keras 3 and 0.2"
      " in Keras 2. Load it yourself and pass the model."
    )
  name = value.get("config") if isinstance(value, dict) else value
  module = value.get("module") if isinstance(value, dict) else None
  raise known.needs_code(f"{module}.{name}" if module else f"{name}")


def _part(value: Any, kind: str) -> dict[str, Any]:
  """An initialiser, regulariser or constraint."""
  value = description.mapping(value, f"a description of a {kind}")
  label, module = value.get("class_name"), value.get("module")
  name = _OTHER_NAMES.get(label, label) if isinstance(label, str) else None
  if (
    name not in known.TABLES[kind]
    or module not in (None, f"keras.{kind}s")
    or value.get("registered_name") not in (None, label)
    or value.keys() - _PART
  ):
    raise known.needs_code(f"{module}.{label}" if module else f"{label}")
  config = dict(description.mapping(value.get("config"), f"a config of {name}"))
  for key in _AXES:
    if kind == "initializer" and config.get(key) is None:
      config.pop(key, None)
  seed = config.get("seed")
  if not (seed is None or type(seed) is int):
    raise description.wrong("a seed", seed)
  return {"class_name": name, "config": config}
