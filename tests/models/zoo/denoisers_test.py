"""Denoisers: their parts, their gradients, and what input noise can reach."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import models
from tf_privrob.gradients import factors

_layers = tf.keras.layers


def _images(shape, count=5, seed=0):
  return np.random.default_rng(seed).random((count, *shape), np.float32)


@pytest.mark.parametrize("name", models.DENOISERS)
@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3)])
def test_every_denoiser_keeps_the_shape_and_survives_a_file(
  name, shape, tmp_path
):
  denoiser = models.denoiser_by_name(name, shape, seed=2)
  assert denoiser.output_shape == denoiser.input_shape == (None, *shape)
  denoiser.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras", compile=False)
  x = _images(shape, 2)
  np.testing.assert_array_equal(loaded(x), denoiser(x))
  again = models.denoiser_by_name(name, shape, seed=2)
  for own, other in zip(again.get_weights(), denoiser.get_weights()):
    np.testing.assert_array_equal(own, other)
  other = models.denoiser_by_name(name, shape, seed=3)
  assert not np.array_equal(
    *(d.get_layer("denoiser_first").kernel for d in (denoiser, other))
  )


def _sizes(denoiser):
  return {
    layer.name: layer.count_params()
    for layer in denoiser.layers
    if layer.count_params() and not layer.name.endswith("_norm")
  }


def test_slices_of_the_smooth_denoiser():
  assert _sizes(models.smooth_denoiser((28, 28, 1))) == {
    "denoiser_first": 3 * 3 * 16 + 16,
    "denoiser_hidden": 16 * 16 + 16,
    "denoiser_last": 3 * 3 * 16 + 1,
  }
  wide = _sizes(models.smooth_denoiser((32, 32, 3), 8, inner_size=3))
  assert wide["denoiser_hidden"] == 9 * 8 * 8 + 8
  assert wide["denoiser_first"] == 9 * 3 * 8 + 8


def test_parts_of_the_paper_denoiser():
  denoiser = models.paper_denoiser((28, 28, 1), dropout=0.1)
  assert _sizes(denoiser) == {
    "denoiser_first": 9 * 16,
    "denoiser_down1": 9 * 16 * 32,
    "denoiser_down2": 9 * 32 * 32,
    "denoiser_inner1": 9 * 32 * 32,
    "denoiser_inner2": 9 * 32 * 32,
    "denoiser_up2": 9 * 32 * 32,
    "denoiser_up1": 9 * 32 * 16,
    "denoiser_last": 9 * 16 + 1,
  }
  kinds = [type(layer) for layer in denoiser.layers]
  assert kinds.count(_layers.Conv2DTranspose) == 3
  assert kinds.count(_layers.LayerNormalization) == 7
  assert kinds.count(_layers.Dropout) == 1
  plain = models.paper_denoiser((28, 28, 1))
  assert _layers.Dropout not in [type(layer) for layer in plain.layers]
  inner = denoiser.get_layer("denoiser_inner1")
  assert inner.output_shape == (None, 7, 7, 32)


@pytest.mark.parametrize(
  "build", [models.paper_denoiser, models.smooth_denoiser]
)
def test_residual_form_adds_the_input(build):
  x = _images((8, 8, 2))
  plain = build((8, 8, 2), residual=False, seed=1)
  residual = build((8, 8, 2), residual=True, seed=1)
  np.testing.assert_allclose(residual(x), x + plain(x), atol=1e-6)
  assert np.abs(plain(x)).max() > 1e-3


def _squared_error(denoiser):
  def loss(batch, seed):
    del seed
    noisy, clean = batch
    return tf.reduce_sum((denoiser(noisy) - clean) ** 2, [1, 2, 3])

  return loss


@pytest.mark.slow
@pytest.mark.parametrize("name", models.DENOISERS)
def test_clipped_gradients_equal_the_loop(name):
  shape = (8, 8, 2)
  denoiser = models.denoiser_by_name(name, shape)
  for index, variable in enumerate(denoiser.trainable_variables):
    variable.assign_add(0.1 * _images(variable.shape, 1, seed=index)[0])
  clean = _images(shape, 4)
  noisy = clean + 0.25 * (_images(shape, 4, seed=9) - 0.5)
  batch = (tf.constant(noisy), tf.constant(clean))
  loss = _squared_error(denoiser)
  per_example = []
  for row in range(4):
    with tf.GradientTape() as tape:
      value = loss([tensor[row : row + 1] for tensor in batch], None)
    gradient = tape.gradient(value, denoiser.trainable_variables)
    per_example.append([g.numpy().astype("float64") for g in gradient])
  norms = [np.sqrt(sum((g**2).sum() for g in gs)) for gs in per_example]
  clip = np.median(norms)
  clipped = gradients.ClippedGradients(loss, denoiser, clip)
  assert clipped.engine == "ghost"
  clipped.check(batch)
  result = clipped(batch)
  for index, found in enumerate(result.gradients):
    expected = sum(
      gs[index] * min(1, clip / norm) for gs, norm in zip(per_example, norms)
    )
    expected *= 1 - factors.SMALLEST_MARGIN
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * clip)
  assert int(result.clipped) == 2


def _mixed_derivatives(denoiser, layer, images):
  """Row theta_k: d/dz of d loss/d theta_k at each image, target held fixed."""
  weights = layer.trainable_weights

  @tf.function
  def at(z):
    with tf.GradientTape() as outer:
      outer.watch(z)
      with tf.GradientTape() as inner:
        loss = tf.reduce_sum((denoiser(z) - tf.stop_gradient(z)) ** 2)
      gradient = inner.gradient(loss, weights)
      flat = tf.concat([tf.reshape(g, [-1]) for g in gradient], 0)
    return tf.reshape(outer.jacobian(flat, z), [flat.shape[0], -1])

  columns = [at(tf.constant(image)) for image in images[:, None]]
  return np.concatenate(columns, 1).astype("float64")


def _relative_singular_values(denoiser, name, images):
  layer = denoiser.get_layer(name)
  values = np.linalg.svd(
    _mixed_derivatives(denoiser, layer, images), compute_uv=False
  )
  assert len(values) == layer.count_params()
  return values / values[0]


@pytest.mark.parametrize("activation", ["tanh", "softplus"])
@pytest.mark.parametrize("name", ["first", "hidden", "last"])
def test_input_noise_reaches_every_direction_of_a_slice(name, activation):
  """Full row rank; float32 noise would be below 1e-6."""
  denoiser = models.smooth_denoiser((6, 6, 1), 6, activation=activation)
  values = _relative_singular_values(
    denoiser, f"denoiser_{name}", _images((6, 6, 1), 8)
  )
  assert values[-1] > 1e-5


def test_a_last_layer_of_zeros_would_hide_the_others():
  denoiser = models.smooth_denoiser((6, 6, 1), 6)
  last = denoiser.get_layer("denoiser_last")
  assert np.abs(last.kernel).min() > 0
  last.set_weights([np.zeros_like(w) for w in last.get_weights()])
  first = denoiser.get_layer("denoiser_first")
  found = _mixed_derivatives(denoiser, first, _images((6, 6, 1), 2))
  assert not found.any()


@pytest.mark.slow
def test_layer_normalisation_hides_directions():
  """Why the paper's kind of denoiser cannot do with less noise."""
  denoiser = models.paper_denoiser((8, 8, 1), (4, 4))
  values = _relative_singular_values(
    denoiser, "denoiser_first", _images((8, 8, 1), 8)
  )
  # Adding one kernel of 9 weights to all 4 filters changes nothing.
  assert (values < 1e-6).sum() >= 9
  assert values[-10] > 1e-5


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (
      lambda: models.denoiser_by_name("smoth_denoiser", (8, 8, 1)),
      "Did you mean 'smooth_denoiser'",
    ),
    (lambda: models.smooth_denoiser((8, 8)), r"input_shape=\(8, 8\)"),
    (lambda: models.smooth_denoiser((8, 8, 1), 0), "filters=0"),
    (
      lambda: models.smooth_denoiser((8, 8, 1), activation="relu"),
      "activation='relu'.*Known: softplus, tanh",
    ),
    (lambda: models.paper_denoiser((8,)), "images .* for paper_denoiser"),
    (
      lambda: models.paper_denoiser((30, 28, 1)),
      r"multiples of 4, .*input_shape=\(30, 28, 1\). Pass fewer",
    ),
    (lambda: models.paper_denoiser((8, 8, 1), (4, 0)), r"filters\[1\]=0"),
    (lambda: models.paper_denoiser((8, 8, 1), ()), r"filters=\(\)"),
    (lambda: models.paper_denoiser((8, 8, 1), dropout=1.0), "dropout=1.0"),
  ],
)
def test_bad_denoisers_are_refused(build, message):
  with pytest.raises(ValueError, match=message):
    build()
