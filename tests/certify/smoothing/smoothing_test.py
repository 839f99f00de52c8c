"""Randomised smoothing: parity with a naive loop, laws, and bad input."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.certify import noisy_models
from tf_privrob import binomial
from tf_privrob import layers
from tf_privrob import models
from tf_privrob import randomness
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import sequential
from tf_privrob.certify.smoothing import smoothing
from tf_privrob.certify.smoothing import votes

WEIGHTS = np.random.RandomState(0).randn(6, 3).astype(np.float32)
X = np.random.RandomState(1).randn(9, 6).astype(np.float32)
Y = np.arange(9) % 3


def linear(x):
  return tf.matmul(x, WEIGHTS)


def certifier(**changes):
  values = {"smoothing_stddev": 0.7, "num_selection": 30}
  return smoothing.RandomizedSmoothing(
    **{**values, "num_estimation": 460, **changes}
  )


def plan_of(subject, slack=0.0):
  """How the votes of a `certifier` are judged."""
  return sequential.Plan(0.7, 460, 1 - 0.999, subject.radii, votes.BLOCK, slack)


def content(rows):
  return [dataclasses.replace(row, seconds=0.0) for row in rows]


def naive_counts(image, index, stage, draws, seed, stddev=0.7):
  """Votes by numpy, one draw at a time, from the same noise."""
  noisy = noisy_models.copies(
    image, stddev, draws, seed, (index, stage), "normal"
  )
  return np.bincount(np.argmax(noisy @ WEIGHTS, axis=1), minlength=3)


def slack_of(image, stddev=0.7):
  """How far the votes may be from those under real noise, by hand."""
  cells = stddev / 2.0 ** np.floor(np.log2(stddev / 512))
  errors = 2.0**-43 + 2.0**-52 * np.abs(image.astype(float)) / stddev
  return np.sum(2.1 * cells * errors + 2.0**-34)


def test_certify_equals_the_naive_procedure():
  rows = certifier().certify(linear, X, Y, seed=5)
  assert [row.index for row in rows] == list(range(9))
  for index, row in enumerate(rows):
    first = naive_counts(X[index], index, votes.SELECTION, 30, 5)
    second = naive_counts(X[index], index, votes.ESTIMATION, 460, 5)
    candidate = int(np.argmax(first))
    bound = stats.beta.ppf(
      1 - 0.999, second[candidate], 460 - second[candidate] + 1
    ) - slack_of(X[index])
    if bound <= 0.5:
      assert (row.prediction, row.radius) == (-1, 0.0)
    else:
      assert row.prediction == candidate
      assert row.radius == pytest.approx(0.7 * stats.norm.ppf(bound), rel=1e-9)
    assert (row.label, row.num_draws, row.stopped) == (Y[index], 490, "")
    assert (row.norm, row.kind, row.confidence) == ("l2", "proven", 0.999)
  assert {row.abstained for row in rows} == {True, False}


def test_early_stop_equals_the_naive_procedure():
  """Each look adds the next draws of the same sequence, never old ones."""
  subject = certifier(radii=(0.1, 0.4))
  for index, row in enumerate(subject.certify(linear, X, seed=5)):
    plan = plan_of(subject, slack_of(X[index]))
    first = naive_counts(X[index], index, votes.SELECTION, 30, 5)
    candidate = int(np.argmax(first))
    if plan.hopeless(int(first[candidate]), 30):
      assert (row.num_draws, row.abstained) == (30, True)
      continue
    for look in plan.looks:
      counts = naive_counts(X[index], index, votes.ESTIMATION, look.draws, 5)
      verdict = plan.verdict(int(counts[candidate]), look)
      if verdict is not None:
        break
    assert row.num_draws == 30 + look.draws
    assert row.stopped == verdict.stopped
    assert row.radius == pytest.approx(max(0.0, verdict.radius), rel=1e-12)


def test_predict_equals_the_naive_procedure():
  classes = certifier().predict(linear, X, seed=5)
  for index, answer in enumerate(classes):
    counts = naive_counts(X[index], index, votes.PREDICTION, 460, 5)
    second, first = np.sort(counts)[-2:]
    p_value = stats.binomtest(first, first + second, 0.5).pvalue
    assert answer == (np.argmax(counts) if p_value <= 1 - 0.999 else -1)
  assert -1 in classes
  assert classes.max() >= 0


@pytest.mark.parametrize("batch_size", [1, 30, 175, 1000])
@pytest.mark.parametrize("radii", [(), (0.1, 0.4)])
def test_batch_size_changes_nothing(batch_size, radii):
  wanted = certifier(radii=radii).certify(linear, X, seed=3)
  found = certifier(radii=radii, batch_size=batch_size).certify(
    linear, X, seed=3
  )
  assert content(found) == content(wanted)


@pytest.mark.parametrize("radii", [(), (0.1, 0.4)])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_grouping_and_order_change_nothing(monkeypatch, group, radii):
  wanted = content(certifier(radii=radii).certify(linear, X, Y, seed=3))
  monkeypatch.setattr(smoothing, "_MOST_IN_GROUP", group)
  order = [4, 8, 0, 3]
  found = certifier(radii=radii).certify(
    linear, X[order], Y[order], seed=3, indices=order
  )
  assert content(found) == [wanted[index] for index in order]


def test_a_seed_fixes_everything_and_another_changes_it():
  def radii(**kwargs):
    return [row.radius for row in certifier().certify(linear, X, **kwargs)]

  assert radii(seed=3) == radii(seed=3)
  assert radii(seed=[3, 4]) == radii(seed=tf.constant([3, 4]))
  assert radii(seed=3) != radii(seed=4)
  assert radii(seed=[3, 4]) != radii(seed=[3, 5])


def test_equal_inputs_get_independent_noise():
  rows = certifier().certify(linear, np.repeat(X[:1], 8, axis=0), seed=0)
  assert len({row.radius for row in rows}) > 1


@pytest.mark.parametrize(
  ("scale", "accepted"), [(1, True), (2 / 3, False), (1.5, False)]
)
def test_noise_is_gaussian_of_the_declared_scale(scale, accepted):
  noise = grid.GridNoise("gaussian", 0.7 * scale, (40,))
  drawn = noise.draw(np.zeros(40), randomness.Key.of(9), 250)
  p_value = stats.kstest(np.ravel(drawn), stats.norm(scale=0.7).cdf).pvalue
  assert (p_value > 1e-3) == accepted


def test_noise_is_not_clipped_to_the_value_range():
  """A classifier that sees values beyond [0, 1] keeps seeing them."""
  outside = lambda x: tf.stack(  # noqa: E731
    [tf.reduce_min(x, 1) >= 0, tf.reduce_min(x, 1) < 0], axis=1
  )
  rows = certifier().certify(
    lambda x: tf.cast(outside(x), tf.float32),
    np.zeros([1, 20], np.float32),
    seed=0,
  )
  assert rows[0].prediction == 1
  assert rows[0].radius > 0.5


def test_radius_is_zero_exactly_when_the_bound_is_at_most_half():
  plan = plan_of(certifier())
  for count in range(461):
    bound = binomial.lower(count, 460, 1 - 0.999)
    verdict = plan.verdict(count, plan.looks[-1])
    assert (verdict.radius > 0) == (bound > 0.5)


@pytest.mark.parametrize(
  ("num_estimation", "radius"), [(1_000, 0.616), (10_000, 0.800)]
)
def test_unanimous_votes_golden(num_estimation, radius):
  constant = lambda x: tf.one_hot(tf.zeros(tf.shape(x)[0], tf.int32), 4)  # noqa: E731
  row = smoothing.RandomizedSmoothing(
    0.25, num_estimation=num_estimation
  ).certify(constant, X[:1], seed=0)[0]
  assert row.radius == pytest.approx(radius, abs=5e-4)
  assert row.prediction == 0


def test_largest_radius_golden():
  certifier = smoothing.RandomizedSmoothing(0.25, num_estimation=100_000)
  assert certifier.largest_radius == pytest.approx(0.953, abs=5e-4)


def test_graph_is_traced_once_whatever_is_asked():
  traces = []

  def counted(x):
    traces.append(x.shape)
    return linear(x)

  certifier(radii=(0.1, 0.4)).certify(counted, np.repeat(X, 20, axis=0), seed=0)
  # Classes are counted, the gate looks at a graph, at that of one row, which is
  # the one that votes, at 16 passes and a few rows alone.
  first = [(1, 6), *[(200, 6)] * 3]
  assert traces == [*first, (1, 6), *[(200, 6)] * 14, (1, 6), (3, 6)]


def test_keras_model_is_called_in_inference_mode():
  model = tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((6,)),
      tf.keras.layers.Dropout(0.9),
      tf.keras.layers.Dense(3, use_bias=False),
    ]
  )
  model.set_weights([WEIGHTS])
  wanted = certifier().certify(linear, X, seed=0)
  found = content(certifier().certify(model, X, seed=0))
  assert {row.model for row in found} == {models.model_hash(model)[:16]}
  assert [dataclasses.replace(row, model="") for row in found] == content(
    wanted
  )


def test_early_stop_says_so_and_saves_draws():
  radii = (0.2, 0.5)
  rows = certifier(radii=radii, num_estimation=6400).certify(linear, X, seed=0)
  stops = {row.stopped for row in rows}
  assert {"decided", "abandoned"} <= stops
  full = certifier(num_estimation=6400).certify(linear, X, seed=0)
  assert sum(row.num_draws for row in rows) < 0.7 * sum(
    row.num_draws for row in full
  )
  for early, late in zip(rows, full):
    for radius in radii:
      assert (early.radius >= radius) == (late.radius >= radius)
    if early.num_draws == 30:
      assert early.stopped == "abandoned"
      assert early.abstained


def test_too_few_draws_for_any_radius_are_refused_with_what_would_do():
  with pytest.raises(ValueError, match=r"at most 0 .* at least 10,"):
    certifier(num_estimation=9)
  assert certifier(num_estimation=10).largest_radius > 0


def test_too_few_draws_for_a_radius_warn_with_what_would_do():
  message = r"at most 0\.5\d+ .* radius 0.8 raise num_estimation to at least"
  with pytest.warns(UserWarning, match=message):
    certifier(num_estimation=500, smoothing_stddev=0.25, radii=(0.8,))


@pytest.mark.parametrize("kind", ["dropout", "fresh_noise"])
def test_a_model_with_randomness_of_its_own_is_refused(kind):
  generator = tf.random.Generator.from_seed(1)

  def random(x):
    logits = linear(x)
    noise = generator.normal(tf.shape(logits))
    return logits + noise if kind == "fresh_noise" else tf.nn.relu(noise)

  with pytest.raises(ValueError, match="deterministic once the noise is fixed"):
    certifier().certify(random, X, seed=0)


@pytest.mark.parametrize("count", [1, len(X)])
@pytest.mark.parametrize("ask", ["certify", "predict"])
def test_batch_statistics_at_inference_leave_no_certificate(count, ask):
  """The votes of one input would not be independent draws."""
  standardise = layers.BatchStandardization()

  def coupled(x):
    return linear(standardise(x))

  with pytest.raises(ValueError, match="depend on their own input alone"):
    getattr(certifier(), ask)(coupled, X[:count])


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"x": X[0]}, "batch axis"),
    ({"x": X[:0]}, "at least one example"),
    ({"x": X.astype(int)}, "floating-point x"),
    ({"x": np.where(X > 0, np.nan, X)}, "first in example"),
    ({"y": Y + 1}, r"labels in \[0, 3\), received max 3"),
    ({"y": Y[:4]}, "one label per example"),
    ({"y": np.eye(3)[Y]}, "looks one-hot"),
    ({"indices": [0] * 9}, "9 distinct indices"),
    ({"seed": [1, 2, 3]}, "an int or two ints"),
    ({"seed": 0.5}, "an int or two ints"),
    ({"logits_fn": 3}, "Keras model or a function"),
    ({"logits_fn": lambda x: x[:, 0]}, r"shape \[batch, num_classes\]"),
    ({"logits_fn": lambda x: x[:, :1]}, "at least 2 classes"),
  ],
)
def test_bad_input(arguments, message):
  values = {"logits_fn": linear, "x": X, "y": Y, **arguments}
  with pytest.raises(ValueError, match=message):
    certifier().certify(**values)


def test_wrong_rank_for_a_keras_model():
  model = tf.keras.Sequential(
    [tf.keras.layers.Flatten(input_shape=(4, 4, 1)), tf.keras.layers.Dense(3)]
  )
  with pytest.raises(ValueError, match="rank 4"):
    certifier().certify(model, np.zeros([4, 4, 1], np.float32), seed=0)


def test_wrong_number_of_classes():
  with pytest.raises(ValueError, match="Pass num_classes=3"):
    certifier(num_classes=10).certify(linear, X, seed=0)


def test_nan_logits_are_an_error_not_a_vote():
  broken = lambda x: tf.math.log(linear(x))  # noqa: E731
  with pytest.raises(ValueError, match=r"NaN for \d+ of 30 noisy copies"):
    certifier().certify(broken, X, seed=0)


# What rounding could turn.


@pytest.mark.parametrize("size", [1e-6, 4e-3])
def test_classes_behind_a_common_logit_are_no_votes(size):
  """A batch statistic below the rounding of 1e4 made two classes of a point."""

  def coupled(x):
    away = tf.clip_by_value(x[:, 0] - tf.reduce_mean(x[:, 0]), -1.0, 1.0)
    return 1e4 + size * tf.stack([away, -away], axis=1)

  subject = smoothing.RandomizedSmoothing(0.25, num_estimation=100)
  found = [
    subject.certify(coupled, np.array([[0.0], [other]], np.float32), seed=0)[0]
    for other in (-9, 9)
  ]
  assert all(row.abstained for row in found)
  classes = subject.predict(coupled, np.zeros([2, 1], np.float32))
  assert list(classes) == [-1, -1]


@pytest.mark.parametrize(("apart", "decided"), [(4, False), (64, True)])
def test_a_vote_is_no_matter_of_units_in_the_last_place(apart, decided):
  unit = np.spacing(np.float32(8.0))

  def close(x):
    first = tf.fill([tf.shape(x)[0]], 8.0)
    return tf.stack([first, first - apart * unit], axis=1)

  row = certifier().certify(close, X[:1], seed=0)[0]
  assert row.abstained is not decided


def test_votes_that_might_turn_count_against_a_class():
  scores = score_bounds.Scores(
    100, np.zeros(3), np.zeros(3), np.array([80, 10, 0])
  )
  assert scores.undecided == 10
  lower, upper = score_bounds.interval(scores, "clopper_pearson", 0.01)
  assert lower[0] == binomial.lower(80, 100, 0.01)
  assert upper[1] == binomial.upper(20, 100, 0.01)


# Inputs that float32 does not hold.


@pytest.mark.parametrize(
  ("first", "second", "stddev"),
  [(1.7e9 + 63, 1.7e9 + 65, 10.0), (1e6 + 0.03, 1e6 + 0.0325, 0.01)],
)
def test_what_float32_rounds_off_an_input_is_taken_off_its_radius(
  first, second, stddev
):
  """24.6 and 24.6 were proven for two classes at a distance of 2."""
  middle = np.float32((np.float32(first) + np.float32(second)) / 2)

  def sided(x):
    away = tf.sign(x - middle)
    return tf.concat([-away, away], axis=1)

  x = np.array([[first], [second]])
  subject = smoothing.RandomizedSmoothing(stddev, num_estimation=1000)
  rows = subject.certify(sided, x, seed=0)
  apart = abs(second - first)
  assert (
    rows[0].prediction == rows[1].prediction
    or -1 in (rows[0].prediction, rows[1].prediction)
    or rows[0].radius + rows[1].radius <= apart
  )
  for row, point in zip(rows, x):
    lost = abs(float(point[0]) - float(np.float32(point[0])))
    same = subject.certify(
      sided, np.float32([point]), indices=[row.index], seed=0
    )[0]
    assert row.radius == pytest.approx(max(0.0, same.radius - lost), rel=1e-6)


def test_exact_inputs_lose_nothing():
  rows = certifier().certify(linear, X.astype(np.float64), seed=3)
  assert content(rows) == content(certifier().certify(linear, X, seed=3))
