"""A copy of a denoiser in float64 whose second derivatives are right.

Small eigenvalues are real in float64 only, and some of Keras' layers have a
wrong second derivative, or none: the copy has layers of its own in their place.
"""

from __future__ import annotations

import tensorflow as tf

from tf_privrob.models import graph

_layers = tf.keras.layers


def in_double_precision(denoiser: tf.keras.Model) -> tf.keras.Model:
  """A copy of the model, and of models inside it, with float64 layers.

  Raises:
    ValueError: a layer cannot be copied, or computes in another precision.
  """

  def copy(layer):
    if isinstance(layer, tf.keras.Model):
      return copy_model(layer)
    if (
      type(layer) is _layers.UpSampling2D
      and layer.interpolation == "nearest"
      and layer.data_format == "channels_last"
    ):
      return _Repeat(layer.size, name=layer.name, dtype="float64")
    config = {**layer.get_config(), "dtype": "float64"}
    twin = _EXACT.get(type(layer), type(layer)).from_config(config)
    if _is_centred(twin):
      # Around Keras' attribute tracking; the class, and its rule, stay.
      object.__setattr__(twin, "convolution_op", _convolve)
    return twin

  def copy_model(model):
    inputs = [_layers.Input(t.shape[1:], dtype="float64") for t in model.inputs]
    return tf.keras.models.clone_model(model, inputs, copy)

  default = tf.keras.backend.floatx()
  try:
    tf.keras.backend.set_floatx("float64")  # for layers inside layers
    with tf.init_scope():
      twin = copy_model(denoiser)
  except (NotImplementedError, TypeError, ValueError) as error:
    raise ValueError(
      "Expected a denoiser that can be copied in float64, but"
      f" {denoiser.name!r} cannot: {error} Use Keras layers, or layers with"
      " get_config, that do not fix their precision."
    ) from error
  finally:
    tf.keras.backend.set_floatx(default)
  for layer in twin.submodules:
    if not isinstance(layer, _layers.Layer):
      continue
    for call in graph.calls_of(layer):
      for tensor in call.outputs:
        if tensor.dtype.is_floating and tensor.dtype != tf.float64:
          raise ValueError(
            f"Expected layers that compute in float64, but {layer.name!r}"
            f" returns {tensor.dtype.name} there. Replace it (e.g. bilinear"
            " upsampling by nearest)."
          )
  shapes = [[w.shape for w in model.weights] for model in (denoiser, twin)]
  if shapes[0] != shapes[1]:
    raise ValueError(
      f"Expected a denoiser whose copy has the same weights, but those of"
      f" {denoiser.name!r} come in another order."
    )
  return twin


def _normalised(inputs: tf.Tensor, axes, epsilon: float) -> tf.Tensor:
  """(x - mean) / sqrt(variance + epsilon), right to every order.

  `tf.nn.moments`, which Keras uses, stops the gradient at the mean: its first
  derivative is right and its second is not.
  """
  centred = inputs - tf.reduce_mean(inputs, axes, keepdims=True)
  variance = tf.reduce_mean(centred**2, axes, keepdims=True)
  return centred * tf.math.rsqrt(variance + epsilon)


class ExactLayerNormalization(_layers.LayerNormalization):
  """Keras' layer, right to the second order."""

  def call(self, inputs):
    """Scales and shifts along the normalised axes."""
    outputs = _normalised(inputs, self.axis, self.epsilon)
    shape = [
      size if axis in self.axis else 1 for axis, size in enumerate(inputs.shape)
    ]
    if self.scale:
      outputs *= tf.reshape(self.gamma, shape)
    return outputs + tf.reshape(self.beta, shape) if self.center else outputs


class ExactGroupNormalization(_layers.GroupNormalization):
  """Keras' layer over the last axis, right to the second order."""

  def call(self, inputs):
    """Scales and shifts along the last axis."""
    if self.axis not in (-1, inputs.shape.rank - 1):
      raise ValueError("GroupNormalization is known here for axis=-1 only.")
    channels = inputs.shape[-1]
    groups = channels if self.groups == -1 else self.groups
    shape = [tf.shape(inputs)[0], *inputs.shape[1:-1], groups]
    grouped = tf.reshape(inputs, [*shape, channels // groups])
    axes = [*range(1, inputs.shape.rank - 1), inputs.shape.rank]
    outputs = _normalised(grouped, axes, self.epsilon)
    outputs = tf.reshape(outputs, tf.shape(inputs))
    outputs = tf.ensure_shape(outputs, inputs.shape)
    outputs = outputs * self.gamma if self.scale else outputs
    return outputs + self.beta if self.center else outputs


_EXACT = {
  _layers.LayerNormalization: ExactLayerNormalization,
  _layers.GroupNormalization: ExactGroupNormalization,
}


def _is_centred(layer: _layers.Layer) -> bool:
  """Whether the layer is a convolution whose adjoint has the same padding."""
  return (
    type(layer) is _layers.Conv2D
    and layer.padding == "same"
    and (layer.strides, layer.dilation_rate) == ((1, 1), (1, 1))
    and (layer.groups, layer.data_format) == (1, "channels_last")
    and layer.kernel_size[0] % 2 == layer.kernel_size[1] % 2 == 1
  )


@tf.custom_gradient
def _convolve(inputs: tf.Tensor, kernel: tf.Tensor):
  """tf.nn.conv2d(inputs, kernel, 1, "SAME") for odd windows.

  Windows are taken of the side with fewer channels, in the derivatives too:
  TensorFlow takes them of the input, forth, and of the output, back.
  """
  turned = tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
  if kernel.shape[2] <= kernel.shape[3]:
    outputs = tf.nn.conv2d(inputs, kernel, 1, "SAME")
  else:
    shape = tf.concat([tf.shape(inputs)[:3], kernel.shape[3:]], 0)
    outputs = tf.nn.conv2d_transpose(inputs, turned, shape, 1, "SAME")
    outputs = tf.ensure_shape(outputs, [*inputs.shape[:3], kernel.shape[3]])

  def gradient(deltas):
    by_kernel = tf.raw_ops.Conv2DBackpropFilter(
      input=inputs,
      filter_sizes=kernel.shape,
      out_backprop=deltas,
      strides=[1, 1, 1, 1],
      padding="SAME",
    )
    return _convolve(deltas, turned), by_kernel

  return outputs, gradient


class _Repeat(_layers.Layer):
  """UpSampling2D; TensorFlow's own has no second derivative."""

  def __init__(self, size, **kwargs):
    super().__init__(**kwargs)
    self._size = size

  def call(self, inputs):
    """Repeats rows and columns."""
    rows = tf.repeat(inputs, self._size[0], axis=1)
    return tf.repeat(rows, self._size[1], axis=2)
