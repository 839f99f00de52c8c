import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import layers
from tf_privrob import mechanisms

ZEROS = tf.zeros([4, 6, 5, 3])


def noise_of(layer, x=ZEROS, **kwargs):
  return layer(x, **kwargs).numpy() - x.numpy()


# The law.


_LAWS = [
  (layers.LaplaceNoise, stats.laplace),
  (layers.GaussianNoise, stats.norm),
]


@pytest.mark.parametrize(("kind", "law"), _LAWS)
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)]
)
def test_draw_is_of_the_law_and_scale_and_no_other(
  kind, law, fixed, factor, accepted
):
  layer = kind(1.7, fixed=fixed, seed=5)
  draws = noise_of(layer, tf.zeros([1, 60, 60, 3])).ravel()
  found = stats.kstest(draws, law(scale=1.7 * factor).cdf)
  assert (found.pvalue > 1e-3) == accepted


def test_gaussian_draws_follow_their_seed():
  layer = layers.GaussianNoise(0.5, fixed=False)
  seed = tf.constant([3, 4])
  first = noise_of(layer, seed=seed)
  np.testing.assert_array_equal(first, layer.draw(ZEROS.shape, seed))
  np.testing.assert_array_equal(
    first, tf.random.stateless_normal(ZEROS.shape, seed, stddev=0.5)
  )
  assert not np.any(noise_of(layer, seed=tf.constant([3, 5])) == first)


def test_fixed_is_one_draw_for_all_examples_and_calls():
  layer = layers.LaplaceNoise(1.0)
  first = noise_of(layer)
  np.testing.assert_array_equal(first, np.repeat(first[:1], 4, axis=0))
  assert np.unique(first[0]).size == first[0].size  # features differ
  np.testing.assert_array_equal(noise_of(layer), first)
  np.testing.assert_array_equal(noise_of(layer, training=True), first)
  np.testing.assert_array_equal(
    noise_of(layer, tf.zeros([1, 6, 5, 3])), first[:1]
  )
  assert layer.trainable_variables == []


def test_fresh_draws_never_repeat():
  layer = layers.LaplaceNoise(1.0, fixed=False)
  draws = np.concatenate([noise_of(layer).ravel() for _ in range(20)])
  # Coincidences of 24 random bits: 7,200 values, 7200^2 / 2^25 = 1.5 pairs.
  assert np.unique(draws).size > draws.size - 12


def test_fresh_draws_of_examples_and_calls_are_independent():
  layer = layers.LaplaceNoise(1.0, fixed=False)
  x = tf.zeros([2, 5000])
  first, second = noise_of(layer, x), noise_of(layer, x)
  for a, b in ((first[0], first[1]), (first[0], second[0])):
    assert abs(stats.spearmanr(a, b).statistic) < 4 / 5000**0.5


def test_fresh_draws_follow_the_counter_in_a_graph_too():
  eager = layers.LaplaceNoise(1.0, fixed=False, seed=3)
  graph = layers.LaplaceNoise(1.0, fixed=False, seed=3)
  graph.build(ZEROS.shape)
  call = tf.function(graph)
  found = [call(ZEROS).numpy() for _ in range(3)]
  np.testing.assert_allclose(
    found, [noise_of(eager) for _ in range(3)], rtol=1e-6
  )
  assert int(graph.calls) == 3
  assert call.experimental_get_tracing_count() == 1


def test_seed_decides():
  for fixed in (True, False):
    same = [
      noise_of(layers.LaplaceNoise(1.0, fixed=fixed, seed=s)) for s in (1, 1, 2)
    ]
    np.testing.assert_array_equal(same[0], same[1])
    assert not np.any(same[0] == same[2])


def test_an_explicit_seed_replaces_the_counter():
  layer = layers.LaplaceNoise(1.0, fixed=False)
  seed = tf.constant([3, 4])
  first = noise_of(layer, seed=seed)
  np.testing.assert_array_equal(noise_of(layer, seed=seed), first)
  assert not np.any(noise_of(layer, seed=tf.constant([3, 5])) == first)
  assert int(layer.calls) == 0
  wanted = mechanisms.LaplaceMechanism(1.0, 1.0).sample(ZEROS.shape, seed)
  np.testing.assert_array_equal(first, wanted)


@pytest.mark.parametrize("fixed", [True, False])
def test_acts_at_inference_unless_told_otherwise(fixed):
  always = layers.LaplaceNoise(1.0, fixed=fixed)
  training_only = layers.LaplaceNoise(1.0, fixed=fixed, at_inference=False)
  for training, acts in ((True, True), (False, False), (None, False)):
    assert np.all(noise_of(always, training=training) != 0)
    assert np.all((noise_of(training_only, training=training) != 0) == acts)


def test_scale_zero_adds_nothing():
  for fixed in (True, False):
    assert not noise_of(layers.LaplaceNoise(0.0, fixed=fixed)).any()


@pytest.mark.parametrize("fixed", [True, False])
def test_copied_channels(fixed):
  """One Laplace value a pixel, in all channels; pixels stay independent."""
  layer = layers.LaplaceNoise(2.0, fixed=fixed, copied_channels=True)
  noise = noise_of(layer, tf.zeros([3, 40, 40, 3]))
  np.testing.assert_array_equal(noise, np.repeat(noise[..., :1], 3, axis=-1))
  one = noise[0, ..., 0].ravel()
  assert np.unique(one).size == one.size
  assert stats.kstest(one, stats.laplace(scale=2.0).cdf).pvalue > 1e-3
  assert np.array_equal(noise[0], noise[1]) == fixed


# Saving.


def _model(layer):
  model = tf.keras.Sequential([tf.keras.layers.Input((6, 5, 3)), layer])
  return model


def test_saved_with_the_draw_and_without_the_seed(tmp_path):
  layer = layers.LaplaceNoise(1.3, seed=123_456_789, copied_channels=True)
  model = _model(layer)
  model.save(tmp_path / "x.keras")
  with zipfile.ZipFile(tmp_path / "x.keras") as file:
    assert "123456789" not in json.dumps(json.loads(file.read("config.json")))
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  np.testing.assert_array_equal(loaded(ZEROS), model(ZEROS))
  assert np.abs(loaded(ZEROS)).min() > 0
  again = loaded.layers[-1]
  assert (again.scale, again.copied_channels, again.seed) == (1.3, True, 0)


@pytest.mark.parametrize("law", [layers.LaplaceNoise, layers.GaussianNoise])
def test_saved_fresh_noise_goes_on_where_it_was(tmp_path, law):
  layer = law(1.3, fixed=False, seed=7, at_inference=False, name="fresh")
  model = _model(layer)
  model(ZEROS, training=True)
  model.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  np.testing.assert_array_equal(
    loaded(ZEROS, training=True), model(ZEROS, training=True)
  )
  again = loaded.layers[-1]
  assert (again.fixed, again.at_inference, again.name) == (
    False,
    False,
    "fresh",
  )
  assert int(again.calls) == 2


def test_shape_is_kept():
  layer = layers.LaplaceNoise(1.0)
  assert layer.compute_output_shape((None, 4)) == (None, 4)
  assert layer(tf.keras.Input((4,))).shape == (None, 4)


# Failures.


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"scale": -1.0}, r"scale=-1\.0 >= 0"),
    ({"scale": float("nan")}, "scale=nan >= 0"),
    ({"scale": float("inf")}, "scale=inf >= 0"),
    ({"scale": "1"}, "scale='1' >= 0"),
    ({"scale": 1.0, "seed": 0.5}, "seed=0.5 to be a 64-bit whole number"),
    ({"scale": 1.0, "seed": None}, "seed=None to be a 64-bit whole number"),
    ({"scale": 1.0, "seed": 2**64}, "64-bit whole number"),
    ({"scale": 1.0, "seed": [1, 2]}, r"seed=\[1, 2\] to be a 64-bit whole"),
  ],
)
def test_bad_settings(arguments, message):
  with pytest.raises(ValueError, match=message):
    layers.LaplaceNoise(**arguments)


def test_unknown_shapes_are_refused():
  with pytest.raises(ValueError, match=r"known shape for noise.*\(None, None"):
    layers.LaplaceNoise(1.0)(tf.keras.Input((None, 3)))


def test_copied_channels_need_channels():
  """On a vector, one value would serve all features."""
  with pytest.raises(ValueError, match=r"channels.*received \(4, 6\)"):
    layers.LaplaceNoise(1.0, copied_channels=True)(tf.zeros([4, 6]))
