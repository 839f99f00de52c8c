"""Which input features a classifier relies on, and what saying so costs.

Layer-wise relevance propagation (Bach et al. 2015) shares the logit of a class
among the input features. The Adaptive Laplace Mechanism (Phan et al. 2017)
gives relevant features more of its budget. A relevance map is computed from
private data: it is a release like any other. Here are the map in the form of
AdLM's code, whose noise is too small (`paper_noise_scale`), and a form whose
guarantee holds (`private_relevance`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import layers as privrob_layers
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import validate

ABSOLUTE = ("none", "each", "mean")
NORMALISATIONS = ("linear", "mnist", "cifar10")

_SHRINK = 1 - 1e-9
_FLOOR = 1e-5  # of relevances and of budget factors, in AdLM's code
_layers = tf.keras.layers
_WEIGHTED = (_layers.Dense, _layers.Conv2D)
_POOLING = (_layers.AveragePooling2D, _layers.MaxPooling2D)
_RESHAPING = (_layers.Flatten, _layers.Reshape)
_IDENTITIES = (
  _layers.Activation,
  _layers.Dropout,
  _layers.ReLU,
  privrob_layers.BoundedActivation,
)
# By identity: a function of the same name may do anything.
_ACTIVATIONS = (
  tf.keras.activations.linear,
  tf.keras.activations.relu,
  tf.keras.activations.tanh,
  tf.nn.relu,
  tf.nn.tanh,
)


class LayerwiseRelevance:
  """Shares a class's logit among the inputs by the epsilon rule.

  With inputs a, weights w and z_j = sum_i a_i w_ij + b_j of one layer,

    R_i = sum_j a_i w_ij / (z_j + stabiliser sign(z_j)) R_j

  (Bach et al. 2015, Eq. 58), from the logit of one class down to the input;
  sign(0) is 1. As w_ij = dz_j / da_i, the sum is a times the vector-Jacobian
  product of R / (z + stabiliser sign(z)). Activations, clipping and dropout
  hand relevance on unchanged, pooling layers follow the same rule.

  Without biases and as the stabiliser goes to 0, the relevances of an example
  add up to its logit; a stabiliser absorbs some of them, a bias too.

  Each example's relevance depends on that example and the weights alone.

  Args:
    network: a chain of Dense, Conv2D, AveragePooling2D, MaxPooling2D, Flatten,
      Reshape, Dropout, BoundedActivation, ReLU and Activation layers (relu or
      tanh) that returns logits; chains may be nested.
    stabiliser: AdLM's code uses 1.

  Raises:
    ValueError: for a network that is not such a chain.
  """

  def __init__(self, network: tf.keras.Model, stabiliser: float = 1.0):
    validate.positive(stabiliser=stabiliser)
    self._stabiliser = float(stabiliser)
    self._chain = list(_chain(network))
    shape = getattr(network, "input_shape", None)
    if not isinstance(shape, tuple) or not self._chain:
      raise ValueError(
        "Expected a sequential or functional network with a known input shape,"
        f" received {network.name!r}. Give it an Input layer."
      )
    self.input_shape = shape[1:]
    mixing = gradients.not_row_wise(network)
    if mixing is not None:
      raise ValueError(
        "Expected a network that treats every example alone, received"
        f" {mixing}. Use Keras' own layers and models as they are."
      )
    self._check(network)
    self._graph = tf.function(
      self._one_by_one,
      input_signature=[
        tf.TensorSpec([None, *self.input_shape]),
        tf.TensorSpec([None], tf.int64),
      ],
    )

  def __call__(
    self, images: tf.Tensor, labels: tf.Tensor | None = None
  ) -> tf.Tensor:
    """Relevances of the shape of the images.

    Args:
      images: [B, ...].
      labels: [B], the classes whose logits are shared; None: the predicted.
    """
    images = tf.convert_to_tensor(images, tf.float32)
    if labels is None:
      labels = -tf.ones(tf.shape(images)[:1], tf.int64)
    return self._graph(images, tf.cast(labels, tf.int64))

  def _check(self, network: tf.keras.Model) -> None:
    """A shared layer or a branch would make another function of the chain."""
    images = np.random.default_rng(0).normal(size=(2, *self.input_shape))
    images = tf.constant(images, tf.float32)
    through = self._forward(images)[-1][1]
    expected = network(images, training=False)
    if through.shape != expected.shape or not np.allclose(
      through, expected, rtol=1e-3, atol=1e-4
    ):
      raise ValueError(
        f"Expected a plain chain of layers, received {network.name!r}, whose"
        " layers in order give another result: a layer is shared or the network"
        " branches. Relevance is not defined for it here."
      )

  def _forward(self, images: tf.Tensor) -> list[tuple]:
    """(layer, output) of every layer, the input first."""
    outputs = [(None, images)]
    for layer in self._chain:
      outputs.append((layer, layer(outputs[-1][1], training=False)))
    return outputs

  def _one_by_one(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Batches of one: no example depends on others or on its place."""
    return tf.map_fn(
      lambda row: self._propagate(row[0][None], row[1][None])[0],
      (images, labels),
      fn_output_signature=tf.float32,
    )

  def _propagate(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    outputs = self._forward(images)
    logits = outputs[-1][1]
    chosen = tf.where(labels < 0, tf.argmax(logits, axis=1), labels)
    one_hot = tf.one_hot(chosen, logits.shape[-1], dtype=logits.dtype)
    relevance = logits * one_hot
    steps = zip(outputs[:0:-1], outputs[-2::-1])
    for (layer, _), (_, inputs) in steps:
      relevance = self._through(layer, inputs, relevance)
    return relevance

  def _through(self, layer, inputs, relevance) -> tf.Tensor:
    """Relevance of a layer's inputs from that of its outputs."""
    if type(layer) in _RESHAPING:
      return tf.reshape(relevance, tf.shape(inputs))
    if type(layer) in _IDENTITIES:
      return relevance
    with tf.GradientTape() as tape:
      tape.watch(inputs)
      z = _affine(layer, inputs)
    stabilised = z + tf.where(z >= 0, self._stabiliser, -self._stabiliser)
    shares = tape.gradient(z, inputs, output_gradients=relevance / stabilised)
    return inputs * shares


def _affine(layer: tf.keras.layers.Layer, inputs: tf.Tensor) -> tf.Tensor:
  """The layer's output before its activation."""
  if type(layer) in _POOLING:
    return layer(inputs)
  if type(layer) is _layers.Dense:
    z = tf.tensordot(inputs, layer.kernel, 1)
  else:
    z = tf.nn.conv2d(
      inputs,
      layer.kernel,
      layer.strides,
      layer.padding.upper(),
      dilations=layer.dilation_rate,
    )
  return z if layer.bias is None else z + layer.bias


def _chain(network: tf.keras.Model) -> Iterator[tf.keras.layers.Layer]:
  """Layers in order, nested chains taken apart; refuses what has no rule."""
  for layer in getattr(network, "layers", ()):
    if isinstance(layer, tf.keras.Model):
      yield from _chain(layer)
      continue
    if isinstance(layer, _layers.InputLayer):
      continue
    if type(layer) not in _WEIGHTED + _POOLING + _RESHAPING + _IDENTITIES:
      raise ValueError(
        "Expected Dense, Conv2D, pooling, reshaping, dropout and activation"
        f" layers, received {type(layer).__name__} {layer.name!r}: the epsilon"
        " rule is not defined for it here. Use another relevance network."
      )
    activation = getattr(layer, "activation", tf.keras.activations.linear)
    if not any(activation is known for known in _ACTIVATIONS):
      name = getattr(activation, "__name__", repr(activation))
      raise ValueError(
        "Expected Keras' own activations linear, relu, tanh, received"
        f" {name!r} in {layer.name!r}. Take a final softmax off with"
        " models.as_logits."
      )
    if getattr(layer, "data_format", "channels_last") != "channels_last":
      raise ValueError(
        f"Expected data_format='channels_last' in {layer.name!r}."
      )
    yield layer


def mean_relevance(
  network: tf.keras.Model,
  x: np.ndarray,
  y: np.ndarray | None = None,
  stabiliser: float = 1.0,
  absolute: str = "none",
  batch_size: int = 256,
) -> np.ndarray:
  """The average relevance of every feature, without any privacy.

  Args:
    network: see `LayerwiseRelevance`.
    x: inputs [n, ...].
    y: classes [n] whose logits are shared; None: the predicted ones.
    stabiliser: of the epsilon rule.
    absolute: "none" as AdLM's MNIST code, "mean" its CIFAR-10 code (|mean|),
      "each": mean of |R|, in which opposite relevances do not cancel.
    batch_size: rows at a time.
  """
  validate.one_of(ABSOLUTE, absolute=absolute)
  propagate = LayerwiseRelevance(network, stabiliser)
  total = np.zeros(propagate.input_shape)
  for relevance in _batches(propagate, x, y, batch_size):
    relevance = np.abs(relevance) if absolute == "each" else relevance
    total += relevance.sum(axis=0)
  mean = total / len(x)
  return np.abs(mean) if absolute == "mean" else mean


def _batches(propagate, x, y, batch_size) -> Iterator[np.ndarray]:
  """Relevances in float64, a few rows at a time."""
  if len(x) == 0:
    raise ValueError("Expected at least one example for a relevance map.")
  validate.positive_int(batch_size=batch_size)
  for rows, count in data.whole_batches(len(x), batch_size):
    labels = None if y is None else y[rows]
    yield propagate(x[rows], labels)[:count].numpy().astype(np.float64)


def normalise(relevance: np.ndarray, form: str = "mnist") -> np.ndarray:
  """Brings a map into [0, 1]: a min-max scaling and what AdLM makes of it.

  With r = (R - min) / (max - min): "linear" is r, "mnist" r^4, "cifar10"
  min(r + 0.3, 1). A constant map becomes all ones: no feature stands out.
  """
  validate.one_of(NORMALISATIONS, form=form)
  low, high = float(np.min(relevance)), float(np.max(relevance))
  if not np.isfinite([low, high]).all():
    raise ValueError("Expected finite relevances, received NaN or infinity.")
  if low == high:
    return np.ones_like(relevance)
  scaled = (relevance - low) / (high - low)
  if form == "mnist":
    return scaled**4
  return np.clip(scaled + 0.3, 0, 1) if form == "cifar10" else scaled


def paper_noise_scale(
  num_features: int, num_examples: int, dp_epsilon: float
) -> float:
  """2 d / (dp_epsilon D), the scale of AdLM's noise on a relevance map.

  Claim: dp_epsilon-DP of the mean relevance over D examples with |R| <= 1. It
  does not hold for what the code does with it: the map is an average over 2,000
  of the D = 60,000 examples (sensitivity 30 times larger), and is min-max
  scaled before the noise, by extremes that one example can move.
  """
  validate.positive_int(num_features=num_features, num_examples=num_examples)
  validate.positive(dp_epsilon=dp_epsilon)
  return 2 * num_features / (dp_epsilon * num_examples)


def paper_relevance(
  network: tf.keras.Model,
  x: np.ndarray,
  y: np.ndarray | None,
  num_examples: int,
  dp_epsilon: float,
  seed: mechanisms.mechanism.Seed,
  form: str = "mnist",
  stabiliser: float = 1.0,
) -> np.ndarray:
  """AdLM's noisy relevance map: average, normalise, then add noise.

  No guarantee: see `paper_noise_scale`.

  Args:
    network: see `LayerwiseRelevance`; in the paper trained without privacy.
    x: the inputs that are averaged over (2,000 in the code).
    y: their classes; None: the predicted ones.
    num_examples: D of the noise scale (60,000 in the code).
    dp_epsilon: the claimed budget.
    seed: of the noise.
    form: of the normalisation.
    stabiliser: of the epsilon rule.
  """
  absolute = "mean" if form == "cifar10" else "none"
  mean = mean_relevance(network, x, y, stabiliser, absolute)
  scale = paper_noise_scale(mean.size, num_examples, dp_epsilon)
  noise = mechanisms.LaplaceMechanism(scale * dp_epsilon, dp_epsilon)
  return normalise(mean, form) + noise.sample(mean.shape, seed).numpy()


def budget_factors(relevance: np.ndarray) -> np.ndarray:
  """beta_j = d R_j / sum R, with R_j and beta_j at least 1e-5.

  Feature j gets the budget beta_j dp_epsilon; the factors average to 1.
  """
  floored = np.maximum(relevance, _FLOOR)
  return np.maximum(floored.size * floored / floored.sum(), _FLOOR)


def private_relevance(
  network: tf.keras.Model,
  x: np.ndarray,
  y: np.ndarray | None,
  mechanism: mechanisms.LaplaceMechanism | mechanisms.GaussianMechanism,
  seed: mechanisms.mechanism.Seed,
  stabiliser: float = 1.0,
  batch_size: int = 256,
) -> np.ndarray:
  """The mean of |R| over private examples, under differential privacy.

  Each example's |R| is scaled down to norm C, the l1 norm for Laplace noise and
  the l2 norm for Gaussian noise, where C is the sensitivity that the mechanism
  was made for. Adding or removing an example then changes the sum by at most C
  in that norm. Noise is added to the sum; all that follows (division by the
  public n, |.| >= 0, min-max scaling) is post-processing.

  Guarantee: that of `mechanism`, add-or-remove-one, provided that the weights
  of `network` are public (initial values, or trained on public data). If they
  were trained on the same data, their own cost comes on top.

  The scale of a map does not matter afterwards, so C may be small: below the
  norms of all examples, each has an equal say and the noise is least beside it.

  Args:
    network: see `LayerwiseRelevance`.
    x: inputs [n, ...].
    y: classes [n]; None: the predicted ones.
    mechanism: its sensitivity is the clipping norm C.
    seed: of the noise; it must stay secret.
    stabiliser: of the epsilon rule.
    batch_size: rows at a time.

  Returns:
    A map of the shape of one input, >= 0.
  """
  gaussian = isinstance(mechanism, mechanisms.GaussianMechanism)
  if not gaussian and not isinstance(mechanism, mechanisms.LaplaceMechanism):
    raise ValueError(
      "Expected a LaplaceMechanism or a GaussianMechanism, received"
      f" {type(mechanism).__name__}."
    )
  clip_norm = mechanism.l2_sensitivity if gaussian else mechanism.l1_sensitivity
  propagate = LayerwiseRelevance(network, stabiliser)
  total = np.zeros(propagate.input_shape)
  for relevance in _batches(propagate, x, y, batch_size):
    clipped = clip(np.abs(relevance), clip_norm, 2 if gaussian else 1)
    total += clipped.sum(axis=0)
  noisy = mechanism.add_noise(tf.constant(total, tf.float64), seed).numpy()
  return np.maximum(noisy / len(x), 0.0)


def clip(values: np.ndarray, clip_norm: float, order: int) -> np.ndarray:
  """Scales each row down to an l1 or l2 norm of at most `clip_norm`.

  One part in 10^9 less, for the rounding of norms and of sums of rows. A row
  with NaN or infinity counts as zero: it must not spoil the sum.
  """
  flat = values.reshape(len(values), -1)
  flat = np.where(np.isfinite(flat).all(axis=1, keepdims=True), flat, 0.0)
  norms = np.linalg.norm(flat, ord=order, axis=1, keepdims=True)
  scale = clip_norm / np.maximum(norms, clip_norm)
  return (_SHRINK * scale * flat).reshape(values.shape)


def release(mechanism: mechanisms.Mechanism, count: int = 1) -> privacy.Release:
  """What `private_relevance` puts out, for the accountant."""
  return privacy.Release(
    "noisy relevance map",
    mechanism.event(),
    count=count,
    description="sum of |relevance|, clipped per example, plus noise",
  )
