"""Training without privacy: steps, schedules, runs, bad input."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tests.methods.objectives import robust_cases as cases
from tf_privrob import attacks
from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import registry

pytestmark = pytest.mark.usefixtures("checked_once")

_layers = tf.keras.layers


# One step.


def _normalised():
  return tf.keras.Sequential(
    [
      _layers.Input(cases.SHAPE),
      _layers.Flatten(),
      _layers.Dense(6, kernel_initializer=tf.keras.initializers.HeNormal(1)),
      _layers.BatchNormalization(),
      _layers.ReLU(),
      _layers.Dense(3, kernel_initializer=tf.keras.initializers.HeNormal(2)),
    ]
  )


def _one_step(**changes):
  """The change of the weights by SGD of rate 1, and the mean gradient.

  Biases start at 0.5.
  """
  method = cases.prepared(
    "natural", optimizer="sgd", **{"learning_rate": 1.0, **changes}
  )
  for variable in method.network.trainable_variables:
    if variable.shape.rank == 1:
      variable.assign(tf.fill(variable.shape, 0.5))
  x, y = cases.tensors(16)
  before = [w.numpy() for w in method.network.trainable_variables]
  with tf.GradientTape() as tape:
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(y, method.network(x))
    )
  mean = tape.gradient(loss, method.network.trainable_variables)
  method.train_step((x[None], y[None], tf.ones([1, 16])))
  after = [w.numpy() for w in method.network.trainable_variables]
  return (
    before,
    [g.numpy() for g in mean],
    [b - a for b, a in zip(before, after)],
  )


@pytest.mark.parametrize("decay_all", [False, True])
@pytest.mark.parametrize(("reduction", "factor"), [("mean", 1), ("sum", 16)])
def test_update_is_the_mean_or_the_sum_and_decays_kernels_or_all(
  reduction, factor, decay_all
):
  before, mean, update = _one_step(
    reduction=reduction, weight_decay=0.3, decay_all=decay_all
  )
  for value, gradient, found in zip(before, mean, update):
    decay = 0.3 * value if value.ndim > 1 or decay_all else 0.0
    np.testing.assert_allclose(found, factor * gradient + decay, atol=1e-5)
  assert {value.ndim for value in before} == {1, 2}


def test_update_is_clipped_before_the_decay():
  before, mean, update = _one_step(weight_decay=0.3, update_clip_norm=0.01)
  norm = np.sqrt(sum(np.sum(g**2) for g in mean))
  assert norm > 0.02
  for value, gradient, found in zip(before, mean, update):
    decay = 0.3 * value if value.ndim > 1 else 0.0
    np.testing.assert_allclose(found, 0.01 / norm * gradient + decay, atol=1e-6)


def test_copies_of_an_example_are_averaged():
  method = cases.prepared(
    "pgd", augmentation="shift", augmentation_multiplicity=3
  )
  x, y = cases.tensors(5)
  found, metrics = cases.example_losses(method, x, y, tf.constant([1, 2]))
  assert found.shape == metrics["robust_correct"].shape == (5,)
  rows = data.augment(
    tf.repeat(x, 3, axis=0),
    "shift",
    randomness.fold_in([1, 2], 0),
  )
  losses, _ = cases.row_losses(
    method, rows, tf.repeat(y, 3), randomness.fold_in([1, 2], 1)
  )
  expected = losses.numpy().reshape(5, 3).mean(1)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


# Batches whose examples see each other.


def test_batch_normalization_sees_whole_batches_and_attacks_do_not_touch_it():
  method = cases.prepared("pgd", _normalised())
  assert method.sampler.physical_batch_size == 16
  moving = method.network.layers[2].moving_mean
  x, y = cases.tensors(16)
  before = moving.numpy()
  method.objective.adversarial_examples(
    method.context, x, y, tf.constant([0, 1])
  )
  np.testing.assert_array_equal(moving, before)
  method.train_step((x[None], y[None], tf.ones([1, 16])))
  assert np.abs(moving.numpy() - before).max() > 1e-4


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"sampler": "poisson"}, "Expected sampler='shuffle'"),
    ({"physical_batch_size": 4}, "Expected physical_batch_size=16 or None"),
  ],
)
@pytest.mark.parametrize("why", ["layer", "term", "mean"])
def test_they_are_never_cut_or_padded(changes, message, why):
  method = {
    "layer": lambda: cases.build("natural", _normalised(), **changes),
    "term": lambda: cases.build("pgd", domain_adaptation_weight=1.0, **changes),
    "mean": lambda: cases.build("wrm_linf", mean_over="batch", **changes),
  }[why]()
  with pytest.raises(ValueError, match=message):
    method.plan(64, cases.SHAPE)


def test_averaged_weights_would_have_other_statistics():
  with pytest.raises(ValueError, match="Expected ema_decay=0 with batch"):
    cases.build("natural", _normalised(), ema_decay=0.9)


@pytest.mark.usefixtures("small_chunks")
def test_other_batches_come_in_chunks():
  method = cases.build("pgd", physical_batch_size=4)
  assert method.plan(64, cases.SHAPE).sampler.physical_batch_size == 4


# Runs.


@pytest.mark.parametrize("case", cases.CASES)
def test_a_run_is_saved_loaded_and_says_that_it_is_not_private(case, tmp_path):
  method = cases.build(case)
  x, y = cases.arrays()
  method.fit(x, y, verbose=0)
  statement = method.privacy_statement()
  assert statement.claimed is None
  assert statement.proven is None
  assert "neither clipped nor noisy" in statement.caveats[0]
  method.save(tmp_path / "model.keras")
  loaded = tf.keras.models.load_model(tmp_path / "model.keras")
  assert type(loaded) is type(method)
  assert loaded.config == dataclasses.replace(method.config, seed=None)
  np.testing.assert_array_equal(loaded(x), method(x))
  json.dumps(loaded.run_record)


def test_a_killed_run_goes_on_where_it_was(tmp_path):
  settings = {
    "epochs": 3.0,
    "checkpoint_every": 1,
    "ramp": methods.Ramp(length="10"),
  }
  x, y = cases.arrays()
  method = cases.build("pgd", **settings)
  with pytest.raises(KeyboardInterrupt):
    method.fit(
      x, y, run_dir=tmp_path, callbacks=[interrupt.StopAfter(5)], verbose=0
    )
  weights = method.network.get_weights()
  resumed = cases.build("pgd", cases.network(seed=9), **settings)
  radii = []

  class Watch(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
      if not radii:
        for a, b in zip(resumed.network.get_weights(), weights):
          np.testing.assert_array_equal(a, b)
      radius = resumed.objective.attack_radius(resumed.context)
      radii.append(float(radius))

  resumed.fit(
    x, y, run_dir=tmp_path, resume=True, callbacks=[Watch()], verbose=0
  )
  np.testing.assert_allclose(radii[:3], [0.05, 0.06, 0.07], rtol=1e-5)
  assert resumed.run_record["steps"] == 12


@pytest.mark.parametrize(
  ("name", "value"), [("attack_eps", 0.05), ("natural_share", 0.4)]
)
def test_a_run_is_not_resumed_with_another_objective(tmp_path, name, value):
  x, y = cases.arrays()
  with pytest.raises(KeyboardInterrupt):
    cases.build("pgd").fit(
      x, y, run_dir=tmp_path, callbacks=[interrupt.StopAfter(2)], verbose=0
    )
  changed = cases.build("pgd", **{name: value})
  with pytest.raises(privacy.LedgerError, match=name):
    changed.fit(x, y, run_dir=tmp_path, resume=True, verbose=0)


# What they are for.

EPS = 0.1
_RAMP = methods.Ramp(warmup="10%", length="40%")
_TRAINED = {
  "natural": methods.Natural(),
  "pgd": methods.Adversarial(attack_eps=EPS, attack_steps=4),
  "trades": methods.Trades(attack_eps=EPS, attack_steps=4, beta=6.0),
  "wrm_linf": methods.WRM(step_scale=0.2, attack_steps=4),
  "wrm_l2": methods.WRM(norm="l2", step_scale=0.5, attack_steps=4),
  "ibp": methods.IBP(attack_eps=EPS, ramp=_RAMP),
  "diffai": methods.DiffAI(attack_eps=EPS, ramp=_RAMP, robust_term_weight=1.0),
  "dual": methods.DualLoss(attack_eps=EPS, ramp=methods.Ramp(length="60%")),
}


@pytest.fixture(scope="module")
def trained():
  """Models by name, each trained once, for seconds."""
  digits, found = data.load("digits"), {}

  def get(case):
    if case not in found:
      config = methods.TrainingConfig(
        learning_rate=0.01, epochs=6, batch_size=64, seed=0
      )
      net = models.mlp((8, 8, 1), 10, hidden=(24,), seed=0)
      found[case] = methods.Trainer(net, config, objective=_TRAINED[case])
      found[case].fit(digits, verbose=0)
    return found[case], digits.x_test, digits.y_test

  return get


@pytest.mark.parametrize(
  "case",
  [
    "pgd",
    pytest.param("trades", marks=pytest.mark.slow),
    pytest.param("wrm_linf", marks=pytest.mark.slow),
    "wrm_l2",
  ],
)
def test_attacked_training_resists_attacks(trained, case):
  accuracies = {}
  attack = attacks.PGD(EPS, steps=10)
  for kind in ("natural", case):
    model, x, y = trained(kind)
    moved = attack(model, tf.constant(x), tf.constant(y), 0)
    accuracies[kind] = np.mean(np.argmax(model(moved), 1) == y)
    assert np.mean(np.argmax(model(x), 1) == y) > 0.8
  assert accuracies[case] > accuracies["natural"] + 0.1


@pytest.mark.parametrize(
  ("case", "gain"),
  [
    ("ibp", 0.25),
    ("diffai", 0.1),
    pytest.param("dual", 0.25, marks=pytest.mark.slow),
  ],
)
def test_verified_training_is_certified(trained, case, gain):
  """By its own certifier, and more of it than of natural training."""
  certifier = trained(case)[0].certifier()
  shares = {}
  for kind in ("natural", case):
    model, x, y = trained(kind)
    rows = certifier.certify(model, x[:50], y[:50])
    right = [row.radius >= EPS and row.prediction == row.label for row in rows]
    shares[kind] = np.mean(right)
  assert np.mean(np.argmax(trained(case)[0](x), 1) == y) > 0.8
  assert shares[case] > shares["natural"] + gain


# Settings.


def test_presets_load_under_their_method():
  names = ("natural", "adversarial", "trades", "wrm", "ibp", "diffai", "dual")
  found = {}
  for name in names:
    kind = registry.objective(name)
    for preset, config in registry.presets(name).items():
      assert methods.preset(name, preset) == config
      assert methods.preset("sgd", preset) == config
      assert methods.class_of(name, config) is methods.Trainer
      assert type(config.objective) is kind
      found[preset] = config
  trainers = "natural pgd pgd_da trades wrm ibp diffai dual".split()
  assert set(found) == {
    *(f"{name}_{t}" for name in ("yale_b", "fashion_mnist") for t in trainers),
    *(f"cifar10_{t}" for t in ("natural", "pgd", "trades", "wrm")),
    *("cifar10_trades_original", "uci_har_natural", "uci_har_pgd"),
    *("mnist_pgd", "mnist_wrm_l2", "mnist_ibp"),
    *("yale_b_diffai_released", "fashion_mnist_diffai_released"),
  }
  steps = {
    "yale_b_pgd": (1900, 20001),
    "fashion_mnist_wrm": (60000, 80001),
    "cifar10_natural": (50000, 80001),
    "mnist_ibp": (60000, 60001),
    "yale_b_trades": (1900, 14250),
  }
  for name, (count, expected) in steps.items():
    config = found[name]
    assert round(config.epochs * count / config.batch_size) == expected


@pytest.mark.parametrize(
  ("case", "changes", "message"),
  [
    ("pgd", {"augmentation": "noise"}, "leaves the value"),
    ("wrm_l2", {"augmentation": "noise"}, "leaves the value"),
    ("ibp", {"augmentation": "noise"}, "leaves the value"),
    (
      "natural",
      {"learning_rate_drops": "5:0.1", "learning_rate_schedule": "cosine"},
      "Choose one",
    ),
  ],
)
def test_bad_settings(case, changes, message):
  with pytest.raises(ValueError, match=message):
    cases.settings(case, **changes)


def test_a_large_radius_is_warned_of_before_training():
  method = cases.build("pgd", attack_eps=0.6, epochs=0.25)
  with pytest.warns(UserWarning, match="more than half of the value range"):
    method.fit(*cases.arrays(), verbose=0)


@pytest.mark.parametrize("case", ["pgd", "natural"])
def test_weights_that_are_not_finite(case):
  net = cases.network()
  net.weights[0].assign(np.nan * net.weights[0])
  with pytest.raises(ValueError, match="Expected finite weights"):
    cases.build(case, net).fit(*cases.arrays(), verbose=0)


@pytest.mark.parametrize("case", ["trades", "ibp"])
def test_a_softmax_is_refused(case):
  net = cases.network()
  net = tf.keras.Sequential([net, _layers.Softmax()])
  with pytest.raises(ValueError, match=r"Pass models\.as_logits"):
    cases.build(case, net)


def test_unknown_names_offer_the_nearest():
  with pytest.raises(ValueError, match="Did you mean 'trades'"):
    methods.preset("trads", None)
  with pytest.raises(ValueError, match="Did you mean 'yale_b_pgd'"):
    methods.preset("adversarial", "yale_pgd")
  with pytest.raises(ValueError, match="Did you mean 'trades'"):
    methods.preset("sgd", None, "trads")
  with pytest.raises(ValueError, match=r"objective=Trades\(...\)"):
    methods.build("trades", cases.network(), methods.TrainingConfig())
  with pytest.raises(ValueError, match="Expected DPSGDConfig"):
    methods.build("dp_sgd", cases.network(), methods.TrainingConfig())
  with pytest.raises(ValueError, match="whose loss is its own"):
    methods.preset("dpal", None, "trades")
  with pytest.raises(ValueError, match="Pass method='sgd'"):
    methods.preset("trades", None, "ibp")


def test_activity_regularizers_are_refused():
  layer = _layers.Dense(3, activity_regularizer="l2")
  net = tf.keras.Sequential([_layers.Input((4,)), layer])
  with pytest.raises(ValueError, match="activity regulariser"):
    cases.build("natural", net)


def test_presets_of_codes_in_pytorch_decay_biases_too():
  """TRADES and the dual; DiffAI's has no decay, the others are TensorFlow."""
  from tf_privrob.methods.objectives import presets

  found = {
    name: config.decay_all
    for kind in ("natural", "adversarial", "trades", "wrm", "ibp", "dual")
    for name, config in presets.PRESETS[kind]().items()
    if config.weight_decay
  }
  assert {name for name, all_of_it in found.items() if all_of_it} == {
    "yale_b_trades",
    "fashion_mnist_trades",
    "cifar10_trades",
    "cifar10_trades_original",
    "yale_b_dual",
    "fashion_mnist_dual",
  }
