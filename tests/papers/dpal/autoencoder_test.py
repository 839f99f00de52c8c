import json
import math
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import losses
from tf_privrob import papers

_layers = tf.keras.layers
SHAPES = {"conv": (6, 6, 2), "valid": (7, 6, 2), "dense": (5,)}


def first_layer(kind):
  kernel = tf.keras.initializers.RandomNormal(stddev=0.4, seed=1)
  bias = tf.keras.initializers.RandomNormal(stddev=0.2, seed=2)
  both = {"kernel_initializer": kernel, "bias_initializer": bias}
  if kind == "dense":
    return _layers.Dense(4, "relu", **both)
  padding = "same" if kind == "conv" else "valid"
  return _layers.Conv2D(3, 3, 2, padding, activation="relu", **both)


def autoencoder(kind="conv", **changes):
  settings = {"input_scale": 0.3, "hidden_scale": 0.6, "seed": 4, **changes}
  layer = papers.FunctionalMechanismAutoencoder(first_layer(kind), **settings)
  layer.build((None, *SHAPES[kind]))
  return layer


def images(kind="conv", count=4, seed=0):
  rng = np.random.default_rng(seed)
  return rng.uniform(-1, 1, (count, *SHAPES[kind])).astype("float32")


def pad(x, size, stride):
  """TensorFlow's "same" padding, [height, width, channels]."""
  outputs = [math.ceil(n / stride) for n in x.shape[:2]]
  totals = [
    max((out - 1) * stride + size - n, 0)
    for out, n in zip(outputs, x.shape[:2])
  ]
  return np.pad(x, [*((t // 2, t - t // 2) for t in totals), (0, 0)])


def naive_conv(x, kernel, stride, padding):
  """One image, by loops over positions and filters, in float64."""
  size, filters = kernel.shape[0], kernel.shape[-1]
  x = pad(x, size, stride) if padding == "same" else x
  rows, columns = ((n - size) // stride + 1 for n in x.shape[:2])
  found = np.zeros((rows, columns, filters))
  for i, j, f in np.ndindex(*found.shape):
    patch = x[i * stride : i * stride + size, j * stride : j * stride + size]
    found[i, j, f] = np.sum(patch * kernel[..., f])
  return found


def naive_affine(layer, x):
  kernel, bias = (w.numpy().astype(float) for w in layer.layer.weights)
  if kernel.ndim == 2:
    return np.array([row @ kernel for row in x]) + bias
  padding = layer.layer.padding
  return np.array([naive_conv(row, kernel, 2, padding) for row in x]) + bias


def draws(layer):
  return (
    layer.input_noise.noise.numpy().astype(float),
    layer.hidden_noise.noise.numpy().astype(float),
  )


# The encoder.


@pytest.mark.parametrize("kind", SHAPES)
def test_perturbed_affine_transformation_by_loops(kind):
  layer, x = autoencoder(kind, bound=0.7), images(kind)
  at_x, at_h = draws(layer)
  hidden = np.clip(naive_affine(layer, x + at_x), -0.7, 0.7)
  assert 0 < (np.abs(hidden) == 0.7).mean() < 1  # some clipped, some not
  np.testing.assert_allclose(layer(x), hidden + at_h, atol=1e-5)


@pytest.mark.parametrize("kind", SHAPES)
def test_hidden_units_are_bounded_for_every_input(kind):
  layer = autoencoder(kind, bound=0.5)
  for size in (1.0, 1e3, 1e30):
    hidden = layer(size * images(kind), perturb_hidden=False)
    assert np.abs(hidden).max() <= 0.5
  decoded = layer.reconstruct(hidden, images(kind).shape)
  assert np.isfinite(decoded).all()


def test_classifier_path_of_the_released_code():
  """No bound on h; x_bar is clipped; noise stands before the activation."""
  layer = autoencoder(form="released_code", input_clip=0.9)
  x = images()
  at_x, at_h = draws(layer)
  hidden = naive_affine(layer, np.clip(x + at_x, -0.9, 0.9))
  assert np.abs(hidden).max() > 1
  np.testing.assert_allclose(layer(x), hidden + at_h, atol=1e-5)


def test_paper_form_does_not_clip_the_input():
  clipped, free = autoencoder(input_clip=0.1), autoencoder()
  np.testing.assert_array_equal(clipped(images()), free(images()))


def test_noise_arguments():
  layer, x = autoencoder(bound=100.0), images()
  at_x, at_h = draws(layer)
  rng = np.random.default_rng(3)
  more_x = rng.normal(size=x.shape).astype("float32")
  more_h = rng.normal(size=(4, 3, 3, 3)).astype("float32")
  plain = layer(x, perturb_input=False, perturb_hidden=False)
  cases = [
    ({"perturb_input": False, "perturb_hidden": False}, x, 0),
    ({"perturb_hidden": False}, x + at_x, 0),
    ({"perturb_input": False}, x, at_h),
    ({}, x + at_x, at_h),
    ({"input_noise": more_x}, x + at_x + more_x, at_h),
    ({"hidden_noise": more_h}, x + at_x, at_h + more_h),
    ({"input_noise": more_x, "perturb_input": False}, x + more_x, at_h),
  ]
  for arguments, inputs, added in cases:
    np.testing.assert_allclose(
      layer(x, **arguments), naive_affine(layer, inputs) + added, atol=1e-5
    )
  assert np.abs(layer(x) - plain).max() > 0.1


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)]
)
def test_draws_have_their_scales_and_are_independent(factor, accepted):
  layer = papers.FunctionalMechanismAutoencoder(_layers.Dense(3000), 0.3, 2.0)
  layer.build((None, 3000))
  at_x, at_h = (noise.ravel() for noise in draws(layer))
  for noise, scale in ((at_x, 0.3), (at_h, 2.0)):
    law = stats.laplace(scale=scale * factor)
    assert (stats.kstest(noise, law.cdf).pvalue > 1e-3) == accepted
  assert abs(stats.spearmanr(at_x, at_h).statistic) < 4 / 3000**0.5


def test_seed_decides_both_draws():
  one, same, other = (draws(autoencoder(seed=s)) for s in (5, 5, 6))
  for a, b, c in zip(one, same, other):
    np.testing.assert_array_equal(a, b)
    assert not np.any(a == c)


def test_copied_channels_concern_the_input_only():
  at_x, at_h = draws(autoencoder(copied_channels=True))
  np.testing.assert_array_equal(at_x[..., 0], at_x[..., 1])
  assert not np.any(at_h[..., 0] == at_h[..., 1])


# The decoder and the objective.


@pytest.mark.parametrize("kind", SHAPES)
def test_paper_decoder_is_the_exact_adjoint(kind):
  """<theta^T x, h> = <x, theta h> for all x and h."""
  layer, rng = autoencoder(kind), np.random.default_rng(5)
  x = images(kind)
  bias = layer.layer.bias.numpy()
  forward = layer.affine(x).numpy().astype(float) - bias
  h = rng.normal(size=forward.shape).astype("float32")
  back = layer.reconstruct(h, x.shape).numpy().astype(float)
  assert back.shape == x.shape
  for row in range(len(x)):
    left, right = np.sum(forward[row] * h[row]), np.sum(x[row] * back[row])
    assert left == pytest.approx(right, rel=1e-4, abs=1e-5)


def matrix(layer, kind):
  """theta_1 as an explicit [inputs, hidden units] matrix."""
  size = math.prod(SHAPES[kind])
  units = np.eye(size, dtype="float32").reshape(size, *SHAPES[kind])
  rows = naive_affine(layer, units) - layer.layer.bias.numpy()
  return rows.reshape(size, -1)


@pytest.mark.parametrize("kind", SHAPES)
def test_equations_7_and_8_by_loops(kind):
  """sum_j (1/2) theta_1j h_bar - x_bar x_tilde, x_tilde = theta_1 h_bar."""
  layer, x = autoencoder(kind), images(kind)
  theta = matrix(layer, kind)
  at_x, at_h = draws(layer)
  x_bar = x + at_x
  h = np.clip(naive_affine(layer, x_bar), -1, 1)
  h_bar = (h + at_h).reshape(len(x), -1)
  wanted = []
  for xi, hi in zip(x_bar.reshape(len(x), -1), h_bar):
    total = 0.0
    for j in range(len(theta)):
      decoded = sum(theta[j, k] * hi[k] for k in range(len(hi)))
      total += 0.5 * decoded - xi[j] * decoded
    wanted.append(total)
  found_x, decoded = layer.autoencode(x)
  np.testing.assert_allclose(found_x, x_bar, atol=1e-6)
  found = losses.taylor_reconstruction(decoded, found_x, "paper")
  np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_released_autoencoder_by_loops():
  """h = clip(BN(relu(conv))), enlarged, transposed kernel, relu, |.|."""
  layer, x = autoencoder(form="released_code", input_clip=0.1), images()
  kernel = layer.layer.kernel.numpy().astype(float)
  at_x, at_h = draws(layer)
  x_bar = x + at_x  # no clip of the input on this path
  hidden = np.maximum(naive_affine(layer, x_bar), 0)
  for f in range(3):
    values = hidden[..., f]
    hidden[..., f] = (values - values.mean()) / np.sqrt(values.var() + 1e-3)
  h_bar = np.clip(hidden, -1, 1) + at_h
  enlarged = h_bar.repeat(2, axis=1).repeat(2, axis=2)
  turned = np.zeros((3, 3, 3, 2))
  for i, j, c, f in np.ndindex(*kernel.shape):
    turned[j, i, f, c] = kernel[i, j, c, f]
  wanted = [np.maximum(naive_conv(e, turned, 1, "same"), 0) for e in enlarged]
  found_x, decoded = layer.autoencode(x)
  np.testing.assert_allclose(found_x, x_bar, atol=1e-6)
  np.testing.assert_allclose(decoded, wanted, atol=1e-5)
  total = [
    sum(abs(math.log(2) + r * (0.5 - v)) for r, v in zip(w.ravel(), b.ravel()))
    for w, b in zip(wanted, x_bar)
  ]
  found = losses.taylor_reconstruction(decoded, found_x, "released_code")
  np.testing.assert_allclose(found, total, rtol=1e-5)


def test_released_dense_decoder_is_rectified_and_tied():
  layer, x = autoencoder("dense", form="released_code"), images("dense")
  kernel = layer.layer.kernel.numpy()
  h = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
  np.testing.assert_allclose(
    layer.reconstruct(h, x.shape), np.maximum(h @ kernel.T, 0), atol=1e-6
  )


@pytest.mark.parametrize("form", ["paper", "released_code"])
def test_autoencode_without_input_noise(form):
  layer, x = autoencoder(form=form), images()
  found, _ = layer.autoencode(x, perturb_input=False)
  np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("form", ["paper", "released_code"])
def test_gradients_reach_the_layer_and_not_the_draws(form):
  layer, x = autoencoder(form=form), images()
  with tf.GradientTape() as tape:
    x_bar, decoded = layer.autoencode(x)
    loss = tf.reduce_sum(losses.taylor_reconstruction(decoded, x_bar, form))
  kernel, bias = tape.gradient(loss, layer.layer.trainable_variables)
  assert np.abs(kernel).max() > 0
  assert np.abs(bias).max() > 0
  assert {id(v) for v in layer.trainable_variables} == {
    id(v) for v in layer.layer.weights
  }


# Saving.


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("form", ["paper", "released_code"])
def test_saved_and_loaded(tmp_path, kind, form):
  layer = papers.FunctionalMechanismAutoencoder(
    first_layer(kind),
    0.3,
    0.6,
    bound=0.8,
    form=form,
    input_clip=2.0,
    copied_channels=kind != "dense",
    seed=987_654_321,
  )
  model = tf.keras.Sequential([_layers.Input(SHAPES[kind]), layer])
  model.save(tmp_path / "x.keras")
  with zipfile.ZipFile(tmp_path / "x.keras") as file:
    settings = json.dumps(json.loads(file.read("config.json")))
  assert not any(str(n) in settings for n in (987654321, 2 * 987654321))
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  again, x = loaded.layers[-1], images(kind)
  np.testing.assert_array_equal(loaded(x), model(x))
  for a, b in zip(again.autoencode(x), layer.autoencode(x)):
    np.testing.assert_array_equal(a, b)
  assert (again.bound, again.form, again.input_clip) == (0.8, form, 2.0)
  assert again.input_noise.scale == 0.3
  assert again.hidden_noise.scale == 0.6
  assert again.compute_output_shape((None, *SHAPES[kind])) == model.output_shape


# Failures.


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"form": "papr"}, "Unknown form='papr'. Did you mean 'paper'"),
    ({"bound": 0.0}, r"bound=0\.0 > 0"),
    ({"input_clip": -1.0}, r"input_clip=-1\.0 > 0"),
    ({"input_scale": -1.0}, r"input_scale=-1\.0 >= 0"),
    ({"hidden_scale": float("nan")}, "hidden_scale=nan >= 0"),
    ({"seed": None}, "seed=None to be a 64-bit whole number"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    autoencoder(**changes)


@pytest.mark.parametrize(
  "layer",
  [
    _layers.Conv2D(2, 3, dilation_rate=2),
    _layers.Conv2D(2, 3, groups=2),
    _layers.DepthwiseConv2D(3),
    _layers.Conv1D(2, 3),
    _layers.Flatten(),
  ],
)
def test_other_layers_are_refused(layer):
  name = type(layer).__name__
  with pytest.raises(ValueError, match=f"without groups and dil.*{name}"):
    papers.FunctionalMechanismAutoencoder(layer, 0.3, 0.6)
