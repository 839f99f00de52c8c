"""Model files that try to run code, to read elsewhere or to fill the memory.

Every writer takes an empty folder and returns a path. What would run puts a
file `MARKER` into the folder; what would be imported is the module `INTRUDER`.
"""

import codecs
import io
import json
import marshal
import os
import re
import struct
import zipfile

import h5py
import numpy as np
import tensorflow as tf

from tf_privrob import compat

_layers = tf.keras.layers
MARKER = "marker"
INTRUDER = "intruder_of_test"
FORMATS = (".keras", ".h5", "")
_WEIGHTS = "model.weights.h5"


@tf.keras.saving.register_keras_serializable("hostile_files")
class OwnLambda(_layers.Lambda):
  """A program's own class that would hand on the code of a file."""


def network():
  """A honest one, whose second layer is what most files change."""
  inputs = _layers.Input((4,), name="inputs")
  middle = _layers.Dense(4, name="middle")(inputs)
  return tf.keras.Model(inputs, _layers.Dense(3, name="last")(middle))


def honest(folder, suffix, model=None):
  """A file of the format, without optimizer."""
  path = folder / f"model{suffix}"
  (model or network()).save(path, save_format=None if suffix else "tf")
  return path


def entries(path):
  """Of a .keras file."""
  with zipfile.ZipFile(path) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


def write_entries(path, files, compression=zipfile.ZIP_STORED):
  """A .keras file of these, which may be pairs with names again."""
  with zipfile.ZipFile(path, "w", compression) as archive:
    for name, content in files.items() if isinstance(files, dict) else files:
      archive.writestr(name, content)
  return path


def rewrite(path, change):
  """Changes the description in a file of any format."""
  if path.is_dir():
    formats = compat.keras_module("protobuf.saved_metadata_pb2")
    metadata = formats.SavedMetadata()
    file = path / "keras_metadata.pb"
    metadata.ParseFromString(file.read_bytes())
    for node in metadata.nodes:
      if node.node_path == "root":
        content = json.loads(node.metadata)
        content.update(change(content))
        content["model_config"] = {
          key: content[key] for key in ("class_name", "config")
        }
        node.metadata = json.dumps(content)
    file.write_bytes(metadata.SerializeToString())
  elif path.suffix == ".h5":
    with h5py.File(path, "a") as file:
      content = change(json.loads(file.attrs["model_config"]))
      file.attrs["model_config"] = json.dumps(content)
  else:
    files = entries(path)
    content = change(json.loads(files["config.json"]))
    files["config.json"] = json.dumps(content)
    write_entries(path, files)
  return path


def _described(change):
  """A writer for each format from a change of the description."""

  def write(folder, suffix):
    return rewrite(
      honest(folder, suffix), lambda content: change(content, folder) or content
    )

  return write


def _middle(**parts):
  """Another layer in place of the second one; its calls stay."""

  def change(content, folder):
    layer = content["config"]["layers"][1]
    for name in ("module", "registered_name", "build_config"):
      layer.pop(name, None)
    made = parts["make"](folder) if "make" in parts else parts
    made.setdefault("config", {})
    if isinstance(made["config"], dict):
      made["config"] = {"name": "middle", **made["config"]}
    layer.update(made)

  return _described(change)


def _setting(**settings):
  """Other settings of the second layer."""
  return _described(
    lambda content, folder: content["config"]["layers"][1]["config"].update(
      settings
    )
  )


def _code(folder):
  """What a Lambda of Keras holds."""
  source = f"lambda x: (open({str(folder / MARKER)!r}, 'w').close(), x)[1]"
  raw = marshal.dumps(eval(source).__code__)
  return {
    "function": [codecs.encode(raw, "base64").decode(), None, None],
    "function_type": "lambda",
    "module": "builtins",
    "output_shape": None,
    "output_shape_type": "raw",
    "output_shape_module": None,
    "arguments": {},
  }


def _lambda(**names):
  return _middle(
    make=lambda folder: {
      "class_name": "Lambda",
      "config": _code(folder),
      **names,
    }
  )


def _operation(name, module, config, *values):
  """A layer of an operation, which is called on constants while it loads."""

  def make(folder):
    arguments = {"kwargs": {}} if name == "ClassMethod" else {}
    constants = (str(folder / MARKER), *values)
    return {
      "class_name": name,
      "module": module,
      "config": {"trainable": True, "dtype": "float32", **config},
      "inbound_nodes": [
        [["_CONSTANT_VALUE", -1, value, arguments] for value in constants]
      ],
    }

  return _middle(make=make)


def _debug(folder):
  """An operation that writes what it gets to a path."""
  definition = tf.compat.v1.NodeDef(
    name="middle", op="DebugIdentityV3", input=["inputs"]
  )
  definition.attr["T"].type = 1
  url = f"file://{folder / MARKER}".encode()
  definition.attr["debug_urls"].list.s.append(url)
  return {
    "class_name": "TensorFlowOpLayer",
    "config": {
      "node_def": definition.SerializeToString().decode("latin1"),
      "constants": {},
    },
  }


def _around(class_name, config):
  return _middle(
    make=lambda folder: {
      "class_name": class_name,
      "config": {**config, "layer": {"class_name": "Lambda", **_inner(folder)}},
    }
  )


def _inner(folder):
  return {"config": {"name": "inner", **_code(folder)}}


def _stranger(**more):
  return {"module": INTRUDER, "config": {}, "registered_name": None, **more}


def _called(**arguments):
  def change(content, folder):
    layer = content["config"]["layers"][1]
    layer["inbound_nodes"] = [[["inputs", 0, 0, arguments]]]

  return _described(change)


def _nodes(nodes):
  return _described(
    lambda content, folder: content["config"]["layers"][1].update(
      inbound_nodes=nodes
    )
  )


def _doubled(times):
  """A model that calls one twice that calls one twice ..."""

  def change(content, folder):
    inner = {key: content[key] for key in ("class_name", "config")}
    shape = inner["config"]["layers"][0]
    last = inner["config"]["layers"][2]
    last["config"]["units"] = 4
    for number in range(times):
      name = f"model{number}"
      inner["config"]["name"] = name
      calls = [[[shape["name"], 0, 0, {}]], [[name, 1, 0, {}]]]
      inner = {
        "class_name": "Functional",
        "config": {
          "name": "outer",
          "layers": [shape, {**inner, "name": name, "inbound_nodes": calls}],
          "input_layers": [["inputs", 0, 0]],
          "output_layers": [[name, 2, 0]],
        },
      }
    content.update(inner)
    content.pop("registered_name", None)

  return _described(change)


def _deep(content, folder):
  deep = []
  for _ in range(400):
    deep = [deep]
  content["config"]["layers"][1]["config"]["units"] = deep


_OP = "keras.src.layers.core.tf_op_layer"
# What a description says -> what the refusal must name, in every format.
DESCRIBED = {
  "lambda": (_lambda(), "Lambda"),
  "lambda in v3": (_lambda(module="keras.layers"), "Lambda"),
  "lambda called Adam": (_lambda(registered_name="Custom>Adam"), "Lambda"),
  "lambda called ours": (
    _lambda(registered_name="tf_privrob>LaplaceNoise"),
    "Lambda",
  ),
  "own lambda": (
    _middle(
      make=lambda folder: {
        "class_name": "hostile_files>OwnLambda",
        "config": _code(folder),
      }
    ),
    "OwnLambda",
  ),
  **{
    f"{name} of {module}": (
      _operation(name, module, config, *values),
      name,
    )
    for module in (None, _OP, "keras.layers")
    for name, config, *values in (
      ("TFOpLambda", {"function": "io.write_file"}, "ran"),
      (
        "ClassMethod",
        {"cls_symbol": "io.write_file", "method_name": "__call__"},
        "ran",
      ),
      ("SlicingOpLambda", {"function": "io.write_file"}, "ran"),
      ("InstanceMethod", {"method_name": "upper"}),
      ("InstanceProperty", {"attr_name": "shape"}),
    )
  },
  "native library": (
    _operation(
      "ClassMethod",
      None,
      {"cls_symbol": "load_op_library", "method_name": "__call__"},
    ),
    "ClassMethod",
  ),
  "debug": (_middle(make=_debug), "TensorFlowOpLayer"),
  "module": (_middle(**_stranger(class_name="Dense")), f"{INTRUDER}.Dense"),
  "module of ours": (
    _middle(**_stranger(class_name="tf_privrob>DPSGD")),
    f"{INTRUDER}.tf_privrob>DPSGD",
  ),
  "module of none": (
    _middle(**_stranger(class_name="X", registered_name="x>y")),
    f"{INTRUDER}.X",
  ),
  "module within Keras": (
    _middle(**_stranger(class_name="Popen", module="keras.src.subprocess")),
    "Popen",
  ),
  "activation of a module": (
    _setting(
      activation=_stranger(class_name="function", config="f"),
    ),
    f"{INTRUDER}.f",
  ),
  "initialiser of a module": (
    _setting(kernel_initializer=_stranger(class_name="Zeros")),
    f"{INTRUDER}.Zeros",
  ),
  "regulariser of a module": (
    _setting(kernel_regularizer=_stranger(class_name="L2")),
    f"{INTRUDER}.L2",
  ),
  "constraint of a module": (
    _setting(bias_constraint=_stranger(class_name="NonNeg")),
    f"{INTRUDER}.NonNeg",
  ),
  "policy of a module": (
    _setting(dtype=_stranger(class_name="Policy")),
    f"{INTRUDER}.Policy",
  ),
  "initialiser that is a layer": (
    _setting(
      kernel_initializer={"class_name": "InputLayer", "module": "keras.layers"}
    ),
    "InputLayer",
  ),
  "activation that is a helper": (_setting(activation="deserialize"), "deser"),
  "activation by module": (_setting(activation="keras.utils.get_file"), "get_"),
  "initialiser by helper": (_setting(kernel_initializer="get"), "get"),
  "lambda as activation": (
    _setting(
      activation={"class_name": "__lambda__", "config": {"value": "eA=="}}
    ),
    "__lambda__",
  ),
  "type of an extension": (
    _setting(
      units={
        "class_name": "__typespec__",
        "spec_name": "X",
        "module": INTRUDER,
        "config": [],
        "registered_name": None,
      }
    ),
    "__typespec__",
  ),
  "optimizer as a layer": (
    _middle(class_name="Adam", registered_name="Custom>Adam"),
    "Adam",
  ),
  "Keras' model of models": (
    _middle(class_name="Custom>SharpnessAwareMinimization"),
    "Sharpness",
  ),
  "vocabulary": (
    _middle(
      class_name="StringLookup",
      module="keras.layers",
      config={"vocabulary": "/etc/passwd"},
    ),
    "StringLookup",
  ),
  "text": (
    _middle(
      class_name="TextVectorization", config={"vocabulary": "/etc/passwd"}
    ),
    "TextVectorization",
  ),
  "cell": (
    _middle(
      class_name="RNN", config={"cell": _stranger(class_name="LSTMCell")}
    ),
    "RNN",
  ),
  "cell of an LSTM": (
    _middle(
      class_name="LSTM",
      config={"units": 2, "cell": _stranger(class_name="LSTMCell")},
    ),
    "LSTM with cell",
  ),
  "wrapped lambda": (_around("TimeDistributed", {}), "Lambda"),
  "backward lambda": (
    _around("Bidirectional", {"merge_mode": "sum"}),
    "Lambda",
  ),
  "lambda in our layer": (
    _around(
      "tf_privrob>FunctionalMechanismAutoencoder",
      {"input_scale": 0.0, "hidden_scale": 0.0, "bound": 1.0},
    ),
    "Lambda",
  ),
  "object as settings": (
    _middle(class_name="tf_privrob>Temperature", config={"class_name": "X"}),
    "Temperature with class_name",
  ),
  "weights in settings": (_setting(weights=[[1.0]]), "Dense with weights"),
  "constant": (_nodes([[["_CONSTANT_VALUE", -1, 1.0, {}]]]), "constant"),
  "argument": (_called(evil=1), "called with evil"),
  "constant argument": (_called(training="x"), "called with training"),
  "no such output": (_nodes([[["last", 7, 0, {}]]]), "'middle'"),
  "cycle": (_nodes([[["last", 0, 0, {}]]]), "'middle'"),
  "node of a word": (_nodes("inputs"), "calls of 'middle'"),
  "node of numbers": (_nodes([[["inputs", "0", 0, {}]]]), "number of a call"),
  "negative node": (_nodes([[["inputs", -1, 0, {}]]]), "number of a call"),
  "class of a number": (_middle(class_name=5), "5"),
  "class of a list": (_middle(class_name=["Dense"]), "Dense"),
  "config of a list": (_middle(class_name="Dense", config=[]), "Dense"),
  "layers of a word": (
    _described(
      lambda content, folder: content["config"].update(layers="Dense")
    ),
    "list of layers",
  ),
  "units of a word": (_setting(units="abc"), "Dense 'middle'"),
  "units of a dict": (_setting(units={"a": 1}), "Dense 'middle'"),
  "two of a name": (
    _described(
      lambda content, folder: content["config"]["layers"].append(
        content["config"]["layers"][1]
      )
    ),
    "name of a layer",
  ),
  "huge weight": (_setting(units=2**40), "more weights than it holds"),
  "large weight": (_setting(units=2**26), "more weights than it holds"),
  "huge input": (
    _described(
      lambda content, folder: content["config"]["layers"][0]["config"].update(
        batch_input_shape=[None, 2**40]
      )
    ),
    "'inputs'",
  ),
  "huge output": (
    _middle(class_name="RepeatVector", config={"n": 2**26}),
    "'middle'",
  ),
  "huge side": (
    _middle(class_name="RepeatVector", config={"n": 2**40}),
    "n above",
  ),
  "loop": (
    _middle(
      class_name="SpectralNormalization",
      config={
        "power_iterations": 10**9,
        "layer": {"class_name": "Dense", "config": {"units": 3}},
      },
    ),
    "power_iterations",
  ),
  "unrolled": (
    _middle(class_name="LSTM", config={"units": 2, "unroll": True}),
    "LSTM with unroll",
  ),
  "calls": (_doubled(9), "calls its layers"),
  "deep": (_described(_deep), "nested deeper"),
}


def _archive(change, compression=zipfile.ZIP_STORED):
  def write(folder):
    path = honest(folder, ".keras")
    files = entries(path)
    return write_entries(path, change(files) or files, compression)

  return write


def _link(files):
  entry = zipfile.ZipInfo("link")
  entry.external_attr = 0o120777 << 16
  return [*files.items(), (entry, "/etc/passwd")]


def _pickled(files):
  del files[_WEIGHTS]
  files["model.weights.npz"] = b"PK\x05\x06" + bytes(18)


def _truncated(suffix, part):
  def write(folder):
    path = honest(folder, suffix)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    return path

  return write


def _false_end(folder):
  """An HDF5 file that says to be longer than any memory."""
  path = honest(folder, ".h5")
  content = path.read_bytes()
  path.write_bytes(content[:41] + bytes(7) + b"\x40" + content[49:])
  return path


def _behind(folder):
  path = honest(folder, ".keras")
  path.write_bytes(path.read_bytes() + b"word")
  return path


def _native(folder):
  path = honest(folder, ".keras")
  path.write_bytes(b"\x7fELF" + bytes(60) + path.read_bytes())
  return path


def _stored(change):
  """Another HDF5 file of weights, in both formats that have one."""

  def write(folder, suffix):
    path = honest(folder, suffix)
    if suffix == ".h5":
      with h5py.File(path, "a") as file:
        change(file["model_weights/middle/middle"], "kernel:0", folder)
      return path
    files = entries(path)
    content = io.BytesIO(files[_WEIGHTS])
    with h5py.File(content, "a") as file:
      change(file["layers/dense/vars"], "0", folder)
    files[_WEIGHTS] = content.getvalue()
    return write_entries(path, files)

  return write


def _replaced(make):
  def change(group, name, folder):
    value = group[name][()]
    del group[name]
    make(group, name, value, folder)

  return _stored(change)


def _external_link(group, name, value, folder):
  with h5py.File(folder / "other.h5", "w") as other:
    other["x"] = value
  group[name] = h5py.ExternalLink(str(folder / "other.h5"), "x")


def _external_dataset(group, name, value, folder):
  (folder / "other").write_bytes(value.tobytes())
  group.create_dataset(
    name,
    value.shape,
    value.dtype,
    external=[(str(folder / "other"), 0, value.nbytes)],
  )


def _virtual(group, name, value, folder):
  with h5py.File(folder / "other.h5", "w") as other:
    other["x"] = value
  layout = h5py.VirtualLayout(value.shape, value.dtype)
  layout[:] = h5py.VirtualSource(
    str(folder / "other.h5"), "x", value.shape, value.dtype
  )
  group.create_virtual_dataset(name, layout)


def _soft(group, name, value, folder):
  group[name] = h5py.SoftLink("/elsewhere")


def _compressed(group, name, value, folder):
  group.create_dataset(name, data=value, compression="gzip")


def _unknown_filter(group, name, value, folder):
  plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
  plist.set_chunk(value.shape)
  plist.set_filter(32099, h5py.h5z.FLAG_OPTIONAL, ())
  space = h5py.h5s.create_simple(value.shape)
  h5py.h5d.create(
    group.id, name.encode(), h5py.h5t.IEEE_F32LE, space, dcpl=plist
  )


def _words(group, name, value, folder):
  group.create_dataset(
    name, data=np.full(value.shape, b"x", object), dtype=h5py.string_dtype()
  )


# What the weights do -> what the refusal must name, in .keras and .h5.
STORED = {
  "external link": (_replaced(_external_link), "leads elsewhere"),
  "external dataset": (_replaced(_external_dataset), "in one piece"),
  "virtual dataset": (_replaced(_virtual), "in one piece"),
  "soft link": (_replaced(_soft), "leads elsewhere"),
  "compressed": (_replaced(_compressed), "in one piece"),
  "unknown filter": (_replaced(_unknown_filter), "in one piece"),
  "words": (_replaced(_words), "type object"),
  "missing": (_replaced(lambda *_: None), "no weight"),
  "a group": (
    _replaced(lambda group, name, *_: group.create_group(name)),
    "no numbers",
  ),
  "another type": (
    _replaced(
      lambda group, name, value, _: group.create_dataset(
        name, data=value.astype(np.float64)
      )
    ),
    "float64",
  ),
  "another shape": (
    _replaced(
      lambda group, name, value, _: group.create_dataset(name, data=value[:2])
    ),
    r"shape \(2, 4\)",
  ),
  "a huge shape": (
    _replaced(
      lambda group, name, *_: group.create_dataset(
        name, (2**20, 2**20), np.float32
      )
    ),
    r"shape \(1048576, 1048576\)",
  ),
}


def _bomb(name, size):
  def change(files):
    files[name] = bytes(size)

  return _archive(change, zipfile.ZIP_DEFLATED)


def _attributes(folder):
  """Many names, each of which is the one long string of the file."""
  path, count = honest(folder, ".h5"), 4000
  with h5py.File(path, "a") as file:
    group = file["model_weights/middle"]
    group.attrs.create("weight_names", count * ["x"], dtype=h5py.string_dtype())
    group.attrs["long"] = "y" * 2**22
  content = path.read_bytes()  # a reference: length, place of the heap, number
  long = re.search(re.escape(struct.pack("<I", 2**22)) + b".{12}", content, 16)
  short = b"\1\0\0\0.{12}"
  names = re.search(b"(?:%s){%d}" % (short, count), content, re.DOTALL)
  start, end = names.span()
  path.write_bytes(content[:start] + count * long.group() + content[end:])
  return path


def _other_keras(folder):
  path = honest(folder, ".h5")
  with h5py.File(path, "a") as file:
    file.attrs["keras_version"] = "1.2.2"
  return path


def _folder(change):
  def write(folder):
    path = honest(folder, "")
    change(path)
    return path

  return write


def _other_weights(path):
  variables = path / "variables"
  smaller = tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(2)])
  for file in variables.iterdir():
    file.unlink()
  tf.train.Checkpoint(root=smaller).write(str(variables / "variables"))


def _huge_variable(path):
  """A part of a tensor, whose whole would fill the memory."""
  prefix = str(path / "variables/variables")
  reader = tf.train.load_checkpoint(prefix)
  values = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
  kernel = next(name for name in values if "kernel" in name)
  slices = {kernel: "1048576 1048576 0,4:0,4"}
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=list(values),
    shape_and_slices=[slices.get(name, "") for name in values],
    tensors=[
      tf.constant(np.resize(v, (4, 4)) if n == kernel else v)
      for n, v in values.items()
    ],
  )


def _fifo(folder):
  os.mkfifo(folder / "model.keras")
  return folder / "model.keras"


def _method(folder):
  """A method of the library whose network holds the code."""
  from tf_privrob import methods

  path = folder / "model.keras"
  methods.DPSGD(network()).save(path)

  def change(content):
    layer = content["config"]["network"]["config"]["layers"][1]
    layer.update(class_name="Lambda", module="keras.layers")
    layer["config"] = {"name": "middle", **_code(folder)}
    return content

  return rewrite(path, change)


# Files as a whole -> what the refusal must name.
WHOLE = {
  "truncated archive": (_truncated(".keras", 0.7), "no whole archive"),
  "start of an archive": (_truncated(".keras", 0.01), "no whole archive"),
  "truncated HDF5": (_truncated(".h5", 0.7), "no whole HDF5|has no"),
  "start of HDF5": (_truncated(".h5", 0.01), "no whole HDF5"),
  "false end of HDF5": (_false_end, "no whole HDF5"),
  "native code in front": (_native, "neither a .keras nor an .h5"),
  "entry twice": (
    _archive(
      lambda files: [*files.items(), ("config.json", files["config.json"])]
    ),
    "config.json",
  ),
  "entry above": (
    _archive(lambda files: {**files, "../marker": b""}),
    r"\.\./marker",
  ),
  "absolute entry": (
    _archive(lambda files: {**files, "/tmp/marker": b""}),
    "marker",
  ),
  "symbolic link": (_archive(_link), "'link'"),
  "assets": (_archive(lambda files: {**files, "assets/x": b""}), "assets"),
  "pickled weights": (_archive(_pickled), "npz"),
  "no description": (
    _archive(lambda files: files.pop("config.json") and None),
    "config.json",
  ),
  "bomb of weights": (_bomb(_WEIGHTS, 2**28), "expands to"),
  "bomb of JSON": (_bomb("config.json", 2**26), "expands to"),
  "many entries": (
    _archive(lambda files: {**files, **{f"{n}": b"" for n in range(500)}}),
    "of a few entries",
  ),
  "a word behind the archive": (_behind, "of a few entries"),
  "no JSON": (
    _archive(lambda files: {**files, "config.json": b"{"}),
    "no JSON",
  ),
  "deepest JSON": (
    _archive(lambda files: {**files, "config.json": b"[" * 10**6}),
    "no JSON",
  ),
  "JSON of a number": (
    _archive(lambda files: {**files, "config.json": b"1"}),
    "description of a layer",
  ),
  "weights of none": (
    _archive(lambda files: {**files, _WEIGHTS: bytes(10**4)}),
    "no whole HDF5",
  ),
  "names of one string": (_attributes, "too many strings"),
  "weights of Keras 1": (_other_keras, "Keras '1.2.2'"),
  "folder without layers": (
    _folder(lambda path: (path / "keras_metadata.pb").unlink()),
    "keras_metadata.pb",
  ),
  "folder with a broken description": (
    _folder(lambda path: (path / "keras_metadata.pb").write_bytes(b"\xff" * 9)),
    "keras_metadata.pb",
  ),
  "folder without weights": (
    _folder(lambda path: (path / "variables/variables.index").unlink()),
    "cannot be opened",
  ),
  "folder with other weights": (
    _folder(_other_weights),
    "not those of its layers",
  ),
  "folder with a huge variable": (
    _folder(_huge_variable),
    "bytes of variables",
  ),
  "pipe": (_fifo, "no regular file"),
  "code in a method": (_method, "Lambda"),
}
