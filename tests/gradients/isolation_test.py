"""Networks that are known to act row by row, and those that are not."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import layers
from tf_privrob import models
from tf_privrob.papers.adlm import sound as adlm_sound

_layers = tf.keras.layers


def _sequential(*parts, shape=(6, 6, 2)):
  return tf.keras.Sequential([_layers.Input(shape), *parts])


def _functional(function, shape=(6, 4), **settings):
  inputs = tf.keras.Input(shape, **settings)
  return tf.keras.Model(inputs, function(inputs))


def _two_states(inputs):
  output, state = _layers.GRU(3, return_sequences=True, return_state=True)(
    inputs
  )
  return _layers.Concatenate()([_layers.Flatten()(output), state])


def _attention(inputs):
  return _layers.MultiHeadAttention(2, 3)(inputs, inputs, use_causal_mask=True)


_ROW_WISE = {
  "convolutions": lambda: _sequential(
    _layers.Conv2D(4, 3, activation="relu"),
    _layers.MaxPooling2D(2),
    _layers.SeparableConv2D(3, 2, activation=tf.nn.relu),
    _layers.Flatten(),
    _layers.Dropout(0.5),
    _layers.Dense(3, activation="softmax"),
  ),
  "normalised": lambda: _sequential(
    _layers.LayerNormalization([1, 2, 3]),
    _layers.GroupNormalization(2),
    _layers.UnitNormalization(-1),
    _layers.Softmax(),
    _layers.BatchNormalization(trainable=False),
  ),
  "ours": lambda: _sequential(
    layers.NormalizedConv2D(3, 2, activation="relu"),
    layers.BoundedActivation(1.0),
    layers.LaplaceNoise(0.1),
    adlm_sound.FeatureScaling(),
    layers.Scattering(),
    _layers.Flatten(),
    layers.RandomFourierFeatures(5),
    layers.Temperature(2.0),
  ),
  "activation_layer": lambda: _sequential(
    _layers.Dense(3, activation=_layers.LeakyReLU())
  ),
  "operators": lambda: _functional(
    lambda x: tf.nn.relu(2.0 * x - tf.tanh(x)) / 3 + x**2
  ),
  "merged": lambda: _functional(
    lambda x: _layers.Add()([x, _layers.Dense(4)(x), _layers.ReLU()(x)])
  ),
  "states": lambda: _functional(_two_states),
  "bidirectional": lambda: _functional(_layers.Bidirectional(_layers.LSTM(3))),
  "stacked": lambda: _functional(
    _layers.RNN([_layers.LSTMCell(3), _layers.GRUCell(2)])
  ),
  "time_distributed": lambda: _functional(
    _layers.TimeDistributed(_layers.Dense(2))
  ),
  "nested": lambda: _functional(
    _layers.TimeDistributed(_sequential(_layers.Dense(3), shape=(4,)))
  ),
  "attention": lambda: _functional(_attention),
  "dot": lambda: _functional(lambda x: _layers.Dot(axes=2)([x, x])),
  "words": lambda: _functional(_layers.Embedding(9, 3), (5,), dtype="int32"),
}


class _Dense(_layers.Dense):
  """May do anything."""


class _Bounded(layers.BoundedActivation):
  """Inherits `row_wise`, which is no statement about itself."""

  def call(self, inputs):
    return super().call(inputs - tf.reduce_mean(inputs, 0))


class _Model(tf.keras.Model):
  """May do anything."""


def _overridden():
  network = _sequential(_layers.Dense(3, name="late"))
  network.layers[0].call = lambda x: x - tf.reduce_mean(x, 0)
  return network


def _centred(x):
  return x - tf.reduce_mean(x, 0, keepdims=True)


def _constant_input():
  inputs = tf.keras.Input((4,))
  return tf.keras.Model(inputs, _layers.Add()([inputs, tf.ones([3, 4])]))


_UNKNOWN = {
  "lambda": (
    lambda: _sequential(_layers.Lambda(_centred, name="mean")),
    "Lambda",
  ),
  "activation": (
    lambda: _sequential(_layers.Dense(3, _centred)),
    "an activation",
  ),
  "activation_alone": (
    lambda: _sequential(_layers.Activation(_centred)),
    "activation",
  ),
  "recurrent_activation": (
    lambda: _functional(_layers.GRU(3, recurrent_activation=_centred)),
    "recurrent activation",
  ),
  "subclass": (lambda: _sequential(_Dense(3)), "_Dense"),
  "subclass_of_ours": (lambda: _sequential(_Bounded()), "_Bounded"),
  "model": (lambda: _Model(), "_Model"),
  "replaced": (lambda: _overridden(), "'late', whose call"),
  "batch_normalisation": (
    lambda: _sequential(_layers.BatchNormalization()),
    "BatchNormalization",
  ),
  "standardised": (
    lambda: _sequential(layers.BatchStandardization()),
    "BatchStandardization",
  ),
  "softmax_over_batch": (lambda: _sequential(_layers.Softmax(0)), "Softmax"),
  "softmax_over_batch_2": (lambda: _sequential(_layers.Softmax(-4)), "Softmax"),
  "layer_norm_over_batch": (
    lambda: _sequential(
      _layers.LayerNormalization([0, 1], center=False, scale=False)
    ),
    "LayerNormalization",
  ),
  "unit_norm_over_batch": (
    lambda: _sequential(_layers.UnitNormalization(0)),
    "UnitNormalization",
  ),
  "concatenated_rows": (
    lambda: _functional(lambda x: _layers.Concatenate(0)([x, x])),
    "Concatenate",
  ),
  "stateful": (
    lambda: _functional(_layers.GRU(3, stateful=True), batch_size=2),
    "fixed batch",
  ),
  "custom_cell": (
    lambda: _functional(_layers.RNN(_layers.GRUCell(3, activation=_centred))),
    "GRUCell",
  ),
  # Attention between two-dimensional inputs is attention between examples.
  "attention_between_rows": (
    lambda: _functional(lambda x: _layers.Attention()([x, x]), (4,)),
    "Attention",
  ),
  # A mask of [batch, steps] may be broadcast against other axes.
  "masked": (
    lambda: _functional(
      _layers.Embedding(9, 3, mask_zero=True), (5,), dtype="int32"
    ),
    "Embedding",
  ),
  "transposed": (
    lambda: _functional(lambda x: tf.transpose(x, [1, 0, 2])),
    "tf",
  ),
  "reduced": (
    lambda: _functional(lambda x: x - tf.reduce_mean(x, 0)),
    "reduce_mean",
  ),
  "reshaped": (
    lambda: _functional(lambda x: tf.reshape(x, [-1, 2])),
    "reshape",
  ),
  "sliced": (lambda: _functional(lambda x: x[:1] + x), "getitem|slice"),
  "ranks": (
    lambda: _functional(lambda x: x + _layers.GlobalMaxPooling1D()(x)),
    "several or unknown ranks",
  ),
  "constant": (lambda: _constant_input(), "further arguments|constant"),
  "constant_operand": (
    lambda: _functional(lambda x: x * tf.ones([3, 1, 1])),
    "constant tensor",
  ),
  "time_distributed": (
    lambda: _functional(_layers.TimeDistributed(_layers.Dense(2, _centred))),
    "activation",
  ),
  "nested": (
    lambda: _sequential(
      _sequential(_layers.Lambda(_centred)), _layers.Dense(2)
    ),
    "Lambda",
  ),
  "regularised": (
    lambda: _sequential(_layers.Dense(2, activity_regularizer="l2")),
    "activity",
  ),
}


@pytest.mark.parametrize("name", _ROW_WISE)
def test_known_networks(name):
  network = _ROW_WISE[name]()
  assert gradients.not_row_wise(network) is None
  # The words are kept: other rows change nothing.
  shape = (3, *network.input_shape[1:])
  rng = np.random.default_rng(0)
  a, b = rng.integers(1, 9, (2, *shape))
  b[1] = a[1]
  np.testing.assert_allclose(network(a)[1], network(b)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", _UNKNOWN)
def test_others_are_named(name):
  build, words = _UNKNOWN[name]
  assert re.search(words, gradients.not_row_wise(build()))


def _cooled(network):
  logits = layers.Temperature(2.0)(network.output)
  return tf.keras.Model(network.input, logits)


@pytest.mark.parametrize(
  "network",
  [
    models.tutorial_cnn,
    models.scattering_linear,
    lambda: models.random_features_linear((28, 28, 1), 10),
    lambda: models.smooth_denoiser((8, 8, 1)),
    lambda: models.paper_denoiser((8, 8, 1)),
    lambda: _cooled(models.mlp((28, 28, 1), 10)),
    lambda: models.denoised_classifier(
      models.convolutional_denoiser((28, 28, 1)), models.tutorial_cnn()
    ),
  ],
)
def test_the_networks_of_the_house_are_known(network):
  assert gradients.not_row_wise(network()) is None


def test_a_trained_network_is_still_known():
  network = _sequential(_layers.Flatten(), _layers.Dense(2))
  network.compile("sgd", "mse")
  network.fit(np.ones([4, 6, 6, 2]), np.ones([4, 2]), verbose=0)
  network.predict(np.ones([4, 6, 6, 2]), verbose=0)
  assert gradients.not_row_wise(network) is None


def test_row_by_row_is_the_network_where_it_is_known():
  network = _ROW_WISE["convolutions"]()
  x = np.random.default_rng(1).normal(size=(3, 6, 6, 2)).astype("float32")
  np.testing.assert_array_equal(gradients.row_by_row(network)(x), network(x))


@pytest.mark.parametrize("in_graph", [False, True])
def test_row_by_row_isolates_whatever_the_network_does(in_graph):
  """Before, a Lambda's batch mean moved the features of all others."""
  network = _sequential(_layers.Lambda(_centred), _layers.Flatten())
  function = gradients.row_by_row(network)
  function = tf.function(function) if in_graph else function
  a, b = np.random.default_rng(2).normal(size=(2, 5, 6, 6, 2)).astype("float32")
  b[3] = a[3]
  np.testing.assert_array_equal(function(a)[3], function(b)[3])
  np.testing.assert_array_equal(function(a), np.zeros([5, 72]))
  assert np.abs(network(a)[3] - network(b)[3]).max() > 0.1


def test_row_by_row_of_a_recurrent_network():
  network = _functional(lambda x: _layers.GRU(3)(_layers.Lambda(_centred)(x)))
  x = np.random.default_rng(3).normal(size=(3, 6, 4)).astype("float32")
  expected = tf.concat([network(x[i : i + 1]) for i in range(3)], 0)
  found = gradients.row_by_row(network)(tf.constant(x))
  np.testing.assert_allclose(found, expected, atol=1e-6)


# Engines: what one example is changes nobody else's part.


def _hidden_mean(x):
  return x + tf.stop_gradient(tf.reduce_mean(x, 0, keepdims=True))


def _threshold(x):
  return tf.where(tf.reduce_mean(x) > 0.5, x, -3 * x)


def _one_hot_mean(x):
  best = tf.one_hot(tf.argmax(x, axis=1), x.shape[1])
  return x * (1 + tf.reduce_mean(best, 0, keepdims=True))


_MIXING = {
  "mean": _centred,
  "stop_gradient": _hidden_mean,
  "threshold": _threshold,
  "one_hot": _one_hot_mean,
}


def _mixed_network(name, head="glorot_uniform"):
  tf.keras.utils.set_random_seed(1)
  return tf.keras.Sequential(
    [
      _layers.Input((6,)),
      _layers.Dense(5, activation="relu", name="first"),
      _layers.Lambda(_MIXING[name], name="mixing"),
      _layers.Dense(3, kernel_initializer=head, name="head"),
    ]
  )


def _plain_network(head="glorot_uniform"):
  tf.keras.utils.set_random_seed(1)
  return _sequential(
    _layers.Dense(5, activation="relu"),
    _layers.Dense(3, kernel_initializer=head),
    shape=(6,),
  )


def _cross_entropy(network, mix=None):
  def loss(batch, seed):
    del seed
    x, y = batch
    x = x if mix is None else mix(x)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      y, network(x, training=True)
    )

  return loss


def _examples(count=8, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.uniform(0, 1, (count, 6)).astype("float32")
  return tf.constant(x), tf.constant(rng.permutation(count) % 3)


def _part_of(clipped, batch, row):
  mask = tf.one_hot(row, batch[0].shape[0])
  return clipped(batch, mask).gradients


@pytest.mark.parametrize("name", _MIXING)
@pytest.mark.parametrize("engine", [None, "vectorized", "loop"])
def test_engines_that_isolate_whatever_the_network_does(name, engine):
  """Before, engine=None took "ghost": one example moved the sum by 57 C."""
  network = _mixed_network(name)
  clipped = gradients.ClippedGradients(
    _cross_entropy(network), network, 0.1, engine
  )
  assert clipped.engine == (engine or "vectorized")
  a, b = _examples(), _examples(seed=1)
  others = [tf.concat([t[:3], s[3:4], t[4:]], 0) for s, t in zip(a, b)]
  for one, other in zip(_part_of(clipped, a, 3), _part_of(clipped, others, 3)):
    np.testing.assert_allclose(one, other, atol=1e-8)
  clipped.check(a)


@pytest.mark.parametrize(
  "recurrent",
  [
    lambda: _layers.SimpleRNN(3, activation=_layers.Softmax(axis=-2)),
    lambda: _layers.LSTM(3, recurrent_activation=_layers.Softmax(axis=0)),
    lambda: _layers.GRU(3, recurrent_activation=_layers.Softmax(axis=-2)),
    lambda: _layers.Bidirectional(
      _layers.SimpleRNN(3, activation=_layers.Softmax(axis=-2))
    ),
    lambda: _layers.RNN(
      [
        _layers.SimpleRNNCell(3),
        _layers.GRUCell(3, recurrent_activation=_layers.Softmax(axis=-2)),
      ]
    ),
  ],
)
def test_activations_of_cells_mix_no_examples(recurrent):
  """A layer as activation was looked at with the rank of a sequence, or not."""
  network = tf.keras.Sequential(
    [_layers.Input((6,)), _layers.Reshape((2, 3)), recurrent()]
  )
  assert re.search("Softmax", gradients.not_row_wise(network))
  clipped = gradients.ClippedGradients(
    _cross_entropy(network), network, 0.1, "loop"
  )
  a, b = _examples(), _examples(seed=1)
  others = [tf.concat([t[:3], s[3:4], t[4:]], 0) for s, t in zip(a, b)]
  for one, other in zip(_part_of(clipped, a, 3), _part_of(clipped, others, 3)):
    np.testing.assert_allclose(one, other, atol=1e-8)


@pytest.mark.parametrize("name", _MIXING)
def test_ghost_is_refused_for_a_network_that_is_not_known(name):
  """Before, all of them trained with a proven figure."""
  network = _mixed_network(name)
  with pytest.raises(ValueError, match=r"Lambda 'mixing'.*engine=None"):
    gradients.ClippedGradients(_cross_entropy(network), network, 0.1, "ghost")


@pytest.mark.parametrize("head", ["glorot_uniform", "zeros"])
@pytest.mark.parametrize("name", _MIXING)
def test_check_finds_networks_that_were_vouched_for(name, head):
  """Before, accepted: derivatives, and weights as they were, show nothing."""
  network = _mixed_network(name, head)
  clipped = gradients.ClippedGradients(
    _cross_entropy(network), network, 0.1, "ghost", assume_row_wise=True
  )
  before = [variable.numpy() for variable in network.variables]
  with pytest.raises(ValueError, match="stands alone"):
    clipped.check(_examples(3))
  for variable, value in zip(network.variables, before):
    np.testing.assert_array_equal(variable, value)


@pytest.mark.parametrize("head", ["glorot_uniform", "zeros"])
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", _MIXING)
def test_check_finds_losses_that_mix(name, jit_compile, head):
  network = _plain_network(head)
  clipped = gradients.ClippedGradients(
    _cross_entropy(network, _MIXING[name]),
    network,
    0.1,
    jit_compile=jit_compile,
  )
  assert clipped.engine == "ghost"
  with pytest.raises(ValueError, match="stands alone"):
    clipped.check(_examples(3))


def _labels_mixed(network):
  def loss(batch, seed):
    losses = _cross_entropy(network)(batch, seed)
    return losses * (1 + tf.cast(tf.reduce_max(batch[1]) > 1, tf.float32))

  return loss


def _next_row(network):
  def loss(batch, seed):
    losses = _cross_entropy(network)(batch, seed)
    return losses + tf.stop_gradient(tf.roll(losses, 1, 0)) * losses

  return loss


def _only_large(network):
  def loss(batch, seed):
    losses = _cross_entropy(network)(batch, seed)
    if batch[0].shape[0] < 16:
      return losses
    return losses * tf.stop_gradient(1 + tf.reduce_mean(losses))

  return loss


@pytest.mark.parametrize("mixing", [_labels_mixed, _next_row, _only_large])
def test_check_finds_other_ways_to_mix(mixing):
  """By labels, by one neighbour, and in large batches only."""
  network = _plain_network()
  clipped = gradients.ClippedGradients(mixing(network), network, 0.1)
  with pytest.raises(ValueError, match="stands alone"):
    clipped.check(_examples(3))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_check_accepts_dropout_and_leaves_the_weights(jit_compile):
  """Draws differ from pass to pass; they are the same for the comparison."""
  network = _sequential(
    _layers.Dense(5, activation="relu"),
    _layers.Dropout(0.5),
    _layers.GaussianNoise(0.1),
    _layers.Dense(3),
    shape=(6,),
  )
  clipped = gradients.ClippedGradients(
    _cross_entropy(network), network, 0.1, jit_compile=jit_compile
  )
  assert clipped.engine == "ghost"
  before = [variable.numpy() for variable in network.variables]
  clipped.check(_examples(3), sizes=(5, 16, 40))
  for variable, value in zip(network.variables, before):
    np.testing.assert_array_equal(variable, value)
  first, again, other = (
    clipped(_examples(), seed=tf.constant([1, seed])).gradients[0]
    for seed in (2, 2, 3)
  )
  np.testing.assert_array_equal(first, again)
  assert np.abs(first - other).max() > 1e-6  # it follows the seed of the pass


def test_check_refuses_randomness_that_follows_no_seed():
  network = _plain_network()
  clipped = gradients.ClippedGradients(
    _cross_entropy(network, lambda x: x + tf.random.normal(x.shape)),
    network,
    0.1,
  )
  with pytest.raises(ValueError, match="draws at random by itself"):
    clipped.check(_examples(3))


# State.


class _Keeper(_layers.Layer):
  """Publishes its last input with the model."""

  def build(self, shape):
    self.kept = self.add_weight(
      "kept", shape[1:], initializer="zeros", trainable=False
    )

  def call(self, inputs):
    self.kept.assign(inputs[0])
    return inputs


class _Hidden(_layers.Layer):
  """Keeps it where Keras does not look, and in eager mode only."""

  def build(self, shape):
    object.__setattr__(self, "hidden", {"x": tf.Variable(tf.zeros(shape[1:]))})

  def call(self, inputs):
    if tf.executing_eagerly():
      self.hidden["x"].assign(inputs[0])
    return inputs


class _Backward(_layers.Layer):
  """Writes while gradients are computed."""

  def build(self, shape):
    self.kept = self.add_weight(
      "kept", shape[1:], initializer="zeros", trainable=False
    )

  def call(self, inputs):
    @tf.custom_gradient
    def function(x):
      def gradient(delta):
        self.kept.assign(delta[0])
        return delta

      return tf.identity(x), gradient

    return function(inputs)


def _printing(x):
  tf.print(x)
  return x


def _python(**settings):
  def call(x):
    y = tf.numpy_function(lambda a: a, [x], tf.float32, **settings)
    return tf.ensure_shape(y, x.shape)

  return _layers.Lambda(call)


_WRITING = {
  "weight": (lambda: _Keeper(name="keeper"), "AssignVariableOp.*keeper"),
  "hidden": (_Hidden, "changes"),
  "backward": (_Backward, "AssignVariableOp"),
  "python": (_python, "PyFunc"),
  "python_stateless": (lambda: _python(stateful=False), "PyFuncStateless"),
  "print": (lambda: _layers.Lambda(_printing), "PrintV2"),
  "counter": (
    lambda: layers.GaussianNoise(0.1, fixed=False),
    "AssignAddVariableOp",
  ),
}


@pytest.mark.parametrize("engine", gradients.ENGINES)
@pytest.mark.parametrize("name", _WRITING)
def test_state_that_is_written_is_refused(name, engine):
  """Before, accepted by every engine; the model file held the example."""
  build, words = _WRITING[name]
  layer = build()
  network = _sequential(_layers.Dense(6), layer, _layers.Dense(3), shape=(6,))
  clipped = gradients.ClippedGradients(
    _cross_entropy(network), network, 0.1, engine, assume_row_wise=True
  )
  with pytest.raises(ValueError, match=words):
    clipped.check(_examples(3))
  hidden = vars(layer).get("hidden", {})
  held = [*network.non_trainable_variables, *hidden.values()]
  assert not any(np.any(variable.numpy()) for variable in held)


def test_state_written_inside_a_condition_is_refused():
  kept = tf.Variable(tf.zeros([6]), trainable=False)
  network = _plain_network()

  def loss(batch, seed):
    x = batch[0]
    tf.cond(x[0, 0] > 2, lambda: kept.assign(x[0]), lambda: kept + 0)
    return _cross_entropy(network)(batch, seed)

  clipped = gradients.ClippedGradients(loss, network, 0.1)
  with pytest.raises(ValueError, match="AssignVariableOp"):
    clipped.check(_examples(3))


@pytest.mark.parametrize("engine", [None, *gradients.ENGINES])
@pytest.mark.parametrize(
  "kind",
  [
    _layers.BatchNormalization,
    _layers.experimental.SyncBatchNormalization,
    tf.compat.v1.keras.layers.BatchNormalization,
    type("Mine", (_layers.BatchNormalization,), {}),
  ],
)
def test_every_batch_normalisation_is_refused(kind, engine):
  """Before, SyncBatchNormalization passed "vectorized" and "loop"."""
  network = _sequential(_layers.Dense(3), kind(name="bn"), shape=(6,))
  with pytest.raises(ValueError, match=r"'bn'.*GroupNormalization"):
    gradients.ClippedGradients(_cross_entropy(network), network, 1.0, engine)


def test_a_stateful_recurrent_layer_is_refused():
  network = tf.keras.Sequential(
    [
      _layers.Input((5, 4), batch_size=3),
      _layers.GRU(3, stateful=True, name="memory"),
    ]
  )
  with pytest.raises(ValueError, match=r"'memory' with stateful=True"):
    gradients.ClippedGradients(_cross_entropy(network), network, 1.0, "loop")


def test_refuse_state_of_any_function():
  network = _sequential(_Keeper(), _layers.Dense(3), shape=(6,))
  with pytest.raises(ValueError, match="AssignVariableOp"):
    gradients.refuse_state(
      network, network, (tf.ones([2, 6]),), (tf.ones([2, 6]),)
    )
  plain = _plain_network()
  gradients.refuse_state(plain, plain, (tf.ones([2, 6]),), (tf.ones([2, 6]),))
