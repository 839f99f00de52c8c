"""A denoiser in front of a classifier that stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.models import graph
from tf_privrob.models import logits
from tf_privrob.models import marks
from tf_privrob.models.zoo import building

_layers = tf.keras.layers
_BETWEEN = "denoised"


@tf.keras.saving.register_keras_serializable("tf_privrob")
class CopiedChannels(tf.keras.initializers.GlorotUniform):
  """A kernel whose first filters copy the first input channels.

  As many as there are of both; further filters are Glorot's uniform draw.
  """

  def __call__(self, shape, dtype=None, **kwargs):
    """Values of a kernel [height, width, input channels, filters]."""
    drawn = super().__call__(shape, dtype, **kwargs)
    height, width, channels, filters = shape
    copies = np.zeros([height, width, channels, min(channels, filters)])
    copies[(height - 1) // 2, (width - 1) // 2] = np.eye(*copies.shape[2:])
    copies = tf.cast(copies, drawn.dtype)
    return tf.concat([copies, drawn[..., copies.shape[-1] :]], axis=-1)


def convolutional_denoiser(
  input_shape: Sequence[int],
  filters: int = 16,
  size: int = 5,
  seed: int | None = None,
) -> tf.keras.Model:
  """A small autoencoder that starts as the identity.

    h = conv(x),   x_hat = P h + conv(relu(conv(relu(h))))

  The residual path P h, a 1x1 convolution, leaves from h and not from x. If
  noise is added to h, as SecureSGD does, then nothing but h + noise is known
  of x, which a certificate at h rests on; a path from x around the noise would
  void it. The first filters of h start as copies of the image's channels, P as
  their selection and the last convolution as zero.

  Args:
    input_shape: height, width, channels of an image.
    filters: of the hidden layers, at least the image's channels.
    size: of the first layer's kernel.
    seed: of the initial weights; public, see `building.seeds`.
  """
  shape = tuple(input_shape)
  if len(shape) != 3:
    raise ValueError(
      "Expected images (height, width, channels) for a convolutional denoiser,"
      f" received input_shape={shape}."
    )
  channels = shape[2]
  validate.positive_int(filters=filters, size=size)
  if filters < channels:
    raise ValueError(
      f"Expected filters={filters} of at least the image's {channels} channels,"
      " which the first ones start as."
    )

  s = building.seeds(seed)

  def conv(count, size, initializer, name, **kwargs):
    return _layers.Conv2D(
      count,
      size,
      padding="same",
      kernel_initializer=initializer,
      name=f"denoiser_{name}",
      **kwargs,
    )

  inputs = tf.keras.Input(shape)
  hidden = conv(filters, size, CopiedChannels(next(s)), "first")(inputs)
  residual = conv(channels, 1, CopiedChannels(0), "residual", use_bias=False)
  features = _layers.ReLU(name="denoiser_relu")(hidden)
  features = conv(
    filters,
    3,
    tf.keras.initializers.GlorotUniform(next(s)),
    "hidden",
    activation="relu",
  )(features)
  features = conv(channels, 3, "zeros", "last")(features)
  outputs = _layers.Add(name="denoiser_sum")([residual(hidden), features])
  return tf.keras.Model(inputs, outputs, name="convolutional_denoiser")


def denoised_classifier(
  denoiser: tf.keras.Model, classifier: tf.keras.Model
) -> tf.keras.Model:
  """classifier(denoiser(x)) as one flat network; only the denoiser is trained.

  The classifier is copied, layers renamed `classifier_...` and frozen, so that
  the one that was given can be used on. A dropout in it is switched off, a
  batch normalisation uses its moving averages: both follow from the freezing
  or the copy. The denoiser's layers are shared. An identity named "denoised"
  lies between the two, where `denoiser_of` parts them again.

  Args:
    denoiser: from an image to an image of the classifier's input shape.
    classifier: a built functional or sequential network that returns logits.

  Raises:
    ValueError: if the two do not fit, or the denoiser has nothing to train.
  """
  _require_graph(denoiser=denoiser, classifier=classifier)
  if denoiser.output_shape != classifier.input_shape:
    raise ValueError(
      f"Expected a denoiser whose output has the classifier's input shape"
      f" {classifier.input_shape[1:]}, received {denoiser.output_shape[1:]}."
    )
  if denoiser.output_shape != denoiser.input_shape:
    raise ValueError(
      "Expected a denoiser that keeps the shape of an image, received"
      f" {denoiser.name!r}, which makes {denoiser.output_shape[1:]} of"
      f" {denoiser.input_shape[1:]}."
    )
  if logits.returns_probabilities(classifier):
    raise ValueError(
      f"Expected a classifier that returns logits, received"
      f" {classifier.name!r}, which ends in a softmax. Pass"
      " models.as_logits(classifier)."
    )
  if not denoiser.trainable_variables:
    raise ValueError(
      f"Expected a denoiser with trainable weights, received"
      f" {denoiser.name!r} with none."
    )
  frozen = tf.keras.models.clone_model(classifier, clone_function=_renamed)
  frozen.set_weights(classifier.get_weights())
  marks.carry_marks(classifier.weights, frozen.weights)
  between = _layers.Activation("linear", name=_BETWEEN)(denoiser.output)
  outputs = graph.applied(frozen, [between])
  frozen.trainable = False
  return tf.keras.Model(
    denoiser.input, outputs, name=f"denoised_{classifier.name}"
  )


def denoiser_of(network: tf.keras.Model) -> tf.keras.Model:
  """The denoiser in a network of `denoised_classifier`; weights are shared.

  Raises:
    ValueError: the network was not made by `denoised_classifier`.
  """
  between = _between(network).get_input_at(0)
  return tf.keras.Model(
    network.input, between, name=f"denoiser_of_{network.name}"
  )


def classifier_of(network: tf.keras.Model) -> tf.keras.Model:
  """The classifier in a network of `denoised_classifier`; weights are shared.

  Raises:
    ValueError: the network was not made by `denoised_classifier`.
  """
  between = _between(network).get_output_at(0)
  return tf.keras.Model(
    between, network.output, name=f"classifier_of_{network.name}"
  )


def _between(network: tf.keras.Model) -> tf.keras.layers.Layer:
  """The identity where `denoised_classifier` joined the two."""
  for layer in getattr(network, "layers", []):
    if layer.name == _BETWEEN and isinstance(layer, _layers.Activation):
      return layer
  raise ValueError(
    "Expected a network made by models.denoised_classifier, in which a layer"
    f" {_BETWEEN!r} follows the denoiser, received"
    f" {getattr(network, 'name', network)!r} without one."
  )


def _require_graph(**models: tf.keras.Model) -> None:
  """Refuses models whose layers cannot be told apart, or of several inputs."""
  for role, model in models.items():
    try:
      _ = model.input, model.output
      known = isinstance(model.input_shape, tuple)
    except (AttributeError, ValueError):
      known = False
    if not known:
      raise ValueError(
        f"Expected a functional {role}, or a sequential one with an Input layer"
        f" and a single input, received {type(model).__name__}"
        f" {getattr(model, 'name', '')!r}."
      )


def _renamed(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
  config = {**layer.get_config(), "name": f"classifier_{layer.name}"}
  if isinstance(layer, _layers.Dropout):
    config["rate"] = 0.0
  return type(layer).from_config(config)
