"""Classifiers from files: logits come out, and no code of a file runs."""

import json
import os
import resource
import struct
import sys
import time
import tracemalloc
import zlib

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tests.models.files import hostile_files
from tf_privrob import layers
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.models.files import description

_layers = tf.keras.layers
X = np.random.default_rng(0).random((5, 4), np.float32)
_FORMATS = hostile_files.FORMATS
# Folders are slow to write; a few of them are among the fast tests.
_MOSTLY_FILES = (*_FORMATS[:2], pytest.param("", marks=pytest.mark.slow))
_SECONDS, _MEGABYTES = 30, 700


def _network(*ending):
  return tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(6), *ending])


@pytest.mark.parametrize("suffix", _FORMATS)
@pytest.mark.parametrize("compiled", [True, False])
def test_a_file_gives_the_same_logits(tmp_path, suffix, compiled):
  network = _network(_layers.Dense(3))
  if compiled:
    network.compile("adam", lambda y, p: p)  # a loss that no file can hold
  path = hostile_files.honest(tmp_path, suffix, network)
  for given in (path, str(path), network):
    np.testing.assert_array_equal(models.load_classifier(given)(X), network(X))
  assert models.load_classifier(network) is network


@pytest.mark.parametrize("suffix", _FORMATS)
def test_a_softmax_is_taken_off(tmp_path, suffix):
  network = _network(_layers.Dense(3, "softmax"))
  loaded = models.load_classifier(
    hostile_files.honest(tmp_path, suffix, network)
  )
  assert not models.returns_probabilities(loaded)
  np.testing.assert_allclose(tf.nn.softmax(loaded(X)), network(X), rtol=1e-5)


def _hidden_softmax():
  inputs = tf.keras.Input((4,))
  return tf.keras.Model(inputs, tf.nn.softmax(_layers.Dense(3)(inputs)))


def _nested_softmax():
  return _network(tf.keras.Sequential([_layers.Dense(3, "softmax")]))


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (_hidden_softmax, "returns probabilities by other means"),
    (_nested_softmax, "softmax or sigmoid inside a nested"),
  ],
)
def test_probabilities_that_cannot_be_taken_back_are_refused(build, message):
  with pytest.raises(ValueError, match=message):
    models.load_classifier(build())


def test_a_sigmoid_is_taken_off_like_a_softmax():
  network = _network(_layers.Dense(3, "sigmoid"))
  loaded = models.load_classifier(network)
  np.testing.assert_allclose(tf.sigmoid(loaded(X)), network(X), rtol=1e-5)


@tf.keras.saving.register_keras_serializable("loading_test")
class _Doubled(_layers.Layer):
  def call(self, inputs):
    return 2 * inputs


@tf.keras.saving.register_keras_serializable("loading_test")
class _Holder(_layers.Layer):
  """A program's own wrapper, with Keras' usual way of saving."""

  def __init__(self, layer, **kwargs):
    super().__init__(**kwargs)
    self.layer = layer

  def call(self, inputs):
    return self.layer(inputs)

  def get_config(self):
    layer = tf.keras.saving.serialize_keras_object(self.layer)
    return {**super().get_config(), "layer": layer}

  @classmethod
  def from_config(cls, config):
    layer = tf.keras.saving.deserialize_keras_object(config.pop("layer"))
    return cls(layer, **config)


@tf.keras.saving.register_keras_serializable("loading_test")
def _cubed(x):
  return x**3


def _mixed():
  """Layers with several inputs, shared ones, a model in a model."""
  inputs = _layers.Input((8, 8, 3))
  x = _layers.Rescaling(1 / 127.0, offset=-1.0)(inputs)
  x = _layers.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0])(x)
  x = _layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
  x = _layers.Conv2D(4, 3, 2, kernel_regularizer="l2", use_bias=False)(x)
  x = _layers.ReLU(6.0)(_layers.BatchNormalization()(x))
  y = _layers.DepthwiseConv2D(3, padding="same", activation="swish")(x)
  z = _layers.SeparableConv2D(4, 3, padding="same", bias_constraint="NonNeg")(x)
  x = _layers.Multiply()([_layers.Add()([y, z]), x])
  x = _layers.Concatenate()([x, _layers.Average()([y, z])])
  x = _layers.GroupNormalization(2)(x)
  shared = _layers.Conv2D(8, 1, activation=_layers.LeakyReLU(0.1))
  x = shared(shared(x))
  head = tf.keras.Sequential([_layers.Flatten(), _layers.Dense(6, _cubed)])
  x = _layers.Dropout(0.5)(_layers.LayerNormalization()(head(x)))
  return tf.keras.Model(inputs, _layers.Dense(3)(x))


def _sequence():
  inputs = _layers.Input((7,), dtype="int32")
  x = _layers.Embedding(9, 4)(inputs)
  x = _layers.LSTM(3, return_sequences=True)(x)
  x = _layers.Bidirectional(_layers.GRU(2, return_sequences=True))(x)
  x = _layers.MultiHeadAttention(2, 3)(x, x)
  x = _layers.TimeDistributed(_layers.Dense(4, "gelu"))(x)
  x = _layers.Add()([x, _layers.Attention()([x, x])])
  return tf.keras.Model(inputs, _layers.Dense(3)(_layers.SimpleRNN(5)(x)))


def _several():
  inputs = {"a": _layers.Input((4,)), "b": _layers.Input((4,))}
  inner = tf.keras.Model(inputs, _layers.Subtract()(list(inputs.values())))
  outputs = inner({"a": inputs["b"], "b": inputs["a"]})
  outputs = _layers.PReLU()(_layers.Dense(5)(outputs))
  return tf.keras.Model(inputs, {"c": _layers.UnitNormalization()(outputs)})


def _own():
  return tf.keras.Sequential(
    [
      _layers.Input((4,)),
      _Holder(_layers.Dense(5, kernel_initializer="he_normal")),
      _Doubled(),
      layers.NormalizedDense(4),
      layers.LaplaceNoise(0.1),
      layers.Temperature(2.0),
      _Holder(_Holder(_layers.Dense(3, dtype="float64"))),
    ]
  )


@tf.keras.saving.register_keras_serializable("loading_test")
class _OwnGraph(tf.keras.Model):
  """Of layers, with a constructor as Keras' own."""


@tf.keras.saving.register_keras_serializable("loading_test")
class _OwnStack(tf.keras.Sequential):
  """Of layers, one after the other."""


def _own_models():
  inputs = _layers.Input((4,))
  stack = _OwnStack([_layers.Input((4,)), _layers.Dense(5, "relu")])
  graph = _OwnGraph(inputs, _layers.Dense(3)(stack(inputs)))
  return tf.keras.Sequential([_layers.Input((4,)), graph])


def _states():
  """Layers with several outputs, which others start from."""
  inputs = _layers.Input((5, 3))
  lstm = _layers.LSTM(4, return_sequences=True, return_state=True)
  sequence, *state = lstm(_layers.Masking()(inputs))
  again = _layers.LSTM(4)(sequence, initial_state=state)
  return tf.keras.Model(inputs, [again, state[0]])


def _half():
  return tf.keras.Sequential(
    [_layers.Input((4,)), _layers.Dense(3, dtype="mixed_bfloat16")]
  )


def _adapted():
  normalization = _layers.Normalization()
  normalization.adapt(np.random.default_rng(0).normal(3, 5, (50, 4)))
  return tf.keras.Sequential(
    [_layers.Input((4,)), normalization, _layers.Dense(3)]
  )


_HONEST = {
  "mixed": _mixed,
  "sequence": _sequence,
  "several inputs": _several,
  "own": _own,
  "own models": _own_models,
  "states": _states,
  "half precision": _half,
  "mobile": lambda: tf.keras.applications.MobileNetV2(
    (32, 32, 3), weights=None, classes=3
  ),
  "dpal": models.dpal_mnist,
  "residual": lambda: models.residual_mnist(width=2),
  "dual": models.small_dual_resnet,
  "denoiser": lambda: models.paper_denoiser((8, 8, 1)),
  "features": lambda: models.random_features_linear((4,), 3),
  "scattering": lambda: models.scattering_linear((28, 28, 1), 3),
}


def _inputs(model):
  rng = np.random.default_rng(1)

  def draw(tensor):
    shape = (2, *tensor.shape[1:])
    if tensor.dtype.is_integer:
      return rng.integers(0, 9, shape).astype(np.int32)
    return rng.random(shape).astype(np.float32)

  return tf.nest.map_structure(draw, model.input)


_LARGE = ("dpal", "dual", "mobile", "residual", "scattering", "states")


@pytest.mark.parametrize(
  ("name", "suffix"),
  [
    pytest.param(
      name,
      suffix,
      marks=pytest.mark.slow if name in _LARGE and suffix != ".keras" else (),
    )
    for name in _HONEST
    for suffix in _MOSTLY_FILES
  ],
)
def test_honest_models_are_the_same_to_the_bit(tmp_path, name, suffix):
  network = _HONEST[name]()
  rng = np.random.default_rng(2)
  for weight in network.weights:  # none as it starts
    drawn = rng.random(weight.shape) + 0.1
    weight.assign(tf.cast(drawn, weight.dtype))
  x = _inputs(network)
  expected = network(x, training=False)
  path = hostile_files.honest(tmp_path, suffix, network)
  loaded = models.load_model(path)
  assert type(loaded) is type(network)
  assert models.fingerprint(loaded) == models.fingerprint(network)
  assert [w.trainable for w in loaded.weights] == [
    w.trainable for w in network.weights
  ]
  tf.nest.map_structure(
    np.testing.assert_array_equal, loaded(x, training=False), expected
  )


def _methods():
  found = tf.keras.saving.get_custom_objects()
  return sorted(
    name
    for name, kind in found.items()
    if name.startswith("tf_privrob>")
    and isinstance(kind, type)
    and issubclass(kind, methods.Method)
  )


def _network_for(kind):
  if issubclass(kind, (papers.Halfspaces, papers.PureHalfspaces)):
    return models.linear((4,), 2)
  if "Denois" in kind.__name__:
    return models.denoised_classifier(
      models.smooth_denoiser((8, 8, 1)), models.linear((8, 8, 1), 3)
    )
  if kind is papers.DPAL:
    return models.dpal_mnist()
  activation = "tanh" if kind is papers.AdLM else "relu"
  return models.mlp((4,), 3, activation=activation)


def _layers_of(network):
  """Their settings, but not whether and how they were built."""
  return [layer.get_config() for layer in network.layers]


@pytest.mark.parametrize("name", _methods())
def test_every_method_loads_as_it_was(tmp_path, name):
  kind = tf.keras.saving.get_custom_objects()[name]
  model = kind(_network_for(kind))
  x = _inputs(model.network)
  model(x)
  model.save(tmp_path / "model.keras")
  loaded = models.load_model(tmp_path / "model.keras")
  assert type(loaded) is kind
  assert loaded.config == model.config
  assert models.fingerprint(loaded) == models.fingerprint(model)
  network, again = model.network, loaded.network
  assert _layers_of(again) == _layers_of(network)
  np.testing.assert_array_equal(again(x), network(x))


def _refused(path, folder, named, load=models.load_model):
  """One ValueError that names file and finding; nothing ran, little used."""
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  start = time.monotonic()
  with pytest.raises(ValueError, match=named) as caught:
    load(path)
  assert time.monotonic() - start < _SECONDS
  used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
  assert used < _MEGABYTES * 1024
  assert str(path) in str(caught.value)
  assert type(caught.value) is ValueError
  assert not (folder / hostile_files.MARKER).exists()
  assert hostile_files.INTRUDER not in sys.modules


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
  """With a module that shows when it is imported."""
  marker = str(tmp_path / hostile_files.MARKER)
  (tmp_path / f"{hostile_files.INTRUDER}.py").write_text(
    f"open({marker!r}, 'w').close()\n"
  )
  monkeypatch.syspath_prepend(str(tmp_path))
  yield tmp_path
  sys.modules.pop(hostile_files.INTRUDER, None)


@pytest.mark.parametrize("suffix", _MOSTLY_FILES)
@pytest.mark.parametrize("name", hostile_files.DESCRIBED)
def test_hostile_descriptions_are_refused_by_name(folder, name, suffix):
  write, named = hostile_files.DESCRIBED[name]
  _refused(write(folder, suffix), folder, named)


@pytest.mark.parametrize("suffix", _FORMATS[:2])
@pytest.mark.parametrize("name", hostile_files.STORED)
def test_hostile_weights_are_refused(folder, name, suffix):
  write, named = hostile_files.STORED[name]
  _refused(write(folder, suffix), folder, named)


@pytest.mark.parametrize("name", hostile_files.WHOLE)
def test_hostile_files_are_refused(folder, name):
  write, named = hostile_files.WHOLE[name]
  _refused(write(folder), folder, named)


def test_what_is_not_used_is_not_read(folder):
  """Optimizer and loss may be of any module: nobody looks them up."""
  path = hostile_files.honest(folder, ".keras")
  stranger = {"module": hostile_files.INTRUDER, "class_name": "X", "config": {}}

  def change(content):
    content["compile_config"] = {"optimizer": stranger, "loss": stranger}
    content["build_config"] = {"input_shape": [None, 2**40]}
    for layer in content["config"]["layers"]:
      layer["build_config"] = {"input_shape": stranger}
      layer["compile_config"] = stranger
    return content

  models.load_model(hostile_files.rewrite(path, change))
  assert not (folder / hostile_files.MARKER).exists()


def test_a_file_that_changes_is_read_once(folder, monkeypatch):
  """Between a check and a second reading another file could take its place."""
  path = hostile_files.honest(folder, ".h5")
  (folder / "other").mkdir()
  write, _ = hostile_files.DESCRIBED["lambda"]
  evil, loads = write(folder / "other", ".h5"), json.loads
  expected = hostile_files.network()

  def swap(*args, **kwargs):
    if evil.exists():
      os.replace(evil, path)
    return loads(*args, **kwargs)

  monkeypatch.setattr(json, "loads", swap)
  loaded = models.load_model(path)
  assert not evil.exists()
  assert not (folder / "other" / hostile_files.MARKER).exists()
  assert [type(layer) for layer in loaded.layers] == [
    type(layer) for layer in expected.layers
  ]


def test_a_registered_class_may_be_in_a_file_and_others_not(tmp_path):
  path = tmp_path / "model.keras"
  _network(_Doubled(), _layers.Dense(3)).save(path)
  models.load_classifier(path)

  def change(content):
    return json.loads(json.dumps(content).replace("_Doubled", "_Tripled"))

  hostile_files.rewrite(path, change)
  with pytest.raises(ValueError, match=r"needs code: .*\._Tripled"):
    models.load_classifier(path)


def test_a_registered_class_gets_checked_parts_only(folder):
  """It deserialises what it holds by itself."""
  path = folder / "model.keras"
  _network(_Holder(_layers.Dense(3))).save(path)
  models.load_model(path)

  def change(content):
    held = content["config"]["layers"][2]["config"]["layer"]
    held.update(module=hostile_files.INTRUDER, registered_name="x>y")
    return content

  hostile_files.rewrite(path, change)
  _refused(path, folder, rf"needs code: {hostile_files.INTRUDER}\.Dense")


def test_configs_of_methods_and_layers_are_checked(folder):
  """Also by Keras' own loading, which calls them."""
  method = methods.DPSGD(hostile_files.network())
  config = method.get_config()
  methods.DPSGD.from_config(config)
  config["network"]["config"]["layers"][1].update(
    module=hostile_files.INTRUDER, registered_name="x>y"
  )
  with pytest.raises(ValueError, match=f"needs code: {hostile_files.INTRUDER}"):
    methods.DPSGD.from_config(config)
  layer = papers.FunctionalMechanismAutoencoder(_layers.Dense(2), 0.0, 0.0, 1.0)
  config = layer.get_config()
  type(layer).from_config(config)
  config["layer"].update(module=hostile_files.INTRUDER, registered_name="x>y")
  with pytest.raises(ValueError, match=f"needs code: {hostile_files.INTRUDER}"):
    type(layer).from_config(config)
  assert not (folder / hostile_files.MARKER).exists()


def test_weights_that_keras_does_not_save_are_missed(tmp_path):
  """They would stay as they were made."""
  model = _Hidden()
  model(X)
  model.save(tmp_path / "model.keras")
  with pytest.raises(ValueError, match="under a hidden name"):
    models.load_model(tmp_path / "model.keras")


@tf.keras.saving.register_keras_serializable("loading_test")
class _Hidden(tf.keras.Model):
  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.parts = _Parts()

  def call(self, inputs):
    return self.parts.layer(inputs)

  def get_config(self):
    return {}


class _Parts(tf.Module):
  def __init__(self):
    super().__init__()
    self.layer = _layers.Dense(3)


def test_there_is_no_such_file(tmp_path):
  with pytest.raises(ValueError, match=r"there is no file '.*missing\.keras'"):
    models.load_classifier(tmp_path / "missing.keras")
  for suffix in (".keras", ".h5"):
    (tmp_path / f"text{suffix}").write_text("no model")
    with pytest.raises(ValueError, match="with a whole model"):
      models.load_classifier(tmp_path / f"text{suffix}")


# What a second attacker found.


@pytest.mark.parametrize("suffix", _FORMATS)
def test_an_adapted_normalization_computes_with_its_weights(tmp_path, suffix):
  """From .h5 and SavedModel logits were off by 10^8, the weights the same."""
  network = _adapted()
  x = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
  loaded = models.load_model(hostile_files.honest(tmp_path, suffix, network))
  np.testing.assert_array_equal(loaded(x), network(x))


def test_a_checkpoint_without_weights_is_refused(tmp_path):
  """All weights were zero."""
  from tensorflow.core.protobuf import trackable_object_graph_pb2

  path = hostile_files.honest(tmp_path, "")
  prefix = str(path / "variables/variables")
  name = "_CHECKPOINTABLE_OBJECT_GRAPH"
  graph = trackable_object_graph_pb2.TrackableObjectGraph()
  graph.ParseFromString(tf.train.load_checkpoint(prefix).get_tensor(name))
  for node in graph.nodes:
    del node.attributes[:]
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=[name],
    shape_and_slices=[""],
    tensors=[tf.constant(graph.SerializeToString())],
  )
  with pytest.raises(ValueError, match="without some of the weights"):
    models.load_model(path)


@tf.keras.saving.register_keras_serializable("loading_test")
class Late(tf.keras.Model):
  """Makes its weights when it is called."""

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.dense = _layers.Dense(3)

  def call(self, inputs):
    return self.dense(inputs)


@pytest.mark.parametrize("suffix", [".keras", ""])
def test_a_model_without_its_weights_is_refused(tmp_path, suffix):
  """The first call made random ones."""
  model = Late()
  model(np.zeros([1, 4], np.float32))
  path = hostile_files.honest(tmp_path, suffix, model)
  if suffix:
    hostile_files.rewrite(path, lambda content: {**content, "build_config": {}})
  with pytest.raises(ValueError, match="make its own at the first call"):
    models.load_model(path)


def test_an_archive_expands_no_further_than_it_says(tmp_path):
  """1.8 MB became 2 GB behind an honest directory."""
  path = hostile_files.honest(tmp_path, ".keras")
  files = hostile_files.entries(path)
  honest = files["metadata.json"]
  packer = zlib.compressobj(9, zlib.DEFLATED, -15)
  packed = packer.compress(honest)
  for _ in range(16):
    packed += packer.compress(bytes(2**24))
  packed += packer.flush()
  content, directory = b"", b""
  for name, data in files.items():
    bomb = name == "metadata.json"
    stored, about = (packed if bomb else data), (zlib.crc32(data), len(data))
    sizes = (about[0], len(stored), about[1])
    encoded, method = name.encode(), 8 if bomb else 0
    directory += struct.pack(
      "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, method, 0, 33, *sizes,
      len(encoded), 0, 0, 0, 0, 0, len(content),
    ) + encoded  # fmt: skip
    content += struct.pack(
      "<4s5H3I2H", b"PK\3\4", 20, 0, method, 0, 33, *sizes, len(encoded), 0
    ) + encoded + stored  # fmt: skip
  end = struct.pack(
    "<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, len(directory), len(content), 0
  )
  path.write_bytes(content + directory + end)
  tracemalloc.start()
  models.load_model(path)
  most = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert most < 2**26


def test_names_of_weights_are_not_paths_without_end(tmp_path):
  """A link to itself made 69 seconds of 8 weights."""
  path = hostile_files.honest(tmp_path, ".h5")
  with h5py.File(path, "a") as file:
    group = file["model_weights/middle"]
    group["a"] = group
    names = [f"{'a/' * 100}middle/{name}:0" for name in ("kernel", "bias")]
    group.attrs.create("weight_names", names, dtype=h5py.string_dtype())
  with pytest.raises(ValueError, match="under 104 names"):
    models.load_model(path)


@pytest.mark.parametrize("references", [60, 30_000])
def test_references_are_counted(tmp_path, references):
  """A file of 4 kB took 41 seconds."""

  def change(content):
    layer = content["config"]["layers"][1]
    layer.update(class_name="Add", config={"name": "middle"})
    layer["inbound_nodes"] = [[["inputs", 0, 0, {}]] * references]
    return content

  path = hostile_files.honest(tmp_path, ".keras")
  hostile_files.rewrite(path, change)
  message = "more than 20000" if references > 100 else "weight"
  with pytest.raises(ValueError, match=message):
    models.load_model(path)


@pytest.mark.parametrize(
  "network",
  [
    lambda x: _layers.AveragePooling2D(1600, 1, "same")(x),
    lambda x: _layers.Reshape((1600 * 1600, 1))(x),
    lambda x: _layers.Normalization(mean=0.0, variance=1.0)(
      _layers.UpSampling2D(2)(x)
    ),
  ],
  ids=["pooling", "attention", "normalization"],
)
def test_layers_that_cost_more_than_they_return_are_refused(tmp_path, network):
  inputs = _layers.Input((1600, 1600, 1))
  outputs = network(inputs)
  if outputs.shape.rank == 3:
    outputs = _layers.Attention()([outputs, outputs])
  path = hostile_files.honest(
    tmp_path, ".keras", tf.keras.Model(inputs, outputs)
  )
  with pytest.raises(ValueError, match="for an example"):
    models.load_model(path)


def test_outputs_that_are_many_together_are_refused(tmp_path):
  inputs = tf.keras.Input((8, 8, 1))
  wide = [
    tf.keras.layers.ZeroPadding2D(4092 - 8 * number)(inputs)
    for number in range(1, 3)
  ]
  pooled = [tf.keras.layers.GlobalMaxPooling2D()(part) for part in wide]
  outputs = tf.keras.layers.Concatenate()(pooled)
  path = tmp_path / "wide.keras"
  tf.keras.Model(inputs, outputs).save(path)
  with pytest.raises(ValueError, match="outputs of all layers are more than"):
    models.load_model(path)


def test_calls_of_recurrent_layers_count_for_many():
  inputs = tf.keras.Input((3, 2))
  layer, value = tf.keras.layers.LSTM(2, return_sequences=True), inputs
  for _ in range(3):
    value = layer(value)
  config = tf.keras.saving.serialize_keras_object(tf.keras.Model(inputs, value))
  assert description.calls(description.checked(config)) > 300


def _steps(count):
  return [_layers.Input((count, 1)), _layers.SimpleRNN(1), _layers.Dense(3)]


def _convolved(side):
  network = [_layers.Input((side, side, 1)), _layers.Conv2D(1, 127)]
  return [*network, _layers.GlobalAveragePooling2D(), _layers.Dense(3)]


@pytest.mark.parametrize(
  ("layers", "fits"),
  [
    (_steps(2**16), False),  # 12 kB, more than 100 s
    (_steps(50), True),
    (_convolved(5700), False),  # 75 kB, more than 150 s
    (_convolved(200), True),
  ],
)
def test_work_for_one_example_is_limited(tmp_path, layers, fits):
  """Loading a classifier calls it once."""
  path = tmp_path / "model.keras"
  tf.keras.Sequential(layers).save(path)
  if fits:
    models.load_classifier(path)
    return
  with pytest.raises(ValueError, match=r"by which an example takes as long"):
    models.load_classifier(path)
