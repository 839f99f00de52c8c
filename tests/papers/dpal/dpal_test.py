"""DPAL as a whole: runs, guarantees, settings and refusals."""

import dataclasses
import math
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import drawn
from tests.methods import interrupt
from tests.papers.dpal import dpal_cases as cases
from tf_privrob import data
from tf_privrob import mechanisms
from tf_privrob import methods
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.papers.dpal import config as dpal_config

_layers = tf.keras.layers


# Runs.


class _Sizes(tf.keras.callbacks.Callback):
  """Attack sizes of all steps."""

  def __init__(self):
    super().__init__()
    self.found = []

  def on_train_batch_end(self, batch, logs=None):
    self.found.append(logs["nonprivate/attack_eps"])


def test_steps_are_traced_once_whatever_the_attack_size():
  method, sizes = cases.make(steps=6), _Sizes()
  cases.fit(
    method,
    callbacks=[sizes],
    nonprivate_logs=True,
    validation_data=cases.arrays(5, seed=1),
  )
  assert method.train_function.experimental_get_tracing_count() == 1
  assert len(set(sizes.found)) == 6
  assert (method.run_record["steps"], method.run_record["sessions"]) == (6, 1)


def test_training_learns_and_keeps_its_draws():
  rng = np.random.default_rng(0)
  x = rng.uniform(-1, 1, (300, *cases.SHAPE)).astype("float32")
  y = (x[:, :3].mean(axis=(1, 2, 3)) > x[:, 3:].mean(axis=(1, 2, 3))).astype(
    int
  )
  method = cases.make(
    batch_size=60,
    steps=80,
    eval_every=40,
    max_attack_eps=0.1,
    learning_rate=0.02,
    dp_epsilon_labels=50.0,
  )
  before = cases.draws(method)
  history = method.fit(
    x, y, value_range=cases.VALUE_RANGE, validation_data=(x, y), verbose=0
  ).history
  for a, b in zip(before, cases.draws(method)):
    np.testing.assert_array_equal(a, b)
  assert history["val_accuracy"][-1] > 0.8
  assert history["nonprivate/loss"][-1] < history["nonprivate/loss"][0]


@pytest.mark.slow
def test_same_seed_same_run_and_other_seed_other_run():
  first, second, other = (
    cases.fit(cases.make(seed=s, steps=2)) for s in (1, 1, 2)
  )
  np.testing.assert_array_equal(cases.weights(first), cases.weights(second))
  for a, b, c in zip(
    cases.draws(first), cases.draws(second), cases.draws(other)
  ):
    np.testing.assert_array_equal(a, b)
    assert (a != c).all() or not a.any()
  assert np.abs(cases.weights(first) - cases.weights(other)).max() > 0


def test_without_a_seed_no_two_draws_are_alike():
  first, second = (cases.make(seed=None) for _ in range(2))
  for a, b in list(zip(cases.draws(first), cases.draws(second)))[:3]:
    assert (a != b).all()


@pytest.mark.parametrize(
  "changes", [{}, cases.RELEASED], ids=["paper", "released"]
)
def test_saved_and_loaded(tmp_path, changes):
  method = cases.fit(cases.make(seed=123457, steps=2, **changes))
  path = tmp_path / "x.keras"
  method.save(path)
  loaded = tf.keras.models.load_model(path)
  x, _ = cases.arrays()
  np.testing.assert_array_equal(
    loaded.predict(x, verbose=0), method.predict(x, verbose=0)
  )
  for a, b in zip(cases.draws(method), cases.draws(loaded)):
    np.testing.assert_array_equal(a, b)
  assert loaded.config == dataclasses.replace(method.config, seed=None)
  assert loaded.privacy_statement() == method.privacy_statement()
  assert loaded.certifier() == method.certifier()
  with zipfile.ZipFile(path) as archive:
    assert "123457" not in archive.read("config.json").decode()
  with pytest.raises(ValueError, match="trained for 2 steps"):
    cases.fit(loaded)


def test_interrupted_run_goes_on_with_its_draws(tmp_path):
  """Without a seed: the draws can only come from the run folder."""
  stopped = cases.make(seed=None, steps=5)
  with pytest.raises(KeyboardInterrupt):
    cases.fit(stopped, run_dir=tmp_path, callbacks=[interrupt.StopAfter(3)])
  resumed = cases.make(seed=None, steps=5)
  assert (cases.draws(resumed)[0] != cases.draws(stopped)[0]).all()
  cases.fit(resumed, run_dir=tmp_path, resume=True)
  for a, b in zip(cases.draws(stopped), cases.draws(resumed)):
    np.testing.assert_array_equal(a, b)
  assert (resumed.run_record["steps"], resumed.run_record["sessions"]) == (5, 2)
  assert privacy.read_ledger(tmp_path / "ledger.jsonl").steps == 5
  assert int(resumed.feature_optimizer.iterations) in (4, 5)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
  """A run that was stopped after one step."""
  folder = tmp_path_factory.mktemp("stopped")
  with pytest.raises(KeyboardInterrupt):
    cases.fit(cases.make(), run_dir=folder, callbacks=[interrupt.StopAfter(1)])
  return folder


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"dp_epsilon_features": 100.0}, r"dp_epsilon_features: 200\.0 -> 100"),
    ({"dp_epsilon_labels": 6.0}, r"dp_epsilon_labels: 5\.0 -> 6"),
    ({"batch_order": "partition"}, "order: 'random' -> 'partition'"),
    ({"batch_size": 9}, "batch_size: 6 -> 9"),
  ],
)
def test_resume_with_other_settings_is_refused(stopped, changes, message):
  with pytest.raises(ValueError, match=message):
    cases.fit(cases.make(**changes), run_dir=stopped, resume=True)


@pytest.mark.parametrize("order", ["random", "sequential", "partition"])
def test_batches_come_in_the_order_asked_for(order):
  method, seen, rows = cases.make(batch_order=order, steps=3), [], drawn.Rows()
  step = method.train_step

  def spied(batch):
    tf.py_function(lambda a, b: seen.append((a, b)), [batch[0], batch[2]], [])
    return step(batch)

  method.train_step = spied
  cases.fit(method, callbacks=[rows])
  x, _ = cases.arrays()
  sampler = data.FixedBatchSampler(24, cases.BATCH_SIZE, order)
  assert method.sampler == sampler
  assert len(rows.found) == 3
  # After the two steps on synthetic data that are tried first.
  for chosen, (benign, sources) in zip(rows.found, seen[2:]):
    np.testing.assert_array_equal(benign, x[chosen[: cases.BATCH_SIZE]])
    np.testing.assert_array_equal(sources, x[chosen[cases.BATCH_SIZE :]])
  assert len(seen) == 5


def test_moving_statistics_are_those_of_the_trained_weights():
  """`dpal_mnist_bn`: of both batches, after the step and not before it."""
  settings = {"momentum": 0.0, "center": False, "scale": False}
  network = tf.keras.Sequential(
    [
      _layers.Input(cases.SHAPE),
      _layers.Conv2D(2, 3, 2, "same", activation="relu"),
      _layers.BatchNormalization(**settings),
      _layers.Flatten(),
      cases.dense(5, seed=1),
      _layers.BatchNormalization(**settings),
      _layers.Activation("tanh"),
      cases.dense(cases.CLASSES, seed=2),
    ]
  )
  method = cases.ready(cases.make(network))
  batch = cases.pair()
  _, x_adv = method.craft(batch[2])
  method.train_step(batch)
  hidden = tf.nn.relu(method.autoencoder(tf.concat([batch[0], x_adv], 0)))
  mean, variance = tf.nn.moments(hidden, [0, 1, 2])
  hidden = (hidden - mean) / tf.sqrt(variance + 1e-3)
  dense = network.layers[3](tf.reshape(hidden, [len(hidden), -1]))
  for index, expected in ((1, mean), (4, tf.reduce_mean(dense, 0))):
    found = network.layers[index].moving_mean
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
  alone = method(batch[0][:1]).numpy()
  np.testing.assert_allclose(alone, method(batch[0])[:1], atol=1e-5)


# Guarantees.


def test_statement_claims_the_sum_and_proves_nothing():
  statement = cases.make().privacy_statement()
  assert statement.claimed == privacy.Budget(205.0, 0.0)
  assert statement.proven is None
  assert statement.audited is None
  text = statement.text()
  assert "claimed dp_epsilon=205 at dp_delta=0 / proven none known" in text
  for word in ("Lemma 3", "Lemma 6", "parallel"):
    assert word in text
  assert "standardises" not in text
  assert (
    "standardises" in cases.make(**cases.RELEASED).privacy_statement().text()
  )


def _rows(certifier, method, count=3):
  x, y = cases.arrays(count)
  return list(certifier.stream(method, x, y, seed=1))


def test_certifier_claims():
  method = cases.make()
  found = method.certifier(attack_eps=0.2)
  assert isinstance(found, papers.ClaimedInference)
  assert found.composition == "paper"
  assert found.bound == "hoeffding"
  assert found.input_scale == method.noise.input_scale
  assert found.hidden_scale == pytest.approx(2 * method.noise.input_scale)
  assert (found.attack_eps, found.num_positions) == (0.2, 36)
  kernel = method.network.layers[0].kernel.numpy()
  row = np.abs(kernel.reshape(9, 2)).sum(axis=1).max()
  assert found.hidden_sensitivity == pytest.approx(math.sqrt(9) * row)
  rows = _rows(found, method)
  assert [row.kind for row in rows] == ["claimed"] * 3
  assert {row.method for row in rows} == {"dpal_paper_sum"}
  assert method.certifier(composition="harmonic").composition == "harmonic"
  assert method.certifier().attack_eps is None
  # Of the four taps of a row of the matrix, the kernel's row is one.
  matrix = method.certifier(rows="matrix").hidden_sensitivity
  assert matrix > 1.5 * found.hidden_sensitivity
  assert method.certifier(0.2, "released_v0").hidden_sensitivity == (
    papers.released_hidden_sensitivity(kernel, 9)
  )


def test_released_certifier_claims_by_its_own_formula():
  method = cases.make(**cases.RELEASED)
  found = method.certifier(attack_eps=0.2)
  assert found.composition == "released_v1"
  assert found.bound == "clopper_pearson"
  assert found.inputs_together
  kernel = method.network.layers[0].kernel.numpy()
  norm = np.linalg.norm(kernel.reshape(9, 2), 2)
  assert found.hidden_sensitivity == pytest.approx(9 * norm)
  assert {row.kind for row in _rows(found, method)} == {"claimed"}
  # What is proven rests on inputs that stand alone.
  with pytest.raises(ValueError, match="depend on their own input"):
    _rows(method.proven_certifier(num_estimation=20), method)


@pytest.mark.parametrize("network", [cases.conv_network, cases.flat_network])
def test_proven_certifier_proves(network):
  """With the scale that is drawn, b / psi, and not with b."""
  method = cases.make(network(), inference=papers.Inference(psi=4.0))
  found = method.proven_certifier(num_estimation=50, confidence=0.9)
  assert found.scale == pytest.approx(method.noise.input_scale / 4)
  assert found.norm == "linf"
  assert found.position == "input"
  rows = _rows(found, method)
  assert [row.kind for row in rows] == ["proven"] * 3
  assert method.proven_certifier("l1").norm == "l1"


@pytest.mark.parametrize("network", [cases.conv_network, cases.flat_network])
def test_one_draw_of_claimed_inference(network):
  """Eq. 14: the product of two passes, noise psi times smaller than b, 2b."""
  method = cases.make(network(), inference=papers.Inference(psi=4.0))
  x = tf.constant(cases.arrays(5)[0])
  fold = randomness.fold_in
  seed = tf.constant([0, 9], tf.int64)

  def draw(scale, shape, stream):
    laplace = mechanisms.LaplaceMechanism(scale / 4, 1.0)
    return laplace.sample([5, *shape], fold(seed, stream))

  on_x = draw(method.noise.input_scale, method.input_noise_shape, 0)
  on_h = draw(2 * method.noise.input_scale, method.hidden_noise_shape, 1)
  naive = cases.Naive(method)
  inputs = tf.nn.softmax(naive.logits(x + tf.reshape(on_x, x.shape)))
  naive.chi_2 = naive.chi_2 + on_h
  expected = inputs * tf.nn.softmax(naive.logits(x))
  found = method.noisy_logits(x, 9)
  np.testing.assert_allclose(tf.exp(found), expected, rtol=1e-4, atol=1e-6)
  assert (found.numpy() != method.noisy_logits(x, 10).numpy()).all()


def test_input_noise_has_the_shape_of_the_input():
  method = cases.make(cases.flat_network())
  assert method.input_noise_shape == cases.SHAPE
  x = tf.constant(cases.arrays(2)[0])
  moved = method.logits_with_noise(x, input_noise=0.3 * tf.ones_like(x))
  np.testing.assert_allclose(moved, method(x + 0.3), atol=1e-6)


# Settings.


def test_presets_are_those_of_paper_and_code():
  presets = papers.DPALConfig.presets()
  paper, released = presets["mnist_paper"], presets["mnist_released"]
  assert paper.claimed_dp_epsilon == released.claimed_dp_epsilon == 2.0
  assert (paper.batch_size, paper.attack_steps) == (2400, 10)
  assert paper.adversarial_weight == 1.5
  assert (released.batch_size, released.steps) == (2499, 4002)
  assert released.attack_steps == 100
  assert released.adversarial_weight == 1.0
  assert released.batch_order == "sequential"
  written = presets["cifar10_paper"]
  assert (written.batch_size, written.attack_steps) == (1800, 3)
  assert written.inference.psi == 10
  assert written.augmentation == "shift_flip_contrast"
  narrow = presets["cifar10_narrow"]
  assert (narrow.batch_size, narrow.learning_rate) == (1800, 5e-3)
  cifar10 = presets["cifar10_released"]
  assert cifar10.augmentation == "none"
  assert (cifar10.batch_size, cifar10.steps) == (1851, 16801)
  assert cifar10.max_attack_eps == 0.5
  assert cifar10.copied_channels
  assert presets["cifar10_stobatch"].batch_order == "partition"
  assert dpal_config.ATTACKS == ("bim", "mim", "pgd")


def test_registry_knows_both_classes_of_settings():
  network = cases.conv_network()
  found = methods.build("dpal", network, methods.preset("dpal", "mnist_5k"))
  assert type(found) is papers.DPAL
  settings = methods.preset("dpal", "mnist_5k_sound")
  assert type(methods.build("dpal", network, settings)) is papers.SoundDPAL
  assert methods.preset("dpal", None) == papers.DPALConfig()
  with pytest.raises(ValueError, match="DPALConfig or SoundDPALConfig"):
    methods.build("dpal", network, methods.DPSGDConfig())


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"batch_size": 8}, "batch_size=8 to be a multiple of 3: each of bim"),
    ({"variant": "sound"}, "use SoundDPALConfig with SoundDPAL"),
  ],
)
def test_bad_settings_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(cases.BASE, **changes)


def _with(**changes):
  x, y = cases.arrays()
  return {"x": x, "y": y, "value_range": cases.VALUE_RANGE, **changes}


def _nan():
  x, _ = cases.arrays()
  x[5, 0, 0, 0] = np.nan
  return x


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (_with(value_range=(0.0, 255.0)), r"inputs in \[-1, 1\].*\(0\.0, 255\.0\)"),
    (_with(value_range=(-1.5, 1.0)), r"inputs in \[-1, 1\]"),
    (
      _with(x=2 * cases.arrays()[0]),
      r"x_train in \[-1\.0, 1\.0\], received values",
    ),
    (_with(x=_nan()), "NaN or infinity, first in example 5"),
    (
      _with(x=cases.arrays(11)[0], y=cases.arrays(11)[1]),
      r"at least 12 .* most 5",
    ),
    (_with(x=cases.arrays(shape=(5, 6, 1))[0]), r"\(6, 6, 1\).*\(5, 6, 1\)"),
    (_with(y=cases.arrays()[1] + 1), r"labels in \[0, 3\), received max 3"),
  ],
)
def test_bad_data_is_refused_before_the_run_begins(
  arguments, message, tmp_path
):
  with pytest.raises(ValueError, match=message):
    cases.make().fit(**arguments, run_dir=tmp_path / "run", verbose=0)
  assert not (tmp_path / "run").exists()


def test_data_within_the_range_are_enough():
  """Pixels in [0, 1] are also in [-1, 1]."""
  x, y = cases.arrays()
  cases.make(steps=1).fit(np.abs(x), y, value_range=(0.0, 1.0), verbose=0)


def test_other_batch_size_than_calibrated_for_is_refused():
  method = cases.ready(cases.make())
  x, y = (tf.constant(a[:3]) for a in cases.arrays())
  with pytest.raises(ValueError, match=r"batch_size=6, .* received 3"):
    method.train_step((x, y, x, y))


def test_unbounded_last_hidden_layer_is_refused():
  network = tf.keras.Sequential(
    [
      _layers.Input((6,)),
      _layers.Dense(5, "relu"),
      _layers.Dense(4, "relu"),
      _layers.Dense(3),
    ]
  )
  with pytest.raises(ValueError, match=r"last hidden layer .* bounded by 1"):
    cases.make(network)


def test_second_fit_is_refused():
  method = cases.fit(cases.make(steps=1))
  with pytest.raises(ValueError, match="trained for 1 steps"):
    cases.fit(method)
