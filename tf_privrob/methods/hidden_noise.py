"""Methods whose network has noise inside it.

What PixelDP, SecureSGD and its sound heir share: the place of the noise; and
for the last two its scale, and how much each hidden unit matters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import models
from tf_privrob import validate
from tf_privrob.gradients import state
from tf_privrob.methods import noise_place

_BATCH = 128


class HiddenNoise:
  """A `certify.NoisyModel`: fresh noise can be added at h.

  A part of a method, which stands before the class of the training.

  h is the output of the first layer with weights, Conv2D or Dense, before its
  activation, unless a subclass chooses another place; nothing else of the input
  reaches the logits.
  """

  def __init__(self, network, config=None, record=None, **kwargs):
    super().__init__(network, config, record, **kwargs)
    self._place = self._find_place(network)

  def _find_place(self, network: tf.keras.Model) -> noise_place.NoisePlace:
    return find(network)

  @property
  def place(self) -> noise_place.NoisePlace:
    """Where the network is cut for the noise."""
    return self._place

  @property
  def noisy_parts(self) -> list[tf.keras.Model]:
    """What a pass with noise runs, beside one layer of the network alone."""
    parts = [self.network, self._place.front, self._place.rest]
    return [part for part in parts if part is not None]

  @property
  def input_noise_shape(self) -> tuple[int, ...]:
    """Of one example's noise at the input."""
    return self._place.input_shape

  @property
  def hidden_noise_shape(self) -> tuple[int, ...]:
    """Of one example's noise at h."""
    return self._place.noise_shape

  def logits_with_noise(
    self,
    x: tf.Tensor,
    input_noise: tf.Tensor | None = None,
    hidden_noise: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """Logits at inference, with further noise at x and at h."""
    if input_noise is not None:
      x = x + input_noise
    hidden = self._place.before(tf.convert_to_tensor(x))
    if hidden_noise is not None:
      hidden = hidden + hidden_noise
    return self._place.after(hidden)

  def hidden_values(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns h in float64 and a bound on its error: `certify.NoisyModel`."""
    if self._place.network is not self.network:
      raise ValueError(
        "Expected the network that this model was made for, received another"
        " one in its place. Make a model of it."
      )
    return self._place.values(x)

  def logits_from_hidden(self, hidden: tf.Tensor) -> tf.Tensor:
    """Logits at inference from h with its fresh noise."""
    return self._place.after(hidden)

  def gaussian_certificate(
    self, stddev: np.ndarray, norm: str, **settings
  ) -> certify.SingleLayerCertificate:
    """Proves radii from fresh N(0, stddev_k^2) at every coordinate of h.

    The radius is (Phi^-1(p1) - Phi^-1(p2)) / 2 over ||D^-1 A||_{norm->2}, D =
    diag(stddev), with the weights as they are now.
    """
    stddev = np.broadcast_to(
      np.asarray(stddev, np.float64), self.hidden_noise_shape
    )
    scale = float(np.sqrt(np.mean(stddev**2)))
    factors = stddev / scale
    return certify.SingleLayerCertificate(
      scale,
      "hidden",
      norm,
      operator_norm=self._place.norms(factors).bound(norm, "l2"),
      distribution="gaussian",
      coordinate_scales=tuple(factors.ravel()),
      weights=models.fingerprint(self),
      **settings,
    )


def find(network: tf.keras.Model) -> noise_place.NoisePlace:
  """The place behind the first layer with weights, before its activation."""
  return noise_place.find(network, 1, "before_activation")


def first_kernel(place: noise_place.NoisePlace) -> tf.Variable:
  """W_1, of the layer before the noise."""
  return place.kernel_layers()[0].kernel


def kernel_norm(kernel: tf.Tensor) -> tf.Tensor:
  """The largest singular value of a kernel as a matrix [patch, filters].

  A scale for the noise, not a sensitivity: patches overlap. No gradient flows
  through it.
  """
  kernel = tf.stop_gradient(tf.convert_to_tensor(kernel))
  matrix = tf.reshape(kernel, [-1, kernel.shape[-1]])
  wide = matrix.shape[0] < matrix.shape[1]
  gram = tf.matmul(matrix, matrix, transpose_a=not wide, transpose_b=wide)
  largest = tf.reduce_max(tf.linalg.eigvalsh(gram))
  return tf.sqrt(tf.maximum(largest, 1e-12))


def hidden_gradients(
  place: noise_place.NoisePlace,
  x: np.ndarray,
  y: np.ndarray,
  batch_size: int = _BATCH,
) -> Iterator[np.ndarray]:
  """dL/dh of each example on its own, [B, ...] at a time, without noise.

  The network is given one example at a time, so that none depends on others or
  on its place among them; one that writes to its variables is refused.
  """
  if len(x) == 0:
    raise ValueError("Expected at least one example for a redistribution.")
  validate.positive_int(batch_size=batch_size)
  of_batch = tf.function(
    functools.partial(_of_batch, place), input_signature=_specs(place)
  )
  state.refuse_writes(of_batch.get_concrete_function().graph)
  for rows, count in data.whole_batches(len(x), batch_size):
    found = of_batch(
      tf.constant(x[rows], tf.float32), tf.constant(y[rows], tf.int64)
    )
    yield found[:count].numpy()


def hidden_gradients_may_end(place: noise_place.NoisePlace) -> str | None:
  """An operation by which one example may end them, see `gradients.may_end`."""
  return gradients.may_end(functools.partial(_of_batch, place), *_specs(place))


def _specs(place) -> list[tf.TensorSpec]:
  images = tf.TensorSpec([None, *place.input_shape])
  return [images, tf.TensorSpec([None], tf.int64)]


def _of_batch(place, images, labels) -> tf.Tensor:
  return tf.map_fn(
    lambda row: _hidden_gradient(place, row[0][None], row[1][None])[0],
    (images, labels),
    fn_output_signature=tf.float32,
  )


def _hidden_gradient(place, images, labels) -> tf.Tensor:
  """Of the sum of the losses, which is each example's own in a row-wise net."""
  hidden = place.before(images)
  with tf.GradientTape() as tape:
    tape.watch(hidden)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels, place.after(hidden)
    )
  return tape.gradient(losses, hidden)


def normalised(
  importance: np.ndarray, total: float | None = None
) -> np.ndarray:
  """Scales to a sum of `total`; None: the number of units, an average of 1.

  Where nothing is important, everything is alike.
  """
  importance = np.asarray(importance, np.float64)
  total = importance.size if total is None else total
  if not importance.sum() > 0:
    importance = np.ones_like(importance)
  return importance * (total / importance.sum())
