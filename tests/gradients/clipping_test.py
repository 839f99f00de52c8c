"""Clipped gradients against the definition: one loop, one example at a time."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import layers
from tf_privrob.gradients import factors

_layers = tf.keras.layers
_MARGIN = (
  1 - factors.SMALLEST_MARGIN
)  # what clipping leaves for the rounding of the sum


def _random(shape, seed=0, low=-1.0, high=1.0):
  return np.random.default_rng(seed).uniform(low, high, shape).astype("float32")


def _labels(count, classes=3, seed=1):
  return np.random.default_rng(seed).integers(0, classes, count)


def _network(*layers, shape=(6, 6, 2), classes=3):
  network = tf.keras.Sequential(
    [_layers.Input(shape), *layers, _layers.Flatten(), _layers.Dense(classes)]
  )
  for index, variable in enumerate(network.trainable_variables):
    variable.assign(0.3 * _random(variable.shape, seed=100 + index) + 0.02)
  return network


def _cross_entropy(network):
  def loss(batch, seed):
    del seed
    images, labels = batch
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels, network(images, training=True)
    )

  return loss


def _rows(loss, variables, batch):
  """Each example's gradient and its norm, with no code of the library."""
  batch = tuple(tf.convert_to_tensor(t) for t in batch)
  with tf.GradientTape(persistent=True) as tape:
    values = tf.unstack(loss(batch, None))
  rows = []
  for value in values:
    grads = tape.gradient(
      value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    rows.append([tf.convert_to_tensor(g).numpy().astype("f8") for g in grads])
  norms = [np.sqrt(sum((g**2).sum() for g in grads)) for grads in rows]
  return rows, np.array(norms)


def _clipped_sum(rows, norms, l2_clip_norm):
  """The sum by the definition."""
  factors = [min(1.0, l2_clip_norm / n if n else 1.0) for n in norms]
  parts = zip(*rows)
  return [sum(f * g for f, g in zip(factors, part)) for part in parts]


def _loop(loss, variables, batch, l2_clip_norm):
  """Clipped sum and norms."""
  rows, norms = _rows(loss, variables, batch)
  return _clipped_sum(rows, norms, l2_clip_norm), norms


def _assert_same(found, expected, margin=_MARGIN):
  """Norms are raised by a bound on their rounding, hence the 1e-4."""
  scale = np.sqrt(sum((e**2).sum() for e in expected))
  pairs = [(np.asarray(f) / margin, e) for f, e in zip(found, expected)]
  error = np.sqrt(sum(((f - e) ** 2).sum() for f, e in pairs))
  assert error <= 1e-4 * max(scale, 1e-12), error / scale


_LAYERS = {
  "dense": lambda: [_layers.Flatten(), _layers.Dense(5, "relu")],
  "dense_no_bias": lambda: [_layers.Dense(4, "tanh", use_bias=False)],
  "dense_on_positions": lambda: [_layers.Dense(5, activation="relu")],
  "conv_valid": lambda: [_layers.Conv2D(4, 3, activation="relu")],
  "conv_same": lambda: [_layers.Conv2D(4, 3, padding="same")],
  "conv_stride": lambda: [_layers.Conv2D(4, 3, 2, "same", activation="tanh")],
  "conv_uneven": lambda: [_layers.Conv2D(3, (2, 4), (3, 2), "same")],
  "conv_dilated": lambda: [
    _layers.Conv2D(3, 3, padding="same", dilation_rate=2)
  ],
  "conv_large_patch": lambda: [
    _layers.Conv2D(40, 1, activation="relu"),
    _layers.Conv2D(3, 3, 2, "same"),
  ],
  "conv_large_patch_dilated": lambda: [
    _layers.Conv2D(40, 1),
    _layers.Conv2D(3, (3, 2), padding="same", dilation_rate=(1, 2)),
  ],
  "conv_two_stages": lambda: [_layers.Conv2D(3, 4, 2, "same")],
  "conv_two_stages_uneven": lambda: [_layers.Conv2D(3, (4, 5), (1, 2))],
  "conv_two_stages_dilated": lambda: [
    _layers.Conv2D(9, 1),
    _layers.Conv2D(3, 2, padding="same", dilation_rate=2),
  ],
  "conv_gram": lambda: [_layers.Conv2D(30, 5), _layers.Conv2D(40, 2)],
  "conv_no_bias": lambda: [_layers.Conv2D(4, 3, use_bias=False)],
  "conv_grouped": lambda: [_layers.Conv2D(4, 3, groups=2)],
  "depthwise": lambda: [_layers.DepthwiseConv2D(3, depth_multiplier=2)],
  "depthwise_stride": lambda: [
    _layers.DepthwiseConv2D(3, 2, "same", activation="relu")
  ],
  "layer_norm": lambda: [_layers.LayerNormalization()],
  "layer_norm_axes": lambda: [_layers.LayerNormalization(axis=[1, 2, 3])],
  "group_norm": lambda: [_layers.Conv2D(4, 3), _layers.GroupNormalization(2)],
  "group_norm_shift_only": lambda: [
    _layers.GroupNormalization(groups=-1, scale=False)
  ],
  "weight_normalized": lambda: [
    layers.NormalizedConv2D(3, 2, activation="relu"),
    layers.NormalizedDense(4),
  ],
  "transposed": lambda: [_layers.Conv2DTranspose(3, 2, activation="relu")],
  "transposed_stride": lambda: [
    _layers.Conv2DTranspose(4, 3, 2, "same", activation="tanh")
  ],
  "transposed_uneven": lambda: [
    _layers.Conv2DTranspose(3, (4, 2), (2, 3), use_bias=False)
  ],
  "transposed_small_kernel": lambda: [
    _layers.Conv2DTranspose(3, (1, 2), 3, "same")
  ],
  "transposed_gram": lambda: [
    _layers.Conv2D(30, 5),
    _layers.Conv2DTranspose(40, 2),
  ],
  "transposed_padded": lambda: [
    _layers.Conv2DTranspose(3, 3, 2, output_padding=1)
  ],
  "transposed_padded_same": lambda: [
    _layers.Conv2DTranspose(3, 3, 2, "same", output_padding=(0, 1))
  ],
  "transposed_dilated_same": lambda: [
    _layers.Conv2DTranspose(3, 3, padding="same", dilation_rate=2)
  ],
  "transposed_dilated": lambda: [
    _layers.Conv2DTranspose(3, 2, dilation_rate=2)
  ],
  "separable": lambda: [_layers.SeparableConv2D(3, 3)],
  "prelu": lambda: [_layers.PReLU()],
  "recurrent": lambda: [_layers.Reshape((6, 12)), _layers.GRU(3)],
  "attention": lambda: [_layers.Reshape((6, 12)), _SelfAttention()],
}


class _SelfAttention(_layers.Layer):
  def __init__(self):
    super().__init__()
    self.attention = _layers.MultiHeadAttention(num_heads=2, key_dim=3)

  def call(self, inputs):
    return self.attention(inputs, inputs)


@pytest.mark.parametrize("name", _LAYERS)
def test_ghost_equals_loop_for_every_layer(name):
  network = _network(*_LAYERS[name]())
  loss = _cross_entropy(network)
  batch = (_random((5, 6, 6, 2)), _labels(5))
  rows, expected_norms = _rows(loss, network.trainable_variables, batch)
  clip = np.sort(expected_norms)[1:3].mean()  # clips some examples, not all
  expected = _clipped_sum(rows, expected_norms, clip)
  clipped = gradients.ClippedGradients(
    loss, network, clip, "ghost", assume_row_wise=name == "attention"
  )
  result = tf.function(clipped)(tuple(map(tf.constant, batch)))
  _assert_same(result.gradients, expected)
  norms = clipped.norms(tuple(map(tf.constant, batch))).numpy()
  np.testing.assert_allclose(norms, expected_norms, rtol=2e-4)
  assert (norms >= (1 - 1e-6) * expected_norms).all()
  assert int(result.clipped) == (expected_norms > clip).sum() == 3
  clipped.check(tuple(map(tf.constant, batch)), sizes=[4])


@pytest.mark.parametrize("engine", ["vectorized", "loop"])
def test_other_engines_equal_loop(engine):
  network = _network(_layers.Conv2D(4, 3, activation="relu"))
  loss = _cross_entropy(network)
  batch = (_random((4, 6, 6, 2)), _labels(4))
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.5)
  clipped = gradients.ClippedGradients(loss, network, 0.5, engine)
  _assert_same(clipped(tuple(map(tf.constant, batch))).gradients, expected)


def test_compiled_by_xla_equals_loop():
  network = _network(_layers.Conv2D(4, 3, activation="relu"))
  loss = _cross_entropy(network)
  batch = (_random((4, 6, 6, 2)), _labels(4))
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.5)
  clipped = gradients.ClippedGradients(loss, network, 0.5, jit_compile=True)
  batch = tuple(map(tf.constant, batch))
  _assert_same(clipped(batch).gradients, expected)
  clipped.check(batch, sizes=[3])


def test_layer_shared_within_the_network():
  shared = _layers.Dense(4, "tanh")
  inputs = tf.keras.Input((4,))
  outputs = _layers.Dense(3)(shared(shared(inputs)))
  network = tf.keras.Model(inputs, outputs)
  loss = _cross_entropy(network)
  batch = (_random((5, 4), low=-3, high=3), _labels(5))
  expected, norms = _loop(loss, network.trainable_variables, batch, 0.3)
  clipped = gradients.ClippedGradients(loss, network, 0.3)
  _assert_same(clipped(tuple(map(tf.constant, batch))).gradients, expected)
  np.testing.assert_allclose(
    clipped.norms(tuple(map(tf.constant, batch))), norms, rtol=1e-4
  )


class _TiedDecoder(_layers.Layer):
  """x -> W x -> W^T W x: one variable, used by two layers."""

  def __init__(self):
    super().__init__()
    self.encoder = _layers.Dense(3, use_bias=False)

  def build(self, shape):
    self.encoder.build(shape)

  def call(self, inputs):
    return tf.matmul(
      self.encoder(inputs), self.encoder.kernel, transpose_b=True
    )


def test_variable_used_outside_its_layer_is_caught_by_check():
  network = tf.keras.Sequential([_layers.Input((4,)), _TiedDecoder()])
  loss = _cross_entropy(network)
  batch = (tf.constant(_random((4, 4))), tf.constant(_labels(4)))
  ghost = gradients.ClippedGradients(
    loss, network, 0.3, "ghost", assume_row_wise=True
  )
  with pytest.raises(ValueError, match="stands alone"):
    ghost.check(batch)
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.3)
  slow = gradients.ClippedGradients(loss, network, 0.3, "vectorized")
  _assert_same(slow(batch).gradients, expected)


def test_terms_of_one_example_are_one_gradient():
  network = _network(_layers.Conv2D(3, 3, activation="relu"))

  def loss(batch, seed):
    del seed
    images, labels = batch
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    clean = entropy(labels, network(images))
    return clean + 0.5 * entropy(labels, network(tf.sin(7.0 * images)))

  batch = (_random((4, 6, 6, 2)), _labels(4))
  expected, norms = _loop(loss, network.trainable_variables, batch, 0.2)
  clipped = gradients.ClippedGradients(loss, network, 0.2)
  batch = tuple(map(tf.constant, batch))
  _assert_same(clipped(batch).gradients, expected)
  np.testing.assert_allclose(clipped.norms(batch), norms, rtol=1e-4)
  clipped.check(batch)


def _copies(network, join):
  def loss(batch, seed):
    del seed
    images, labels = batch
    count, copies = len(images), join(images)
    noise = tf.random.stateless_uniform(copies.shape, [9, 9], -1.0)
    logits = network(copies * noise)
    if join is _repeat:
      logits = tf.reshape(logits, [count, 2, 3])
    else:
      logits = tf.transpose(tf.reshape(logits, [2, count, 3]), [1, 0, 2])
    labels = tf.stack([labels, labels], 1)
    return tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits), 1
    )

  return loss


def _repeat(images):
  return tf.repeat(images, 2, axis=0)


def _concat(images):
  return tf.concat([images, images], 0)


def test_neighbouring_copies_are_one_gradient():
  network = _network(_layers.Conv2D(3, 3), _layers.GroupNormalization(3))
  loss = _copies(network, _repeat)
  batch = (_random((4, 6, 6, 2)), _labels(4))
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.2)
  clipped = gradients.ClippedGradients(loss, network, 0.2)
  batch = tuple(map(tf.constant, batch))
  _assert_same(clipped(batch).gradients, expected)
  clipped.check(batch)


def test_concatenated_copies_are_caught_by_check():
  network = _network(_layers.Conv2D(3, 3))
  loss = _copies(network, _concat)
  clipped = gradients.ClippedGradients(loss, network, 0.2)
  batch = (tf.constant(_random((4, 6, 6, 2))), tf.constant(_labels(4)))
  with pytest.raises(ValueError, match=r"tf\.concat, not tf\.repeat"):
    clipped.check(batch)


def _centred_inputs(network, batch):
  images = batch[0] - tf.reduce_mean(batch[0], 0, keepdims=True)
  return tf.nn.sparse_softmax_cross_entropy_with_logits(
    batch[1], network(images)
  )


def _neighbour_added(network, batch):
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    batch[1], network(batch[0])
  )
  return losses + tf.reverse(losses, [0])


@pytest.mark.parametrize("mixing", [_centred_inputs, _neighbour_added])
def test_loss_that_mixes_the_batch_is_caught_by_check(mixing):
  network = _network(_layers.Dense(3))
  batch = (tf.constant(_random((4, 6, 6, 2))), tf.constant(_labels(4)))
  clipped = gradients.ClippedGradients(
    lambda batch, seed: mixing(network, batch), network, 1.0
  )
  with pytest.raises(ValueError, match="stands alone"):
    clipped.check(batch)


def test_attack_inside_the_loss_is_not_counted():
  network = _network(_layers.Dense(3, "tanh"))

  def loss(batch, seed):
    del seed
    images, labels = batch
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    def step(index, x):
      with tf.GradientTape() as tape:
        tape.watch(x)
        value = entropy(labels, network(x))
      return index + 1, x + 0.1 * tf.sign(tape.gradient(value, x))

    _, adversarial = tf.while_loop(
      lambda index, _: index < 3, step, (tf.constant(0), images)
    )
    return entropy(labels, network(tf.stop_gradient(adversarial)))

  batch = (_random((4, 6, 6, 2)), _labels(4))
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.2)
  clipped = gradients.ClippedGradients(loss, network, 0.2)
  batch = tuple(map(tf.constant, batch))
  _assert_same(tf.function(clipped)(batch).gradients, expected)


def test_masked_rows_add_nothing():
  network = _network(_layers.Conv2D(3, 3))
  loss = _cross_entropy(network)
  images, labels = _random((6, 6, 6, 2)), _labels(6)
  mask = np.array([1, 0, 1, 1, 0, 0], "float32")
  clipped = gradients.ClippedGradients(loss, network, 0.2)
  full = clipped((tf.constant(images), tf.constant(labels)), mask)
  kept = mask > 0
  alone = clipped((tf.constant(images[kept]), tf.constant(labels[kept])))
  _assert_same(full.gradients, [g.numpy() for g in alone.gradients], margin=1)
  assert float(full.count) == 3
  np.testing.assert_allclose(full.loss, alone.loss, rtol=1e-5)


def test_empty_batch_is_exactly_zero():
  network = _network(_layers.Conv2D(3, 3))
  clipped = gradients.ClippedGradients(_cross_entropy(network), network, 0.2)
  batch = (tf.zeros([4, 6, 6, 2]), tf.zeros([4], tf.int64))
  result = clipped(batch, tf.zeros([4]))
  assert all(not g.numpy().any() for g in result.gradients)
  assert float(result.count) == 0


def test_chunks_equal_one_batch_and_trace_once():
  network = _network(_layers.Conv2D(3, 3))
  clipped = gradients.ClippedGradients(_cross_entropy(network), network, 0.2)
  traces = []

  @tf.function(
    input_signature=[
      tf.TensorSpec([None, 4, 6, 6, 2]),
      tf.TensorSpec([None, 4], tf.int64),
      tf.TensorSpec([None, 4]),
    ]
  )
  def step(images, labels, mask):
    traces.append(1)
    return clipped.over_chunks((images, labels), mask)

  for chunks in (1, 3):
    images, labels = _random((4 * chunks, 6, 6, 2)), _labels(4 * chunks)
    expected, _ = _loop(
      _cross_entropy(network),
      network.trainable_variables,
      (images, labels),
      0.2,
    )
    result = step(
      images.reshape(chunks, 4, 6, 6, 2),
      labels.reshape(chunks, 4),
      np.ones([chunks, 4], "float32"),
    )
    _assert_same(result.gradients, expected)
  assert len(traces) == 1


def _linear(scale):
  """Loss whose gradient is scale * x: norms are known by hand."""
  network = tf.keras.Sequential(
    [_layers.Input((4,)), _layers.Dense(1, use_bias=False)]
  )

  def loss(batch, seed):
    del seed
    return scale * network(batch[0])[:, 0]

  return loss, network


@pytest.mark.parametrize("engine", gradients.ENGINES)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e15])
def test_zero_and_huge_gradients(engine, scale):
  loss, network = _linear(scale)
  clipped = gradients.ClippedGradients(loss, network, 0.5, engine)
  x = np.eye(4, dtype="float32")[:2] * 3
  result = clipped((tf.constant(x),))
  length = _MARGIN * min(3 * scale, 0.5)
  np.testing.assert_allclose(
    result.gradients[0][:, 0], [length, length, 0, 0], rtol=1e-3
  )


@pytest.mark.parametrize("seed", range(5))
def test_sensitivity_on_neighbouring_batches(seed):
  """Law: |sum(D) - sum(D')| <= sensitivity, tight for long gradients."""
  network = _network(_layers.Conv2D(4, 3, activation="relu"))
  clipped = gradients.ClippedGradients(_cross_entropy(network), network, 0.01)
  images = tf.constant(_random((6, 6, 6, 2), seed))
  labels = tf.constant(_labels(6, seed=seed))
  ones = np.ones(6, "float32")
  without = ones.copy()
  without[seed] = 0

  def distance(a, b):
    return float(
      tf.linalg.global_norm([f - g for f, g in zip(a.gradients, b.gradients)])
    )

  everything = clipped((images, labels), ones)
  removed = clipped((images, labels), without)
  bound = clipped.sensitivity("add_or_remove_one")
  assert 0.99 * bound <= distance(everything, removed) <= bound
  other = tf.tensor_scatter_nd_update(images, [[seed]], [-3 * images[seed]])
  replaced = clipped((other, labels), ones)
  bound = clipped.sensitivity("replace_one")
  assert distance(everything, replaced) <= bound * (1 + 1e-6)
  assert bound == 0.02


def test_gram_route_never_underestimates_under_cancellation():
  """Positions that nearly cancel: float32 Gram sums are off by more than C."""
  rng = np.random.default_rng(0)
  a = rng.normal(size=(8, 1, 40)).astype("float32") * 100
  d = rng.normal(size=(8, 1, 40)).astype("float32") * 100
  inputs = np.concatenate([a, a * (1 + 1e-5)], 1).astype("float32")
  deltas = np.concatenate([d, -d], 1)
  exact = np.sqrt(
    (
      np.einsum("btp,btq->bpq", inputs.astype("f8"), deltas.astype("f8")) ** 2
    ).sum((1, 2))
  )
  factor = factors.OuterProduct(
    tf.constant(inputs), tf.constant(deltas), (40, 40)
  )
  found = np.sqrt(factor.squared_norms())
  assert (found >= exact).all()


class _Trunk(tf.keras.Model):
  """A weight that belongs to the model itself, not to a layer."""

  def __init__(self):
    super().__init__()
    self.head = _layers.Dense(3)
    self.scale = self.add_weight("scale", [4], initializer="ones")

  def call(self, inputs):
    return self.head(inputs * self.scale)


def test_user_model_with_weights_of_its_own():
  network = _Trunk()
  network(tf.zeros([1, 4]))
  loss = _cross_entropy(network)
  batch = (_random((5, 4)), _labels(5))
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.3)
  clipped = gradients.ClippedGradients(loss, network, 0.3)
  _assert_same(clipped(tuple(map(tf.constant, batch))).gradients, expected)


def test_frozen_layers_are_left_out():
  network = _network(_layers.Conv2D(3, 3), _layers.Dense(4))
  network.layers[0].trainable = False
  loss = _cross_entropy(network)
  batch = (_random((4, 6, 6, 2)), _labels(4))
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.3)
  clipped = gradients.ClippedGradients(loss, network, 0.3)
  result = clipped(tuple(map(tf.constant, batch)))
  assert len(result.gradients) == len(network.trainable_variables) == 4
  _assert_same(result.gradients, expected)


def test_the_network_is_left_as_it_was():
  network = _network(_layers.Conv2D(3, 3, activation="relu"))
  before = network(_random((2, 6, 6, 2))).numpy()
  clipped = gradients.ClippedGradients(_cross_entropy(network), network, 1.0)
  clipped((tf.constant(_random((2, 6, 6, 2))), tf.constant(_labels(2))))
  assert network.layers[0].activation is tf.keras.activations.relu
  assert "call" not in vars(network.layers[0])
  np.testing.assert_array_equal(network(_random((2, 6, 6, 2))), before)


def test_batch_normalization_is_refused_with_the_replacement():
  network = _network(_layers.BatchNormalization(name="bn"))
  with pytest.raises(ValueError, match=r"'bn'.*GroupNormalization"):
    gradients.ClippedGradients(_cross_entropy(network), network, 1.0)
  network.get_layer("bn").trainable = False
  gradients.ClippedGradients(_cross_entropy(network), network, 1.0)


def test_scalar_loss_is_refused():
  network = _network()
  clipped = gradients.ClippedGradients(
    lambda batch, seed: tf.reduce_mean(network(batch[0])), network, 1.0
  )
  with pytest.raises(ValueError, match=r"shape \[4\], received shape \(\)"):
    clipped((tf.zeros([4, 6, 6, 2]),))


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"l2_clip_norm": 0.0}, r"l2_clip_norm=0\.0 > 0"),
    ({"l2_clip_norm": 1.0, "engine": "gost"}, "Did you mean 'ghost'"),
  ],
)
def test_bad_arguments(arguments, message):
  network = _network()
  with pytest.raises(ValueError, match=message):
    gradients.ClippedGradients(_cross_entropy(network), network, **arguments)


def test_network_without_weights_is_refused():
  network = tf.keras.Sequential([_layers.Input((4,)), _layers.Flatten()])
  with pytest.raises(ValueError, match="trainable weights"):
    gradients.ClippedGradients(_cross_entropy(network), network, 1.0)


def test_another_precision_is_refused():
  """Before, float16 was a raw error, and TensorFloat-32 was not looked at."""
  network = tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(2)])
  double = tf.keras.Sequential(
    [_layers.Input((4,), dtype="float64"), _layers.Dense(2, dtype="float64")]
  )
  with pytest.raises(ValueError, match=r"kernel:0' in float64"):
    gradients.ClippedGradients(_cross_entropy(double), double, 1.0)
  clipped = gradients.ClippedGradients(
    lambda batch, seed: tf.cast(network(batch[0])[:, 0], tf.float16),
    network,
    1.0,
  )
  with pytest.raises(ValueError, match="losses in float32, received float16"):
    clipped((tf.ones([3, 4]),))


def test_mixed_precision_equals_the_loop():
  network = tf.keras.Sequential(
    [_layers.Input((4,)), _layers.Dense(3, dtype="mixed_bfloat16")]
  )

  def loss(batch, seed):
    del seed
    logits = tf.cast(network(batch[0]), tf.float32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], logits)

  batch = (tf.constant(_random((5, 4))), tf.constant(_labels(5)))
  expected, _ = _loop(loss, network.trainable_variables, batch, 0.3)
  found = gradients.ClippedGradients(loss, network, 0.3)(batch).gradients
  for one, other in zip(found, expected):
    np.testing.assert_allclose(one, other, atol=0.02)


def test_tensor_float_32_is_refused(monkeypatch):
  monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
  network = _network()
  with pytest.raises(ValueError, match="TensorFloat-32"):
    gradients.ClippedGradients(_cross_entropy(network), network, 1.0)
  tf.config.experimental.enable_tensor_float_32_execution(False)
  try:
    gradients.ClippedGradients(_cross_entropy(network), network, 1.0)
  finally:
    tf.config.experimental.enable_tensor_float_32_execution(True)
