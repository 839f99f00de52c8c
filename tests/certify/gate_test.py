"""The gate: what attackers brought through it, and what must still pass."""

import numpy as np
import pytest
import tensorflow as tf

from tests.certify import noisy_models
from tf_privrob import certify
from tf_privrob import layers as our_layers
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.certify import gate
from tf_privrob.methods import noise_place

_layers = tf.keras.layers
RNG = np.random.RandomState(0)
X = RNG.rand(40, 6).astype(np.float32)
WEIGHTS = RNG.randn(6, 3).astype(np.float32)
VERIFIED = certify.VerifiedBound(0.02)
SMOOTHING = certify.RandomizedSmoothing(0.3, num_estimation=200)


def weighted(model):
  """The same weights in every run; variances are positive."""
  rng = np.random.RandomState(5)
  model.set_weights([np.abs(rng.randn(*w.shape)) for w in model.get_weights()])
  return model


def functional(rest, kind=tf.keras.Model, dtype=None):
  inputs = tf.keras.Input((6,), dtype=dtype)
  hidden = _layers.Dense(8, "relu", dtype="float32", name="first")(inputs)
  return weighted(kind(inputs, rest(hidden)))


def network():
  return functional(_layers.Dense(3))


class OwnSequential(tf.keras.Sequential):
  """Another function far from the inputs that anyone looked at."""

  def call(self, inputs, training=None, mask=None):
    logits = super().call(inputs, training=training)
    far = tf.reduce_max(inputs, axis=1, keepdims=True) > 2
    return tf.where(far, -logits, logits)


class OwnModel(tf.keras.Model):
  call = OwnSequential.call


class OwnDense(_layers.Dense):
  pass


def patched(find):
  """A network in which one object has a `call` of its own."""
  made = network()
  layer = find(made)
  call = layer.call
  layer.call = lambda inputs, *args, **kwargs: call(inputs) + inputs[:, :1]
  return made


def inside(inner):
  """A model inside a model."""
  return functional(lambda hidden: inner(hidden, training=True))


def squeezed():
  inner = tf.keras.Sequential([tf.keras.Input((8,)), _layers.Dense(3)])
  return functional(lambda hidden: inner(_layers.Reshape((8, 1))(hidden)))


FALSE_GRAPHS = {
  "batch statistics": (
    lambda: functional(
      lambda h: _layers.Dense(3)(
        _layers.BatchNormalization(name="norm")(h, training=True)
      )
    ),
    "BatchNormalization 'norm' .*tensors of the network alone.*training=True",
  ),
  "dropout": (
    lambda: functional(
      lambda h: _layers.Dense(3)(_layers.Dropout(0.8)(h, training=True))
    ),
    "Dropout .*training=True",
  ),
  "sequential subclass": (
    lambda: weighted(
      OwnSequential([tf.keras.Input((6,)), _layers.Dense(8), _layers.Dense(3)])
    ),
    "functional or sequential Keras model.*received OwnSequential",
  ),
  "model subclass": (
    lambda: functional(_layers.Dense(3), OwnModel),
    "functional or sequential Keras model.*received OwnModel",
  ),
  "nested subclass": (
    lambda: functional(
      lambda h: OwnSequential([tf.keras.Input((8,)), _layers.Dense(3)])(h)
    ),
    "received '.*' of type OwnSequential",
  ),
  "nested in training": (
    lambda: inside(
      tf.keras.Sequential([tf.keras.Input((8,)), _layers.Dense(3)])
    ),
    "Sequential .*training=True",
  ),
  "nested shape": (squeezed, "one of shape .*8, 1. for an input of"),
  "constant": (
    lambda: functional(
      lambda h: _layers.Add(name="sum")(
        [_layers.Dense(3)(h), tf.constant([[50.0, 0.0, -50.0]])]
      )
    ),
    "Add 'sum' .*a constant beside them",
  ),
  "repeated sum": (
    lambda: functional(
      lambda h: _layers.Add(name="sum")(
        [_layers.Dense(1)(h), _layers.Dense(3)(h)]
      )
    ),
    "one shape in Add 'sum'",
  ),
  "model patched": (
    lambda: patched(lambda made: made),
    "Functional .* whose call was replaced",
  ),
  "layer patched": (
    lambda: patched(lambda made: made.layers[-1]),
    "Dense .* whose call was replaced",
  ),
  "activation patched": (
    lambda: functional(
      lambda h: _layers.Dense(3, activation=_changed(_layers.ReLU()))(h)
    ),
    "ReLU .* whose call was replaced",
  ),
  "activation of its own": (
    lambda: functional(_layers.Dense(3, activation=EqualToAll())),
    "never decreases .*received 'EqualToAll'",
  ),
  "layer subclass": (
    lambda: functional(OwnDense(3)),
    "bounds are known, received .* of type OwnDense",
  ),
  "half precision": (
    lambda: functional(
      lambda h: _layers.Dense(3, dtype="float32")(
        _layers.Dropout(0.5, dtype="float16", name="half")(h)
      )
    ),
    "Dropout 'half' to compute in float32 or float64, received float16",
  ),
  "half precision input": (
    lambda: functional(_layers.Dense(3), dtype="float16"),
    "float64 at the input of .*received float16",
  ),
  "whole numbers": (
    lambda: functional(_layers.Dense(3), dtype="uint8"),
    "at the input of .*received uint8",
  ),
  "claimed class": (
    lambda: functional(SaysDense(3)),
    "bounds are known, received .* of type SaysDense",
  ),
}


def _changed(layer):
  layer.call = lambda inputs: -inputs
  return layer


class Borrowed(_layers.Dense):
  """As if it came with Keras."""

  __module__ = _layers.Dense.__module__


class EqualToAll:
  """A function that Python takes for every other one."""

  def __call__(self, x):
    return -x

  def __eq__(self, other):
    return True

  __hash__ = object.__hash__


class SaysDense(_layers.Dense):
  """A class of the caller's that borrows the word of one of ours."""

  computes_as = _layers.Dense
  __module__ = our_layers.NormalizedDense.__module__

  def call(self, inputs):
    return -super().call(inputs)


@pytest.mark.parametrize("name", FALSE_GRAPHS)
def test_a_graph_that_is_not_what_is_computed_is_refused(name):
  make, message = FALSE_GRAPHS[name]
  with pytest.raises(ValueError, match=message):
    VERIFIED.certify(make(), X)


LINEAR_CASES = {
  "dropout": (
    lambda h: _layers.Dropout(0.5)(h, training=True),
    "training=True",
  ),
  "half precision": (_layers.Dropout(0.5, dtype="float16"), "float16"),
  "patched": (_changed(_layers.Flatten()), "Flatten .*call was replaced"),
}


@pytest.mark.parametrize("name", LINEAR_CASES)
def test_other_readers_refuse_too(name):
  """A linear head, norms of layers before noise, and features."""
  front, message = LINEAR_CASES[name]
  inputs = tf.keras.Input((6,))
  last = _layers.Dense(3, dtype="float32")
  made = tf.keras.Model(inputs, last(front(inputs)))
  with pytest.raises(ValueError, match=message):
    certify.LinearMargin().certify(made, X)
  hidden = _layers.Dense(4, dtype="float32")(front(inputs))
  made = tf.keras.Model(inputs, _layers.Dense(3)(hidden))
  with pytest.raises(ValueError, match=message):
    noise_place.find(made, 1)


def test_norms_of_a_changed_layer_are_refused():
  layer = _layers.Dense(3)
  layer(X)
  certify.linear_map(layer).norms()
  with pytest.raises(ValueError, match=r"Dense .*call was replaced"):
    certify.prefix_norms([_changed(layer)], (6,))
  features = our_layers.RandomFourierFeatures(5)
  features(X)
  with pytest.raises(ValueError, match=r"RandomFourierFeatures .*call was"):
    certify.feature_bound(_changed(features))


def test_a_wrapper_that_nobody_vouches_for_is_refused():
  """A model with a network inside it, which is not what it computes."""

  class Wrapper(tf.keras.Model):
    def __init__(self):
      super().__init__()
      self.network = self.bounded_network = network()

    def call(self, inputs, training=None):
      return -self.network(inputs)

  class Trained(methods.Trainer):
    def call(self, inputs, training=None):
      return -super().call(inputs, training)

  class Called(methods.Trainer):
    def __call__(self, *args, **kwargs):
      return -super().__call__(*args, **kwargs)

  for made in (Wrapper(), Trained(network()), Called(network())):
    made(X)
    for certifier in (VERIFIED, certify.LinearMargin()):
      with pytest.raises(ValueError, match="functional or sequential"):
        certifier.certify(made, X)


def test_layers_that_nobody_read_must_act_on_each_row():
  """The caller's Lipschitz constant is about a function of one input."""
  front = our_layers.BatchStandardization()
  made = tf.keras.Sequential([tf.keras.Input((6,)), front, _layers.Dense(3)])
  with pytest.raises(ValueError, match="depend on their own input alone"):
    certify.LinearMargin(lipschitz=1.0).certify(made, X)


@pytest.mark.parametrize("first", [True, False])
def test_logits_outside_of_the_bounds_are_refused(monkeypatch, first):
  """Should a reader ever be wrong, the model's own logits tell."""
  if not first:  # the one input whose logits are compared with bounds is fine
    monkeypatch.setattr("tf_privrob.certify.verified._READ", 1)
  made = network()
  honest = tf.keras.layers.Dense.call

  def call(layer, inputs):
    found = honest(layer, inputs)
    right = tf.range(tf.shape(found)[0])[:, None] < (0 if first else 1)
    return tf.where(right, found, 3 - found)

  monkeypatch.setattr(tf.keras.layers.Dense, "call", call)
  # Over a wide ball the bounds allow for any logits.
  subject = certify.VerifiedBound(10.0) if first else VERIFIED
  with pytest.raises(ValueError, match=r"within the bounds .* received others"):
    subject.certify(made, X)


# Functions.


def batch_statistics(scale):
  def logits(x):
    mean, variance = tf.nn.moments(x, axes=[0])
    return scale * tf.matmul((x - mean) / tf.sqrt(variance + 1e-3), WEIGHTS)

  return logits


def weak_statistics(x):
  """A hundredth of the logits is that of the neighbours."""
  logits = tf.matmul(x, WEIGHTS)
  return 1e3 + logits + 0.01 * tf.reduce_mean(logits, axis=0, keepdims=True)


def close_race(x):
  """Far less than the spread of a class, but enough to decide between two."""
  first = tf.matmul(x, WEIGHTS[:, :1])
  ahead = 5e-4 * tf.sign(tf.reduce_mean(x) - 0.5)
  return tf.concat([first, first + ahead], axis=1)


def without_a_turn(x):
  """One class is always ahead, but by what depends on the neighbours."""
  score = tf.matmul(x - tf.tanh(tf.reduce_mean(x, axis=0)), WEIGHTS[:, :1])
  return tf.concat([1e-5 * score, 1 + 0 * score], axis=1)


def by_place(x):
  """Two rows of every batch are turned over, and always the same."""
  row = tf.range(tf.shape(x)[0])[:, None]
  return tf.where(row % 97 == 5, -1.0, 1.0) * tf.matmul(x, WEIGHTS)


def by_size(x):
  """Another function of a single input than of many."""
  sign = tf.where(tf.shape(x)[0] == 1, -1.0, 1.0)
  return sign * tf.matmul(x, WEIGHTS)


def neighbour(x):
  return tf.matmul(x + tf.roll(x, 1, 0), WEIGHTS)


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(
  "function",
  [
    batch_statistics(1.0),
    batch_statistics(1e-5),
    batch_statistics(1e5),
    weak_statistics,
    close_race,
    without_a_turn,
    by_place,
    by_size,
    neighbour,
  ],
)
def test_neighbours_at_any_scale(function, count):
  with pytest.raises(ValueError, match="depend on their own input alone"):
    SMOOTHING.certify(function, X[:count])


def shared_coin(chance):
  def logits(x):
    clean = tf.matmul(x, WEIGHTS)
    return tf.where(tf.random.uniform([]) < chance, -clean, clean)

  return logits


def seeded_coin(x):
  """No state at all: the seed is a sum over the batch."""
  seed = tf.cast([1e6 * tf.reduce_sum(x), 0.0], tf.int32)
  coin = tf.random.stateless_uniform([], seed) < 0.01
  clean = tf.matmul(x, WEIGHTS)
  return tf.where(coin, -clean, clean)


def generator():
  made = tf.random.Generator.from_seed(1)
  return lambda x: tf.matmul(x, WEIGHTS) + 1e-9 * made.normal([])


@pytest.mark.parametrize(
  ("function", "operation"),
  [
    (shared_coin(0.5), "RandomUniform"),
    (shared_coin(0.01), "RandomUniform"),
    (seeded_coin, "StatelessRandom"),
    (generator(), "RngReadAndSkip|StatelessRandom"),
    (lambda x: tf.matmul(tf.nn.dropout(x, 0.001), WEIGHTS), "Random"),
  ],
)
def test_random_numbers_are_found_however_rare(function, operation):
  message = f"deterministic once the noise is fixed.*operation {operation}"
  for _ in range(5):
    with pytest.raises(ValueError, match=message):
      SMOOTHING.certify(function, X)


def test_a_function_that_remembers_is_refused():
  steps = tf.Variable(0.0)

  def counting(x):
    return tf.matmul(x, WEIGHTS) + 1e-9 * steps.assign_add(1.0)

  with pytest.raises(ValueError, match=r"only reads.*operation AssignAdd"):
    SMOOTHING.certify(counting, X)
  python = lambda x: tf.ensure_shape(  # noqa: E731
    tf.numpy_function(lambda x: x @ WEIGHTS, [x], tf.float32), [None, 3]
  )
  with pytest.raises(ValueError, match=r"only reads.*operation PyFunc"):
    SMOOTHING.certify(python, X)


def test_what_cannot_be_traced_is_judged_by_its_passes():
  def eager(x):
    return tf.constant(x.numpy() @ WEIGHTS)

  def tossed(x):
    return eager(x) + RNG.rand()

  gate.check_rows(eager, [X], "")
  with pytest.raises(ValueError, match=r"differ by .* for equal inputs"):
    gate.check_rows(tossed, [X], "")


@pytest.mark.parametrize("place", ["before", "after"])
def test_coupling_inside_a_noisy_model_is_seen(place):
  class Coupled(noisy_models.Cut):
    input_noise_shape = hidden_noise_shape = (6,)

    def before(self, x):
      return self._mixed(x) if place == "before" else x

    def after(self, h):
      h = self._mixed(h) if place == "after" else h
      return 1e-5 * tf.matmul(h, WEIGHTS)

    def _mixed(self, x):
      return x - 0.1 * tf.reduce_mean(x, 0)

  subject = certify.SingleLayerCertificate(
    0.1, "hidden", operator_norm=1.0, num_estimation=200
  )
  with pytest.raises(ValueError, match="depend on their own input alone"):
    subject.certify(Coupled(), X)


def ties(x):
  """Classes that are equal but for rounding, which goes by the order of x."""
  first = tf.matmul(x, WEIGHTS[:, :1])
  return tf.concat([first, tf.matmul(x[:, ::-1], WEIGHTS[::-1, :1])], axis=1)


def asserting(x):
  with tf.control_dependencies([tf.debugging.Assert(x[0, 0] < 1e9, [x])]):
    return tf.matmul(x, WEIGHTS)


@pytest.mark.parametrize(
  "function",
  [
    asserting,
    lambda x: tf.matmul(x, WEIGHTS),
    lambda x: 1e-5 * tf.matmul(x, WEIGHTS),
    lambda x: 1e6 + tf.matmul(x, WEIGHTS),
    lambda x: tf.one_hot(tf.zeros(tf.shape(x)[0], tf.int32), 4),
    lambda x: tf.cast(tf.matmul(x, WEIGHTS), tf.float16),
    ties,
  ],
)
def test_honest_functions_pass(function):
  for count in (1, 40):
    assert len(SMOOTHING.certify(function, X[:count])) == count


def test_rounding_by_place_is_that_of_the_processor(monkeypatch):
  """A GPU rounds factors to ten bits, in an order that goes by place."""

  def rounded(x):
    logits = tf.matmul(x, WEIGHTS)
    place = tf.cast(tf.range(tf.shape(x)[0])[:, None] % 2, tf.float32)
    return logits * (1 + 0.0035 * place)

  with pytest.raises(ValueError, match="depend on their own input alone"):
    SMOOTHING.certify(rounded, X)
  monkeypatch.setattr(gate.rounding, "rounds_factors", lambda: True)
  assert len(SMOOTHING.certify(rounded, X)) == len(X)


def convolutional(policy):
  tf.keras.mixed_precision.set_global_policy(policy)
  try:
    return weighted(
      tf.keras.Sequential(
        [
          tf.keras.Input((10, 10, 3)),
          _layers.Conv2D(16, 3, activation="relu"),
          _layers.BatchNormalization(),
          _layers.Dropout(0.5),
          _layers.SeparableConv2D(8, 3),
          _layers.Flatten(),
          _layers.Dense(32, "relu"),
          _layers.Dense(10, dtype="float32"),
        ]
      )
    )
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_bfloat16"])
def test_honest_networks_pass(policy):
  x = np.random.RandomState(1).rand(3, 10, 10, 3).astype(np.float32)
  rows = SMOOTHING.certify(convolutional(policy), x)
  assert len(rows) == 3


def nested():
  inner = tf.keras.Sequential(
    [tf.keras.Input((8,)), _layers.Dropout(0.5), _layers.Dense(4, "relu")]
  )

  def rest(hidden):
    hidden = _layers.BatchNormalization()(hidden, training=False)
    twice = [inner(hidden), inner(_layers.GaussianNoise(1.0)(hidden))]
    return _layers.Dense(3)(_layers.Add()(twice))

  return functional(rest)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("make", [network, nested])
def test_honest_graphs_pass(tmp_path, make, saved):
  made = make()
  rows = VERIFIED.certify(made, X)
  if saved:
    made.save(tmp_path / "m.keras")
    loaded = tf.keras.models.load_model(tmp_path / "m.keras")
    assert models.model_hash(loaded) == models.model_hash(made)
    again = VERIFIED.certify(loaded, X)
    assert [r.radius for r in again] == [r.radius for r in rows]
  assert any(row.radius > 0 for row in rows)
  assert {row.model for row in rows} == {models.model_hash(made)[:16]}


def test_methods_pass_as_their_network():
  made = network()
  trained = methods.Trainer(made)
  trained(X)
  rows = VERIFIED.certify(trained, X)
  wanted = VERIFIED.certify(made, X)
  assert [row.radius for row in rows] == [row.radius for row in wanted]
  linear = methods.DPSGD(models.linear((6,), 3))
  linear(X)
  assert len(certify.LinearMargin().certify(linear, X)) == len(X)


# Identity.


def run(path, model, **kwargs):
  return certify.run(VERIFIED, model, X, None, path, progress=False, **kwargs)


def test_other_weights_that_agree_on_the_first_inputs_are_refused(tmp_path):
  """Four probes do not tell a network of 64 units from another one."""
  path = tmp_path / "rows.csv"
  inputs = tf.keras.Input((6,))
  hidden = _layers.Dense(64, "relu")(inputs)
  made = weighted(tf.keras.Model(inputs, _layers.Dense(3)(hidden)))
  rows = run(path, made)
  features = tf.keras.Model(inputs, hidden)(X[:4]).numpy()
  free = np.linalg.svd(features)[2][4:]  # no feature of the first four
  kernel, bias = made.layers[-1].get_weights()
  change = free.T @ np.random.RandomState(3).randn(len(free), 3)
  made.layers[-1].set_weights([kernel + 30 * change, bias])
  assert any(
    row.prediction != np.argmax(made(X[row.index : row.index + 1]))
    for row in rows
  )
  with pytest.raises(ValueError, match=r"model [0-9a-f]{16} in the file"):
    run(path, made)
  with pytest.raises(ValueError, match="the model that was certified"):
    certify.check_recorded(certify.read(path), made, X, None)
  made.layers[-1].set_weights([kernel, bias])
  assert run(path, made) == rows
  certify.check_recorded(certify.read(path), made, X, None)


def test_the_hash_is_of_class_configuration_and_every_weight():
  made = network()
  known = {models.model_hash(made)}
  weights = made.get_weights()
  for place in range(len(weights)):
    changed = [w.copy() for w in weights]
    changed[place].flat[0] = np.nextafter(changed[place].flat[0], np.float32(9))
    made.set_weights(changed)
    known.add(models.model_hash(made))
  made.set_weights(weights)
  made.layers[1].activation = tf.keras.activations.tanh
  known.add(models.model_hash(made))
  known.add(models.model_hash(methods.DPSGD(made)))
  known.add(models.model_hash(made, "a name"))
  assert len(known) == 2 + len(weights) + 2
  made.layers[1].activation = tf.keras.activations.relu
  made.compile("sgd", loss=lambda y, z: z)
  made.trainable = False
  assert models.model_hash(made) in known


def relu(x):
  return -x


def with_a_constant():
  """No weight any more: nothing but the object knows the kernel."""
  made = network()
  made.layers[-1].kernel = tf.ones([8, 3])
  return made


@pytest.mark.parametrize(
  "model",
  [
    lambda x: x,
    functional(lambda h: _layers.Dense(3)(_layers.Lambda(lambda x: x)(h))),
    functional(_layers.Dense(3, activation=relu)),
    functional(OwnDense(3)),
    functional(Borrowed(3)),
    functional(_layers.Dense(3), OwnModel),
    patched(lambda made: made.layers[-1]),
    with_a_constant(),
  ],
)
def test_code_that_nobody_named_has_no_hash(model):
  assert models.model_hash(model) == ""
  first, second = (models.model_hash(model, name) for name in "ab")
  assert len(first) == 64
  assert first != second


def test_a_function_needs_a_name_to_be_resumed(tmp_path):
  path = tmp_path / "rows.csv"
  logits = lambda x: tf.matmul(x, WEIGHTS)  # noqa: E731

  def run(**kwargs):
    return certify.run(
      SMOOTHING, logits, X[:2], None, path, progress=False, **kwargs
    )

  rows = run()
  assert {row.model for row in rows} == {""}
  for name in ("", "linear"):
    with pytest.raises(ValueError, match=r"Cannot resume .*model_id='\.\.\.'"):
      run(model_id=name)
  with pytest.raises(ValueError, match="the model that was certified"):
    certify.check_recorded(certify.read(path), logits, X[:2], None)
  rows = run(resume=False, model_id="linear")
  assert run(model_id="linear") == rows
  assert len(rows[0].model) == gate.SHORT
  certify.check_recorded(certify.read(path), logits, X[:2], None, "linear")
  with pytest.raises(ValueError, match="the model_id of the file"):
    run()


def test_files_of_other_versions_and_other_rows_are_refused(tmp_path):
  path, made = tmp_path / "rows.csv", network()
  run(path, made)
  whole, record = path.read_text(), (tmp_path / "rows.csv.json").read_text()
  path.write_text(
    "\n".join(line.rpartition(",")[0] for line in whole.splitlines()) + "\n"
  )
  with pytest.raises(ValueError, match="another version: certify again"):
    certify.read(path)
  with pytest.raises(ValueError, match="another version: pass resume=False"):
    run(path, made)
  path.write_text(whole.replace(models.model_hash(made)[:16], "0" * 16, 1))
  for ask in (certify.read, lambda path: run(path, made)):
    with pytest.raises(ValueError, match="Expected rows of model"):
      ask(path)
  path.write_text(whole)
  (tmp_path / "rows.csv.json").write_text(record.replace('"model"', '"logits"'))
  for ask in (certify.read, lambda path: run(path, made)):
    with pytest.raises(ValueError, match="of another version"):
      ask(path)


# The template.


def test_no_certifier_can_forget_the_gate():
  for name in ("stream", "certify"):
    with pytest.raises(TypeError, match=f"define _stream, received {name}"):
      type("Forgetful", (certify.VerifiedBound,), {name: list})

  class Beside(certify.Certifier):
    kind = "proven"

    def _stream(self, door, x, y, seed, indices):
      yield certify.Certificate(
        0, None, 1, 0.1, "l2", False, 1.0, self.kind, "beside"
      )

  with pytest.raises(AssertionError, match="beside the gate"):
    Beside().certify(network(), X)
  Beside.kind = "claimed"
  assert len(Beside().certify(network(), X)) == 1


def test_weights_that_change_meanwhile_are_seen(monkeypatch):
  """No row comes out that may be about the other weights."""
  made = network()
  monkeypatch.setattr(gate, "_WATCHING", 1e9)  # looks after every row
  rows = VERIFIED.stream(made, X)
  next(rows)
  made.layers[-1].bias.assign_add([1e-3, 0.0, 0.0])
  with pytest.raises(ValueError, match="stays as it is while it is certified"):
    next(rows)
  monkeypatch.setattr(gate, "_WATCHING", 1e-9)  # looks at the end only

  class Changing(certify.VerifiedBound):
    def _stream(self, door, *args):
      for row in super()._stream(door, *args):
        door.model.layers[-1].bias.assign_add([1e-3, 0.0, 0.0])
        yield row

  with pytest.raises(ValueError, match="stays as it is while it is certified"):
    next(Changing(0.02).stream(made, X))


def test_a_norm_of_other_weights_is_refused():
  """A certifier that was asked for before the last step of a training."""
  inputs = tf.keras.Input((6,))
  hidden = _layers.Dense(8, "relu")(inputs)
  made = papers.PixelDP(
    tf.keras.Model(inputs, _layers.Dense(3)(hidden)),
    papers.PixelDP.config_class().changed(noise_after=1),
  )
  made(X)
  subject = made.certifier(num_estimation=200)
  assert len(subject.certify(made, X[:2])) == 2
  kernel = made.network.layers[1].kernel
  kernel.assign(10 * kernel)
  with pytest.raises(ValueError, match="weights that operator_norm was"):
    subject.certify(made, X[:2])
  assert len(made.certifier(num_estimation=200).certify(made, X[:2])) == 2
