"""Networks in which a pixel reaches its neighbourhood only.

Every layer keeps height and width: an output position t of a convolution reads
the positions q = t + d o - b, 0 <= o < k, with dilation d and b zeros before,
and nothing else looks beside its own position. What a pixel changes, and what
an output pixel depends on, is then a window around it, the same for all pixels;
its size follows from the layers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_privrob.gradients import patches
from tf_privrob.models import graph

_layers = tf.keras.layers
_activations = tf.keras.activations

Reach = tuple[tuple[int, int], tuple[int, int]]
"""Positions before and after the pixel: of rows, of columns."""

POINT: Reach = ((0, 0), (0, 0))

_ELEMENTWISE_FUNCTIONS = (
  _activations.elu,
  _activations.exponential,
  _activations.gelu,
  _activations.hard_sigmoid,
  _activations.mish,
  _activations.relu,
  _activations.selu,
  _activations.sigmoid,
  _activations.softplus,
  _activations.softsign,
  _activations.swish,
  _activations.tanh,
)
_ELEMENTWISE_LAYERS = (
  _layers.ELU,
  _layers.LeakyReLU,
  _layers.ReLU,
  _layers.ThresholdedReLU,
)
_IDENTITIES = (_layers.Dropout, _layers.SpatialDropout2D)  # when not training
_ADDITIONS = ("__operators__.add", "math.add")


class Step(NamedTuple):
  """One operation; the sources are earlier steps."""

  kind: str
  """"input", "convolution" (without its activation), "elementwise", "sum"."""
  sources: tuple[int, ...]
  channels: int
  layer: _layers.Conv2D | None = None
  function: Callable | None = None
  """Of an elementwise step."""


class Network(NamedTuple):
  """A local network from one image to one of the same shape."""

  shape: tuple[int, int, int]
  steps: tuple[Step, ...]
  """The input first, the output last."""
  forward: tuple[Reach, ...]
  """Of each step, what a pixel changes: p to t."""
  back: tuple[Reach | None, ...]
  """Of each step, what an output pixel depends on: u to t."""
  second: tuple[Reach | None, ...]
  """Of each step, where a pixel changes the loss gradient by the step's output
  while the errors g(x) - x are held fixed; None where it changes nothing."""

  @property
  def window(self) -> int:
    """Positions of the largest window."""
    reaches = [*self.forward, *self.back, *self.second]
    return max(area(reach) for reach in reaches if reach is not None)


def area(reach: Reach) -> int:
  """Positions in the window."""
  height, width = sizes(reach)
  return height * width


def sizes(reach: Reach) -> tuple[int, int]:
  """Height and width of the window."""
  return sum(reach[0]) + 1, sum(reach[1]) + 1


def union(*reaches: Reach | None) -> Reach | None:
  """The smallest window that holds all of them."""
  known = [reach for reach in reaches if reach is not None]
  if not known:
    return None
  return tuple(
    tuple(max(reach[axis][side] for reach in known) for side in (0, 1))
    for axis in (0, 1)
  )


def through(layer: _layers.Conv2D, reach: Reach) -> Reach:
  """Of a convolution's output, given that of its input.

  t = q + b - d o: (k - 1) d - b further before, b further after.
  """
  return tuple(
    (before + after_pad, after + before_pad)
    for (before, after), (before_pad, after_pad) in zip(reach, pads(layer))
  )


def against(layer: _layers.Conv2D, reach: Reach) -> Reach:
  """Of the gradient by a convolution's input, given that by its output."""
  return tuple(
    (before + before_pad, after + after_pad)
    for (before, after), (before_pad, after_pad) in zip(reach, pads(layer))
  )


def pads(layer: _layers.Conv2D) -> Reach:
  """Zeros that "same" puts before and after each axis; (k - 1) d in all."""
  spans = [
    (size - 1) * rate + 1
    for size, rate in zip(layer.kernel_size, layer.dilation_rate)
  ]
  return tuple(patches.same_padding(span, span, 1) for span in spans)


def analyse(model: tf.keras.Model) -> Network | None:
  """The network, step by step; None if it is not known to be local.

  Known are Conv2D (stride 1, "same", channels last, one group), elementwise
  activations, sums of tensors of one shape, and dropout, which is off.
  """
  shape = model.input_shape[1:]
  if len(shape) != 3 or model.output_shape[1:] != shape:
    return None
  steps: list[Step] = []
  known: dict[int, int] = {}
  for call in graph.calls(model):
    sources = tuple(known[id(tensor)] for tensor in call.inputs)
    found = _steps(call, sources, len(steps))
    if found is None:
      return None
    steps += found
    known[id(call.output)] = len(steps) - 1 if found else sources[0]
  if known[id(model.outputs[0])] != len(steps) - 1:
    return None
  return Network(shape, tuple(steps), *_reaches(steps))


def _steps(
  call: graph.Call, sources: tuple[int, ...], count: int
) -> list[Step] | None:
  """One call as steps, the first of which is number `count`."""
  if call.output is None:
    return None
  layer, channels = call.layer, call.output.shape[-1]
  if type(layer) is _layers.InputLayer:
    return [Step("input", (), channels)] if count == 0 else None
  if type(layer) in _IDENTITIES:
    return []
  if type(layer) in _ELEMENTWISE_LAYERS:
    return [Step("elementwise", sources, channels, function=layer)]
  if _is_sum(call):
    return [Step("sum", sources, channels)]
  if type(layer) is _layers.Conv2D and _keeps_size(layer):
    found = [Step("convolution", sources, channels, layer)]
    sources = (count,)
  elif type(layer) is _layers.Activation:
    found = []
  else:
    return None
  if layer.activation in (None, _activations.linear):
    return found
  if layer.activation not in _ELEMENTWISE_FUNCTIONS:
    return None
  function = layer.activation
  return [*found, Step("elementwise", sources, channels, function=function)]


def _is_sum(call: graph.Call) -> bool:
  """Whether the call adds Keras tensors of one shape, and nothing else."""
  layer = call.layer
  addition = type(layer) is _layers.Add or (
    type(layer).__name__ == "TFOpLambda"
    and layer.symbol in _ADDITIONS
    and len(call.inputs) == 2
  )
  shapes = {tuple(tensor.shape[1:]) for tensor in call.inputs}
  return addition and len(shapes) == 1


def _keeps_size(layer: _layers.Conv2D) -> bool:
  return (layer.padding, layer.strides) == ("same", (1, 1)) and (
    layer.groups,
    layer.data_format,
  ) == (1, "channels_last")


def _reaches(steps: Sequence[Step]):
  """The three reaches of every step."""
  forward: list[Reach] = []
  for step in steps:
    reach = union(*(forward[source] for source in step.sources)) or POINT
    if step.kind == "convolution":
      reach = through(step.layer, reach)
    forward.append(reach)
  back: list[Reach | None] = [None] * len(steps)
  second = list(back)
  back[-1] = POINT
  for index in reversed(range(len(steps))):
    step = steps[index]
    for reaches in (back, second):
      reach = reaches[index]
      for source in step.sources:
        added = reach
        if step.kind == "convolution" and reach is not None:
          added = against(step.layer, reach)
        if step.kind == "elementwise" and reaches is second:
          added = union(reach, forward[source])  # f'' times the change
        reaches[source] = union(reaches[source], added)
  second[0] = None  # no parameter reads it
  return tuple(forward), tuple(back), tuple(second)
