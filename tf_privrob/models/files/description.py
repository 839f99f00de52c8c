"""A model's description: checked as a whole before anything of it is built."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_privrob.models.files import known

MAX_DEPTH = 64
MAX_CALLS = 20_000  # of layers, those within models that are called again too
# Layers that write a loop, or many operations, at every call.
_IS_SLOW = re.compile("Attention|Bidirectional|GRU|LSTM|RNN|TimeDistributed")
_SLOW = 100
_PLAIN = (bool, int, float, str, type(None))
_WRAPPED = ("layer", "backward_layer")
_SHAPES_OF_CALLS = ("query_shape", "key_shape", "value_shape")
_CONSTANT = "_CONSTANT_VALUE"
_NO_LAYERS = (
  "builtins",
  "keras.constraints",
  "keras.initializers",
  "keras.regularizers",
)
_MAX_SIDE = 2**26
_SIDES = frozenset(  # by which a side grows that may be unknown so far
  """cropping height n num_tokens padding pool_size size target_shape
  width""".split()
)
_LOOPS = {"power_iterations": 16}  # settings that Keras unrolls in Python


def checked(value: Any) -> dict[str, Any]:
  """The same description in Keras' own words, if all that it names is known.

  Every class and function in it, at any depth, was found by `known.find`, and
  the result names it as Keras itself would: whoever deserialises a part of it,
  as the `from_config` of a registered class may, finds the same class and
  imports nothing. What decides nothing (compile_config, shared_object_id) is
  left out. Nothing is built here.

  Args:
    value: the description of a layer or model, from JSON.

  Raises:
    RefusedError: something in it is not known or not of the right form.
  """
  require_depth(value)
  if _classes(value) > MAX_CALLS:  # before a look at their settings
    raise known.RefusedError(
      f"names more than {MAX_CALLS} classes. Load it yourself and pass the"
      " model."
    )
  found = _object(_lists(value), "layer")
  if calls(found) > MAX_CALLS:
    raise known.RefusedError(
      f"calls its layers {calls(found)} times, more than {MAX_CALLS}. Load it"
      " yourself and pass the model."
    )
  return found


def _classes(value: Any) -> int:
  """How many parts name a class."""
  found, waiting = 0, [value]
  while waiting:
    part = waiting.pop()
    if isinstance(part, dict):
      found += "class_name" in part
      waiting += part.values()
    elif isinstance(part, (list, tuple)):
      waiting += part
  return found


def calls(value: Any) -> int:
  """How often layers are called while the model is built, at most."""
  if isinstance(value, list):
    return sum(map(calls, value))
  if not isinstance(value, dict):
    return 0
  if "class_name" not in value:
    return sum(map(calls, value.values()))
  if value["module"] in _NO_LAYERS:
    return 0
  nodes = value.get("inbound_nodes")
  times = 2 if nodes is None else 1 + len(nodes)  # built, then called
  inputs = 0 if nodes is None else sum(1 for _ in leaves(nodes))
  own = _SLOW if _IS_SLOW.search(value["class_name"]) else 1
  return inputs + times * (own + calls(value["config"]))


def _lists(value: Any) -> Any:
  """The same with lists for tuples, as JSON has it."""
  if isinstance(value, dict):
    return {str(key): _lists(part) for key, part in value.items()}
  if isinstance(value, (list, tuple)):
    return [_lists(part) for part in value]
  if not isinstance(value, _PLAIN):
    raise wrong("a part", value)
  return value


def require_depth(value: Any) -> None:
  """Refuses what is nested so deeply that a walk through it may not end."""
  depth, level = 0, [value]
  while level:
    depth += 1
    if depth > MAX_DEPTH:
      raise known.RefusedError(
        f"has a description nested deeper than {MAX_DEPTH}. Write it by"
        " model.save(path)."
      )
    level = [
      part
      for outer in level
      if isinstance(outer, (dict, list, tuple))
      for part in (outer.values() if isinstance(outer, dict) else outer)
    ]


def wrong(expected: str, value: Any) -> known.RefusedError:
  """The refusal of a part that is not of the form that it should have."""
  return known.RefusedError(
    f"has {expected} that is {str(value)[:80]!r} ({type(value).__name__})."
    " Write it by model.save(path)."
  )


def mapping(value: Any, expected: str) -> dict[str, Any]:
  """The value itself, if it is a dict; else it is refused as `expected`."""
  if not isinstance(value, dict):
    raise wrong(expected, value)
  return value


def _object(value: Any, kind: str) -> dict[str, Any]:
  """The description of an object of this kind."""
  value = mapping(value, f"a description of a {kind}")
  name, module = value.get("class_name"), value.get("module")
  found = known.find(kind, name, module, value.get("registered_name"))
  config = value.get("config")
  if isinstance(config, dict) and "class_name" in config:
    raise known.needs_code(f"{name} with class_name")
  result = {"class_name": found.__name__, "module": None}
  if found is known.FUNCTIONAL:
    result["module"] = found.__module__
    result["registered_name"] = "Functional"
    result["config"] = _functional(mapping(config, f"a config of {name}"))
  elif found is tf.keras.Sequential:
    result.update(module="keras", registered_name=None)
    result["config"] = _sequential(config)
  elif kind == "layer" and not known.is_registered(found):
    result.update(module="keras.layers", registered_name=None)
    result["config"] = _settings(found, mapping(config, f"a config of {name}"))
  elif found in known.TABLES.get(kind, {}).values():
    result.update(module=f"keras.{kind}s", registered_name=None)
    config = mapping(config or {}, f"a config of {name}")
    result["config"] = {key: plain(part) for key, part in config.items()}
  else:
    result["registered_name"] = value.get("registered_name") or name
    result["config"] = _own(found, mapping(config or {}, f"a config of {name}"))
    if value.get("build_config") is not None:
      result["build_config"] = plain(
        mapping(value["build_config"], f"a build_config of {name}")
      )
  return result


def _own(found: type, config: dict[str, Any]) -> dict[str, Any]:
  """The settings of a registered class."""
  made = known.made_of_layers(found, config)
  if made:
    return _functional(config) if made == "graph" else _sequential(config)
  taken = known.inherited_settings(found)
  return {
    key: _role(key, part) if kind_of(key) and key in taken else _nested(part)
    for key, part in config.items()
  }


def _settings(layer: type, config: dict[str, Any]) -> dict[str, Any]:
  """The settings of a layer of Keras."""
  config = {k: v for k, v in config.items() if k not in _SHAPES_OF_CALLS}
  if config.get("optional") is False:  # of inputs; not every Keras 2 knows it
    del config["optional"]
  for key in set(config) - known.settings_of(layer):
    raise known.needs_code(f"{layer.__name__} with {key}")
  for key in ("sparse", "ragged", "stateful", "unroll"):
    if config.get(key):
      raise known.needs_code(f"{layer.__name__} with {key}")
  for key in _SIDES & set(config):
    if _largest(config[key]) > _MAX_SIDE:
      raise wrong(f"{key} above {_MAX_SIDE}", config[key])
  for key, most in _LOOPS.items():
    if key in config and not (
      isinstance(config[key], int) and config[key] <= most
    ):
      raise wrong(f"{key} above {most}", config[key])
  return {
    key: _role(key, value) if kind_of(key) else plain(value)
    for key, value in config.items()
  }


def _largest(value: Any) -> int:
  """The largest whole number in a setting."""
  if isinstance(value, list):
    return max(map(_largest, value), default=0)
  return abs(value) if isinstance(value, int) else 0


def kind_of(key: str) -> str | None:
  """What a setting of this name holds, where it holds an object."""
  if key == "activation" or key.endswith("_activation"):
    return "activation"
  if key == "dtype":
    return "dtype"
  if key in _WRAPPED:
    return "layer"
  for kind in ("initializer", "regularizer", "constraint"):
    if key == kind or key.endswith(f"_{kind}"):
      return kind
  return None


def _role(key: str, value: Any) -> Any:
  """A setting whose name says what it holds."""
  kind = kind_of(key)
  if value is None:
    return None
  if kind == "dtype":
    return _dtype(value)
  if isinstance(value, str) and kind != "layer":
    known.find(kind, value, None, None)
    return value
  if kind == "activation":
    return _activation(value)
  return _object(value, kind)


def _dtype(value: Any) -> Any:
  """A type, or a policy of types."""
  name = value
  if isinstance(value, dict):
    module, kind = value.get("module"), value.get("class_name")
    if kind != "Policy" or module not in (None, "keras.mixed_precision"):
      raise known.needs_code(f"{module}.{kind}")
    name = mapping(value.get("config"), "a config of Policy").get("name")
  if not isinstance(name, str) or name not in known.DTYPES:
    raise wrong("a dtype", name)
  return name


def _activation(value: Any) -> dict[str, Any]:
  """A function, or a layer without weights in its place."""
  value = mapping(value, "an activation")
  if value.get("class_name") != "function":
    found = _object(value, "layer")
    if found["class_name"] not in known.ACTIVATION_LAYERS:
      raise known.needs_code(f"{found['class_name']} as an activation")
    return found
  name, registered = value.get("config"), value.get("registered_name")
  known.find("activation", name, value.get("module"), registered)
  return {
    "module": "builtins",
    "class_name": "function",
    "config": name,
    "registered_name": "function",
  }


def plain(value: Any) -> Any:
  """Numbers, strings and lists or dicts of them; tuples become lists."""
  if isinstance(value, _PLAIN):
    return value
  if isinstance(value, list):
    return [plain(part) for part in value]
  name = value.get("class_name")
  if name in ("__tuple__", "TensorShape"):
    return plain(sequence(value.get("items"), f"{name}"))
  if name in ("__numpy__", "__tensor__"):
    return plain(mapping(value.get("config"), f"{name}").get("value"))
  if "class_name" in value:
    raise known.needs_code(name)
  return {key: plain(part) for key, part in value.items()}


def sequence(value: Any, expected: str) -> list[Any]:
  """The value itself, if it is a list; else it is refused as `expected`."""
  if not isinstance(value, list):
    raise wrong(expected, value)
  return value


def _nested(value: Any) -> Any:
  """The settings of a registered class, whatever they hold, all checked."""
  if isinstance(value, list):
    return [_nested(part) for part in value]
  if not isinstance(value, dict):
    return value
  if "class_name" in value:
    return _any_object(value)
  return {key: _nested(part) for key, part in value.items()}


def _any_object(value: dict[str, Any]) -> Any:
  """An object whose place does not say of which kind it is."""
  name = value["class_name"]
  if name in ("__tuple__", "TensorShape"):
    return plain(value)
  if name in ("__numpy__", "__tensor__"):
    dtype = mapping(value.get("config"), f"{name}").get("dtype")
    numbers = {"value": plain(value), "dtype": _dtype(dtype)}
    return {"module": "builtins", "class_name": name, "config": numbers}
  if name == "function":
    return _activation(value)
  for kind in ("layer", "initializer", "regularizer", "constraint"):
    try:
      known.find(kind, name, value.get("module"), value.get("registered_name"))
    except known.RefusedError:
      continue
    return _object(value, kind)
  module = value.get("module")
  raise known.needs_code(f"{module}.{name}" if module else f"{name}")


def _sequential(config: Any) -> dict[str, Any]:
  """A stack of layers; the oldest files have nothing but their list."""
  if isinstance(config, list):
    config = {"name": None, "layers": config}
  config = mapping(config, "a config of Sequential")
  layers = [
    _object(layer, "layer")
    for layer in sequence(config.get("layers"), "a list of layers")
  ]
  if not layers or "batch_input_shape" not in layers[0]["config"]:
    raise known.RefusedError(
      "has a Sequential model without an input shape. Give it an Input layer"
      " and save it again."
    )
  return {"name": _name(config.get("name"), None), "layers": layers}


def _functional(config: dict[str, Any]) -> dict[str, Any]:
  """A graph of layers."""
  layers, names = [], set()
  for value in sequence(config.get("layers"), "a list of layers"):
    layer = _object(value, "layer")
    name = _name(value.get("name"), str)
    if name in names or layer["config"].get("name", name) != name:
      raise wrong("a name of a layer", name)
    names.add(name)
    nodes = sequence(value.get("inbound_nodes"), f"a list of calls of {name!r}")
    layer.update(name=name, inbound_nodes=nodes)
    for leaf in leaves(nodes):
      _check_leaf(leaf, layer)
    layers.append(layer)
  for key in ("input_layers", "output_layers"):
    for leaf in leaves(config.get(key)):
      _check_reference(leaf)
  return {
    "name": _name(config.get("name"), None),
    "layers": layers,
    "input_layers": config["input_layers"],
    "output_layers": config["output_layers"],
  }


def _name(value: Any, needed: Any) -> str | None:
  if value is None and needed is None:
    return None
  if not isinstance(value, str) or not 0 < len(value) < 1000:
    raise wrong("a name", value)
  return value


def is_leaf(value: Any) -> bool:
  """Whether it is [layer, call, output] or that with arguments."""
  return (
    isinstance(value, list)
    and len(value) in (3, 4)
    and isinstance(value[0], str)
  )


def leaves(value: Any) -> Iterator[list[Any]]:
  """The references in the inputs of a call, or of a model."""
  if is_leaf(value):
    yield value
  elif isinstance(value, (list, dict)):
    for part in value.values() if isinstance(value, dict) else value:
      yield from leaves(part)
  else:
    raise wrong("a reference to a layer", value)


def _check_reference(leaf: list[Any]) -> None:
  """Refuses anything but a name and two numbers."""
  if leaf[0] == _CONSTANT:
    raise known.needs_code("a constant as the input of a layer")
  for number in leaf[1:3]:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
      raise wrong("a number of a call or an output", number)


def _check_leaf(leaf: list[Any], layer: dict[str, Any]) -> None:
  """An input of a call and the call's further arguments."""
  _check_reference(leaf)
  arguments = mapping(leaf[3] if len(leaf) == 4 else {}, "arguments of a call")
  if not arguments:
    return
  found = known.find(
    "layer", layer["class_name"], layer["module"], layer["registered_name"]
  )
  taken = inspect.signature(found.call).parameters
  own = known.is_registered(found)
  for key, value in arguments.items():
    if key not in taken and not (key in ("training", "mask") and value is None):
      raise known.needs_code(f"{layer['name']!r} called with {key}")
    if isinstance(value, (list, dict)):
      for part in leaves(value):
        _check_reference(part)
    elif not (value is None or isinstance(value, bool)) and not (
      own and isinstance(value, (int, float))
    ):
      raise known.needs_code(
        f"{layer['name']!r} called with a constant for {key}"
      )
