"""What learners of one linear layer share: features of norm at most 1.

Their arithmetic is exact. Features and weights are multiples of 2^-26 of norm
at most 1, so products are multiples of 2^-52 and float64 adds them without
rounding, in any order; so are sums of up to 2^27 features. An example's scores,
whether it is violated, and what it adds are then functions of that example and
the weights alone, whoever shares its batch, to the last bit. (Layers before
compute in float32, which may round an example's features differently in another
batch; plain inputs do not pass through any.)
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_privrob import certify
from tf_privrob import gradients
from tf_privrob import privacy
from tf_privrob.gradients import state
from tf_privrob.methods import checks
from tf_privrob.methods import method

_GRID_BITS = 26
_SUM_BITS = 53  # of whole numbers that float64 holds
_LENGTH = 1 - 2e-6  # leaves room: "at most 1" is what is accounted
_TINY = 2.0**-126  # the least normal float32; less may be read as zero
PUBLIC_FEATURES = privacy.Assumption(
  "what comes before the linear layer does not depend on the private data",
  "the caller",
)


class LinearMethod(method.Method):
  """A method that learns the last layer, x -> argmax_k <w_k, z(x)>.

  z is all that comes before, fixed and public; usually just the pixels. There
  is no bias, so the prediction does not change with the length of z, and the
  weights are learnt from z / |z| (`normalize`) or from z, scaled down where it
  is longer than 1. Nothing about the private data is refused: an input without
  a direction adds nothing, and a class without examples simply has none.

  Args:
    network: A Keras classifier whose last layer is Dense without bias and
      activation, the only one with weights to be trained.
    config: The settings.
    record: Record of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  def __init__(
    self,
    network: tf.keras.Model,
    config: Any = None,
    record: dict[str, Any] | None = None,
    **kwargs,
  ):
    _require_linear(network)
    super().__init__(network, config, record, **kwargs)
    self._front = _Front(network)
    self(tf.zeros([1, *checks.input_shape(network)]))

  @property
  def num_classes(self) -> int:
    """Outputs of the linear layer."""
    return self._kernel.shape[1]

  @property
  def _kernel(self) -> tf.Variable:
    return self.network.layers[-1].kernel

  @property
  def optimized_variables(self) -> list[tf.Variable]:
    """The linear layer."""
    return [self._kernel]

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """W <- w + update: gradient descent of rate 1 on its negative."""
    del steps
    return tf.keras.optimizers.SGD(1.0)

  def features(self, images: tf.Tensor) -> tf.Tensor:
    """Z of each row, float64 [rows, d]: see `bounded_rows`."""
    return bounded_rows(self._front.features(images), self.config.normalize)

  def check_data(self, x, y, value_range) -> None:
    """Refuses layers that write down what they see; looks at no data."""
    del x, y, value_range
    images = tf.TensorSpec([None, *checks.input_shape(self.network)])
    features = tf.function(self._front.features)
    state.refuse_writes(features.get_concrete_function(images).graph)

  def may_end(self) -> str | None:
    """An operation before the linear layer, which always runs as it is used."""
    spec = tf.TensorSpec([None, *checks.input_shape(self.network)])
    return gradients.may_end(self.features, spec)

  def assumptions(self) -> tuple[privacy.Assumption, ...]:
    """It is assumed that z is public, where it is more than the input."""
    return (PUBLIC_FEATURES,) if self._front.has_weights else ()

  def certifier(self, norm: str = "l2") -> certify.LinearMargin:
    """The exact radius of the linear rule, or a Lipschitz bound behind z."""
    return certify.LinearMargin(norm)


def on_grid(values: tf.Tensor) -> tf.Tensor:
  """Multiples of 2^-26, rounded towards zero: no norm grows."""
  whole = tf.cast(values * 2.0**_GRID_BITS, tf.int32)
  return tf.cast(whole, values.dtype) * 2.0**-_GRID_BITS


def bounded_rows(rows: tf.Tensor, normalize: bool) -> tf.Tensor:
  """Each row on its own: of norm 1 - 2e-6, or at most that; on the grid.

  A row is first divided by its largest value and rounded to whole numbers of
  which the sum of squares is exact, so that nothing under- or overflows, and
  the result is the same in every batch. A row that is zero or not finite is
  zero; so are values below 2^-126, which may or may not be read as zero.

  Args:
    rows: [rows, d]; float32 is what counts of them.
    normalize: Also make short rows longer.

  Returns:
    float64 [rows, d], multiples of 2^-26.
  """
  rows = tf.cast(rows, tf.float32)
  finite = tf.reduce_all(tf.math.is_finite(rows), axis=1, keepdims=True)
  kept = tf.logical_and(finite, tf.abs(rows) >= _TINY)
  rows = tf.where(kept, rows, tf.zeros_like(rows))
  largest = tf.reduce_max(tf.abs(rows), axis=1, keepdims=True)
  top = 2.0 ** ((_SUM_BITS - rows.shape[1].bit_length()) // 2)
  rows = tf.cast(top * (rows / tf.maximum(largest, _TINY)), tf.int32)
  rows = tf.cast(rows, tf.float64)
  norms = tf.sqrt(tf.reduce_sum(rows**2, axis=1, keepdims=True))
  scale = _LENGTH / tf.maximum(norms, top)  # a row other than zero has a +-top
  if not normalize:
    scale = tf.minimum(scale, tf.cast(largest, tf.float64) / top)
  return on_grid(rows * scale)


class _Front:
  """All but the last layer; an object of its own, so Keras saves it once."""

  def __init__(self, network: tf.keras.Model):
    self._model = tf.keras.Model(network.inputs, network.layers[-1].input)
    self.has_weights = bool(self._model.weights)
    self._by_row = gradients.row_by_row(self._model)

  def features(self, images) -> tf.Tensor:
    """The features of each row from that row alone, whatever the layers are."""
    found = self._by_row(images)
    return tf.reshape(found, [-1, self._model.output_shape[-1]])


def _require_linear(network: tf.keras.Model) -> None:
  layer = network.layers[-1] if getattr(network, "layers", None) else None
  fits = (
    type(layer) is tf.keras.layers.Dense
    and not layer.use_bias
    and layer.activation in (None, tf.keras.activations.linear)
    and checks.input_shape(network) is not None
    and layer.input.shape.rank == 2
  )
  if not fits:
    raise ValueError(
      "Expected a network that ends in Dense(num_classes, use_bias=False)"
      " without activation, after Flatten, received"
      f" {getattr(network, 'name', network)!r}. See models.linear."
    )
  others = [
    variable.name
    for variable in network.trainable_variables
    if variable is not layer.kernel
  ]
  if others:
    raise ValueError(
      "Expected weights to train in the last layer only, received"
      f" {', '.join(others[:3])} before it. Set trainable=False there; those"
      " layers are then taken to be public."
    )
