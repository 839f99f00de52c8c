"""Models of Keras 3 that the tests read; only Keras 3 runs this file.

A case is a name and a function that makes a model; `KINDS` has one for each
kind of layer, with its settings in several branches, and `GRAPHS` those about
how layers are put together.
"""

import keras
import numpy as np

L = keras.layers
_SIDE = (5, 6, 7)


def branches(shape, *layers, dtype="float32", each=None):
  """One input, and an output for each of these layers."""

  def build():
    x = L.Input(shape, dtype=dtype)
    return keras.Model(x, [(each or _call)(layer(), x) for layer in layers])

  return build


def _call(layer, x):
  return layer(x)


def _self(layer, x):
  return layer([x, L.Rescaling(0.5, 0.25)(x)])


def _merge(kind, shape=(4, 3), **settings):
  return branches(shape, lambda: kind(**settings), each=_self)


def _convolutions(rank, kind, **more):
  shape = (*_SIDE[:rank], 4)

  def make(**settings):
    return lambda: kind(3, **{"kernel_size": 2, **settings, **more})

  variants = [
    make(padding="same", activation="relu"),
    make(strides=2, kernel_size=3, use_bias=False),
    make(strides=2, kernel_size=3, padding="same", activation="gelu"),
    make(strides=3, kernel_size=2, padding="same"),
  ]
  return shape, make, variants


def _conv(rank, kind, groups=True, causal=False):
  shape, make, variants = _convolutions(rank, kind)
  variants.append(make(dilation_rate=2))
  if groups:
    variants.append(lambda: kind(4, 2, groups=2, padding="same"))
  if causal:
    variants.append(make(padding="causal", dilation_rate=2))
  return branches(shape, *variants)


def _transposed(rank, kind):
  shape, make, variants = _convolutions(rank, kind)
  variants.append(make(strides=3, kernel_size=4))
  return branches(shape, *variants)


def _depthwise(rank, kind):
  shape = (*_SIDE[:rank], 4)
  return branches(
    shape,
    lambda: kind(2, depth_multiplier=2, activation="silu"),
    lambda: kind(3, strides=2, padding="same", use_bias=False),
    lambda: kind(2, dilation_rate=2, padding="same"),
  )


def _separable(rank, kind):
  shape = (*_SIDE[:rank], 4)
  return branches(
    shape,
    lambda: kind(3, 2, depth_multiplier=2, activation="mish"),
    lambda: kind(3, 3, strides=2, padding="same", use_bias=False),
    lambda: kind(3, 2, dilation_rate=2, padding="same"),
  )


def _pool(rank, kind):
  shape = (*_SIDE[:rank], 3)
  return branches(
    shape,
    lambda: kind(2),
    lambda: kind(3, strides=2, padding="same"),
    lambda: kind(2, strides=1, padding="valid"),
  )


def _global(rank, kind):
  shape = (*_SIDE[:rank], 3)
  return branches(shape, lambda: kind(), lambda: kind(keepdims=True))


def _by_shape(kind, shape, *settings, dtype="float32"):
  return branches(
    shape,
    *(lambda given=given: kind(**given) for given in settings),
    dtype=dtype,
  )


def _recurrent(kind, **more):
  return branches(
    (5, 3),
    lambda: kind(4, **more),
    lambda: kind(4, return_sequences=True, go_backwards=True, **more),
    lambda: (
      kind(
        3,
        activation="relu",
        recurrent_activation="tanh",
        use_bias=False,
        dropout=0.1,
        recurrent_dropout=0.2,
        **more,
      )
      if kind is not L.SimpleRNN
      else kind(3, activation="relu", use_bias=False, recurrent_dropout=0.2)
    ),
  )


def _lstm_states():
  x = L.Input((5, 3))
  sequence, *states = L.LSTM(4, return_sequences=True, return_state=True)(x)
  again = L.LSTM(4)(sequence, initial_state=states)
  gru, state = L.GRU(4, return_sequences=True, return_state=True)(x)
  other = L.GRU(4)(gru, initial_state=state)
  return keras.Model(x, [again, states[0], states[1], other])


def _conv_lstm(rank, kind):
  return branches(
    (3, *_SIDE[:rank], 2),
    lambda: kind(2, 2, padding="same"),
    lambda: kind(2, 2, return_sequences=True, recurrent_activation="tanh"),
  )


def _multi_head():
  x, y = L.Input((5, 4)), L.Input((3, 4))
  first = L.MultiHeadAttention(2, 3, dropout=0.1)(x, y)
  second = L.MultiHeadAttention(2, 3, value_dim=2, output_shape=5)(
    query=y, value=x, key=x, use_causal_mask=True
  )
  third, scores = L.MultiHeadAttention(1, 2, use_bias=False)(
    first, x, return_attention_scores=True
  )
  return keras.Model([x, y], [first, second, third, scores])


def _attention(kind, *settings):
  def build():
    x, y, z = L.Input((5, 4)), L.Input((3, 4)), L.Input((3, 4))
    outputs = [
      kind(**given)(parts)
      for given in settings
      for parts in ([x, y], [x, y, z])
    ]
    causal = kind()([x, x], use_causal_mask=True)
    return keras.Model([x, y, z], [*outputs, causal])

  return build


def _adapted():
  layer = L.Normalization(axis=-1)
  layer.adapt(np.random.default_rng(0).normal(2.0, 3.0, (20, 4, 3)))
  x = L.Input((4, 3))
  others = [
    L.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 0.5])(x),
    L.Normalization(mean=0.3, variance=2.0, invert=True)(x),
    L.Normalization(axis=None, mean=0.5, variance=4.0)(x),
  ]
  return keras.Model(x, [layer(x), *others])


def _wrapped(kind, inner, shape):
  return branches(shape, *(lambda make=make: kind(make()) for make in inner))


def _nested_time():
  return keras.Sequential([L.Input((3,)), L.Dense(4, "relu"), L.Dense(2)])


_ACTIVATIONS = """elu exponential gelu linear mish relu selu sigmoid softmax
softplus softsign swish tanh silu leaky_relu relu6""".split()

KINDS = {
  "Activation": _by_shape(
    L.Activation, (4, 6), *({"activation": name} for name in _ACTIVATIONS)
  ),
  "ActivityRegularization": _by_shape(
    L.ActivityRegularization, (4,), {"l1": 0.1, "l2": 0.2}
  ),
  "Add": _merge(L.Add),
  "AdditiveAttention": _attention(
    L.AdditiveAttention, {}, {"use_scale": False, "dropout": 0.2}
  ),
  "AlphaDropout": _by_shape(L.AlphaDropout, (4,), {"rate": 0.2}),
  "Attention": _attention(
    L.Attention,
    {},
    {"use_scale": True, "dropout": 0.2},
    {"score_mode": "concat"},
  ),
  "Average": _merge(L.Average),
  "AveragePooling1D": _pool(1, L.AveragePooling1D),
  "AveragePooling2D": _pool(2, L.AveragePooling2D),
  "AveragePooling3D": _pool(3, L.AveragePooling3D),
  "BatchNormalization": _by_shape(
    L.BatchNormalization,
    (4, 3),
    {},
    {"axis": 1, "epsilon": 0.1, "center": False},
    {"momentum": 0.5, "scale": False},
    {"trainable": False},
  ),
  "Bidirectional": _wrapped(
    L.Bidirectional,
    [
      lambda: L.LSTM(3),
      lambda: L.GRU(2, return_sequences=True),
      lambda: L.SimpleRNN(2, activation="relu"),
    ],
    (5, 3),
  ),
  "CategoryEncoding": _by_shape(
    L.CategoryEncoding,
    (4,),
    {"num_tokens": 9, "output_mode": "multi_hot"},
    dtype="int32",
  ),
  "CenterCrop": _by_shape(
    L.CenterCrop,
    (7, 8, 2),
    {"height": 4, "width": 3},
    {"height": 5, "width": 4},
  ),
  "Concatenate": branches(
    (4, 3), L.Concatenate, lambda: L.Concatenate(axis=1), each=_self
  ),
  "Conv1D": _conv(1, L.Conv1D, causal=True),
  "Conv1DTranspose": _transposed(1, L.Conv1DTranspose),
  "Conv2D": _conv(2, L.Conv2D),
  "Conv2DTranspose": _transposed(2, L.Conv2DTranspose),
  "Conv3D": _conv(3, L.Conv3D),
  "Conv3DTranspose": _transposed(3, L.Conv3DTranspose),
  "ConvLSTM1D": _conv_lstm(1, L.ConvLSTM1D),
  "ConvLSTM2D": _conv_lstm(2, L.ConvLSTM2D),
  "ConvLSTM3D": _conv_lstm(3, L.ConvLSTM3D),
  "Cropping1D": _by_shape(L.Cropping1D, (7, 2), {"cropping": (1, 2)}),
  "Cropping2D": _by_shape(L.Cropping2D, (7, 8, 2), {"cropping": ((1, 2), 1)}),
  "Cropping3D": _by_shape(
    L.Cropping3D, (5, 6, 7, 2), {"cropping": ((1, 2), 1, (0, 3))}
  ),
  "Dense": _by_shape(
    L.Dense,
    (4, 3),
    *({"units": 5, "activation": name} for name in _ACTIVATIONS),
    {"units": 2, "use_bias": False, "kernel_regularizer": "l2"},
    {"units": 2, "activation": L.LeakyReLU(0.1), "bias_constraint": "non_neg"},
    {"units": 2, "kernel_initializer": keras.initializers.HeNormal(seed=3)},
    {"units": 2, "bias_initializer": keras.initializers.Constant(0.1)},
    {"units": 2, "kernel_regularizer": keras.regularizers.L1L2(0.1, 0.2)},
    {"units": 2, "kernel_constraint": keras.constraints.MaxNorm(2, axis=0)},
  ),
  "DepthwiseConv1D": _depthwise(1, L.DepthwiseConv1D),
  "DepthwiseConv2D": _depthwise(2, L.DepthwiseConv2D),
  "Dot": branches(
    (4, 3),
    lambda: L.Dot(axes=2),
    lambda: L.Dot(axes=(1, 1), normalize=True),
    each=_self,
  ),
  "Dropout": _by_shape(
    L.Dropout, (4,), {"rate": 0.2, "seed": 3}, {"rate": 0.5}
  ),
  "ELU": _by_shape(L.ELU, (4,), {}, {"alpha": 0.3}),
  "EinsumDense": branches(
    (4, 3),
    lambda: L.EinsumDense("abc,cd->abd", (None, 6), bias_axes="d"),
    lambda: L.EinsumDense("...x,xy->...y", 5, activation="tanh"),
  ),
  "Embedding": _by_shape(
    L.Embedding, (4,), {"input_dim": 9, "output_dim": 3}, dtype="int32"
  ),
  "Flatten": _by_shape(L.Flatten, (4, 3, 2), {}),
  "GRU": _recurrent(L.GRU),
  "GRU before": _recurrent(L.GRU, reset_after=False),
  "GaussianDropout": _by_shape(L.GaussianDropout, (4,), {"rate": 0.2}),
  "GaussianNoise": _by_shape(L.GaussianNoise, (4,), {"stddev": 0.2}),
  "GlobalAveragePooling1D": _global(1, L.GlobalAveragePooling1D),
  "GlobalAveragePooling2D": _global(2, L.GlobalAveragePooling2D),
  "GlobalAveragePooling3D": _global(3, L.GlobalAveragePooling3D),
  "GlobalMaxPooling1D": _global(1, L.GlobalMaxPooling1D),
  "GlobalMaxPooling2D": _global(2, L.GlobalMaxPooling2D),
  "GlobalMaxPooling3D": _global(3, L.GlobalMaxPooling3D),
  "GroupNormalization": _by_shape(
    L.GroupNormalization,
    (5, 6, 4),
    {"groups": 2},
    {"groups": -1, "epsilon": 0.1, "scale": False},
    {"groups": 4, "center": False},
  ),
  "Identity": _by_shape(L.Identity, (4,), {}),
  "LSTM": _recurrent(L.LSTM),
  "LSTM with states": _lstm_states,
  "LayerNormalization": _by_shape(
    L.LayerNormalization,
    (5, 4),
    {},
    {"axis": [1, 2], "epsilon": 0.1},
    {"center": False, "scale": False},
    {"axis": 1},
  ),
  "LeakyReLU": _by_shape(L.LeakyReLU, (4,), {}, {"negative_slope": 0.05}),
  "MaxPooling1D": _pool(1, L.MaxPooling1D),
  "MaxPooling2D": _pool(2, L.MaxPooling2D),
  "MaxPooling3D": _pool(3, L.MaxPooling3D),
  "Maximum": _merge(L.Maximum),
  "Minimum": _merge(L.Minimum),
  "MultiHeadAttention": _multi_head,
  "Multiply": _merge(L.Multiply),
  "Normalization": _adapted,
  "PReLU": _by_shape(L.PReLU, (4, 3), {}, {"shared_axes": [1]}),
  "Permute": _by_shape(L.Permute, (4, 3, 2), {"dims": (3, 1, 2)}),
  "RandomFlip": _by_shape(L.RandomFlip, (6, 6, 3), {"mode": "horizontal"}),
  "RandomRotation": _by_shape(L.RandomRotation, (6, 6, 3), {"factor": 0.1}),
  "RandomTranslation": _by_shape(
    L.RandomTranslation, (6, 6, 3), {"height_factor": 0.1, "width_factor": 0.2}
  ),
  "RandomZoom": _by_shape(L.RandomZoom, (6, 6, 3), {"height_factor": 0.1}),
  "ReLU": _by_shape(
    L.ReLU,
    (4,),
    {},
    {"max_value": 0.6, "negative_slope": 0.1, "threshold": 0.2},
  ),
  "RepeatVector": _by_shape(L.RepeatVector, (4,), {"n": 3}),
  "Rescaling": _by_shape(
    L.Rescaling,
    (4,),
    {"scale": 1 / 127.5, "offset": -1},
    {"scale": [1.0, 2.0, 3.0, 4.0], "offset": np.array([1.0, 0.5, 0.2, 0.1])},
  ),
  "Reshape": _by_shape(
    L.Reshape, (4, 3), {"target_shape": (-1, 2)}, {"target_shape": (2, 6)}
  ),
  "Resizing": _by_shape(
    L.Resizing,
    (5, 6, 3),
    {"height": 4, "width": 9},
    {"height": 9, "width": 4, "interpolation": "nearest"},
    {"height": 4, "width": 4, "interpolation": "bicubic"},
    {"height": 4, "width": 3, "crop_to_aspect_ratio": True},
  ),
  "SeparableConv1D": _separable(1, L.SeparableConv1D),
  "SeparableConv2D": _separable(2, L.SeparableConv2D),
  "SimpleRNN": _recurrent(L.SimpleRNN),
  "Softmax": _by_shape(L.Softmax, (4, 3), {}, {"axis": 1}, {"axis": [1, 2]}),
  "SpatialDropout1D": _by_shape(L.SpatialDropout1D, (4, 3), {"rate": 0.2}),
  "SpatialDropout2D": _by_shape(L.SpatialDropout2D, (4, 3, 2), {"rate": 0.2}),
  "SpatialDropout3D": _by_shape(
    L.SpatialDropout3D, (4, 3, 2, 2), {"rate": 0.2}
  ),
  "SpectralNormalization": _wrapped(
    L.SpectralNormalization,
    [lambda: L.Conv2D(3, 2), lambda: L.Dense(2, "relu")],
    (4, 5, 3),
  ),
  "Subtract": _merge(L.Subtract),
  "TimeDistributed": _wrapped(
    L.TimeDistributed,
    [lambda: L.Dense(3, "relu"), L.LayerNormalization, _nested_time],
    (4, 3),
  ),
  "UnitNormalization": _by_shape(L.UnitNormalization, (4, 3), {}, {"axis": 1}),
  "UpSampling2D": _by_shape(
    L.UpSampling2D,
    (3, 4, 2),
    {"size": (2, 3)},
    {"size": 2, "interpolation": "bilinear"},
    {"size": 2, "interpolation": "bicubic"},
  ),
  "ZeroPadding1D": _by_shape(L.ZeroPadding1D, (4, 2), {"padding": (1, 2)}),
  "ZeroPadding2D": _by_shape(
    L.ZeroPadding2D, (3, 4, 2), {"padding": ((1, 2), (0, 3))}, {"padding": 2}
  ),
  "ZeroPadding3D": _by_shape(L.ZeroPadding3D, (3, 2, 2, 2), {"padding": 1}),
}


def _shared():
  """A layer and models that are called several times, in another order."""
  a, b = L.Input((4,), name="a"), L.Input((4,), name="b")
  shared = L.Dense(4, "tanh", name="shared")
  x = L.Input((4,))
  inner = keras.Model(x, L.Dense(4, "leaky_relu", name="in")(x), name="inner")
  stack = keras.Sequential(
    [L.Dense(4, L.ReLU(6.0)), L.Dropout(0.5)], name="stack"
  )
  x, y = shared(a), shared(inner(b))
  z = inner(x)
  joined = L.Add()([stack(z), y, stack(x)])
  joined = L.Concatenate()([stack(joined), joined])
  outputs = {"o": L.Dense(3)(joined), "p": inner(z), "q": stack(a)}
  return keras.Model([a, b], outputs)


def _named():
  """Inputs and outputs by name, whose order is not the alphabet's."""
  x, y = L.Input((4,), name="z1"), L.Input((4,), name="a2")
  outputs = {"v": L.Dense(3)(x), "u": L.Dense(3)(y), "w": L.Subtract()([x, y])}
  inner = keras.Model({"b": x, "a": y}, outputs)
  x, y = L.Input((4,), name="x"), L.Input((4,), name="y")
  found = inner({"a": x, "b": y})
  again = inner({"b": found["w"], "a": x})
  return keras.Model(
    {"second": x, "first": y},
    [L.Dense(2)(found["u"]), found["v"], again["v"], again["w"]],
  )


def _crossed():
  """Branches of equal layers at several depths."""
  x = L.Input((4,))
  a, b, c = (L.Dense(4, "tanh") for _ in range(3))
  first, second = a(x), b(x)
  third = L.Dense(4, "tanh")(L.Dense(4, "tanh")(c(second)))
  fourth = L.Dense(4)(L.Add()([third, first]))
  fifth = L.Dense(4)(L.Subtract()([first, b(fourth)]))
  return keras.Model(x, [fifth, fourth, L.Dense(4)(second)])


def _stack():
  return keras.Sequential(
    [
      L.Input((8, 8, 3)),
      L.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
      L.BatchNormalization(),
      L.LeakyReLU(),
      L.MaxPooling2D(),
      L.Flatten(),
      L.Dropout(0.3),
      keras.Sequential([L.Dense(5, "silu"), L.Dense(5, "elu")]),
      L.Dense(3),
    ]
  )


def _frozen():
  """Some layers of a model are not trained: .h5 has their weights behind."""
  inner = keras.Sequential(
    [
      L.Input((4,)),
      L.Dense(4, trainable=False),
      L.BatchNormalization(),
      L.Dense(4),
    ]
  )
  outer = keras.Sequential([L.Input((4,)), L.Dense(4), L.BatchNormalization()])
  outer.trainable = False
  x = L.Input((4,))
  return keras.Model(x, L.Dense(2)(outer(inner(x))))


def _deep():
  """Models of models."""
  x = L.Input((4,))
  model = keras.Model(x, L.Dense(4, "tanh")(x))
  for number in range(3):
    x = L.Input((4,))
    y = L.Dense(4, "tanh")(x) if number % 2 else x
    model = keras.Model(x, L.Add()([model(y), model(model(x))]))
  return model


def _trained():
  """With what an optimiser and metrics keep."""
  model = keras.Sequential([L.Input((4,)), L.Dense(3), L.Dropout(0.5)])
  model.compile("adam", "mse", metrics=["mae"])
  model.fit(np.ones((4, 4)), np.ones((4, 3)), verbose=0)
  return model


def _small():
  """What the hostile variants start from."""
  x = L.Input((4,), name="inputs")
  return keras.Model(x, L.Dense(3, name="last")(L.Dense(4, name="middle")(x)))


def _wide():
  return keras.Sequential([L.Input((4,)), L.Dense(3, dtype="float64")])


def _random(seed):
  """Layers of one shape, put together at random."""

  def build():
    rng = np.random.default_rng(seed)
    tensors = [L.Input((3,)) for _ in range(2)]
    inputs, layers = list(tensors), []
    for _ in range(12):
      if layers and rng.random() < 0.25:
        layer = layers[rng.integers(len(layers))]
      else:
        layer = L.Dense(3, "tanh")
        layers.append(layer)
      picked = rng.integers(len(tensors), size=rng.integers(1, 4))
      parts = [tensors[number] for number in picked]
      tensors.append(layer(L.Add()(parts) if len(parts) > 1 else parts[0]))
    last = L.Concatenate()(tensors)
    return keras.Model(inputs, [tensors[-1], L.Dense(2)(last)])

  return build


GRAPHS = {
  "crossed": _crossed,
  "deep": _deep,
  "float64": _wide,
  "frozen": _frozen,
  "named": _named,
  "shared": _shared,
  "small": _small,
  "stack": _stack,
  "trained": _trained,
  **{f"random {seed}": _random(seed) for seed in range(8)},
}
CASES = {**KINDS, **GRAPHS}
