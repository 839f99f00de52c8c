import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.attacks import conftest
from tf_privrob import attacks

_ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}
_RADII = {"linf": 0.1, "l2": 0.8, "l1": 2.0}
_GRADIENT = ("fgsm", "bim", "mim", "pgd")


def _lengths(norm, delta):
  flat = np.asarray(delta, np.float64).reshape(len(delta), -1)
  return np.linalg.norm(flat, _ORDERS[norm], axis=1)


def _linear(weights, bias=0.0):
  """A binary model whose margin for class 1 is 2 (w x + b)."""
  weights = tf.constant(weights, tf.float32)

  def logits(x):
    z = tf.linalg.matvec(x, weights) + bias
    return tf.stack([-z, z], axis=1)

  return logits


# Closed forms.


@pytest.mark.parametrize("name", _GRADIENT)
@pytest.mark.parametrize(
  ("norm", "dual"), [("linf", 1), ("l2", 2), ("l1", np.inf)]
)
def test_linear_model_closed_form(name, norm, dual):
  """Far from the range, the margin falls by 2 attack_eps ||w||_dual."""
  weights = np.random.default_rng(0).normal(size=6)
  model = _linear(weights)
  x = np.random.default_rng(1).uniform(-0.5, 0.5, (20, 6)).astype(np.float32)
  y = (x @ weights > 0).astype(np.int64)
  fields = {"step_size": 0.1} if name == "pgd" else {}
  attack = attacks.by_name(
    name, attack_eps=0.3, norm=norm, value_range=(-9.0, 9.0), **fields
  )
  x_adv = attack.compile(model)(x, y, 3).numpy()
  signs = 2 * y - 1
  fall = signs * ((x - x_adv) @ weights)
  best = 0.3 * np.linalg.norm(weights, dual)
  np.testing.assert_allclose(fall, best, rtol=1e-3)


def test_fgsm_linf_is_optimal_within_the_range():
  weights = np.array([1.0, -2.0, 0.5])
  x = np.array([[0.95, 0.5, 0.02]], np.float32)
  x_adv = attacks.FGSM(0.1)(_linear(weights), x, np.array([1]), 0)
  np.testing.assert_allclose(x_adv, [[0.85, 0.6, 0.0]], atol=1e-6)


def test_l2_attack_flips_exactly_beyond_the_margin():
  weights, bias = np.array([3.0, -4.0]), 0.5
  model = _linear(weights, bias)
  x = np.array([[0.5, 0.25]], np.float32)
  distance = abs(x[0] @ weights + bias) / 5.0
  for factor, flips in ((0.99, False), (1.01, True)):
    attack = attacks.PGD(distance * factor, "l2", value_range=(-2.0, 2.0))
    x_adv = attack(model, x, np.array([1]), 0)
    assert (np.argmax(model(x_adv), axis=1)[0] == 0) == flips


# Bounds, dtypes and shapes.


_LOSSES = ("cross_entropy", "margin", "dlr")
_EVERY = (*_GRADIENT, "apgd")


@pytest.mark.parametrize("norm", list(_ORDERS))
@pytest.mark.parametrize("name", _EVERY)
def test_ball_and_range_hold_and_the_model_suffers(network, batch, name, norm):
  """Every two of attack, norm and loss meet; the loss is a gradient only."""
  x, y = batch
  place = _EVERY.index(name) + list(_ORDERS).index(norm)
  loss = _LOSSES[place % 3]
  attack = attacks.by_name(name, attack_eps=_RADII[norm], norm=norm, loss=loss)
  x_adv = attack.compile(network)(x, y, 0).numpy()
  assert x_adv.shape == x.shape
  assert x_adv.dtype == x.dtype
  assert x_adv.min() >= 0
  assert x_adv.max() <= 1
  assert (_lengths(norm, x_adv - x) <= _RADII[norm] * (1 + 1e-5)).all()
  clean = conftest.accuracy(network, x, y)
  assert conftest.accuracy(network, x_adv, y) < clean - 0.15


@pytest.mark.parametrize("norm", list(_ORDERS))
def test_targeted_reaches_targets(network, batch, norm):
  x, y = batch
  target = (y + 1) % 10
  attack = attacks.PGD(3 * _RADII[norm], norm, targeted=True)
  x_adv = attack.compile(network)(x, target, 0)
  assert conftest.accuracy(network, x, target) < 0.05
  assert conftest.accuracy(network, x_adv, target) > 0.6


def test_double_precision_stays_double(batch):
  x, y = batch[0].astype(np.float64), batch[1] % 2
  weights = tf.constant(np.linspace(-1, 1, 64))

  def model(inputs):
    z = tf.linalg.matvec(inputs, weights)
    return tf.stack([-z, z], axis=1)

  for norm in _ORDERS:
    attack = attacks.PGD(0.1, norm, steps=3, restarts=2, keep_best=True)
    assert attack(model, x, y, 0).dtype == tf.float64


@pytest.mark.parametrize("name", _GRADIENT)
def test_zero_radius_changes_nothing(network, batch, name):
  x, y = batch
  attack = attacks.by_name(name, attack_eps=0.0)
  np.testing.assert_array_equal(attack(network, x, y, 0), x)


# Graph, seeds and retracing.


@pytest.mark.parametrize("norm", list(_ORDERS))
@pytest.mark.parametrize("name", _GRADIENT)
def test_eager_equals_graph(network, batch, name, norm):
  x, y = batch[0][:8], batch[1][:8]
  attack = attacks.by_name(name, attack_eps=_RADII[norm], norm=norm)
  eager = attack(network, x, y, 5)
  graph = attack.compile(network)(x, y, 5)
  np.testing.assert_allclose(eager, graph, atol=1e-5)


def test_xla_gives_the_same_examples(network, batch):
  x, y = batch[0][:8], batch[1][:8]
  for norm, radius in _RADII.items():
    attack = attacks.PGD(
      radius, norm, steps=5, random_start=False, keep_best=True
    )
    plain = attack.compile(network, jit_compile=False)(x, y, 5)
    fused = attack.compile(network, jit_compile=True)(x, y, 5)
    np.testing.assert_allclose(plain, fused, atol=1e-4)


def test_same_seed_same_result(network, batch):
  x, y = batch
  run = attacks.PGD(0.1, steps=3).compile(network)
  first, again = run(x, y, 1).numpy(), run(x, y, 1).numpy()
  np.testing.assert_array_equal(first, again)
  assert np.abs(first - run(x, y, 2).numpy()).max() > 0.01
  large = run(x, y, 2**40 + 1).numpy()
  assert np.abs(first - large).max() > 0.01
  np.testing.assert_array_equal(run(x, y, tf.constant([1, 0])), first)


def test_model_is_traced_once(batch):
  x, y = batch
  traces = []
  weights = tf.random.stateless_normal((64, 10), [1, 2])

  def model(inputs):
    traces.append(None)
    return inputs @ weights

  attack = attacks.PGD(0.1, steps=7, restarts=3, keep_best=True)
  run = attack.compile(model, split_batch=False)
  run(x, y, 0)
  count = len(traces)
  assert count == 2  # The loop's body and the last iterate.
  run(x[::-1].copy(), y, 1)
  run(tf.constant(x), tf.constant(y, tf.int32), tf.constant([3, 4]))
  assert len(traces) == count


def test_radius_may_be_a_tensor(network, batch):
  x, y = batch
  attack = attacks.BIM(0.3, steps=5)
  run = attack.compile(network)
  for radius in (0.0, 0.05, 0.2):
    got = run(x, y, 0, attack_eps=tf.constant(radius)).numpy()
    wanted = attacks.BIM(radius, steps=5)(network, x, y, 0).numpy()
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_inside_train_step_examples_are_constants(network, batch):
  """The outer gradient does not flow through the attack."""
  x, y = (tf.constant(part) for part in batch)
  attack = attacks.PGD(0.1, "l2", steps=3)  # l_inf's sign has no gradient.

  @tf.function
  def step(x, y, seed, given):
    radius = tf.random.stateless_uniform([], seed, 0.5, 0.6)
    with tf.GradientTape() as tape:
      x_adv = attack(network, x, y, seed, attack_eps=radius)
      used = given if given is not None else x_adv
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(used))
      )
    return x_adv, tape.gradient(loss, network.trainable_variables)

  seed = tf.constant([1, 2])
  x_adv, grads = step(x, y, seed, None)
  _, constant = step(x, y, seed, x_adv)
  for ours, plain in zip(grads, constant):
    np.testing.assert_allclose(ours, plain, atol=1e-6)
  lengths = _lengths("l2", x_adv - x)
  assert 0.4 < lengths.max() < 0.6 + 1e-5


def test_keras_fit_with_an_attack_in_train_step(digits):
  x, y = digits[0][:128], digits[1][:128]

  class Robust(tf.keras.Model):
    def __init__(self):
      super().__init__()
      self.head = tf.keras.layers.Dense(10)
      self.dropout = tf.keras.layers.Dropout(0.5)

    def call(self, inputs, training=None):
      return self.head(self.dropout(inputs, training=training))

    def train_step(self, data):
      x, y = data
      seed = tf.stack([tf.cast(self.optimizer.iterations, tf.int32), 0])
      x_adv = attacks.MIM(0.1, steps=2)(self, x, y, seed)
      with tf.GradientTape() as tape:
        loss = self.compute_loss(y=y, y_pred=self(x_adv, training=True))
      grads = tape.gradient(loss, self.trainable_variables)
      self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
      return {"loss": loss}

  model = Robust()
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(tf.keras.optimizers.Adam(0.02), loss)
  history = model.fit(x, y, epochs=6, batch_size=32, verbose=0).history["loss"]
  assert history[-1] < 0.9 * history[0]


def test_keras_models_are_attacked_as_deployed(batch):
  x, y = batch
  layers = tf.keras.layers
  model = tf.keras.Sequential(
    [layers.Input((64,)), layers.Dropout(0.5), layers.Dense(10)]
  )
  attack = attacks.BIM(0.1, steps=3)
  with_flag = attack(lambda x: model(x, training=False), x, y, 0)
  np.testing.assert_array_equal(attack(model, x, y, 0), with_flag)


# Worst cases.


def _margins(model, x, y):
  logits = model(x).numpy().astype(np.float64)
  own = logits[np.arange(len(y)), y]
  logits[np.arange(len(y)), y] = -np.inf
  return logits.max(axis=1) - own


@pytest.mark.parametrize("name", ["bim", "mim", "pgd"])
@pytest.mark.parametrize("norm", list(_ORDERS))
def test_more_steps_never_help_the_defender(network, batch, name, norm):
  x, y = batch
  before = np.full(len(x), -np.inf)
  for steps in (1, 3, 9):
    attack = attacks.by_name(
      name,
      attack_eps=_RADII[norm],
      norm=norm,
      steps=steps,
      step_size=0.4 * _RADII[norm],
      keep_best=True,
    )
    margins = _margins(network, attack(network, x, y, 0), y)
    assert (margins >= before - 1e-4).all()
    before = margins


def test_keep_best_is_the_worst_of_all_iterates(network, batch):
  x, y = batch
  fields = {"attack_eps": 0.1, "step_size": 0.08}
  margins = [_margins(network, x, y)]
  for steps in range(1, 5):
    attack = attacks.BIM(steps=steps, **fields)
    margins.append(_margins(network, attack(network, x, y, 0), y))
  kept = attacks.BIM(steps=4, keep_best=True, **fields)(network, x, y, 0)
  worst = np.max(margins, axis=0)
  np.testing.assert_allclose(_margins(network, kept, y), worst, atol=1e-4)
  assert (worst > margins[-1] + 1e-3).any()


def test_last_iterate_alone_may_help_the_defender(network, batch):
  """Without keep_best the law above does not hold, so it can fail."""
  x, y = batch
  few, many = (
    _margins(
      network,
      attacks.BIM(0.1, steps=steps, step_size=0.08)(network, x, y, 0),
      y,
    )
    for steps in (2, 3)
  )
  assert (many < few - 1e-3).any()


def test_more_restarts_never_help_the_defender(network, batch):
  x, y = batch
  margins = [
    _margins(
      network,
      attacks.PGD(0.06, steps=2, restarts=restarts)(network, x, y, 0),
      y,
    )
    for restarts in (1, 2, 6)
  ]
  assert (margins[1] >= margins[0] - 1e-4).all()
  assert (margins[2] >= margins[1] - 1e-4).all()
  assert (margins[2] > margins[0] + 1e-3).any()


def test_ensemble_is_the_worst_of_its_members(network, batch):
  x, y = batch
  members = [
    attacks.FGSM(0.05),
    attacks.BIM(0.5, "l2"),
    attacks.PGD(1.0, "l1", steps=10),
  ]
  both = attacks.ensemble(members).compile(network)(x, y, 0)
  margins = _margins(network, both, y)
  assert "FGSM" in repr(attacks.ensemble(members))
  for attack in members[:2]:  # The deterministic ones.
    single = _margins(network, attack(network, x, y, 0), y)
    assert (margins >= single - 1e-4).all()
  eager = attacks.ensemble(members)(network, x, y, 0)
  np.testing.assert_allclose(eager, both, atol=1e-5)


def test_ensemble_refuses_what_does_not_fit_together():
  with pytest.raises(ValueError, match="share value_range"):
    attacks.ensemble(
      [attacks.FGSM(0.1), attacks.FGSM(0.1, value_range=(-1.0, 1.0))]
    )
  with pytest.raises(ValueError, match="share targeted"):
    attacks.ensemble([attacks.FGSM(0.1), attacks.FGSM(0.1, targeted=True)])
  with pytest.raises(ValueError, match="at least one attack"):
    attacks.ensemble([])
  with pytest.raises(ValueError, match="labels in y"):
    attacks.ensemble([attacks.FGSM(0.1)])(None, None, None, 0)


# Fields and failures.


def test_default_steps():
  """FGSM whole radius, BIM and MIM radius / steps, PGD 2.5 radius / steps."""
  weights = np.array([1.0, 1.0])
  x, y = np.array([[0.5, 0.5]], np.float32), np.array([1])
  for attack, length in [
    (attacks.FGSM(0.2), 0.2),
    (attacks.BIM(0.2, steps=10), 0.02),
    (attacks.MIM(0.2, steps=10), 0.02),
    (attacks.PGD(0.2, steps=10, random_start=False), 0.05),
  ]:
    if attack.steps > 1:
      size = attack.step_factor * 0.2 / attack.steps
      attack = dataclasses.replace(attack, steps=1, step_size=size)
    moved = x - attack(_linear(weights), x, y, 0)
    np.testing.assert_allclose(moved, length, rtol=1e-5)


def test_the_step_factor_of_pgd_may_be_that_of_bim():
  """DPAL trains with mu / T, Eq. 10; from the clean input PGD is then BIM."""
  x, y = np.array([[0.5, 0.2]], np.float32), np.array([1])
  pgd = attacks.PGD(0.2, steps=10, random_start=False, step_factor=1.0)
  for size in (None, tf.constant(0.1)):
    found = pgd(_linear([1.0, 1.0]), x, y, 0, size)
    expected = attacks.BIM(0.2, steps=10)(_linear([1.0, 1.0]), x, y, 0, size)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
  ("source", "reached"), [("model", 0.42), ("iterate", 0.52)]
)
def test_labels_are_those_of_the_clean_input_or_of_each_iterate(
  source, reached
):
  """Behind the boundary at 0.5, every second of four steps leads back."""
  attack = attacks.BIM(0.1, steps=4, label_source=source)
  found = attack(_linear([1.0], -0.5), np.array([[0.52]], np.float32), None, 0)
  assert float(found[0, 0]) == pytest.approx(reached, abs=1e-6)


def test_momentum_is_used():
  """Gradients +2, -1, -1 leave a positive memory for two steps."""
  x = np.array([[0.5]], np.float32)

  def bumpy(inputs):
    slope = tf.where(inputs < 0.55, 2.0, -1.0)
    z = tf.stop_gradient(slope) * inputs
    return tf.concat([-z, z], axis=1)

  def moved(**fields):
    attack = attacks.by_name(attack_eps=0.4, steps=2, step_size=0.1, **fields)
    return float(attack(bumpy, x, np.array([0]), 0)[0, 0])

  assert moved(name="bim") == pytest.approx(0.5)
  assert moved(name="mim", decay=0.0) == pytest.approx(0.5)
  assert moved(name="mim", decay=1.5) == pytest.approx(0.7)


def test_repr_and_name():
  attack = attacks.PGD(0.3, steps=20, restarts=2)
  assert (
    repr(attack) == "PGD(attack_eps=0.3, norm='linf', steps=20, restarts=2)"
  )
  assert attack.name == "pgd"
  assert hash(attack) == hash(attacks.PGD(0.3, steps=20, restarts=2))


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"targeted": True, "label_source": "model"}, "needs the labels to reach"),
    ({"targeted": True, "label_source": "iterate"}, "labels to reach"),
    ({"step_factor": 0.0}, r"step_factor=0\.0"),
    ({"restarts": 2, "random_start": False}, "every restart is the same"),
    ({"stepsize": 0.1}, "Did you mean 'step_size'"),
  ],
)
def test_bad_fields(fields, message):
  with pytest.raises(ValueError, match=message):
    attacks.by_name("pgd", **{"attack_eps": 0.1, **fields})


def test_bad_names():
  with pytest.raises(ValueError, match="Did you mean 'pgd'"):
    attacks.by_name("pgdd", attack_eps=0.1)
  with pytest.raises(ValueError, match="Expected attack_eps for pgd"):
    attacks.by_name("pgd")
  for name in attacks.NAMES:
    assert attacks.by_name(name, attack_eps=0.1).name in attacks.NAMES


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda x, y: ((255 * x).astype(np.uint8), y), "received dtype uint8"),
    (lambda x, y: (2 * x, y), "Rescale it or declare"),
    (lambda x, y: (x * np.nan, y), "NaN or infinity"),
    (lambda x, y: (x[0], y[:1]), "of rank 2"),
    (lambda x, y: (x[:0], y[:0]), "at least one example"),
    (lambda x, y: (x, np.eye(10)[y]), "looks one-hot"),
    (lambda x, y: (x, y + 5), r"labels in \[0, 10\)"),
    (lambda x, y: (x, y.astype(np.float32)), "whole-number labels"),
    (lambda x, y: (x, y[:-1]), "one label per example"),
    (lambda x, y: (x, None), "Expected labels in y"),
  ],
)
def test_bad_inputs(network, batch, change, message):
  x, y = change(*batch)
  with pytest.raises(ValueError, match=message):
    attacks.PGD(0.1)(network, x, y, 0)


def test_bad_seed_and_dead_model(network, batch):
  x, y = batch
  with pytest.raises(ValueError, match="Expected seed to be an int"):
    attacks.FGSM(0.1)(network, x, y, 0.5)

  def rounded(inputs):
    return network(tf.round(inputs))

  with pytest.raises(ValueError, match="no gradient reaches x"):
    attacks.FGSM(0.1)(rounded, x, y, 0)


def test_accepted_fields_and_fixed_norms():
  asked = {"attack_eps": 0.1, "norm": "linf", "steps": 7}
  assert attacks.accepted("pgd", **asked) == asked
  assert set(attacks.accepted("fgsm", **asked)) == {"attack_eps", "norm"}
  assert set(attacks.accepted("spsa", **asked)) == {"attack_eps", "steps"}
  with pytest.raises(ValueError, match="Expected norm='l2' for cw_l2"):
    attacks.accepted("cw_l2", **asked)
