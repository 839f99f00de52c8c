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
from tf_privrob.papers.transdenoiser.s_min import double

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
  _randomise(model, rng)
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


def check_second_derivatives(model: tf.keras.Model) -> None:
  """Compares A y by automatic differentiation with a difference quotient.

  Raises:
    ValueError: an operation's second derivative is missing or wrong, as that
      of `tf.nn.moments` is.
  """
  rng = np.random.default_rng(1)
  _randomise(model, rng)
  images = tf.constant(rng.uniform(0.1, 0.9, [2, *model.input_shape[1:]]))
  target = tf.constant(rng.uniform(0.1, 0.9, [2, *model.output_shape[1:]]))
  direction = tf.constant(rng.normal(size=images.shape))

  def gradient(shift):
    with tf.GradientTape() as tape:
      total = tf.reduce_sum(losses(model, images + shift * direction, target))
    return _flat(tape.gradient(total, model.trainable_variables))

  quotient = (gradient(1e-6) - gradient(-1e-6)) / 2e-6
  try:
    with tf.GradientTape() as outer:
      with tf.GradientTape(watch_accessed_variables=False) as inner:
        inner.watch(images)
        total = tf.reduce_sum(losses(model, images, target))
      slope = tf.reduce_sum(inner.gradient(total, images) * direction)
    exact = _flat(outer.gradient(slope, model.trainable_variables))
  except LookupError as error:
    raise ValueError(
      "Expected layers that can be differentiated twice, but TensorFlow says:"
      f" {error} Replace the layer."
    ) from error
  if np.linalg.norm(exact - quotient) > 1e-4 * np.linalg.norm(quotient):
    raise ValueError(
      "Expected layers whose second derivatives are right, but they differ from"
      f" difference quotients in {model.name!r}. A usual cause is"
      " tf.nn.moments, or a stop_gradient or custom gradient in a layer."
    )


def _flat(parts) -> np.ndarray:
  return np.concatenate(
    [np.reshape(part, -1) for part in parts if part is not None]
  )


def _randomise(model: tf.keras.Model, rng: np.random.Generator) -> None:
  for variable in model.weights:
    values = rng.uniform(0.1, 0.9, variable.shape)
    if variable.shape.rank > 1:  # keep away from saturation
      fan_in = _size(variable) / variable.shape[-1]
      values = (values - 0.45) * np.sqrt(12 / fan_in)
    variable.assign(values)


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
  rule = _FACTORS.get(type(layer), rules.rule_for(layer))
  if rule is rules.any_layer:
    return _none

  def by_factors(call, deltas):
    return [
      (variable, factor.materialise().gradients)
      for variable, factor in rule(call, deltas)
    ]

  return by_factors


# These differentiate the moments once, which is right.
_FACTORS = {
  double.ExactLayerNormalization: rules.layer_normalization,
  double.ExactGroupNormalization: rules.group_normalization,
}


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
  spread = _spread(layer, fixed_small, large.shape[1:3])
  by_large = _product(_positions(large), spread)
  by_large = tf.reshape(by_large, [-1, large.shape[-1], area, many])
  by_large = tf.transpose(by_large, [0, 2, 1, 3])
  return by_small + by_large - tf.stop_gradient(by_large)


def _spread(layer, small: tf.Tensor, size) -> tf.Tensor:
  """small[t] under every window position o of r = s t + o - pad.

  A transposed convolution with every shift, by taking patches of the picture
  with zeros between its pixels, in reverse: [B, positions r, o, k].
  """
  batch, *counts, many = small.shape
  pads = []
  for axis, (count, window, stride) in enumerate(
    zip(counts, layer.kernel_size, layer.strides), start=1
  ):
    before = 0
    if layer.padding == "same":
      before, _ = patches.same_padding(size[axis - 1], window, stride)
    if stride > 1:
      small = tf.expand_dims(small, axis + 1)
      zeros = [(0, 0)] * small.shape.rank
      zeros[axis + 1] = (0, stride - 1)
      small = tf.pad(small, zeros)
      shape = [*small.shape[:axis], count * stride, *small.shape[axis + 2 :]]
      small = tf.reshape(small, shape)
      small = tf.gather(small, range((count - 1) * stride + 1), axis=axis)
    length = (count - 1) * stride + 1
    left = window - 1 - before
    pads.append((left, size[axis - 1] + window - 1 - left - length))
  small = tf.pad(small, [(0, 0), *pads, (0, 0)])
  rows = patches.extract(small, layer.kernel_size, (1, 1), "valid")
  rows = tf.reshape(rows, [batch, -1, *layer.kernel_size, many])
  rows = tf.reverse(rows, [2, 3])
  area = layer.kernel_size[0] * layer.kernel_size[1]
  return tf.reshape(rows, [batch, size[0] * size[1], area * many])


def _positions(images: tf.Tensor) -> tf.Tensor:
  return tf.reshape(
    images, [-1, images.shape[1] * images.shape[2], images.shape[3]]
  )
