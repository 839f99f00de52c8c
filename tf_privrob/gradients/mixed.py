"""Gradients that are made to be differentiated once more, by the input.

A kernel's gradient is sum_t a_t d_t^T with the layer's input a and the loss
gradient d at its output, both functions of the image. Its derivative has a
term for each, and each is one matrix product of what varies with what does
not: for a convolution the patches are taken from the factor that is fixed, so
that those of the many derivatives never are.
"""

from __future__ import annotations

import collections
from collections.abc import Collection

import numpy as np
import tensorflow as tf

from tf_privrob.gradients import patches
from tf_privrob.gradients import recording
from tf_privrob.gradients import rules

_layers = tf.keras.layers


def losses(denoiser, z: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
  """l(z) = |g(z) - x|^2, one number an example; the target x is fixed."""
  errors = denoiser(z, training=False) - tf.stop_gradient(target)
  return tf.reduce_sum(errors**2, axis=range(1, errors.shape.rank))


def gradients(
  model: tf.keras.Model,
  inputs: tf.Tensor,
  target: tf.Tensor,
  factored: Collection,
) -> dict:
  """grad_theta l_i, to be differentiated by `inputs` once.

  Args:
    model: from inputs [B, ...] to the target's shape, in float64.
    inputs: the images, or a code of them.
    target: held fixed.
    factored: references of the variables whose layers have a rule here.

  Returns:
    For the reference of each trainable variable [B, size], or [1, size] with
    the sum over the examples for those that are not `factored`.
  """
  layers = recording.layers_with_weights(model)
  variables = [v for v in model.trainable_variables if v.ref() not in factored]
  tape = tf.GradientTape(watch_accessed_variables=False)
  with tape, recording.record(layers, tape) as calls:
    tape.watch(variables)
    total = tf.reduce_sum(losses(model, inputs, target))
  outputs = [call.output for call in calls]
  deltas, direct = tape.gradient(total, (outputs, variables))
  found = collections.defaultdict(list)
  for call, delta in zip(calls, deltas):
    if delta is None:
      continue
    for variable, gradient in _rule(call.layer)(call, delta):
      if variable.ref() in factored:
        flat = tf.reshape(gradient, [-1, _size(variable)])
        found[variable.ref()].append(flat)
  result = {reference: tf.add_n(parts) for reference, parts in found.items()}
  for variable, gradient in zip(variables, direct):
    if gradient is not None:
      dense = tf.convert_to_tensor(gradient)
      result[variable.ref()] = tf.reshape(dense, [1, -1])
  for variable in model.trainable_variables:
    empty = tf.zeros([inputs.shape[0], _size(variable)], tf.float64)
    result.setdefault(variable.ref(), empty)
  return result


def factored_variables(model: tf.keras.Model) -> set:
  """References of the variables whose gradients the rules give in full.

  Found by trial with random weights, which stay: a variable that is used
  outside its own layer, or whose copies are not next to each other, is not
  among them and is differentiated directly.
  """
  rng = np.random.default_rng(0)
  for variable in model.weights:
    values = rng.uniform(0.1, 0.9, variable.shape)
    if variable.shape.rank > 1:  # keep away from saturation
      fan_in = _size(variable) / variable.shape[-1]
      values = (values - 0.45) * np.sqrt(12 / fan_in)
    variable.assign(values)
  images = tf.constant(rng.uniform(0.1, 0.9, [2, *model.input_shape[1:]]))
  target = tf.constant(rng.uniform(0.1, 0.9, [2, *model.output_shape[1:]]))
  layers = recording.layers_with_weights(model)
  known = {
    variable.ref()
    for layer in layers
    if _rule(layer) is not _none
    for variable in layer.trainable_weights
  }
  by_rule = gradients(model, images, target, known)
  right = set(known)
  for row in range(2):
    one = slice(row, row + 1)
    direct = gradients(model, images[one], target[one], ())
    for reference in known:
      expected, found = direct[reference][0].numpy(), by_rule[reference]
      scale = np.abs(expected).max()
      if found.shape[0] != 2 or not (
        0 < scale and np.abs(found[row] - expected).max() < 1e-8 * scale
      ):
        right.discard(reference)
  return right


def in_double_precision(denoiser: tf.keras.Model) -> tf.keras.Model:
  """A copy of the model, and of models inside it, with float64 layers.

  Raises:
    ValueError: a layer cannot be copied, or computes in another precision.
  """

  def copy(layer):
    if isinstance(layer, tf.keras.Model):
      return copy_model(layer)
    config = {**layer.get_config(), "dtype": "float64"}
    return type(layer).from_config(config)

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
    for node in layer.inbound_nodes:
      for tensor in tf.nest.flatten(node.outputs):
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


def _size(variable: tf.Variable) -> int:
  return int(np.prod(variable.shape))


def _product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
  return tf.linalg.matmul(left, right, transpose_a=True)


def _none(call: rules.Call, deltas: tf.Tensor) -> list:
  return []


def _rule(layer: _layers.Layer):
  """How the layer's per-example gradients follow from the output's."""
  convolution = (
    getattr(layer, "dilation_rate", None) == (1, 1)
    and getattr(layer, "data_format", None) == "channels_last"
    and layer.groups == 1
  )
  if type(layer) is _layers.Conv2D and convolution:
    return _conv2d
  if (
    type(layer) is _layers.Conv2DTranspose
    and convolution
    and layer.output_padding is None
  ):
    return _conv2d_transpose
  return _none if rules.rule_for(layer) is rules.any_layer else _by_factors


def _by_factors(call: rules.Call, deltas: tf.Tensor) -> list:
  return [
    (variable, factor.materialise().gradients)
    for variable, factor in rules.rule_for(call.layer)(call, deltas)
  ]


def _bias(layer, deltas: tf.Tensor) -> list:
  if layer.bias is None or not layer.bias.trainable:
    return []
  return [(layer.bias, tf.reduce_sum(deltas, [1, 2]))]


def _conv2d(call: rules.Call, deltas: tf.Tensor) -> list:
  layer = call.layer
  kernel = _window_products(layer, call.args[0], deltas)
  return [(layer.kernel, kernel), *_bias(layer, deltas)]


def _conv2d_transpose(call: rules.Call, deltas: tf.Tensor) -> list:
  """The adjoint of a convolution: input and output change places."""
  layer = call.layer
  if layer.activation not in (None, tf.keras.activations.linear):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      outputs = recording._without_activation(
        layer, call.original, call.args, call.kwargs
      )
      tape.watch(outputs)
      activated = layer.activation(outputs)
    deltas = tape.gradient(activated, outputs, output_gradients=deltas)
  kernel = _window_products(layer, deltas, call.args[0])
  return [(layer.kernel, kernel), *_bias(layer, deltas)]


def _window_products(layer, large: tf.Tensor, small: tf.Tensor) -> tf.Tensor:
  """sum_t large[s t + o - pad, j] small[t, k] as [B, o, j, k].

  The value is that of one product; each factor's derivative goes through the
  form in which the other, fixed one is spread over the window.
  """
  fixed_large, fixed_small = tf.stop_gradient(large), tf.stop_gradient(small)
  window = layer.kernel_size
  area, many = window[0] * window[1], small.shape[-1]
  rows = patches.extract(fixed_large, window, layer.strides, layer.padding)
  by_small = _product(rows, _positions(small))
  by_small = tf.reshape(by_small, [-1, area, large.shape[-1], many])
  # The small factor at large[r] under window position o: one picture a unit.
  pictures = tf.reshape(
    tf.transpose(fixed_small, [0, 3, 1, 2]), [-1, *small.shape[1:3], 1]
  )
  spread = tf.nn.conv2d_transpose(
    pictures,
    tf.reshape(tf.eye(area, dtype=tf.float64), [*window, area, 1]),
    [small.shape[0] * many, *large.shape[1:3], area],
    layer.strides,
    layer.padding.upper(),
  )
  spread = tf.reshape(
    spread, [small.shape[0], many, large.shape[1] * large.shape[2], area]
  )
  spread = tf.transpose(spread, [0, 2, 3, 1])
  spread = tf.reshape(spread, [*spread.shape[:2], area * many])
  by_large = _product(_positions(large), spread)
  by_large = tf.reshape(by_large, [-1, large.shape[-1], area, many])
  by_large = tf.transpose(by_large, [0, 2, 1, 3])
  return by_small + by_large - tf.stop_gradient(by_large)


def _positions(images: tf.Tensor) -> tf.Tensor:
  return tf.reshape(
    images, [-1, images.shape[1] * images.shape[2], images.shape[3]]
  )
