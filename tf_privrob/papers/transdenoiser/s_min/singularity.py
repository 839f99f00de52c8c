"""Proofs that S_min(M) = 0, from the structure of a denoiser alone.

M = sum_i c_i^2 A_i A_i^T, A_i = d/dtheta grad_x l(x_i; theta). If the loss does
not change to first order along a direction u of the parameters,
<u, grad_theta l(x; theta)> = 0 for every x, then differentiating by x gives
u^T A_i = 0 for every example and M u = 0, whatever the batch.

Assumed: a layer reads only its own weights (those Keras tracks) and its
inputs, and examples do not mix. Where that cannot be seen (Lambda layers,
weights used as tensors) nothing is proven; nothing is proven inside nested
models either.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob.models import graph

_layers = tf.keras.layers
_activations = tf.keras.activations

_AFFINE = (
  _layers.Dense,
  _layers.Conv2D,
  _layers.Conv2DTranspose,
  _layers.DepthwiseConv2D,
)
_NORMALISING = (_layers.LayerNormalization, _layers.GroupNormalization)
# f(s h) = s f(h) for s > 0 and all weights of the layer held fixed.
_HOMOGENEOUS = (
  _layers.AveragePooling2D,
  _layers.Cropping2D,
  _layers.Dropout,
  _layers.Flatten,
  _layers.GlobalAveragePooling2D,
  _layers.GlobalMaxPooling2D,
  _layers.LeakyReLU,
  _layers.MaxPooling2D,
  _layers.PReLU,
  _layers.Permute,
  _layers.Reshape,
  _layers.SpatialDropout2D,
  _layers.UpSampling2D,
  _layers.ZeroPadding2D,
)
_HOMOGENEOUS_FUNCTIONS = (
  None,
  _activations.linear,
  _activations.relu,
  tf.nn.relu,
  tf.nn.leaky_relu,
)


@dataclasses.dataclass(frozen=True)
class Proof:
  """Why a slice's M is singular for every batch and every value of theta.

  Attributes:
    kind: "normalisation" or "scaling".
    text: the reason, with the names of the layers.
    nullity: at least so many eigenvalues are zero.
  """

  kind: str
  text: str
  nullity: int
  _moves: tuple[tuple[tf.Variable, str], ...] = dataclasses.field(
    repr=False, compare=False
  )

  def direction(self) -> list[tuple[tf.Variable, tf.Tensor]]:
    """One null vector of M at the present weights, zero elsewhere.

    It is the zero vector only if all the layers' weights are zero.
    """
    move = {"ones": tf.ones_like, "plus": tf.identity, "minus": tf.negative}
    return [(variable, move[how](variable)) for variable, how in self._moves]


class _Readers:
  """The calls of a functional model, in order, and who reads what."""

  def __init__(self, model: tf.keras.Model):
    self.input, self.output = model.inputs[0], model.outputs[0]
    self.calls = graph.calls(model)
    self.readers = collections.defaultdict(list)
    self._owners = collections.defaultdict(list)
    for call in self.calls:
      for tensor in call.inputs:
        self.readers[id(tensor)].append(call)
      for variable in call.layer.weights:
        self._owners[variable.ref()].append(call)
    self.opaque = any(map(_is_opaque, self.calls))

  def calls_with(self, variables: Iterable[tf.Variable]) -> list:
    """The calls that use one of the variables."""
    found = [self._owners[variable.ref()] for variable in variables]
    return list(dict.fromkeys(itertools.chain(*found)))

  def only_call(
    self, call: graph.Call, variables: Sequence[tf.Variable]
  ) -> bool:
    """Whether no other call uses any of these variables."""
    return all(self._owners[v.ref()] == [call] for v in variables)

  def without(self, tensor) -> set[int]:
    """The tensors that depend on the input by a path around `tensor`."""
    reached = {id(self.input)} - {id(tensor)}
    for call in self.calls:
      if any(id(source) in reached for source in call.inputs):
        reached |= set(map(id, call.outputs)) - {id(tensor)}
    return reached


def _is_opaque(call: graph.Call) -> bool:
  """Whether a call may read weights that are not listed as its own."""
  constants = tf.nest.flatten((call.args, call.kwargs))
  return isinstance(call.layer, _layers.Lambda) or any(
    isinstance(value, tf.Variable) for value in constants
  )


def narrowest_cut(model: tf.keras.Model, variables: Sequence[tf.Variable]):
  """The narrowest tensor through which all that concerns `variables` passes.

  Every path from the input to the output goes through it and all calls that
  use the variables come after it, so that grad_theta l(x) of these variables,
  with the target fixed, is a function of that tensor.

  Returns:
    The Keras tensor; the model's input if none is narrower.
  """
  known = _Readers(model)
  best, width = known.input, _width(known.input)
  if known.opaque:
    return best
  users = known.calls_with(variables)
  sources = [source for call in users for source in call.inputs]
  for call in known.calls:
    tensor = call.output
    if tensor is None or not _width(tensor) < width:
      continue
    around = known.without(tensor)
    if around.isdisjoint(map(id, [*sources, known.output])):
      best, width = tensor, _width(tensor)
  return best


def _width(tensor) -> float:
  size = tensor.shape[1:].num_elements()
  return float("inf") if size is None else size


def rank_bound(
  denoiser: tf.keras.Model, variables: Sequence[tf.Variable]
) -> int:
  """A bound on the rank of one example's A, whatever the weights.

  With a code t(x) of width c that all of the slice's layers come after,
  A_i = (d/dt grad_theta l) dt/dx, so rank(A_i) <= min(v, c). A slice of w
  parameters is singular if w > rank_bound * (number of examples).
  """
  return int(_width(narrowest_cut(denoiser, variables)))


def structural_proof(
  denoiser: tf.keras.Model, variables: Sequence[tf.Variable]
) -> Proof | None:
  """A proof that M of this slice is singular, or None if none is known.

  normalisation: an affine layer without activation is read by a
    LayerNormalization or GroupNormalization only. The same number added to
    all biases cancels; under a layer norm over the units alone the same
    column added to all units' kernels cancels, too (fan_in + 1 directions).
  scaling: a layer's weights (kernel and bias, or gamma and beta), all in the
    slice, may be multiplied by s > 0 and the kernels that read its output, all
    in the slice, divided by s, if everything in between is positively
    homogeneous. The derivative by s at 1 gives u = (w_in, b_in, -w_out).

  Args:
    denoiser: a functional model of one input and one output.
    variables: the slice.
  """
  known = _Readers(denoiser)
  if known.opaque:
    return None
  inside = {variable.ref() for variable in variables}
  for call in known.calls:
    proof = _normalised(known, call, inside) or _scaled(known, call, inside)
    if proof:
      return proof
  return None


def _normalised(known: _Readers, call, inside) -> Proof | None:
  layer, readers = call.layer, known.readers[id(call.output)]
  if (
    type(layer) not in _AFFINE
    or layer.activation not in (None, _activations.linear)
    or call.output is known.output
    or len(readers) != 1
    or type(readers[0].layer) not in _NORMALISING
  ):
    return None
  norm, kernel = readers[0].layer, _kernel(layer)
  moves, nullity = [], 0
  if layer.use_bias and _usable(known, call, [layer.bias], inside):
    moves, nullity = [(layer.bias, "ones")], 1
  if _over_units_only(norm, layer) and _usable(known, call, [kernel], inside):
    units = kernel.shape[-2 if _transposed(layer) else -1]
    moves.append((kernel, "ones"))
    nullity += int(np.prod(kernel.shape)) // units
  if not moves:
    return None
  return Proof(
    "normalisation",
    f"{norm.name!r} removes what is added to all units of {layer.name!r}",
    nullity,
    tuple(moves),
  )


def _over_units_only(norm: _layers.Layer, layer: _layers.Layer) -> bool:
  """Whether a column added to all units shifts what is averaged alike."""
  if type(norm) is not _layers.LayerNormalization:
    return False
  rank = layer.output.shape.rank
  axes = norm.axis if isinstance(norm.axis, (list, tuple)) else [norm.axis]
  return (
    {axis % rank for axis in axes} == {rank - 1}
    and getattr(layer, "data_format", "channels_last") == "channels_last"
    and getattr(layer, "groups", 1) == 1  # else units see different inputs
    and type(layer) is not _layers.DepthwiseConv2D
  )


def _scaled(known: _Readers, call, inside) -> Proof | None:
  layer = call.layer
  if type(layer) in _AFFINE:
    homogeneous = layer.activation in _HOMOGENEOUS_FUNCTIONS
  elif type(layer) in _NORMALISING:  # gamma n + beta
    homogeneous = layer.scale
  else:
    return None
  if not homogeneous or not _usable(known, call, layer.weights, inside):
    return None
  readers = _kernels_that_read(known, call.output, inside)
  if readers is None or call in readers:
    return None
  names = ", ".join(repr(reader.layer.name) for reader in readers)
  return Proof(
    "scaling",
    f"{layer.name!r} times s and {names} over s give the same output",
    1,
    (
      *((weight, "plus") for weight in layer.weights),
      *((_kernel(reader.layer), "minus") for reader in readers),
    ),
  )


def _kernels_that_read(known: _Readers, tensor, inside) -> list | None:
  """The affine calls of the slice that alone see the tensor's scale."""
  if tensor is known.output or not known.readers[id(tensor)]:
    return None
  found = []
  for call in known.readers[id(tensor)]:
    if type(call.layer) in _AFFINE:
      if not _usable(known, call, [_kernel(call.layer)], inside):
        return None
      further = [call]
    elif _is_homogeneous(call.layer) and call.output is not None:
      further = _kernels_that_read(known, call.output, inside)
    else:
      return None
    if further is None:
      return None
    found += [reader for reader in further if reader not in found]
  return found


def _is_homogeneous(layer: _layers.Layer) -> bool:
  if type(layer) is _layers.Activation:
    return layer.activation in _HOMOGENEOUS_FUNCTIONS
  if type(layer) is _layers.ReLU:
    return layer.max_value is None and not layer.threshold
  return type(layer) in _HOMOGENEOUS


def _usable(known: _Readers, call, variables, inside) -> bool:
  """Whether the slice holds these variables and no other call uses them."""
  return all(v.ref() in inside for v in variables) and known.only_call(
    call, variables
  )


def _transposed(layer: _layers.Layer) -> bool:
  return type(layer) is _layers.Conv2DTranspose


def _kernel(layer: _layers.Layer) -> tf.Variable:
  if type(layer) is _layers.DepthwiseConv2D:
    return layer.depthwise_kernel
  return layer.kernel
