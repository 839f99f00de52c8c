"""Keeps the kernels before a noise layer small: a function of weights alone."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from tf_privrob import certify
from tf_privrob import validate
from tf_privrob.methods import noise_place

KINDS = ("normalise", "parseval", "none")
_PARSEVAL_STEP = 3e-4  # beta of Cisse et al. 2017, as PixelDP sets it
_FIRST_STEPS, _STEPS = 100, 2  # of power iteration, at first and after


class Projection:
  """Called after each update; it sees no data, so it costs no privacy.

  * "normalise" divides each kernel by its norm where that exceeds 1: the first
    one's from the attack's norm to the one that the noise hides, the others'
    from that norm to itself. The product of the kernels' norms is then about
    1. In l2 the norm is that of the real convolution, by power iteration,
    which approaches it from below.
  * "parseval" pulls a kernel W [outputs, inputs] towards orthonormal rows:
    W <- (1 + beta) W - beta W W^T W (Cisse et al. 2017), `loops` times. A value
    of the input is in at most c^2 = ceil(k/stride)^2 patches, so PixelDP
    convolves with W / c. Here W / c is the layer's kernel.
  * "none" leaves them alone.

  Whatever it does, a certificate must take the trained weights' own norm.

  Args:
    place: whose layers before the noise are kept small.
    kind: one of KINDS.
    attack_norm: of changes of the input.
    hidden_norm: "l2" for Gaussian noise, "l1" for Laplace.
    loops: of "parseval".
  """

  def __init__(
    self,
    place: noise_place.NoisePlace,
    kind: str,
    attack_norm: str,
    hidden_norm: str,
    loops: int = 1,
  ):
    validate.one_of(KINDS, projection=kind)
    self._kind, self._loops = kind, loops
    self._layers = place.kernel_layers() if kind != "none" else []
    self._norms = [
      (attack_norm if number == 0 else hidden_norm, hidden_norm)
      for number in range(len(self._layers))
    ]
    self._maps = [
      certify.linear_map(layer, tuple(layer.input_shape[1:]))
      for layer in self._layers
    ]
    self._vectors = [
      tf.Variable(
        tf.random.stateless_normal([1, *found.input_shape], [number, 1]),
        trainable=False,
      )
      for number, found in enumerate(self._maps)
    ]

  def start(self) -> None:
    """Projects the initial weights."""
    self._apply(_FIRST_STEPS)

  def __call__(self) -> None:
    """Projects the weights after one update; works inside a graph."""
    self._apply(_STEPS)

  def _apply(self, steps: int) -> None:
    for number, layer in enumerate(self._layers):
      if self._kind == "parseval":
        layer.kernel.assign(self._parseval(layer))
        continue
      norm = self._estimate(number, layer.kernel, steps)
      layer.kernel.assign(layer.kernel / tf.maximum(norm, 1.0))

  def _estimate(self, number: int, kernel, steps: int) -> tf.Tensor:
    """The norm of one kernel; bounds as in `LinearMap.norms`."""
    found = dataclasses.replace(
      self._maps[number], kernel=tf.convert_to_tensor(kernel)
    )
    p, q = self._norms[number]
    absolute = found.entrywise(tf.abs)
    if p == "l1":
      if q == "l1":
        return tf.reduce_max(absolute.column_sums())
      squares = found.entrywise(tf.square).column_sums()
      return tf.sqrt(tf.reduce_max(squares))
    vector = self._vectors[number]
    l2, moved = found.l2_estimate(vector, steps)
    vector.assign(moved)
    inputs, outputs = map(math.prod, (found.input_shape, found.output_shape))
    if (p, q) == ("l2", "l2"):
      return l2
    if p == "l2":
      by_columns = tf.norm(absolute.column_sums())
      return tf.minimum(by_columns, math.sqrt(outputs) * l2)
    if q == "l2":
      by_rows = tf.norm(absolute.row_sums())
      return tf.minimum(by_rows, math.sqrt(inputs) * l2)
    total = tf.reduce_sum(absolute.column_sums())
    return tf.minimum(total, math.sqrt(inputs * outputs) * l2)

  def _parseval(self, layer) -> tf.Tensor:
    overlap = 1.0
    if hasattr(layer, "strides"):
      overlap = math.sqrt(
        math.prod(
          math.ceil(size / stride)
          for size, stride in zip(layer.kernel_size, layer.strides)
        )
      )
    rows = overlap * tf.reshape(layer.kernel, [-1, layer.kernel.shape[-1]])
    for _ in range(self._loops):
      cube = rows @ tf.matmul(rows, rows, transpose_a=True)
      rows = (1 + _PARSEVAL_STEP) * rows - _PARSEVAL_STEP * cube
    return tf.reshape(rows / overlap, layer.kernel.shape)
