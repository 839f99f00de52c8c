"""The transformation matrix against the definition, by hand and by loop."""

import numpy as np
import pytest
import tensorflow as tf

from tests.gradients import loops
from tf_privrob import papers

_layers = tf.keras.layers


# By hand.


def test_linear_denoiser_in_closed_form():
  """g(z) = z K + b: dK_jk: 2 (d_jq r_k + K_qk z_j), db_k: 2 K_qk."""
  model = loops.chain((3,), _layers.Dense(3))
  kernel, bias = (w.astype("float64") for w in model.get_weights())
  x = loops.random((2, 3)).astype("float32").astype("float64")
  expected = []
  for row in x:
    rest = row @ kernel + bias - row
    by_kernel = 2 * (
      np.einsum("jq,k->jkq", np.eye(3), rest)
      + np.einsum("qk,j->jkq", kernel, row)
    )
    expected.append(np.concatenate([by_kernel.reshape(9, 3), 2 * kernel.T]))
  transformation = papers.PerturbationTransformation(model, [model.weights])
  found = transformation.gram(x, [[2.0], [0.5]])
  by_hand = 4 * expected[0] @ expected[0].T + expected[1] @ expected[1].T / 4
  loops.assert_same(found, [by_hand])


def test_remainder_of_a_linear_denoiser_is_a_square():
  """L is quadratic in z, so o = |b K|^2 >= 0 exactly."""
  model = loops.double(loops.chain((5,), _layers.Dense(5)))
  x, noise = loops.random((7, 5)), loops.random((7, 5), 1, -1.0)
  found = papers.taylor_remainder(model, x, x + noise)
  expected = ((noise @ model.get_weights()[0]) ** 2).sum(1)
  np.testing.assert_allclose(found, expected, rtol=1e-12)
  assert found.shape == [7]
  in_graph = tf.function(papers.taylor_remainder)(model, x, x + noise)
  np.testing.assert_allclose(in_graph, found, rtol=1e-12)


def test_remainder_keeps_the_target_fixed():
  """A target that moved with x would add 2 b^T (g(x) - x)."""
  model = loops.double(loops.chain((5,), _layers.Dense(5, "tanh")))
  x, noise = loops.random((7, 5)), loops.random((7, 5), 1, -1.0)
  image = tf.constant(x)
  with tf.GradientTape() as tape:
    tape.watch(image)
    loss = tf.reduce_sum((model(image) - image) ** 2, 1)
  moving = (tape.gradient(loss, image) * noise).numpy().sum(1)
  at_z = ((model(x + noise) - x).numpy() ** 2).sum(1)
  wrong = at_z - loss.numpy() - moving
  extra = 2 * (noise * (model(x) - x).numpy()).sum(1)
  found = papers.taylor_remainder(model, x, x + noise)
  np.testing.assert_allclose(found, wrong - extra, rtol=1e-9)
  assert np.abs(extra).min() > 1e-3


def test_the_transformation_keeps_the_target_fixed():
  """A target that moved with x would add -2 dg/dtheta to every A."""
  model = loops.chain((4,), _layers.Dense(3, "tanh"), _layers.Dense(4))
  x = loops.random((1, 4))
  fixed, moving = loops.naive(model, x), loops.naive(model, x, fixed=False)
  copy = loops.double(model)
  with tf.GradientTape() as tape:
    output = copy(tf.constant(x))[0]
  jacobian = tape.jacobian(output, copy.trainable_variables)
  jacobian = np.concatenate([np.reshape(j, [4, -1]) for j in jacobian], 1)
  np.testing.assert_allclose(moving[0], fixed[0] - 2 * jacobian.T, atol=1e-12)
  transformation = papers.PerturbationTransformation(model, [model.weights])
  loops.assert_same(transformation.gram(x, [[1.0]]), [fixed[0] @ fixed[0].T])


# Parity with the loop.


def _nested():
  inner = loops.chain((6,), _layers.Dense(5, "tanh"), _layers.Dense(4, "tanh"))
  return loops.chain((6,), inner, _layers.Dense(6))


def _shared():
  inputs = _layers.Input((6,))
  layer = _layers.Dense(6, "tanh")
  outputs = _layers.Dense(6)(layer(layer(inputs)))
  return loops.filled(tf.keras.Model(inputs, outputs))


_MODELS = {
  "dense": lambda: loops.chain(
    (6,), _layers.Dense(4, "tanh"), _layers.Dense(5, "tanh"), _layers.Dense(6)
  ),
  "dense_skip": lambda: loops.chain(
    (6,), _layers.Dense(4, "softplus"), _layers.Dense(6), skip=True
  ),
  "dense_on_positions": lambda: loops.chain(
    (3, 2), _layers.Dense(4, "tanh"), _layers.Dense(2, use_bias=False)
  ),
  "conv_skip": lambda: loops.chain(
    (3, 4, 2),
    _layers.Conv2D(3, 3, padding="same", activation="tanh"),
    _layers.Conv2D(2, (2, 3), padding="same"),
    skip=True,
  ),
  "conv_transpose": lambda: loops.chain(
    (4, 4, 1),
    _layers.Conv2D(3, 3, 2, "same", activation="tanh"),
    _layers.Conv2DTranspose(2, 2, 1, "valid", activation="tanh"),
    _layers.Conv2D(2, 2, 1, "valid", activation="tanh"),
    _layers.Conv2DTranspose(1, 3, 2, "same"),
  ),
  "layer_norm": lambda: loops.chain(
    (4, 4, 1),
    _layers.Conv2D(3, 3, padding="same"),
    _layers.LayerNormalization(),
    _layers.Activation("tanh"),
    _layers.Conv2D(1, 3, padding="same"),
  ),
  "group_norm": lambda: loops.chain(
    (4, 4, 1),
    _layers.Conv2D(4, 3, padding="same"),
    _layers.GroupNormalization(2),
    _layers.Activation("softplus"),
    _layers.Conv2D(1, 3, padding="same"),
  ),
  "relu_dropout_pool": lambda: loops.chain(
    (4, 4, 1),
    _layers.Conv2D(3, 3, padding="same", activation="relu"),
    _layers.Dropout(0.5),
    _layers.MaxPooling2D(2, 1),
    _layers.DepthwiseConv2D(2, padding="same", activation="tanh"),
    _layers.Conv2DTranspose(1, 2),
  ),
  "few": lambda: loops.chain(
    (4, 4, 1), _layers.Conv2D(1, 3, padding="same", activation="tanh")
  ),
  "no_rule": lambda: loops.chain(
    (4, 4, 1),
    _layers.SeparableConv2D(3, 3, padding="same", activation="tanh"),
    _layers.PReLU(),
    _layers.Conv2D(1, 3, padding="same"),
  ),
  "nested": _nested,
  "shared": _shared,
}


@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=pytest.mark.slow if name == "layer_norm" else ())
    for name in _MODELS
  ],
)
def test_gram_equals_loop(name):
  model = _MODELS[name]()
  x = loops.random((4, *model.input_shape[1:])).astype("float32")
  variables = model.trainable_variables
  # Second derivatives of Keras' norms are wrong (tf.nn.moments).
  normed = name.endswith("norm")
  naive, by_layer = (
    (loops.by_differences if normed else loops.naive)(model, x),
    {},
  )
  for variable in variables:
    by_layer.setdefault(variable.name.split("/")[0], []).append(variable)
  for slices in ([variables[::-1]], list(by_layer.values())):
    coefficients = loops.random((4, len(slices)), 3)
    coefficients[1] = 0
    coefficients[2, -1] = 0
    expected = loops.expected(model, naive, slices, coefficients)
    transformation = papers.PerturbationTransformation(model, slices)
    found = transformation.gram(x, coefficients)
    loops.assert_same(found, expected, 1e-8 if normed else 1e-12)


@pytest.mark.parametrize("name", ["conv_skip", "dense"])
@pytest.mark.parametrize("max_elements", [300])
def test_chunks_do_not_change_the_result(name, max_elements):
  model = _MODELS[name]()
  x = loops.random((6, *model.input_shape[1:]))
  slices = [model.weights[:2], model.weights[2:]]
  coefficients = loops.random((6, 2), 3)
  whole = papers.PerturbationTransformation(model, slices)
  chunks = papers.PerturbationTransformation(
    model, slices, max_elements=max_elements
  )
  loops.assert_same(chunks.gram(x, coefficients), whole.gram(x, coefficients))


def test_all_ways_and_the_code_are_taken():
  """The parity above covers each of them: the choice is seen here."""

  def modes(name, slices):
    model = _MODELS[name]()
    made = papers.PerturbationTransformation(model, slices(model.weights))
    return [(g.slices, g.how, g.path.width) for g in made.groups()]

  halves = modes("dense", lambda w: [w[:2], w[2:]])
  assert halves == [((0,), "columns", 6), ((1,), "columns", 4)]
  local = modes("conv_skip", lambda w: [w[:2], w[2:]])
  assert local == [((0, 1), "windows", 24)]
  small = modes("layer_norm", lambda w: [w[:2], w[2:]])
  assert small == [((0, 1), "columns", 16)]
  assert modes("few", lambda w: [w]) == [((0,), "windows", 16)]
  assert modes("no_rule", lambda w: [w]) == [((0,), "rows", 16)]


def test_in_graph_equals_eager_and_sees_new_weights():
  model = _MODELS["conv_skip"]()
  slices = [model.weights[:2], model.weights[2:]]
  x = loops.random((4, 3, 4, 2))
  coefficients = tf.ones([4, 2])
  transformation = papers.PerturbationTransformation(model, slices)
  gram = tf.function(transformation.gram)
  smallest = tf.function(transformation.smallest)
  for seed in (5, 6):
    loops.filled(model, seed)
    eager = transformation.gram(x, coefficients)
    loops.assert_same(gram(x, coefficients), eager)
    naive = loops.naive(model, x)
    loops.assert_same(
      eager, loops.expected(model, naive, slices, np.ones([4, 2]))
    )
    expected = transformation.smallest(x, coefficients)
    np.testing.assert_allclose(smallest(x, coefficients), expected, rtol=1e-9)
    for matrix, value in zip(eager, expected.numpy()):
      least = np.linalg.svd(matrix.numpy(), compute_uv=False)[-1]
      assert value == pytest.approx(least, rel=1e-6)
      assert value > 0


def test_an_example_left_out_may_be_anything():
  model = _MODELS["dense"]()
  x = loops.random((4, 6))
  x[2] = np.nan
  transformation = papers.PerturbationTransformation(model, [model.weights])
  found = transformation.gram(x, [[1.0], [1.0], [0.0], [1.0]])
  rest = transformation.gram(x[[0, 1, 3]], np.ones([3, 1]))
  loops.assert_same(found, rest)


def test_upsampling_can_be_differentiated_twice():
  """TensorFlow has no second derivative of its nearest neighbours."""

  def repeat(x):
    return tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)

  inputs = _layers.Input((4, 4, 1))
  code = _layers.Conv2D(2, 3, 2, "same", activation="tanh")
  last = _layers.Conv2D(1, 3, padding="same")
  model = tf.keras.Model(inputs, last(_layers.UpSampling2D(2)(code(inputs))))
  plain = tf.keras.Model(inputs, last(repeat(code(inputs))))
  loops.filled(model)
  x, ones = loops.random((3, 4, 4, 1)), np.ones([3, 1])
  made = papers.PerturbationTransformation(model, [model.weights])
  naive = loops.naive(plain, x)
  loops.assert_same(
    made.gram(x, ones), loops.expected(plain, naive, [plain.weights], ones)
  )


# Known spectra (v = 36, code of 6, 24 examples, random weights).


def _autoencoder(activation, seed, norm=False):
  inputs = _layers.Input((36,))
  hidden = _layers.Dense(6, None if norm else activation)(inputs)
  if norm:
    hidden = _layers.LayerNormalization()(hidden)
    hidden = _layers.Activation(activation)(hidden)
  model = tf.keras.Model(inputs, _layers.Dense(36)(hidden))
  return loops.filled(model, 10 * seed)


def _spectrum(model, slices, count=24):
  made = papers.PerturbationTransformation(model, slices)
  x = loops.random((count, 36), 7)
  coefficients = np.full([count, len(slices)], 1 / count)
  found = [np.linalg.eigvalsh(m) for m in made.gram(x, coefficients)]
  return found, made.smallest(x, coefficients).numpy()


def _zeros(values):
  return int((values <= 10 * len(values) * 2.2e-16 * values[-1]).sum())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tanh_encoder_is_regular_and_its_decoder_has_108_zeros(seed):
  model = _autoencoder("tanh", seed)
  slices = [model.weights[:2], model.weights[2:]]
  (encoder, decoder), smallest = _spectrum(model, slices)
  assert (len(encoder), len(decoder)) == (222, 252)
  assert _zeros(encoder) == 0
  assert _zeros(decoder) == 252 - 6 * 24 == 108
  assert 1e-4 < smallest[0] < 1e-1
  assert smallest[0] == pytest.approx(encoder[0], rel=1e-9)
  assert smallest[1] == 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_layer_norm_leaves_37_zeros(seed):
  model = _autoencoder("tanh", seed, norm=True)
  slices = [model.weights[:2], model.weights[2:]]
  (encoder, _), smallest = _spectrum(model, slices)
  assert _zeros(encoder) == 36 + 1
  assert smallest[0] == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_relu_has_a_null_vector_across_slices_only(seed):
  model = _autoencoder("relu", seed)
  slices = [model.weights[:2], model.weights[2:]]
  assert [papers.structural_proof(model, part) for part in slices] == [
    None,
    None,
  ]
  made = papers.PerturbationTransformation(model, [model.weights])
  (matrix,) = made.gram(loops.random((24, 36), 7), np.ones([24, 1]))
  top = np.linalg.eigvalsh(matrix)[-1]
  w_in, b_in, w_out, _ = model.get_weights()
  for unit in range(6):
    vector = [np.zeros(w.shape) for w in model.get_weights()]
    vector[0][:, unit], vector[1][unit] = w_in[:, unit], b_in[unit]
    vector[2][unit] = -w_out[unit]
    flat = np.concatenate([part.reshape(-1) for part in vector])
    quotient = flat @ matrix.numpy() @ flat / (flat @ flat)
    assert abs(quotient) < 1e-14 * top
    flat[:222] *= 1.1  # not the null vector any more
    if np.abs(flat @ matrix.numpy() @ flat) > 1e-9 * top:
      break
  else:
    pytest.fail("every unit is dead: nothing was shown")
  assert made.proofs[0].kind == "scaling"


# Smallest values.


def test_smallest_takes_the_proofs_first(monkeypatch):
  model = _autoencoder("relu", 1)
  made = papers.PerturbationTransformation(model, [model.weights])
  monkeypatch.setattr(
    type(made), "_chunks", lambda *_: pytest.fail("work was done")
  )
  found = made.smallest(loops.random((24, 36)), np.ones([24, 1]))
  np.testing.assert_array_equal(found, [0.0])


def test_smallest_counts_the_examples_that_are_in():
  model = _autoencoder("tanh", 1)
  slices = [model.weights[:2], model.weights[2:]]
  made = papers.PerturbationTransformation(model, slices)
  x, coefficients = loops.random((24, 36), 7), np.ones([24, 2])
  assert made.smallest(x, coefficients)[0] > 0
  coefficients[6:, 0] = 0  # 6 * 36 = 216 < 222 parameters
  assert made.smallest(x, coefficients)[0] == 0
  # No work was done for it: the images were not even looked at.
  coefficients[6:] = 0
  nothing = made.smallest(np.full_like(x, np.nan), coefficients)
  np.testing.assert_array_equal(nothing, [0, 0])
  coefficients[:, :] = 0
  np.testing.assert_array_equal(made.smallest(x, coefficients), [0, 0])


def test_a_dead_unit_makes_it_zero():
  model = _autoencoder("relu", 1)
  bias = model.weights[1]
  bias.assign(tf.tensor_scatter_nd_update(bias, [[2]], [-100.0]))
  slices = [model.weights[:2], model.weights[2:]]
  (encoder, _), smallest = _spectrum(model, slices)
  assert _zeros(encoder) >= 37
  assert smallest[0] == 0


def test_smallest_singular_value_and_its_floor():
  rng = np.random.default_rng(0)
  basis, _ = np.linalg.qr(rng.normal(size=(50, 50)))

  def value(least):
    values = np.r_[least, np.linspace(0.5, 2.0, 49)]
    return float(papers.smallest_singular_value(basis * values @ basis.T))

  assert value(1e-3) == pytest.approx(1e-3, rel=1e-9)
  assert value(1e-11) == pytest.approx(1e-11, rel=1e-2)
  assert value(1e-13) == 0  # below 10 * 50 * 2.2e-16 * 2 = 2.2e-13
  assert value(0.0) == 0
  assert float(papers.smallest_singular_value(np.zeros([3, 3]))) == 0
  with pytest.raises(tf.errors.InvalidArgumentError, match="diverged"):
    papers.smallest_singular_value([[np.nan]])


# Failure.


def test_a_large_slice_is_refused_unless_it_is_proven_singular():
  model = _autoencoder("tanh", 1)
  slices = [model.weights[:2], model.weights[2:]]
  with pytest.raises(
    ValueError,
    match=r"at most max_slice_size=230 .*slice 1 of 252.*more slices.*raise",
  ):
    papers.PerturbationTransformation(model, slices, max_slice_size=230)
  made = papers.PerturbationTransformation(
    model, slices, max_slice_size=230, max_examples=24
  )
  x, coefficients = loops.random((24, 36), 7), np.ones([24, 2])
  first, second = made.smallest(x, coefficients)
  assert first > 0
  assert second == 0
  with pytest.raises(ValueError, match="slice 1 of 252"):
    made.gram(x, coefficients)
  with pytest.raises(
    ValueError, match=r"at most max_examples=24 .*received 48"
  ):
    made.smallest(np.r_[x, x], np.ones([48, 2]))


def test_slices_are_a_partition():
  model = _autoencoder("tanh", 1)
  a, b, c, d = model.weights
  other = tf.Variable(1.0, name="other")
  for slices, text in [
    ([[a, b], [c]], r"missing: \['dense"),
    ([[a, b], [b, c, d]], r"more than once: \['dense"),
    ([[a, b, c, d, other]], r"Not trainable variables: \['other"),
    ([[a, b, c, d], []], r"empty slices: \[1\]"),
  ]:
    with pytest.raises(ValueError, match=text):
      papers.PerturbationTransformation(model, slices)


def test_unfit_denoisers_and_arguments():
  model = _autoencoder("tanh", 1)
  made = papers.PerturbationTransformation(model, [model.weights])
  with pytest.raises(ValueError, match=r"shape \[B, K\] = \[24, 1\]"):
    made.gram(loops.random((24, 36)), np.ones([24, 2]))
  with pytest.raises(ValueError, match="max_slice_size=0"):
    papers.PerturbationTransformation(model, [model.weights], 0)
  classifier = loops.chain((6,), _layers.Dense(3))
  with pytest.raises(ValueError, match="image of the same shape"):
    papers.PerturbationTransformation(classifier, [classifier.weights])
  batch = loops.chain((6,), _layers.Dense(6), _layers.BatchNormalization())
  with pytest.raises(ValueError, match="BatchNormalization"):
    papers.PerturbationTransformation(batch, [batch.trainable_weights])
  bilinear = loops.chain(
    (4, 4, 1),
    _layers.Conv2D(1, 3, 2, "same"),
    _layers.UpSampling2D(interpolation="bilinear"),
  )
  with pytest.raises(ValueError, match=r"'up_sampling2d.*float32"):
    papers.PerturbationTransformation(bilinear, [bilinear.weights])


class _Centred(_layers.Layer):
  def call(self, inputs):
    mean, variance = tf.nn.moments(inputs, [1], keepdims=True)
    return (inputs - mean) * tf.math.rsqrt(variance + 0.1)


def test_wrong_second_derivatives_are_refused():
  model = loops.chain((6,), _layers.Dense(4), _Centred(), _layers.Dense(6))
  with pytest.raises(ValueError, match=r"second derivatives.*tf\.nn\.moments"):
    papers.PerturbationTransformation(model, [model.weights])


def test_a_weight_used_outside_its_layer_is_refused():
  inputs = _layers.Input((6,))
  first = _layers.Dense(4, "tanh")
  hidden = first(inputs)
  outputs = tf.matmul(hidden, first.kernel, transpose_b=True)
  model = tf.keras.Model(inputs, outputs)
  with pytest.raises(ValueError, match="copied in float64"):
    papers.PerturbationTransformation(model, [model.trainable_weights])
