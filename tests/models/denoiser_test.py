import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

_layers = tf.keras.layers
SHAPE = (8, 8, 2)
X = np.random.RandomState(0).rand(5, *SHAPE).astype("float32")


def classifier(**kwargs):
  return models.mlp(SHAPE, 3, hidden=(7,), **kwargs)


def test_denoiser_starts_as_the_identity_on_what_it_sees():
  denoiser = models.convolutional_denoiser(SHAPE, filters=4)
  np.testing.assert_allclose(denoiser(X), X, atol=1e-6)
  # Noise at h comes through the residual path: there is no other way from x.
  first = denoiser.get_layer("denoiser_first")
  rest = tf.keras.Model(first.output, denoiser.output)
  hidden = first(X) + 1.0
  np.testing.assert_allclose(rest(hidden), X + 1.0, atol=1e-6)


def test_joined_network_is_flat_and_computes_the_composition():
  denoiser = models.convolutional_denoiser(SHAPE, filters=4, seed=3)
  for variable in denoiser.trainable_variables:
    variable.assign_add(0.1 * tf.ones_like(variable))
  head = classifier()
  joined = models.denoised_classifier(denoiser, head)
  np.testing.assert_allclose(joined(X), head(denoiser(X)), rtol=1e-5)
  assert not any(isinstance(layer, tf.keras.Model) for layer in joined.layers)
  trained = {v.ref() for v in joined.trainable_variables}
  assert trained == {v.ref() for v in denoiser.trainable_variables}
  assert head.trainable_variables  # the one that was given is left alone
  assert not {w.ref() for w in joined.weights} & {w.ref() for w in head.weights}


def test_a_classifier_that_branches_can_be_joined():
  inputs = tf.keras.Input(SHAPE)
  one = _layers.Conv2D(3, 3, padding="same")(inputs)
  two = _layers.Conv2D(3, 3, padding="same")(one)
  outputs = _layers.Dense(3)(_layers.Flatten()(_layers.Add()([one, two])))
  head = tf.keras.Model(inputs, outputs)
  head(tf.keras.Input(SHAPE))  # a call elsewhere must not confuse
  joined = models.denoised_classifier(
    models.convolutional_denoiser(SHAPE, 4), head
  )
  np.testing.assert_allclose(joined(X), head(X), rtol=1e-4, atol=1e-5)


def test_frozen_dropout_is_off_in_training():
  head = tf.keras.Sequential(
    [
      _layers.Input(SHAPE),
      _layers.Flatten(),
      _layers.Dropout(0.5),
      _layers.Dense(3),
    ]
  )
  joined = models.denoised_classifier(
    models.convolutional_denoiser(SHAPE, 4), head
  )
  np.testing.assert_allclose(
    joined(X, training=True), joined(X, training=False)
  )


def test_joined_network_survives_a_file(tmp_path):
  joined = models.denoised_classifier(
    models.convolutional_denoiser(SHAPE, 4), classifier()
  )
  joined.save(tmp_path / "joined.keras")
  loaded = tf.keras.models.load_model(tmp_path / "joined.keras")
  np.testing.assert_array_equal(loaded(X), joined(X))
  assert len(loaded.trainable_variables) == len(joined.trainable_variables)


@pytest.mark.parametrize(
  "build",
  [
    lambda: models.convolutional_denoiser(SHAPE, 4, seed=5),
    lambda: models.paper_denoiser(SHAPE, (4, 4), residual=True),
    lambda: models.smooth_denoiser(SHAPE, 4),
  ],
)
def test_the_denoiser_comes_out_again_with_shared_weights(build, tmp_path):
  denoiser = build()
  joined = models.denoised_classifier(denoiser, classifier())
  found = models.denoiser_of(joined)
  np.testing.assert_array_equal(found(X), denoiser(X))
  assert {v.ref() for v in found.weights} == {v.ref() for v in denoiser.weights}
  joined.save(tmp_path / "joined.keras")
  loaded = tf.keras.models.load_model(tmp_path / "joined.keras")
  part = models.denoiser_of(loaded)
  np.testing.assert_array_equal(part(X), denoiser(X))
  before = loaded(X).numpy()
  bias = part.get_layer("denoiser_last").bias
  bias.assign_add(0.5 * tf.ones_like(bias))
  assert np.abs(before - loaded(X)).max() > 1e-3
  # What came out can be joined again, with another classifier.
  head = classifier(seed=3)
  again = models.denoised_classifier(part, head)
  np.testing.assert_allclose(again(X), head(part(X)), rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(models.denoiser_of(again)(X), part(X))


def test_there_is_no_denoiser_in_other_networks():
  with pytest.raises(ValueError, match=r"denoised_classifier.*received 'mlp'"):
    models.denoiser_of(classifier())
  with pytest.raises(ValueError, match="received None without one"):
    models.denoiser_of(None)


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (
      lambda: (
        tf.keras.Sequential(
          [_layers.Input((4, 4, 2)), _layers.Conv2DTranspose(2, 2, 2)]
        ),
        classifier(),
      ),
      r"keeps the shape.*makes \(8, 8, 2\) of \(4, 4, 2\)",
    ),
    (
      lambda: (models.convolutional_denoiser((8, 8, 1), 4), classifier()),
      r"input shape \(8, 8, 2\), received \(8, 8, 1\)",
    ),
    (
      lambda: (
        models.convolutional_denoiser(SHAPE, 4),
        tf.keras.Sequential(
          [_layers.Input(SHAPE), _layers.Flatten(), _layers.Dense(3, "softmax")]
        ),
      ),
      "returns logits.*as_logits",
    ),
    (
      lambda: (
        tf.keras.Sequential([_layers.Input(SHAPE), _layers.ReLU()]),
        classifier(),
      ),
      "trainable weights",
    ),
    (
      lambda: (
        models.convolutional_denoiser(SHAPE, 4),
        tf.keras.Sequential([_layers.Flatten(), _layers.Dense(3)]),
      ),
      "functional classifier",
    ),
  ],
)
def test_what_does_not_fit_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    models.denoised_classifier(*make())


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (((8, 8),), "images"),
    ((SHAPE, 1), "image's 2 channels"),
    ((SHAPE, 0), "filters=0"),
  ],
)
def test_bad_denoiser(arguments, message):
  with pytest.raises(ValueError, match=message):
    models.convolutional_denoiser(*arguments)


def test_secure_sgd_mnist_is_the_released_network():
  network = models.by_name("secure_sgd_mnist", (28, 28, 1), 10)
  assert network.count_params() == 130_781
  shapes = [tuple(w.shape) for w in network.weights if len(w.shape) > 1]
  assert shapes == [(5, 5, 1, 32), (5, 5, 32, 64), (3136, 25), (25, 10)]
  kernel = network.layers[0].kernel.numpy()
  assert np.abs(kernel).max() <= 0.2  # truncated at two stddevs of 0.1
  assert kernel.std() == pytest.approx(0.088, rel=0.1)
  np.testing.assert_array_equal(network.layers[0].bias, np.float32(0.1))
