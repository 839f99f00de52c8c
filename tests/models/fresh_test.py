"""Weights drawn anew: by key, by the configuration's law, and by no data."""

import json
import random
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests import foreign
from tf_privrob import layers as privrob_layers
from tf_privrob import models
from tf_privrob import randomness
from tf_privrob.layers import weight_normalization
from tf_privrob.papers.adlm import sound as adlm_sound

_layers = tf.keras.layers
_initializers = tf.keras.initializers


def _key(seed=1):
  return randomness.Key.of(seed)


def _flat(network):
  return np.concatenate([np.ravel(w) for w in network.get_weights()])


def _redrawn(network, seed=1, **kwargs):
  models.redraw(network, _key(seed), **kwargs)
  return network.get_weights()


def _spoilt(network):
  """The network with weights that its configuration never gives."""
  network.set_weights([w + 3 for w in network.get_weights()])
  return network


def _sequential(*layers, shape=(6,)):
  return tf.keras.Sequential([_layers.Input(shape), *layers])


def _equal(found, expected):
  assert len(found) == len(expected)
  for a, b in zip(found, expected):
    np.testing.assert_array_equal(a, b)


def _unrelated(first, second):
  """Apart from the few pairs of 2^-23 that are equal by chance."""
  return np.mean(np.equal(first, second)) < 0.01


# Keys.


def test_same_key_same_weights_whatever_they_were():
  first = _redrawn(models.tutorial_cnn())
  _equal(_redrawn(_spoilt(models.tutorial_cnn())), first)
  other = _redrawn(models.tutorial_cnn(), seed=2)
  assert _unrelated(first[0], other[0])


def test_without_a_seed_they_are_new_each_time():
  network = models.mlp((6,), 3)
  first, second = _redrawn(network, None), _redrawn(network, None)
  assert _unrelated(first[0], second[0])


def test_the_seed_of_a_script_does_not_decide(monkeypatch):
  """What tf.keras.utils.set_random_seed sets must not tie two runs together."""
  source, weights = foreign.keras_seeds(), []
  for _ in range(2):
    generator = random.Random(3)
    monkeypatch.setattr(source, "generator", generator, raising=False)
    network = models.mlp((6,), 3)
    state = generator.getstate()
    weights.append((network.get_weights(), _redrawn(network, None)))
    assert source.generator is generator
    assert generator.getstate() == state
  _equal(weights[0][0], weights[1][0])
  assert _unrelated(weights[0][1][0], weights[1][1][0])


def test_layers_of_one_shape_start_differently():
  network = models.mlp((5,), 3, hidden=(5, 5))
  weights = _redrawn(network)
  assert _unrelated(weights[0], weights[2])


def test_an_initialiser_with_a_seed_keeps_it():
  network = models.mlp((6,), 3, seed=4)
  start = network.get_weights()
  _equal(_redrawn(_spoilt(network)), start)
  _equal(_redrawn(network, seed=2), start)


# The law of the draw.


def test_law_is_that_of_the_initialiser():
  network = _sequential(_layers.Dense(400), _layers.Dense(300), shape=(500,))
  keras = [network.layers[0].kernel.numpy(), network.layers[1].kernel.numpy()]
  kernel, bias, second, _ = _redrawn(_spoilt(network))
  limit = np.sqrt(6 / (500 + 400))
  assert 0.999 * limit < np.abs(kernel).max() <= limit
  assert kernel.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)
  assert abs(kernel.mean()) < 4 * limit / np.sqrt(3 * kernel.size)
  assert not bias.any()
  for own, other in zip((kernel, second), keras):
    # The largest gap between two samples' distributions, 1e-9 by Smirnov.
    places = np.sort(np.concatenate([own.ravel(), other.ravel()]))
    below = [
      np.searchsorted(np.sort(w.ravel()), places, "right") for w in (own, other)
    ]
    gap = np.abs(below[0] - below[1]).max() / own.size
    assert gap < np.sqrt(np.log(2e9) / own.size)


def test_constants_are_restored():
  network = _sequential(
    _layers.Dense(3, bias_initializer=_initializers.Constant(0.25)),
    _layers.LayerNormalization(),
  )
  _, bias, gamma, beta = _redrawn(_spoilt(network))
  np.testing.assert_array_equal(bias, 0.25 * np.ones(3))
  np.testing.assert_array_equal(gamma, np.ones(3))
  np.testing.assert_array_equal(beta, np.zeros(3))


def test_a_trained_network_is_forgotten():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(200, 60)).astype("float32")
  network = models.mlp((60,), 3, hidden=(200,))
  network.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(True))
  network.fit(x, rng.integers(0, 3, 200), epochs=3, verbose=0)
  trained = _flat(network)
  models.redraw(network, _key())
  assert abs(np.corrcoef(trained, _flat(network))[0, 1]) < 0.05
  assert not network.layers[1].bias.numpy().any()


def test_types_of_weights_are_kept():
  layer = _layers.Dense(3, dtype=tf.keras.mixed_precision.Policy("float16"))
  mixed = _layers.Dense(
    3, dtype=tf.keras.mixed_precision.Policy("mixed_float16")
  )
  network = _sequential(layer, mixed)
  weights = _redrawn(_spoilt(network))
  assert [w.dtype for w in weights] == ["float16"] * 2 + ["float32"] * 2
  assert 0 < np.abs(weights[0]).max() < 1


# Kinds of layers.


class _Trunk(tf.keras.Model):
  """No get_config; all weights are those of its layers."""

  def __init__(self, first, units):
    super().__init__()
    self.first = first
    self.others = [_layers.Dense(units), _layers.Dense(units)]

  def call(self, x):
    for layer in (self.first, *self.others):
      x = layer(x)
    return x


class _Block(_layers.Layer):
  """Inner layers that are built when they are called."""

  def __init__(self, inner):
    super().__init__()
    self.inner = inner

  def call(self, x):
    return x + self.inner(x)


def _subclassed():
  network = _Trunk(_layers.Dense(4), 3)
  network(np.zeros([2, 6], "float32"))
  return network


def _nested():
  inner = _sequential(_layers.Dense(4, "relu"), _layers.Dense(4), shape=(4,))
  inputs = tf.keras.Input((6,))
  hidden = inner(_layers.Dense(4)(inputs))
  outputs = _layers.Dense(3)(_layers.Concatenate()([hidden, inputs]))
  return tf.keras.Model(inputs, outputs)


def _shared():
  inputs = tf.keras.Input((6,))
  layer = _layers.Dense(6)
  return tf.keras.Model(inputs, _layers.Dense(3)(layer(layer(inputs))))


def _attention():
  inputs = tf.keras.Input((5, 4))
  return tf.keras.Model(
    inputs, _layers.MultiHeadAttention(2, 3)(inputs, inputs)
  )


def _without_input():
  network = tf.keras.Sequential([_layers.Dense(4), _layers.Dense(3)])
  network(np.zeros([2, 6], "float32"))
  return network


_NETWORKS = {
  "subclassed": _subclassed,
  "nested": _nested,
  "shared": _shared,
  "attention": _attention,
  "without_input": _without_input,
  "block": lambda: _sequential(_Block(_layers.Dense(6))),
  "lstm": lambda: _sequential(_layers.LSTM(3), shape=(5, 4)),
  "gru": lambda: _sequential(
    _layers.RNN([_layers.GRUCell(3), _layers.LSTMCell(2)]), shape=(5, 4)
  ),
  "bidirectional": lambda: _sequential(
    _layers.Bidirectional(_layers.LSTM(3)), shape=(5, 4)
  ),
  "time_distributed": lambda: _sequential(
    _layers.TimeDistributed(_layers.Conv1D(3, 2)), shape=(5, 4, 2)
  ),
  "separable": lambda: _sequential(_layers.SeparableConv1D(3, 2), shape=(5, 4)),
  "embedding": lambda: _sequential(
    _layers.Embedding(9, 3), _layers.GlobalMaxPooling1D(), shape=(5,)
  ),
  "batch_normalization": lambda: _sequential(
    _layers.Dense(3), _layers.BatchNormalization()
  ),
}


@pytest.mark.parametrize("name", _NETWORKS)
def test_every_kind_of_layer_is_redrawn(name):
  network = _NETWORKS[name]()
  keras = network.get_weights()
  for weight in network.trainable_weights:
    weight.assign(weight + 3)
  found = _redrawn(network)
  _equal(_redrawn(_NETWORKS[name]()), found)
  for own, other in zip(found, keras):
    assert own.shape == other.shape
    constant = not np.ptp(other) or np.unique(other).size == 2  # LSTM's bias
    assert np.array_equal(own, other) == constant
    if not constant:  # the same law, roughly
      assert own.std() < 3 * other.std()
      assert other.std() < 3 * own.std()
  matrices = [w.ravel() for w in found if np.unique(w).size > 2]
  assert len(np.unique(np.concatenate(matrices))) == sum(map(len, matrices))
  assert models.signs_of_training(network) is None


def test_layers_of_ours_are_redrawn():
  network = _sequential(
    privrob_layers.RandomFourierFeatures(20, seed=3),
    adlm_sound.FeatureScaling(),
    privrob_layers.LaplaceNoise(0.1, fixed=False, seed=5),
    weight_normalization.NormalizedDense(4),
  )
  start = network.get_weights()
  features, scaling, noise = network.layers[:3]
  features.phases.assign(features.phases + 1)
  scaling.factors.assign(scaling.factors / 2)
  network(np.zeros([1, 6], "float32"))
  assert int(noise.calls) == 1
  _redrawn(network)
  for layer in (features, scaling, noise):
    for weight in layer.weights:
      same = [w for w in start if w.shape == tuple(weight.shape)]
      assert any(np.array_equal(w, weight) for w in same), weight.name


def _by_name(name, seed=None):
  settings = {}
  if name.startswith(("wide", "yale", "fashion")):
    settings["scale"] = 2
  if name.startswith("wide"):
    settings["units"] = 1
  if name == "vgg_cifar10":
    settings["width"] = 4
  channels = 3 if "cifar" in name else 1
  return models.by_name(name, (16, 16, channels), 4, seed, **settings)


# Of families that have a small one, too.
_LARGE = (
  "dpal_cifar10",
  "fashion_mnist_cnn_",
  "ibp_large",
  "ibp_medium",
  "vgg_",
  "wide_",
  "yale_cnn_",
)


def all_networks():
  for name in models.NAMES:
    marks = [pytest.mark.slow] if name.startswith(_LARGE) else []
    yield pytest.param(name, _by_name, marks=marks)
  for name in models.DENOISERS:
    yield name, lambda n, seed=None: models.denoiser_by_name(n, (8, 8, 1), seed)


def _constants(weights):
  return [w for w in weights if w.size > 1 and not np.ptp(w)]


@pytest.mark.parametrize(("name", "build"), all_networks())
def test_our_networks_are_redrawn_as_they_are_built(name, build):
  network = build(name)
  fixed = _constants(network.get_weights())
  for weight in network.trainable_weights:
    weight.assign(weight + 1)
  assert models.signs_of_training(network) is not None
  found = _redrawn(network)
  assert models.signs_of_training(network) is None
  _equal(_constants(found), fixed)
  _equal(_redrawn(build(name)), found)
  assert any((a != b).any() for a, b in zip(found, _redrawn(network, 2)))


def test_a_denoiser_redrawn_is_still_the_identity():
  denoiser = models.convolutional_denoiser((8, 8, 2))
  for weight in denoiser.weights:
    weight.assign(weight + 1)
  models.redraw(denoiser, _key())
  x = np.random.default_rng(0).random((3, 8, 8, 2), np.float32)
  np.testing.assert_allclose(denoiser(x), x, atol=1e-6)
  kernel = denoiser.get_layer("denoiser_first").kernel.numpy()
  assert np.unique(kernel[..., 2:]).size == kernel[..., 2:].size


def test_biases_of_diffai_are_redrawn_uniformly():
  network = models.by_name("yale_cnn_diffai", (16, 16, 1), 5)
  _redrawn(_spoilt(network))
  for layer in network.layers:
    if layer.weights:
      limit = np.prod(layer.kernel.shape[:-1]) ** -0.5
      assert 0.3 * limit < np.abs(layer.bias).max() <= limit
      norm = np.linalg.norm(layer.direction)
      assert float(layer.length) == pytest.approx(norm, rel=1e-5)


# Refusals.


class _Stubborn(_layers.Layer):
  """Needs an argument that its configuration does not tell."""

  def __init__(self, weights):
    super().__init__()
    self.own = self.add_weight("own", weights.shape, initializer="normal")

  def call(self, x):
    return x * self.own


class _Late(_layers.Layer):
  """Makes its weight when it is called."""

  def build(self, shape):
    self.own = None
    super().build(shape)

  def call(self, x):
    if self.own is None:
      self.own = self.add_weight("own", x.shape[1:])
    return x * self.own


class _Sharing(_layers.Dense):
  """Gives every copy the weights of the first."""

  kept = None

  def build(self, shape):
    if _Sharing.kept is None:
      super().build(shape)
      _Sharing.kept = self.kernel, self.bias
    self.kernel, self.bias = _Sharing.kept
    self.built = True


class _Owner(_Trunk):
  """A model with a weight of its own, and no get_config."""

  def __init__(self, first, units):
    super().__init__(first, units)
    self.scale = tf.Variable(2.0)

  def call(self, x):
    return self.scale * super().call(x)


def owner():
  network = _Owner(_layers.Dense(4), 3)
  network(np.zeros([2, 6], "float32"))
  return network


def _frozen(layer):
  layer.trainable = False
  return _sequential(layer, _layers.Dense(3))


def _with_moving_averages():
  network = _sequential(_layers.BatchNormalization(), _layers.Dense(3))
  network(np.ones([4, 6], "float32"), training=True)
  return network


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (lambda: _sequential(_Stubborn(np.zeros(6))), "layer 'private__stubborn"),
    (lambda: _sequential(_Late()), r"_Late does not allow it .trainable_weigh"),
    (lambda: _sequential(_Sharing(2)), "shares its weights"),
    (owner, r"_Owner does not allow it"),
    (
      lambda: _sequential(
        _layers.Dense(
          2, kernel_initializer=_initializers.Constant(np.ones([6, 2]))
        )
      ),
      "holds an array of initial values",
    ),
    (lambda: _frozen(_layers.Dense(4, name="base")), "'base'.*frozen weight"),
    (_with_moving_averages, "frozen weight 'batch_norm.*/moving_"),
    (
      lambda: _sequential(privrob_layers.LaplaceNoise(1.0, seed=3)),
      "frozen weight 'laplace_noise.*/noise",
    ),
  ],
)
def test_refusals_name_the_layer_and_change_nothing(build, message):
  network = build()
  before = network.get_weights()
  with pytest.raises(ValueError, match=message) as error:
    models.redraw(network, _key())
  text = str(error.value)
  assert "public_weights='why they do not depend on the private data'" in text
  assert "\n" not in text
  _equal(network.get_weights(), before)


def test_layers_before_a_refused_one_stay_as_they_are():
  network = _sequential(_layers.Dense(6), _Late())
  before = network.get_weights()
  with pytest.raises(ValueError, match="_Late"):
    models.redraw(network, _key())
  _equal(network.get_weights(), before)


def test_a_network_without_weights_is_refused():
  with pytest.raises(ValueError, match="not built yet"):
    models.redraw(tf.keras.Sequential([_layers.Dense(3)]), _key())


def test_what_the_caller_froze_is_redrawn_if_it_says_so():
  first = _layers.Dense(4)
  network = _spoilt(_frozen(first))
  _redrawn(network, redrawn_anyway=[first])
  assert np.abs(_flat(network)).max() < 2
  assert not first.trainable
  nested = _sequential(_spoilt(_frozen(_layers.Dense(4))))
  _redrawn(nested, redrawn_anyway=[nested.layers[0]])
  assert np.abs(_flat(nested)).max() < 2


def test_public_parts_are_kept():
  classifier = _spoilt(models.mlp((8, 8, 1), 3))
  network = models.denoised_classifier(
    _spoilt(models.smooth_denoiser((8, 8, 1))), classifier
  )
  kept = models.classifier_of(network)
  _redrawn(network, kept=[kept])
  _equal(kept.get_weights(), classifier.get_weights())
  assert np.abs(_flat(models.denoiser_of(network))).max() < 2


def test_frozen_weights_that_are_as_drawn_are_no_loss():
  seeded = _layers.Dense(4, kernel_initializer=_initializers.HeNormal(3))
  network = _frozen(seeded)
  before = seeded.get_weights()
  _redrawn(network)
  _equal(seeded.get_weights(), before)


# Nothing of the key stays.


def _numbers(tree):
  if isinstance(tree, dict):
    tree = list(tree.values())
  if isinstance(tree, (list, tuple)):
    return {n for part in tree for n in _numbers(part)}
  return {tree} if isinstance(tree, int) else set()


def test_network_and_file_know_nothing_of_the_key(tmp_path):
  network = models.tutorial_cnn()
  before = json.dumps(network.get_config(), default=str)
  _redrawn(network)
  assert json.dumps(network.get_config(), default=str) == before
  network.save(tmp_path / "x.keras")
  with zipfile.ZipFile(tmp_path / "x.keras") as archive:
    description = json.loads(archive.read("config.json"))
  assert max(_numbers(description)) < 1000  # sizes and shapes
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  assert models.signs_of_training(loaded) is None


def test_files_do_not_tell_a_networks_seed(tmp_path):
  seed = 123456
  network = models.tutorial_cnn(seed=seed)
  network.save(tmp_path / "x.keras")
  with zipfile.ZipFile(tmp_path / "x.keras") as archive:
    numbers = _numbers(json.loads(archive.read("config.json")))
  told = [n for n in numbers if n >= 1000]
  assert len(told) == 4  # one a layer with weights
  assert not any(str(seed) in str(n) for n in told)
  assert max(told) < 2**31
  for builder in (models.linear, models.random_features_linear):
    config = builder((6,), 3, seed=seed).get_config()
    assert seed not in _numbers(config)
  assert _numbers(models.linear((6,), 3).get_config()) <= {0, 1, 3, 6}
