import dataclasses
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import randomness
from tf_privrob.methods import settings

pytestmark = pytest.mark.usefixtures("checked_once")

_BASE = methods.DPSGDConfig(
  noise_multiplier=1.0, batch_size=16, epochs=2, dp_epsilon=50.0, dp_delta=1e-3
)


def _arrays(count=64, seed=0, features=6, classes=3):
  rng = np.random.default_rng(seed)
  x = rng.random((count, features), "float32")
  return x, (x[:, 0] * classes).astype("int64").clip(0, classes - 1)


def _network(seed=None):
  return models.mlp((6,), 3, hidden=(5,), activation="tanh", seed=seed)


def _method(seed=0, network=None, public_weights=None, **changes):
  config = dataclasses.replace(_BASE, seed=seed, **changes)
  return methods.DPSGD(
    network or _network(), config, public_weights=public_weights
  )


def _trained(**changes):
  method = _method(**changes)
  method.fit(*_arrays(), verbose=0)
  return method


@pytest.fixture(scope="module")
def trained():
  """A run with the settings above, to read."""
  return _trained()


def _distance(a, b):
  pairs = zip(a.get_weights(), b.get_weights())
  return float(np.sqrt(sum(((u - v) ** 2).sum() for u, v in pairs)))


def test_without_noise_and_clipping_it_is_gradient_descent_by_hand():
  method = _method(
    public_weights="of a test",
    noise_multiplier=0.0,
    l2_clip_norm=1e6,
    sampler="full_batch",
    epochs=3,
    learning_rate=0.5,
  )
  twin = tf.keras.models.clone_model(method.network)
  twin.set_weights(method.network.get_weights())
  x, y = _arrays()
  for _ in range(3):
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(y, twin(x))
      )
    grads = tape.gradient(loss, twin.trainable_variables)
    for variable, gradient in zip(twin.trainable_variables, grads):
      variable.assign_sub(0.5 * gradient)
  method.fit(x, y, verbose=0)
  assert _distance(method.network, twin) < 1e-3  # the margin of clipping


def test_noise_has_the_scale_that_is_accounted():
  """With zero learning signal a step is pure noise of known scale."""
  from scipy import stats

  network = tf.keras.Sequential(
    [
      tf.keras.layers.Input((6,)),
      tf.keras.layers.Dense(400, trainable=True),
      tf.keras.layers.Dense(3, kernel_initializer="zeros", trainable=False),
    ]
  )
  start = network.layers[0].get_weights()
  method = _method(
    network=network,
    public_weights="of a test",
    noise_multiplier=1.7,
    l2_clip_norm=0.3,
    sampler="full_batch",
    epochs=1,
    learning_rate=1.0,
  )
  method.fit(*_arrays(), verbose=0)
  moved = np.concatenate(
    [(b - a).ravel() for a, b in zip(start, network.layers[0].get_weights())]
  )
  expected = 1.7 * 0.3 / 64  # z C / n
  for factor in (2 / 3, 1.0, 1.5):
    p_value = stats.kstest(moved / (factor * expected), "norm").pvalue
    assert (p_value > 1e-3) == (factor == 1.0)


def test_the_divisor_is_the_expected_batch_size():
  """Dividing by the drawn size would leak it."""
  method = _method(noise_multiplier=0.0, l2_clip_norm=0.1)
  start = tf.keras.models.clone_model(method.network)
  start.set_weights(method.network.get_weights())
  method.simulate(64)
  x, y = _arrays()
  key = randomness.Key.of(3)
  rows = method.sampler.indices(key, 0)
  assert len(rows) != 16
  method.train_step(next(iter(method.sampler.batches(x, y, key, 0, 1))))
  total = 0.0
  for row in rows:
    with tf.GradientTape() as tape:
      loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        y[row : row + 1], start(x[row : row + 1])
      )
    grads = tape.gradient(loss, start.trainable_variables)
    flat = np.concatenate([g.numpy().ravel() for g in grads])
    total += flat * 0.1 / np.linalg.norm(flat)
  pairs = zip(start.get_weights(), method.network.get_weights())
  moved = np.concatenate([(a - b).ravel() for a, b in pairs])
  np.testing.assert_allclose(moved, 0.25 * total / 16, rtol=5e-3, atol=1e-6)


def test_same_seed_same_run_and_other_seed_other_run(trained):
  second, other = (_trained(seed=s).network for s in (0, 1))
  assert _distance(trained.network, second) == 0
  assert _distance(trained.network, other) > 0


def test_by_default_no_two_runs_are_alike():
  """Not by their initial weights: noise that anyone can subtract is none."""
  first, second = (methods.DPSGD(_network(seed=1), _BASE) for _ in range(2))
  for method in (first, second):
    method.fit(*_arrays(), verbose=0)
    assert method.privacy_statement().condition == ""
  for a, b in zip(first.get_weights(), second.get_weights()):
    assert (a != b).all()


@pytest.mark.usefixtures("one_noise", "small_chunks")
def test_physical_batch_size_never_changes_the_result():
  small = _trained(physical_batch_size=3).network
  large = _trained(physical_batch_size=64).network
  assert _distance(small, large) < 1e-5


def test_training_learns():
  x, y = _arrays(2000)
  method = _method(
    batch_size=200,
    epochs=20,
    learning_rate=4.0,
    dp_delta=1e-4,
    accountant="rdp",
  )
  method.fit(x, y, verbose=0)
  _, accuracy = method.evaluate(x, y, verbose=0)
  assert accuracy > 0.85


@pytest.mark.slow
def test_copies_are_averaged_into_one_gradient():
  # Other settings have other noise and other batches: here there are none.
  plain = {"noise_multiplier": 0.0, "sampler": "full_batch"}
  copies = {"augmentation_multiplicity": 3, "augmentation_stddev": 0.0}
  expected = _trained(**plain).network
  for kind in ("none", "noise"):
    method = _trained(augmentation=kind, **copies, **plain)
    assert _distance(method.network, expected) < 1e-5


@pytest.mark.usefixtures("one_noise")
def test_average_of_the_weights_comes_out():
  last = _trained(network=_network(1)).network
  averaged = _trained(network=_network(1), ema_decay=0.9).network
  assert _distance(last, averaged) > 0
  start = _network(1)
  assert _distance(start, averaged) < _distance(start, last)


def test_saved_and_loaded(tmp_path):
  method = _trained(seed=123457)
  path = tmp_path / "x.keras"
  method.save(path)
  loaded = tf.keras.models.load_model(path)
  x, _ = _arrays()
  np.testing.assert_array_equal(
    loaded.predict(x, verbose=0), method.predict(x, verbose=0)
  )
  assert loaded.privacy_statement() == method.privacy_statement()
  with zipfile.ZipFile(path) as archive:
    assert "123457" not in archive.read("config.json").decode()


def test_user_network_of_any_kind():
  inputs = tf.keras.Input((6,))
  hidden = tf.keras.layers.Dense(4, "relu")(inputs)
  joined = tf.keras.layers.Concatenate()([hidden, inputs])
  network = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(joined))
  before = [w.copy() for w in network.get_weights()]
  _method(network=network, public_weights="of a test").fit(
    *_arrays(), verbose=0
  )
  assert any((a != b).any() for a, b in zip(before, network.get_weights()))


class _Subclassed(tf.keras.Model):
  def __init__(self):
    super().__init__()
    self.hidden = tf.keras.layers.Dense(4, "tanh")
    self.head = tf.keras.layers.Dense(3)

  def call(self, inputs):
    return self.head(self.hidden(inputs))


def test_subclassed_network_learns_its_shape_from_the_data():
  method = _method(network=_Subclassed())
  method.fit(*_arrays(), verbose=0)
  assert method.predict(_arrays()[0], verbose=0).shape == (64, 3)
  assert method.privacy_statement().releases[0]["count"] == 8


def test_users_own_optimizer_and_metrics_are_kept():
  method = _method()
  method.compile(tf.keras.optimizers.Adam(0.01), metrics=["mse"])
  history = method.fit(*_arrays(), validation_data=_arrays(), verbose=0)
  assert isinstance(method.optimizer, tf.keras.optimizers.Adam)
  assert any("mse" in name for name in history.history)


def test_schedule_knows_the_number_of_steps():
  method = _method(learning_rate_schedule="cosine", learning_rate=0.5)
  method.compile(metrics=["mse"])
  history = method.fit(*_arrays(), validation_data=_arrays(), verbose=0)
  last = 0.5 * (1 + np.cos(np.pi * 7 / 8)) / 2  # the eighth of eight steps
  assert float(method.optimizer.learning_rate) == pytest.approx(last, rel=1e-4)
  assert any("mse" in name for name in history.history)


def test_weight_regularisers_act_without_costing_privacy():
  def network(strength):
    layer = tf.keras.layers.Dense(
      3,
      kernel_initializer=tf.keras.initializers.GlorotUniform(1),
      kernel_regularizer=tf.keras.regularizers.L2(strength),
    )
    return tf.keras.Sequential([tf.keras.layers.Input((6,)), layer])

  plain, decayed = network(0.0), network(0.5)
  for net in (plain, decayed):
    _method(network=net).fit(*_arrays(), verbose=0)
  norm = np.linalg.norm
  assert norm(decayed.get_weights()[0]) < norm(plain.get_weights()[0])


def test_statement_is_within_the_budget_and_counts_all_steps():
  method = _trained(noise_multiplier=None, dp_epsilon=2.0)
  statement = method.privacy_statement()
  assert 1.9 < statement.proven.dp_epsilon <= 2.0
  assert statement.releases[0]["count"] == method.run_record["steps"] == 8
  assert statement.audited is None
  assert "nor guess the seed" in statement.caveats[0]


def test_training_stops_before_the_step_that_exceeds_the_budget():
  method = _method(dp_epsilon=2.0, epochs=1000, accountant="rdp")
  method.fit(*_arrays(), verbose=0)
  plan = method.plan(64)
  assert method.run_record["steps"] == plan.steps < 4000
  assert method.privacy_statement().proven.dp_epsilon <= 2.0


def test_shuffled_batches_are_not_given_the_poisson_figure():
  method = _trained(sampler="shuffle", dp_epsilon=1e3)
  statement = method.privacy_statement()
  assert statement.proven.dp_epsilon > 2 * statement.claimed.dp_epsilon
  assert "does not apply" in " ".join(statement.caveats)


def test_no_noise_means_no_proven_figure():
  statement = _trained(noise_multiplier=0.0).privacy_statement()
  assert statement.proven is None
  assert "none known" in statement.text()


def test_untrained_model_has_no_statement():
  with pytest.raises(ValueError, match="Call fit first"):
    _method().privacy_statement()


def test_second_fit_is_refused_also_after_loading(trained, tmp_path):
  method = trained
  with pytest.raises(ValueError, match="trained for 8 steps"):
    method.fit(*_arrays(), verbose=0)
  method.save(tmp_path / "x.keras")
  loaded = tf.keras.models.load_model(tmp_path / "x.keras")
  with pytest.raises(ValueError, match="trained for 8 steps"):
    loaded.fit(*_arrays(), verbose=0)


_NONPRIVATE = {
  "nonprivate/accuracy",
  "nonprivate/clipped_fraction",
  "nonprivate/dropped_fraction",
  "nonprivate/loss",
}


@pytest.mark.parametrize("asked", [False, True])
def test_callbacks_see_public_logs_unless_they_ask(asked):
  seen = []
  callback = tf.keras.callbacks.LambdaCallback(
    on_epoch_end=lambda epoch, logs: seen.append((epoch, set(logs))),
    on_batch_end=lambda batch, logs: seen.append((None, set(logs))),
  )
  x, y = _arrays()
  method = _method()
  history = method.fit(
    x,
    y,
    validation_data=(x, y),
    callbacks=[callback],
    nonprivate_logs=asked,
    verbose=0,
  )
  shown = _NONPRIVATE if asked else set()
  public = {"val_accuracy", "val_loss"}
  steps = [names for epoch, names in seen if epoch is None]
  epochs = [(e, names) for e, names in seen if e is not None]
  assert steps == [shown] * 8
  assert epochs == [(0, shown | public), (1, shown | public)]
  assert set(history.history) == _NONPRIVATE | public
  caveats = " ".join(method.privacy_statement().caveats)
  assert ("Callbacks saw training metrics" in caveats) == asked


@pytest.mark.parametrize(
  "decides",
  [tf.keras.callbacks.EarlyStopping, tf.keras.callbacks.ReduceLROnPlateau],
)
def test_no_callback_decides_by_what_has_no_noise(decides, caplog):
  """One that would stop after the first epoch, or divide the rate by 10."""
  callback = decides("nonprivate/loss", min_delta=1e6, patience=1, mode="min")
  method = _method(epochs=4)
  method.fit(*_arrays(), callbacks=[callback], verbose=0)
  assert method.run_record["steps"] == 16
  assert float(method.optimizer.learning_rate) == 0.25
  assert "nonprivate/loss` which is not available" in caplog.text


def test_dataset_can_be_passed_whole():
  dataset = data.from_arrays(
    "mine", *_arrays(), *_arrays(seed=1), num_classes=3, value_range=(0, 1)
  )
  history = _method().fit(dataset, verbose=0)
  assert "val_accuracy" in history.history


def test_train_function_traces_once():
  method = _method(epochs=4, physical_batch_size=4)
  method.fit(*_arrays(), verbose=0)
  assert method.train_function.experimental_get_tracing_count() == 1


def _softmax():
  return tf.keras.Sequential(
    [tf.keras.layers.Input((6,)), tf.keras.layers.Dense(3, "softmax")]
  )


def _batch_norm():
  return tf.keras.Sequential(
    [tf.keras.layers.Input((6,)), tf.keras.layers.BatchNormalization()]
  )


def _activity():
  layer = tf.keras.layers.Dense(3, activity_regularizer="l2")
  return tf.keras.Sequential([tf.keras.layers.Input((6,)), layer])


@pytest.mark.parametrize(
  ("network", "message"),
  [
    (_softmax, r"models\.as_logits"),
    (_batch_norm, "GroupNormalization"),
    (_activity, "activity regulariser"),
  ],
)
def test_networks_that_cannot_be_private_are_refused(network, message):
  with pytest.raises(ValueError, match=message):
    methods.DPSGD(network())


def _with(x=None, y=None):
  good_x, good_y = _arrays()
  return (good_x if x is None else x), (good_y if y is None else y)


def _nan():
  x, y = _arrays()
  x[3, 2] = np.nan
  return x, y


@pytest.mark.parametrize(
  ("arrays", "message"),
  [
    (_nan, "NaN or infinity, first in example 3"),
    (lambda: _with(x=_arrays()[0] * 2), r"x_train in \[0\.0, 1\.0\]"),
    (lambda: _with(x=_arrays()[0][:, 0]), "rank 2"),
    (lambda: _with(y=_arrays()[1] + 5), r"labels in \[0, 3\), received max 7"),
    (lambda: _with(y=np.eye(3, dtype=int)[_arrays()[1]]), "looks one-hot"),
    (lambda: (np.zeros((0, 6), "float32"), np.zeros(0, int)), "at least one"),
    (lambda: tuple(a[:8] for a in _arrays()), "batch_size=16 <= n = 8"),
    (lambda: (_arrays()[0], _arrays()[1][:5]), "5 labels"),
  ],
)
def test_bad_data_is_refused_before_any_budget_is_spent(
  arrays, message, tmp_path
):
  with pytest.raises(ValueError, match=message):
    _method().fit(*arrays(), run_dir=tmp_path / "run", verbose=0)
  assert not (tmp_path / "run").exists()


def test_budget_without_room_for_a_step_is_refused():
  method = _method(noise_multiplier=0.1, dp_epsilon=0.01)
  with pytest.raises(ValueError, match="allows none"):
    method.fit(*_arrays(), verbose=0)


def test_large_delta_warns():
  with pytest.warns(UserWarning, match="well below 1/n"):
    _method(dp_delta=0.5, accountant="rdp").plan(64)


def test_names_and_presets():
  method = methods.build("dp_sgd", models.mlp((6,), 3), methods.DPSGDConfig())
  assert type(method) is methods.DPSGD
  assert methods.preset("dp_sgd", None) == methods.DPSGDConfig()
  with pytest.raises(ValueError, match="Did you mean 'dp_sgd'"):
    methods.preset("dpsgd", None)
  with pytest.raises(ValueError, match="Expected DPSGDConfig for method"):
    methods.build("dp_sgd", models.mlp((6,), 3), papers.DPALConfig())
  with pytest.raises(ValueError, match="Did you mean 'mnist'"):
    methods.preset("dp_sgd", "mnst")
  config = methods.preset("dp_sgd", "mnist")
  written = json.loads(json.dumps(settings.described(config)))
  assert settings.restored(methods.DPSGDConfig, written) == config
