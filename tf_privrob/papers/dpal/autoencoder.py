"""The functional-mechanism autoencoder around a first layer (DPAL, Eq. 5-8)."""

from __future__ import annotations

import tensorflow as tf

from tf_privrob import mechanisms
from tf_privrob import validate
from tf_privrob.layers import batch_statistics
from tf_privrob.layers import noise as noise_lib
from tf_privrob.models.files import rebuilding

FORMS = ("paper", "released_code")


@tf.keras.saving.register_keras_serializable("tf_privrob")
class FunctionalMechanismAutoencoder(tf.keras.layers.Layer):
  """Perturbed affine transformation of a layer, with a tied decoder.

  Around a Conv2D or Dense layer with weights theta_1:

    x_bar = x + chi_1/m,  h = clip(theta_1^T x_bar + b),  h_bar = h + 2 chi_2/m

  `call` returns h_bar, before the layer's activation. `reconstruct` decodes it
  with the same weights, x_tilde = theta_1 h_bar.

  Forms. "paper": the clip to [-bound, bound] stands in both paths, since the
  sensitivity rests on it, and the decoder is the adjoint of the encoder.
  "released_code": only the autoencoder's own path has the clip, after a ReLU
  and a standardisation by the batch; the classifier's path has h + noise, with
  x_bar clipped to `input_clip`; the decoder enlarges h_bar to the input's size
  and convolves with the transposed kernel, then ReLU.

  Guarantee: |h| <= bound in the paper's form, for every input. None of privacy:
  the draws are fixed, see `LaplaceNoise`.

  Args:
    layer: Built Conv2D (without groups and dilation) or Dense layer whose
      weights are used; its activation is left out.
    input_scale: Scale of chi_1/m.
    hidden_scale: Scale of 2 chi_2/m.
    bound: Bound of the hidden units.
    form: "paper" or "released_code".
    input_clip: Bound of x_bar in the classifier's path; None for none.
    copied_channels: Whether channels of the input noise are copies, see
      `LaplaceNoise`.
    seed: Seed of both draws.
    **kwargs: Keras' own.
  """

  def __init__(
    self,
    layer: tf.keras.layers.Layer,
    input_scale: float,
    hidden_scale: float,
    bound: float = 1.0,
    form: str = "paper",
    input_clip: float | None = None,
    copied_channels: bool = False,
    seed: int = 0,
    **kwargs,
  ):
    super().__init__(**kwargs)
    validate.non_negative(input_scale=input_scale, hidden_scale=hidden_scale)
    validate.positive(bound=bound)
    validate.one_of(FORMS, form=form)
    mechanisms.stateless_seed(seed)
    if input_clip is not None:
      validate.positive(input_clip=input_clip)
    _check_layer(layer)
    self.layer = layer
    self.bound = float(bound)
    self.form = form
    self.input_clip = input_clip
    self.input_noise = noise_lib.LaplaceNoise(
      input_scale, seed=2 * seed, copied_channels=copied_channels
    )
    self.hidden_noise = noise_lib.LaplaceNoise(hidden_scale, seed=2 * seed + 1)
    self._standardize = batch_statistics.BatchStandardization()

  def build(self, input_shape):
    """Makes the fixed draws."""
    if not self.layer.built:
      self.layer.build(input_shape)
    self.input_noise.build(input_shape)
    self.hidden_noise.build(self.layer.compute_output_shape(input_shape))
    super().build(input_shape)

  def affine(self, x: tf.Tensor) -> tf.Tensor:
    """theta_1^T x + b, without the layer's activation."""
    kernel = self.layer.kernel
    if len(kernel.shape) == 2:
      hidden = tf.matmul(x, kernel)
    else:
      hidden = tf.nn.conv2d(
        x, kernel, self.layer.strides, self.layer.padding.upper()
      )
    return hidden + self.layer.bias if self.layer.use_bias else hidden

  def call(
    self,
    x: tf.Tensor,
    input_noise: tf.Tensor | None = None,
    hidden_noise: tf.Tensor | None = None,
    perturb_input: bool = True,
    perturb_hidden: bool = True,
  ) -> tf.Tensor:
    """The perturbed affine transformation h_bar.

    Args:
      x: Inputs.
      input_noise: Further noise on x, such as a fresh draw at inference.
      hidden_noise: Further noise on h.
      perturb_input: Whether the fixed chi_1/m is added.
      perturb_hidden: Whether the fixed 2 chi_2/m is added.
    """
    x = self.input_noise(x) if perturb_input else x
    x = x if input_noise is None else x + input_noise
    if self.form == "released_code" and self.input_clip is not None:
      x = tf.clip_by_value(x, -self.input_clip, self.input_clip)
    hidden = self.affine(x)
    if self.form == "paper":
      hidden = tf.clip_by_value(hidden, -self.bound, self.bound)
    hidden = self.hidden_noise(hidden) if perturb_hidden else hidden
    return hidden if hidden_noise is None else hidden + hidden_noise

  def autoencode(
    self, x: tf.Tensor, perturb_input: bool = True
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """x_bar and its reconstruction, for `losses.taylor_reconstruction`."""
    x = self.input_noise(x) if perturb_input else x
    hidden = self.affine(x)
    if self.form == "released_code":
      hidden = self._standardize(tf.nn.relu(hidden))
    hidden = tf.clip_by_value(hidden, -self.bound, self.bound)
    return x, self.reconstruct(self.hidden_noise(hidden), x.shape)

  def reconstruct(self, hidden: tf.Tensor, shape) -> tf.Tensor:
    """theta_1 h: the tied decoder; `shape` is that of the inputs."""
    kernel = self.layer.kernel
    if len(kernel.shape) == 2:
      decoded = tf.matmul(hidden, kernel, transpose_b=True)
    elif self.form == "paper":
      decoded = tf.nn.conv2d_transpose(
        hidden,
        kernel,
        [tf.shape(hidden)[0], *shape[1:]],
        self.layer.strides,
        self.layer.padding.upper(),
      )
    else:
      enlarged = tf.image.resize(hidden, shape[1:3], "nearest")
      flipped = tf.transpose(kernel, [1, 0, 3, 2])
      decoded = tf.nn.conv2d(enlarged, flipped, 1, "SAME")
    return tf.nn.relu(decoded) if self.form == "released_code" else decoded

  def compute_output_shape(self, input_shape):
    """Shape of the layer's outputs."""
    return self.layer.compute_output_shape(input_shape)

  def get_config(self) -> dict:
    """The settings, for saving; the draws are weights."""
    return {
      **super().get_config(),
      "layer": tf.keras.saving.serialize_keras_object(self.layer),
      "input_scale": self.input_noise.scale,
      "hidden_scale": self.hidden_noise.scale,
      "bound": self.bound,
      "form": self.form,
      "input_clip": self.input_clip,
      "copied_channels": self.input_noise.copied_channels,
    }

  @classmethod
  def from_config(cls, config):
    """A layer from its settings; the one inside is one that a file may name."""
    config = dict(config)
    layer = rebuilding.rebuild(config.pop("layer"))
    return cls(layer, **config)


def _check_layer(layer: tf.keras.layers.Layer) -> None:
  plain = type(layer) is tf.keras.layers.Dense or (
    type(layer) is tf.keras.layers.Conv2D
    and layer.groups == 1
    and tuple(layer.dilation_rate) == (1, 1)
    and layer.data_format == "channels_last"
  )
  if not plain:
    raise ValueError(
      "Expected a Dense layer or a Conv2D layer without groups and dilation to"
      f" make an autoencoder of, received {type(layer).__name__}"
      f" {layer.name!r}."
    )
