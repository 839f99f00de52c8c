"""Files that a real Keras 3 wrote (`keras3/write.py`), and hostile variants."""

import pathlib
import shutil

import numpy as np
import tensorflow as tf

from tests.models.files import hostile_files

FOLDER = pathlib.Path(__file__).parent / "keras3"
INTRUDER = hostile_files.INTRUDER


def written():
  """The files that are part of the repository."""
  return sorted(
    path.name
    for path in FOLDER.iterdir()
    if path.suffix in hostile_files.FORMATS[:2]
  )


def arrays(path):
  """Inputs and outputs of a case, in the order of flattened nests."""
  with np.load(path.with_suffix(".npz")) as found:
    count = range(len(found.files))
    return [
      [found[f"{letter}{i}"] for i in count if f"{letter}{i}" in found]
      for letter in "xy"
    ]


def outputs(model, x):
  """What a loaded model makes of the inputs of a case."""
  nest = x[0] if len(x) == 1 else tf.nest.pack_sequence_as(model.input, x)
  return [part.numpy() for part in tf.nest.flatten(model(nest, training=False))]


def differences(model, x, y):
  """The largest one of each output; infinite where shapes differ."""
  found = outputs(model, x)
  assert len(found) == len(y)
  return [
    np.max(np.abs(a - b)) if a.shape == b.shape else np.inf
    for a, b in zip(found, y)
  ]


def small(folder, suffix):
  """A copy of a network of an input and two dense layers."""
  return pathlib.Path(shutil.copy(FOLDER / f"small{suffix}", folder))


def changed(change):
  """A writer for each format from a change of the second layer."""

  def write(folder, suffix):
    def rewritten(content):
      layer = content["config"]["layers"][1]
      change(content, layer)
      return content

    return hostile_files.rewrite(small(folder, suffix), rewritten)

  return write


def middle(class_name, module="keras.layers", config=None, **parts):
  """Another layer in place of the second one; its calls stay."""

  def change(content, layer):
    settings = {"name": "middle", **config} if config is not None else {}
    layer.update(class_name=class_name, module=module, config=settings, **parts)

  return changed(change)


def setting(**settings):
  """Other settings of the second layer."""
  return changed(lambda content, layer: layer["config"].update(settings))


def policy(**parts):
  """A policy of types."""
  return {
    "module": "keras",
    "class_name": "DTypePolicy",
    "config": {"name": "float32"},
    "registered_name": None,
    **parts,
  }


def tensor(*history, **parts):
  """A reference in a call."""
  config = {"shape": [None, 4], "dtype": "float32", "keras_history": history}
  return {"class_name": "__keras_tensor__", "config": {**config, **parts}}


def called(*args, **kwargs):
  """Another call of the second layer."""
  node = {"args": list(args), "kwargs": kwargs}
  return changed(lambda content, layer: layer.update(inbound_nodes=[node]))


INPUTS = tensor("inputs", 0, 0)


def _deep(content, layer):
  deep = []
  for _ in range(400):
    deep = [deep]
  layer["config"]["units"] = deep


def _twice(content, layer):
  content["config"]["layers"].append(layer)


def _huge_input(content, layer):
  first = content["config"]["layers"][0]
  first["config"]["batch_shape"] = [None, 2**40]


def _stack_in_graph(content, layer):
  """A model within the model, called on a dict of its input's name."""
  inner = {key: content[key] for key in ("class_name", "config")}
  inner["config"] = {**content["config"], "name": "inner"}
  call = {"args": [{"inputs": INPUTS}], "kwargs": {}}
  content["config"] = {
    "name": "outer",
    "trainable": True,
    "layers": [
      content["config"]["layers"][0],
      {**inner, "name": "inner", "inbound_nodes": [call]},
    ],
    "input_layers": ["inputs", 0, 0],
    "output_layers": ["inner", 1, 0],
  }


_LAMBDA = {
  "module": "builtins",
  "class_name": "__lambda__",
  "config": {"code": "4wEAAAA=", "defaults": None, "closure": None},
}
_WRAPPED = {
  "module": "keras.layers",
  "class_name": "Lambda",
  "config": {"name": "inner", "function": _LAMBDA},
  "registered_name": None,
}
# What a description of Keras 3 says -> what the refusal must name.
DESCRIBED = {
  "lambda": (
    middle("Lambda", config={"function": _LAMBDA, "arguments": {}}),
    r"keras\.layers\.Lambda",
  ),
  "lambda without module": (
    middle("Lambda", None, {"function": _LAMBDA}),
    "Lambda",
  ),
  "lambda as activation": (setting(activation=_LAMBDA), "__lambda__"),
  "lambda as initialiser": (setting(kernel_initializer=_LAMBDA), "__lambda__"),
  "wrapped lambda": (
    middle("TimeDistributed", config={"layer": _WRAPPED}),
    "Lambda",
  ),
  "backward lambda": (
    middle("Bidirectional", config={"backward_layer": _WRAPPED}),
    "Lambda",
  ),
  "layer of a module": (middle("Dense", INTRUDER), rf"{INTRUDER}\.Dense"),
  "layer of a module of Keras": (
    middle("Dense", "keras.src.subprocess"),
    r"keras\.src\.subprocess\.Dense",
  ),
  "module of a number": (middle("Dense", 5), "5.Dense"),
  "model of a module": (
    changed(lambda content, layer: content.update(module=INTRUDER)),
    rf"{INTRUDER}\.Functional|description of a layer",
  ),
  "registered name": (
    middle("Dense", config={"units": 4}, registered_name="x>y"),
    "Dense",
  ),
  "registered name of ours": (
    middle("Dense", config={"units": 4}, registered_name="tf_privrob>DPSGD"),
    "Dense",
  ),
  "class of ours": (
    middle("LaplaceNoise", "tf_privrob.layers.noise", {"scale": 1.0}),
    "LaplaceNoise",
  ),
  "registered class of ours": (
    middle("tf_privrob>LaplaceNoise", None, {"scale": 1.0}),
    "tf_privrob>LaplaceNoise",
  ),
  "own lambda": (
    middle("OwnLambda", None, {}, registered_name="hostile_files>OwnLambda"),
    "OwnLambda",
  ),
  "operation": (
    middle("Add", "keras.src.ops.numpy", registered_name="Add"),
    r"keras\.src\.ops\.numpy\.Add",
  ),
  "operation that reads": (
    middle("ReadFile", "keras.src.ops.io", registered_name="ReadFile"),
    "ReadFile",
  ),
  "operation of TensorFlow": (
    middle("TFOpLambda", config={"function": "io.write_file"}),
    "TFOpLambda",
  ),
  "graphs of a folder": (
    middle("TFSMLayer", config={"filepath": "/tmp"}),
    "TFSMLayer",
  ),
  "vocabulary": (
    middle("StringLookup", config={"vocabulary": "/etc/passwd"}),
    "StringLookup",
  ),
  "cell": (middle("RNN", config={"cell": _WRAPPED}), "RNN"),
  "mask": (middle("Masking", config={"mask_value": 0.0}), "Masking"),
  "mask of places": (
    middle("Embedding", config={"input_dim": 4, "mask_zero": True}),
    "mask_zero=True",
  ),
  "class of a number": (middle(5), "5"),
  "class of a list": (middle(["Dense"]), "Dense"),
  "config of a list": (
    changed(lambda content, layer: layer.update(config=[])),
    "config of Dense",
  ),
  "key of a layer": (
    changed(lambda content, layer: layer.update(evil=1)),
    "Dense with evil",
  ),
  "key of a model": (
    changed(lambda content, layer: content["config"].update(evil=1)),
    "Functional with evil",
  ),
  "policy of a module": (
    setting(dtype=policy(module=INTRUDER)),
    rf"{INTRUDER}\.DTypePolicy",
  ),
  "policy of a class": (
    setting(dtype=policy(class_name="Popen")),
    "keras.Popen",
  ),
  "policy that is registered": (
    setting(dtype=policy(registered_name="x>y")),
    "DTypePolicy",
  ),
  "policy of numbers": (
    setting(dtype=policy(class_name="QuantizedDTypePolicy")),
    "QuantizedDTypePolicy",
  ),
  "policy by layer": (
    setting(dtype=policy(class_name="DTypePolicyMap")),
    "DTypePolicyMap",
  ),
  "policy of more": (
    setting(dtype=policy(config={"name": "float32", "mode": "int8"})),
    "DTypePolicy",
  ),
  "policy of int8": (
    setting(dtype=policy(config={"name": "int8_from_float32"})),
    "a dtype",
  ),
  "quantised": (
    setting(quantization_config={"class_name": "Int8", "config": {}}),
    "quantization_config",
  ),
  "low rank": (setting(lora_rank=2), "lora_rank=2"),
  "setting of no layer": (setting(evil=1), "Dense with evil"),
  "setting of Keras 2": (
    setting(batch_input_shape=[None, 4]),
    "Dense with batch_input_shape",
  ),
  "weights in settings": (setting(weights=[[1.0]]), "Dense with weights"),
  "activation that differs": (setting(activation="hard_sigmoid"), "1/6"),
  "activation of Keras 3": (setting(activation="hard_silu"), "hard_silu"),
  "activation that is a helper": (setting(activation="deserialize"), "deser"),
  "activation of a module": (
    setting(
      activation={
        "module": INTRUDER,
        "class_name": "function",
        "config": "f",
        "registered_name": "function",
      }
    ),
    rf"{INTRUDER}\.f",
  ),
  "initialiser of a module": (
    setting(kernel_initializer={"module": INTRUDER, "class_name": "Zeros"}),
    rf"{INTRUDER}\.Zeros",
  ),
  "initialiser of Keras 3": (
    setting(kernel_initializer={"class_name": "STFT", "config": {}}),
    "STFT",
  ),
  "initialiser of axes": (
    setting(
      kernel_initializer={
        "class_name": "GlorotUniform",
        "config": {"seed": None, "input_axes": [0]},
      }
    ),
    "GlorotUniform|Dense 'middle'",
  ),
  "seed of a class": (
    setting(
      kernel_initializer={
        "class_name": "Zeros",
        "config": {"seed": {"class_name": "SeedGenerator", "config": {}}},
      }
    ),
    "a seed",
  ),
  "regulariser of a module": (
    setting(kernel_regularizer={"module": INTRUDER, "class_name": "L2"}),
    rf"{INTRUDER}\.L2",
  ),
  "optimizer as a layer": (middle("Adam", "keras.optimizers"), "Adam"),
  "no settings": (
    middle("Conv2D", config={"filters": 2, "kernel_size": 2}),
    "Conv2D without data_format",
  ),
  "call of Keras 2": (
    changed(
      lambda content, layer: layer.update(inbound_nodes=[[["inputs", 0, 0]]])
    ),
    "a call",
  ),
  "call on nothing": (called(), "0 arguments"),
  "call on a constant": (called(1.0), "reference to a layer"),
  "call on a text": (called("inputs"), "reference to a layer"),
  "call on too much": (called(INPUTS, INPUTS), "called with 2 arguments"),
  "call with a setting": (called(INPUTS, evil=1), "called with evil"),
  "call in training": (called(INPUTS, training=True), "with training"),
  "call with a mask": (called(INPUTS, mask=INPUTS), "called with mask"),
  "call on a class": (
    called({"class_name": "Popen", "config": {}}),
    "reference to a layer",
  ),
  "tensor of more": (called(tensor("inputs", 0, 0, evil=1)), "with evil"),
  "tensor of a class": (
    called(tensor("inputs", 0, 0, dtype={"class_name": "Popen"})),
    "Popen",
  ),
  "tensor of a word": (
    called(tensor("inputs", 0, 0, shape=[None, "x"])),
    "side of a shape",
  ),
  "tensor of no layer": (called(tensor("none", 0, 0)), "reference"),
  "tensor of no call": (called(tensor("inputs", 7, 0)), "'middle'"),
  "tensor of itself": (called(tensor("middle", 0, 0)), "'middle'"),
  "negative tensor": (called(tensor("inputs", -1, 0)), "number of a call"),
  "tensor of a truth": (called(tensor("inputs", True, 0)), "number of a call"),
  "tensor of texts": (called(tensor("inputs", "0", 0)), "number of a call"),
  "model on a dict": (changed(_stack_in_graph), "of another form"),
  "two of a name": (changed(_twice), "name of a layer"),
  "huge weight": (setting(units=2**40), "more weights than it holds"),
  "huge input": (changed(_huge_input), "'inputs'"),
  "huge side": (middle("RepeatVector", config={"n": 2**40}), "n above"),
  "unrolled": (
    middle(
      "LSTM",
      config={"units": 2, "recurrent_activation": "tanh", "unroll": True},
    ),
    "LSTM with unroll",
  ),
  "deep": (changed(_deep), "nested deeper"),
}
