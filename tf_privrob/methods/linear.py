"""What learners of one linear layer share: features of norm at most 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import privacy
from tf_privrob.methods import method

_BATCH = 1000
_ROUNDING = 1e-5
PUBLIC_FEATURES = privacy.Assumption(
  "what comes before the linear layer does not depend on the private data",
  "the caller",
)


class LinearMethod(method.Method):
  """A method that learns the last layer, x -> argmax_k <w_k, z(x)>.

  z is all that comes before, fixed and public; usually just the pixels. There
  is no bias, so the prediction does not change with the length of z, and the
  weights are learnt from z / |z| (`normalize`) or from z of norm at most 1.

  Args:
    network: a Keras classifier whose last layer is Dense without bias and
      activation, the only one with weights to be trained.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
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
    self(tf.zeros([1, *method.input_shape(network)]))

  @property
  def num_classes(self) -> int:
    """Outputs of the linear layer."""
    return self._kernel.shape[1]

  @property
  def _kernel(self) -> tf.Variable:
    return self.network.layers[-1].kernel

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """W <- w + update: gradient descent of rate 1 on its negative."""
    del steps
    return tf.keras.optimizers.SGD(1.0)

  def features(self, images: tf.Tensor) -> tf.Tensor:
    """Z of each row, [rows, d], of norm 1 or at most 1."""
    found = self._front.features(images)
    norms = tf.norm(found, axis=1, keepdims=True)
    if self.config.normalize:
      return tf.math.divide_no_nan(found, norms)
    return found / tf.maximum(norms, 1.0)

  def begin(self, x, y, run_dir, resume, value_range) -> None:
    """Refuses rows and classes that a halfspace cannot be learnt from."""
    del run_dir, resume, value_range
    norms = np.concatenate(
      [
        tf.norm(self._front.features(x[i : i + _BATCH]), axis=1).numpy()
        for i in range(0, len(x), _BATCH)
      ]
    )
    if not norms.all():
      raise ValueError(
        "Expected inputs other than zero, which has no direction, received"
        f" example {int(np.flatnonzero(norms == 0)[0])} in x_train with norm 0"
        f" ({int((norms == 0).sum())} of {len(x)}). Remove them."
      )
    if not self.config.normalize and norms.max() > 1 + _ROUNDING:
      raise ValueError(
        "Expected norms of at most 1, which the sensitivity rests on, received"
        f" norm {norms.max():.4g} of example {int(norms.argmax())} in x_train."
        " Pass normalize=True, or divide all inputs by a public bound."
      )
    missing = np.setdiff1d(np.arange(self.num_classes), y)
    if len(missing):
      raise ValueError(
        f"Expected examples of all {self.num_classes} classes, received none of"
        f" class {', '.join(map(str, missing))} in y_train: its halfspace would"
        " have negative examples only. Use a network with fewer outputs."
      )

  def assumptions(self) -> tuple[privacy.Assumption, ...]:
    """That z is public, where it is more than the input."""
    return (PUBLIC_FEATURES,) if self._front.has_weights else ()

  def certifier(self, norm: str = "l2") -> certify.LinearMargin:
    """The exact radius of the linear rule, or a Lipschitz bound behind z."""
    return certify.LinearMargin(norm)


class _Front:
  """All but the last layer; an object of its own, so Keras saves it once."""

  def __init__(self, network: tf.keras.Model):
    self._model = tf.keras.Model(network.inputs, network.layers[-1].input)
    self.has_weights = bool(self._model.weights)

  def features(self, images) -> tf.Tensor:
    found = self._model(images, training=False)
    return tf.reshape(found, [-1, found.shape[-1]])


def _require_linear(network: tf.keras.Model) -> None:
  layer = network.layers[-1] if getattr(network, "layers", None) else None
  fits = (
    type(layer) is tf.keras.layers.Dense
    and not layer.use_bias
    and layer.activation in (None, tf.keras.activations.linear)
    and method.input_shape(network) is not None
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
