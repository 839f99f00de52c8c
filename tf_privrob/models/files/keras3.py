"""Descriptions of Keras 3 in the words of Keras 2.

Both know mostly the same layers. Keras 3 writes some of their settings, and all
of their calls, in other forms. They are translated here, and checked, built and
limited afterwards as every description (`description.checked`). Whatever has no
form in Keras 2 that computes the same is refused by its name: operations
outside of layers, masks, classes of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_privrob.models import graph
from tf_privrob.models.files import description
from tf_privrob.models.files import keras3_settings
from tf_privrob.models.files import known

_MODELS = ("Functional", "Sequential")
_MODULES = {
  "Functional": (None, "keras", "keras.src.models.functional"),
  "Sequential": (None, "keras", "keras.src.models.sequential"),
}
_OBJECT = frozenset(
  """build_config class_name compile_config config module registered_name
  shared_object_id""".split()
)
_CALLED = _OBJECT | {"inbound_nodes", "name"}
_GRAPH = frozenset("input_layers layers name output_layers trainable".split())
_STACK = frozenset("build_input_shape dtype layers name trainable".split())
_TENSOR = "__keras_tensor__"
# Layers that take whole numbers and make the same of them; a mean of them, or a
# layer's normalisation, is another one in Keras 3.
_WHOLE = frozenset(
  """CategoryEncoding Concatenate Dense Embedding Flatten Identity Permute
  RepeatVector Rescaling Reshape""".split()
)
_FIRST = ("inputs", "query", "sequence", "sequences")
_POSITIONS = {"MultiHeadAttention": ("value", "key")}
# Arguments of calls that mean the same in both, and the value of no meaning.
_ARGUMENTS = frozenset(
  "initial_state key return_attention_scores use_causal_mask value".split()
)
# These say themselves that they are called in training, until they are not.
_DEFAULTS = {
  name: {"training": True}
  for name in """CenterCrop RandomFlip RandomRotation RandomTranslation
  RandomZoom Resizing""".split()
}


def wrote(version: Any) -> bool:
  """Whether what a file says of its version of Keras is 3."""
  return isinstance(version, str) and version.startswith("3.")


def translated(value: Any) -> dict[str, Any]:
  """The same model as Keras 2 describes it, its layers in the same order.

  Args:
    value: the description of a model that Keras 3 wrote, from JSON.

  Raises:
    RefusedError: it has a part that is not known, or that Keras 2 does not
      have or computes otherwise.
  """
  description.require_depth(value)
  return _layer(value)


def require_alike(model: tf.keras.Model) -> None:
  """Refuses layers that make something else of whole numbers in Keras 3.

  Args:
    model: of a known graph, with its layers as Keras 2 calls them.

  Raises:
    RefusedError: one of them is called on numbers of such a type.
  """
  for call in graph.calls(model):
    kind = type(call.layer).__name__
    if isinstance(call.layer, tf.keras.Model):
      require_alike(call.layer)
    elif not call.is_input and kind not in _WHOLE:
      for tensor in call.inputs:
        if not tensor.dtype.is_floating:
          raise known.RefusedError(
            f"calls a {kind} {call.layer.name!r} on numbers of type"
            f" {tensor.dtype.name}, of which Keras 2 and Keras 3 may make"
            " different ones. Put a Rescaling(1.0) in front."
          )


def _refuse_others(
  value: Mapping[str, Any], taken: frozenset[str], who: str
) -> None:
  for key in value.keys() - taken:
    raise known.needs_code(f"{who} with {key}")


def _layer(value: Any, taken: frozenset[str] = _OBJECT) -> dict[str, Any]:
  """A layer or model; `taken` are the keys that its description may have."""
  value = description.mapping(value, "a description of a layer")
  name, module = value.get("class_name"), value.get("module")
  label = f"{module}.{name}" if module else f"{name}"
  _refuse_others(value, taken, label)
  if not isinstance(name, str) or not isinstance(module, (str, type(None))):
    raise known.needs_code(label)
  if value.get("registered_name") not in (None, name):
    raise known.needs_code(label)
  config = description.mapping(value.get("config"), f"a config of {name}")
  if name in _MODELS and module in _MODULES[name]:
    make = _functional if name == "Functional" else _sequential
    return {"class_name": name, "config": make(config)}
  if name not in keras3_settings.LAYERS or module not in (None, "keras.layers"):
    raise known.needs_code(label)
  config = keras3_settings.translated(name, config, _layer)
  return {"class_name": name, "config": config}


def _sequential(config: Mapping[str, Any]) -> dict[str, Any]:
  _refuse_others(config, _STACK, "Sequential")
  if config.get("dtype") is not None:
    keras3_settings.dtype(config["dtype"])
  layers = [
    _layer(part, _CALLED)
    for part in description.sequence(config.get("layers"), "a list of layers")
  ]
  return _frozen({"name": config.get("name"), "layers": layers}, config)


def _functional(config: Mapping[str, Any]) -> dict[str, Any]:
  _refuse_others(config, _GRAPH, "Functional")
  listed = description.sequence(config.get("layers"), "a list of layers")
  layers = [_layer(part, _CALLED) for part in listed]
  graph = _Graph()
  for part, layer in zip(listed, layers):
    name = part.get("name")
    if not isinstance(name, str) or name in graph.layers:
      raise description.wrong("a name of a layer", name)
    graph.layers[name] = layer
  for part, layer in zip(listed, layers):
    layer["name"] = part["name"]
    layer["inbound_nodes"] = [
      graph.node(node, layer)
      for node in description.sequence(
        part.get("inbound_nodes"), "a list of calls"
      )
    ]
  result = {"name": config.get("name"), "layers": layers}
  for key in ("input_layers", "output_layers"):
    result[key] = _mapped(config.get(key), description.is_leaf, graph.end)
  return _frozen(result, config)


def _frozen(
  result: dict[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
  """Keras 3 says of a model, too, whether it is trained: then of its layers."""
  trainable = config.get("trainable", True)
  if not isinstance(trainable, bool):
    raise description.wrong("a setting trainable", trainable)
  if not trainable:
    _freeze(result)
  return result


def _freeze(config: dict[str, Any]) -> None:
  for layer in config["layers"]:
    if layer["class_name"] in _MODELS:
      _freeze(layer["config"])
    elif layer["class_name"] != "InputLayer":
      layer["config"]["trainable"] = False


def _is_tensor(value: Any) -> bool:
  return isinstance(value, dict) and value.get("class_name") == _TENSOR


def _mapped(
  value: Any, is_leaf: Callable[[Any], bool], change: Callable[[Any], Any]
) -> Any:
  """The same nest of lists and dicts of other leaves."""
  if is_leaf(value):
    return change(value)
  if isinstance(value, list):
    return [_mapped(part, is_leaf, change) for part in value]
  if not isinstance(value, dict) or "class_name" in value:
    raise description.wrong("a reference to a layer", value)
  return {key: _mapped(part, is_leaf, change) for key, part in value.items()}


def _form(value: Any) -> Any:
  """How a nest of references is nested."""
  if description.is_leaf(value):
    return None
  if isinstance(value, dict):
    return {key: _form(part) for key, part in value.items()}
  return [_form(part) for part in value]


def _taken(layer: dict[str, Any]) -> Any:
  """The form of what a model within a model takes."""
  form = _form(layer["config"].get("input_layers", ["", 0, 0]))
  return form[0] if isinstance(form, list) and len(form) == 1 else form


def _is_unset(value: Any) -> bool:
  """Whether an argument says nothing: None, False, or None for each input."""
  if isinstance(value, (list, dict)):
    parts = value.values() if isinstance(value, dict) else value
    return all(part is None for part in parts)
  return value is None or value is False


class _Graph:
  """The calls of a functional model, as Keras 2 counts and writes them.

  Keras 2 counts a model's own inputs and outputs as the first of its calls.
  Keras 3 does so where it lists outputs, for functional models only, and
  nowhere else.
  """

  def __init__(self):
    self.layers: dict[str, dict[str, Any]] = {}

  def _reference(self, value: Any, counted: tuple[str, ...]) -> list[Any]:
    """`counted` are the classes whose first call is counted already."""
    if not description.is_leaf(value) or len(value) != 3:
      raise description.wrong("a reference to a layer", value)
    name, call, output = value
    if name not in self.layers:
      raise description.wrong("a reference to a layer", value)
    for number in (call, output):
      if type(number) is not int or number < 0:
        raise description.wrong("a number of a call or an output", number)
    kind = self.layers[name]["class_name"]
    return [name, call + (kind in _MODELS and kind not in counted), output]

  def end(self, value: Any) -> list[Any]:
    """An input or an output of the model."""
    return self._reference(value, ("Functional",))

  def _tensor(self, value: Any) -> list[Any]:
    _refuse_others(value, frozenset(["class_name", "config"]), _TENSOR)
    config = description.mapping(value.get("config"), f"a config of {_TENSOR}")
    taken = frozenset("dtype keras_history name shape sparse".split())
    _refuse_others(config, taken, _TENSOR)
    keras3_settings.dtype(config.get("dtype"))
    for side in description.sequence(config.get("shape"), "a shape"):
      if side is not None and (type(side) is not int or side < 0):
        raise description.wrong("a side of a shape", side)
    return self._reference(config.get("keras_history"), ())

  def node(self, value: Any, layer: dict[str, Any]) -> Any:
    """What a layer is called on: references, each with all other arguments."""
    value = description.mapping(value, "a call")
    _refuse_others(value, frozenset(["args", "kwargs"]), "a call")
    args = list(description.sequence(value.get("args"), "arguments of a call"))
    kwargs = dict(description.mapping(value.get("kwargs"), "arguments"))
    name, kind = layer["name"], layer["class_name"]
    first = [key for key in _FIRST if key in kwargs]
    if not args and len(first) == 1:
      args = [kwargs.pop(first[0])]
    further = _POSITIONS.get(kind, ())
    if not 0 < len(args) <= 1 + len(further):
      raise known.needs_code(f"{name!r} called with {len(args)} arguments")
    for key, part in zip(further, args[1:]):
      if key in kwargs:
        raise known.needs_code(f"{name!r} called with {key} twice")
      kwargs[key] = part
    inputs = _mapped(args[0], _is_tensor, self._tensor)
    if kind in _MODELS and _form(inputs) != _taken(layer):
      raise known.needs_code(
        f"{name!r} called on inputs of another form than its own"
      )
    default = _DEFAULTS.get(kind, {})
    arguments = self._arguments(
      {k: v for k, v in kwargs.items() if v is not default.get(k)}, name
    )
    if description.is_leaf(inputs):
      inputs = [inputs]
    return _mapped(
      inputs, description.is_leaf, lambda leaf: [*leaf, dict(arguments)]
    )

  def _arguments(self, kwargs: dict[str, Any], name: str) -> dict[str, Any]:
    """What Keras 2 is given, too; what is unset in both is left out."""
    found = {}
    for key, value in kwargs.items():
      if _is_unset(value):
        continue
      if key not in _ARGUMENTS:
        raise known.needs_code(f"{name!r} called with {key}")
      if value is not True:
        value = _mapped(value, _is_tensor, self._tensor)
      found[key] = value
    return found
