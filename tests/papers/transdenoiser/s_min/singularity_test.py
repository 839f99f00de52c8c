"""Proofs of singularity: each is confirmed by numbers, none is wrong."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import papers
from tf_privrob.papers.transdenoiser.s_min import double

_layers = tf.keras.layers


def _random(shape, seed=0, low=0.0, high=1.0):
  return np.random.default_rng(seed).uniform(low, high, shape)


def _chain(shape, *layers):
  inputs = outputs = _layers.Input(shape)
  for layer in layers:
    outputs = layer(outputs)
  return tf.keras.Model(inputs, outputs)


def _filled(model, seed=50):
  for index, variable in enumerate(model.weights):
    fan_in = np.prod(variable.shape[:-1]) if variable.shape.rank > 1 else 4
    bound = np.sqrt(3 / fan_in)
    variable.assign(_random(variable.shape, seed + index, -bound, bound) + 0.02)
  return model


def _slope_along(model, proof, count=6):
  """max_i |<u, grad l(x_i)>| / (|u| |grad l(x_i)|) over random images."""
  twin = double.in_double_precision(model)
  twin.set_weights(model.get_weights())
  twin_of = {a.ref(): b for a, b in zip(model.weights, twin.weights)}
  direction = {
    twin_of[variable.ref()].ref(): tf.cast(tensor, tf.float64)
    for variable, tensor in proof.direction()
  }
  worst = 0.0
  for x in _random((count, 1, *model.input_shape[1:]), 9):
    target = _random((1, *model.output_shape[1:]), 8)
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum((twin(x) - target) ** 2)
    found = tape.gradient(loss, twin.trainable_variables)
    products = [
      tf.reduce_sum(direction[v.ref()] * gradient)
      for v, gradient in zip(twin.trainable_variables, found)
      if v.ref() in direction
    ]
    scale = tf.linalg.global_norm(found)
    scale *= tf.linalg.global_norm(list(direction.values()))
    worst = max(worst, abs(float(tf.add_n(products) / scale)))
  return worst


def _conv(filters, size=3, activation=None, **kwargs):
  return _layers.Conv2D(
    filters, size, padding="same", activation=activation, **kwargs
  )


_IMAGE = (4, 4, 2)
# Layers, the slice (indices of trainable variables), the proof's kind and
# nullity.
_PROVEN = {
  "dense_norm": (
    ((6,), _layers.Dense(4), _layers.LayerNormalization(), _layers.Dense(6)),
    [0, 1],
    ("normalisation", 7),
  ),
  "dense_norm_no_bias": (
    (
      (6,),
      _layers.Dense(4, use_bias=False),
      _layers.LayerNormalization(center=False, scale=False),
      _layers.Dense(6),
    ),
    [0],
    ("normalisation", 6),
  ),
  "bias_alone": (
    ((6,), _layers.Dense(4), _layers.LayerNormalization(), _layers.Dense(6)),
    [1],
    ("normalisation", 1),
  ),
  "conv_norm": (
    (_IMAGE, _conv(3), _layers.LayerNormalization(), _conv(2)),
    [0, 1],
    ("normalisation", 19),
  ),
  "conv_norm_over_all": (
    (_IMAGE, _conv(3), _layers.LayerNormalization(axis=[1, 2, 3]), _conv(2)),
    [0, 1],
    ("normalisation", 1),
  ),
  "conv_norm_over_positions": (
    (_IMAGE, _conv(3), _layers.LayerNormalization(axis=[1, 2]), _conv(2)),
    [0, 1],
    ("normalisation", 1),
  ),
  "grouped_conv_norm": (
    (_IMAGE, _conv(4, groups=2), _layers.LayerNormalization(), _conv(2)),
    [0, 1],
    ("normalisation", 1),
  ),
  "transposed_norm": (
    (
      _IMAGE,
      _layers.Conv2DTranspose(3, 3, padding="same"),
      _layers.LayerNormalization(),
      _conv(2),
    ),
    [0, 1],
    ("normalisation", 19),
  ),
  "group_norm": (
    (_IMAGE, _conv(4), _layers.GroupNormalization(2), _conv(2)),
    [0, 1],
    ("normalisation", 1),
  ),
  "relu": (
    ((6,), _layers.Dense(4, "relu"), _layers.Dense(6)),
    [0, 1, 2],
    ("scaling", 1),
  ),
  "linear": (
    ((6,), _layers.Dense(4), _layers.Dense(6, "tanh")),
    [0, 1, 2, 3],
    ("scaling", 1),
  ),
  "leaky_layer": (
    ((6,), _layers.Dense(4), _layers.LeakyReLU(0.2), _layers.Dense(6)),
    [0, 1, 2],
    ("scaling", 1),
  ),
  "conv_pool_up": (
    (
      _IMAGE,
      _conv(3),
      _layers.ReLU(),
      _layers.MaxPooling2D(),
      _layers.Dropout(0.3),
      _layers.UpSampling2D(),
      _layers.Conv2DTranspose(2, 3, padding="same"),
    ),
    [0, 1, 2],
    ("scaling", 1),
  ),
  "norm_to_conv": (
    (
      _IMAGE,
      _conv(3),
      _layers.LayerNormalization(),
      _layers.Activation("relu"),
      _conv(2),
    ),
    [2, 3, 4],
    ("scaling", 1),
  ),
  "flatten": (
    (
      _IMAGE,
      _conv(2, activation="relu"),
      _layers.Flatten(),
      _layers.Dense(5, "tanh"),
      _layers.Dense(32),
      _layers.Reshape(_IMAGE),
    ),
    [0, 1, 2],
    ("scaling", 1),
  ),
}


@pytest.mark.parametrize("name", _PROVEN)
def test_every_proof_is_confirmed(name):
  architecture, indices, (kind, nullity) = _PROVEN[name]
  model = _filled(_chain(*architecture))
  part = [model.trainable_variables[index] for index in indices]
  proof = papers.structural_proof(model, part)
  assert (proof.kind, proof.nullity) == (kind, nullity)
  assert "'" in proof.text  # names layers
  assert _slope_along(model, proof) < 1e-13


@pytest.mark.parametrize(
  "name", ["dense_norm", "conv_norm", "conv_norm_over_all", "relu", "flatten"]
)
def test_the_matrix_has_the_proven_zeros(name):
  architecture, indices, (_, nullity) = _PROVEN[name]
  model = _filled(_chain(*architecture))
  variables = model.trainable_variables
  part = [variables[index] for index in indices]
  rest = [v for v in variables if all(v is not other for other in part)]
  slices = [part, rest] if rest else [part]
  made = papers.PerturbationTransformation(model, slices)
  x, ones = _random((16, *model.input_shape[1:])), np.ones([16, len(slices)])
  values = np.linalg.eigvalsh(made.gram(x, ones)[0])
  assert (values < 1e-12 * values[-1]).sum() >= nullity
  assert made.smallest(x, ones)[0] == 0


def _shared_affine():
  layer = _layers.Dense(6, "relu")
  return _chain((6,), layer, layer, _layers.Dense(6))


def _two_readers():
  inputs = _layers.Input((6,))
  hidden = _layers.Dense(6)(inputs)
  normed = _layers.LayerNormalization()(hidden)
  return tf.keras.Model(inputs, _layers.Add()([normed, hidden]))


def _nested():
  inner = _chain((6,), _layers.Dense(4, "relu"), _layers.Dense(4, "tanh"))
  return _chain((6,), inner, _layers.Dense(6))


def _skip_around_the_second():
  inputs = _layers.Input((6,))
  hidden = _layers.Dense(6, "relu")(inputs)
  return tf.keras.Model(inputs, _layers.Dense(6)(hidden) + hidden)


def _kernel_used_twice():
  inputs = _layers.Input((6,))
  first = _layers.Dense(4, "relu")
  hidden = first(inputs)
  outputs = _layers.Dense(6)(hidden)
  return tf.keras.Model(
    inputs, outputs + tf.matmul(hidden, first.kernel, transpose_b=True)
  )


_UNPROVEN = {
  "tanh": lambda: _chain((6,), _layers.Dense(4, "tanh"), _layers.Dense(6)),
  "elu": lambda: _chain((6,), _layers.Dense(4, "elu"), _layers.Dense(6)),
  "capped_relu": lambda: _chain(
    (6,), _layers.Dense(4), _layers.ReLU(6.0), _layers.Dense(6)
  ),
  "shifted_relu": lambda: _chain(
    (6,), _layers.Dense(4), _layers.ReLU(threshold=0.1), _layers.Dense(6)
  ),
  "activation_before_norm": lambda: _chain(
    (6,),
    _layers.Dense(4, "tanh"),
    _layers.LayerNormalization(),
    _layers.Activation("tanh"),
    _layers.Dense(6),
  ),
  "reshape_before_norm": lambda: _chain(
    (6,),
    _layers.Dense(6, use_bias=False),
    _layers.Reshape((3, 2)),
    _layers.LayerNormalization(center=False, scale=False),
    _layers.Flatten(),
  ),
  "lambda": lambda: _chain(
    (6,), _layers.Dense(4), _layers.Lambda(tf.nn.relu), _layers.Dense(6)
  ),
  "output_is_scaled": lambda: _chain((6,), _layers.Dense(6, "relu")),
  "shared": _shared_affine,
  "two_readers": _two_readers,
  "nested": _nested,
  "skip": _skip_around_the_second,
  "kernel_used_twice": _kernel_used_twice,
}


@pytest.mark.parametrize("name", _UNPROVEN)
def test_no_proof_where_none_is_known(name):
  model = _UNPROVEN[name]()
  assert papers.structural_proof(model, model.trainable_variables) is None


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_scaling_needs_all_three_in_the_slice(missing):
  model = _chain((6,), _layers.Dense(4, "relu"), _layers.Dense(6))
  part = [v for i, v in enumerate(model.weights) if i != missing]
  assert papers.structural_proof(model, part) is None


def test_norm_over_positions_does_not_hide_a_kernel():
  norm = _layers.LayerNormalization(axis=[1, 2, 3], center=False, scale=False)
  model = _chain(_IMAGE, _conv(3, use_bias=False), norm, _conv(2, 3, "tanh"))
  assert papers.structural_proof(model, model.weights[:1]) is None


_STEPS = st.sampled_from(
  ["conv", "transposed", "linear", "norm", "norm_all", "relu", "tanh", "pool"]
)


@hypothesis.given(
  steps=st.lists(_STEPS, min_size=1, max_size=5),
  skip=st.booleans(),
  subset=st.integers(0, 2**10 - 1),
  seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=40)
def test_proofs_of_random_denoisers_are_right(steps, skip, subset, seed):
  made = {
    "conv": lambda: _conv(3, activation="relu", use_bias=seed % 2 == 0),
    "transposed": lambda: _layers.Conv2DTranspose(3, 2, padding="same"),
    "linear": lambda: _conv(3, 2),
    "norm": lambda: _layers.LayerNormalization(scale=seed % 3 > 0),
    "norm_all": lambda: _layers.LayerNormalization(axis=[1, 2, 3]),
    "relu": lambda: _layers.Activation("relu"),
    "tanh": lambda: _layers.Activation("tanh"),
    "pool": lambda: _layers.AveragePooling2D(2, 1, "same"),
  }
  inputs = outputs = _layers.Input((3, 3, 2))
  for index, step in enumerate(steps):
    previous, outputs = outputs, made[step]()(outputs)
    if skip and index == seed % len(steps) and previous.shape == outputs.shape:
      outputs = _layers.Add()([previous, outputs])
  model = tf.keras.Model(inputs, _conv(2)(outputs))
  _filled(model, seed)
  part = [
    v
    for index, v in enumerate(model.trainable_variables)
    if subset & (1 << index % 10)
  ]
  proof = papers.structural_proof(model, part)
  hypothesis.event(proof.kind if proof else "none")
  if proof is not None:
    assert {v.ref() for v, _ in proof.direction()} <= {v.ref() for v in part}
    assert _slope_along(model, proof, count=2) < 1e-12


# Rank.


def _hourglass(skip):
  inputs = _layers.Input((4, 4, 1))
  code = _conv(3, activation="tanh")(inputs)
  code = _layers.Flatten()(code)
  code = _layers.Dense(5, "tanh")(code)
  hidden = _layers.Dense(16, "tanh")(code)
  outputs = _conv(1)(_layers.Reshape((4, 4, 1))(hidden))
  if skip:
    outputs = _layers.Add()([outputs, inputs])
  return _filled(tf.keras.Model(inputs, outputs))


def test_rank_bound_is_the_code_for_what_comes_after_it():
  model = _hourglass(skip=False)
  conv, bias, to_code, code_bias, *decoder = model.trainable_variables
  assert papers.rank_bound(model, decoder) == 5
  assert papers.rank_bound(model, decoder[-2:]) == 5
  assert papers.rank_bound(model, [to_code, code_bias]) == 16
  assert papers.rank_bound(model, [conv, bias]) == 16
  assert papers.rank_bound(model, [code_bias, decoder[0]]) == 16


def test_a_path_around_the_code_lifts_the_bound():
  model = _hourglass(skip=True)
  assert papers.rank_bound(model, model.trainable_variables[4:]) == 16


@pytest.mark.parametrize("skip", [False, True])
def test_ranks_stay_below_the_bound(skip):
  model = _hourglass(skip)
  variables = model.trainable_variables
  slices = [variables[:2], variables[2:4], variables[4:]]
  made = papers.PerturbationTransformation(model, slices)
  matrices = made.gram(_random((1, 4, 4, 1)), np.ones([1, 3]))
  ranks = [np.linalg.matrix_rank(m, tol=1e-13 * np.max(m)) for m in matrices]
  for rank, bound in zip(ranks, made.rank_bounds):
    assert rank <= bound
  assert ranks[2] == (16 if skip else 5)  # the bound is reached


def test_rank_bound_of_shared_nested_and_opaque_layers():
  layer = _layers.Dense(6, "tanh")
  shared = _chain((6,), layer, _layers.Dense(2), _layers.Dense(6), layer)
  assert papers.rank_bound(shared, layer.weights) == 6
  assert papers.rank_bound(shared, shared.layers[3].weights) == 2
  inner = _chain((2,), _layers.Dense(3, "tanh"))
  nested = _chain((6,), _layers.Dense(2), inner, _layers.Dense(6))
  assert papers.rank_bound(nested, inner.weights) == 2
  opaque = _chain(
    (6,), _layers.Dense(2), _layers.Lambda(tf.nn.relu), _layers.Dense(6)
  )
  assert papers.rank_bound(opaque, opaque.layers[3].weights) == 6
