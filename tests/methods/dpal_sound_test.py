import dataclasses
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import layers
from tf_privrob import mechanisms
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy

_layers = tf.keras.layers
_SHAPE, _CLASSES, _RANGE = (6, 6, 1), 3, (-1.0, 1.0)
_BASE = methods.SoundDPALConfig(
  noise_multiplier=1.0,
  dp_epsilon=50.0,
  dp_delta=1e-3,
  batch_size=16,
  epochs=1.0,
  accountant="rdp",
  moment_dp_epsilon=1.0,
  adversarial_weight=0.0,  # tests of the attack say so
  attack_steps=2,
)


def _arrays(count=64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.uniform(*_RANGE, (count, *_SHAPE)).astype("float32")
  return x, rng.integers(0, _CLASSES, count)


def _network(activation="relu", seed=0):
  init = tf.keras.initializers.GlorotUniform
  return tf.keras.Sequential(
    [
      _layers.Input(_SHAPE),
      _layers.Conv2D(
        4, 3, 2, activation=activation, kernel_initializer=init(seed)
      ),
      _layers.Flatten(),
      _layers.Dense(5, "tanh", kernel_initializer=init(seed + 1)),
      _layers.Dense(_CLASSES, kernel_initializer=init(seed + 2)),
    ]
  )


def _flat_network():
  return models.mlp(_SHAPE, _CLASSES, hidden=(8, 5), activation="tanh")


def _method(network=None, **changes):
  config = dataclasses.replace(_BASE, **changes)
  return methods.SoundDPAL(_network() if network is None else network, config)


def _fit(method, **kwargs):
  method.fit(*_arrays(), value_range=_RANGE, verbose=0, **kwargs)
  return method


def _ready(method, count=64):
  """Prepared for a step by hand, its first layer as it is."""
  method.compile(tf.keras.optimizers.SGD(method.config.learning_rate))
  plan = method.plan(count)
  method._plan = plan
  method.prepare(plan, _SHAPE, _RANGE, _CLASSES)
  method.set_session(np.array([3, 4]), 0)
  return method


def _weights(network):
  return np.concatenate([w.ravel() for w in network.get_weights()])


class _Stop(tf.keras.callbacks.Callback):
  """Ctrl-C after some steps."""

  def __init__(self, steps):
    super().__init__()
    self._left = steps

  def on_train_batch_end(self, batch, logs=None):
    self._left -= 1
    if not self._left:
      raise KeyboardInterrupt


# The first layer.


@pytest.mark.parametrize(
  ("network", "index", "features", "paired"),
  [
    (_network, 0, "pca", True),
    (_network, 0, "taylor", True),
    (lambda: _network("tanh"), 0, "pca", False),
    (_flat_network, 1, "pca", False),
  ],
)
def test_first_layer_is_made_of_the_released_moments_alone(
  tmp_path, network, index, features, paired
):
  network = network()
  others = _weights(network)[-18:]
  method = _method(network, features=features, epochs=0.5)
  _fit(method, run_dir=tmp_path)
  first = network.layers[index]
  filters = mechanisms.filters_from_moments(
    np.load(tmp_path / "moments.npy"),
    first.kernel.shape[-1],
    _RANGE,
    features,
    paired=paired,
  )
  np.testing.assert_array_equal(
    first.kernel, np.float32(filters.kernel).reshape(first.kernel.shape)
  )
  np.testing.assert_array_equal(first.bias, np.float32(filters.bias))
  assert not first.trainable
  assert all(v is not first.kernel for v in method.trainable_variables)
  assert (_weights(network)[-18:] != others).all()


def test_moments_are_those_of_the_training_images(tmp_path):
  """With hardly any noise they are what the query says of the data."""
  method = _method(moment_dp_epsilon=1e9, dp_epsilon=1e12)
  x, y = _arrays()
  method.begin(x, y, tmp_path, False, _RANGE)
  query = mechanisms.PatchMoments(
    (3, 3), (2, 2), _RANGE, 3.0, "gaussian", 1e9, 1e-3
  )
  total = query.parts(x).numpy().sum(axis=0)
  matrix = np.load(tmp_path / "moments.npy")
  rows, columns = np.triu_indices(10)
  root = np.where(rows == columns, 1.0, np.sqrt(2))
  np.testing.assert_allclose(
    matrix[rows, columns] * root, total, rtol=1e-3, atol=1e-2
  )


def test_seed_decides_on_moments_and_run(tmp_path):
  def run(name, seed):
    method = _fit(_method(seed=seed, epochs=0.25), run_dir=tmp_path / name)
    return np.load(tmp_path / name / "moments.npy"), _weights(method.network)

  first, again, other = run("a", 1), run("b", 1), run("c", 2)
  fresh = [run("d", None), run("e", None)]
  for i in range(2):
    np.testing.assert_array_equal(first[i], again[i])
    assert (first[i] != other[i]).any()
    assert (fresh[0][i] != fresh[1][i]).any()


# The loss and its gradient.


def _cross_entropy(network, image, label):
  logits = network(image[None])[0]
  return tf.reduce_logsumexp(logits) - logits[int(label)]


def _naive_rows(method, x, seed):
  """Each example's rows: clean copies, then adversarial copies, with noise."""
  config, fold = method.config, tf.random.experimental.stateless_fold_in
  size = config.max_attack_eps * tf.random.stateless_uniform([], fold(seed, 0))
  attack = attacks.PGD(
    config.max_attack_eps, value_range=_RANGE, steps=config.attack_steps
  )
  _, y = _arrays(len(x))
  x_adv = attack(method.network, x, y, fold(seed, 1), size)
  assert np.abs(x_adv - x).max() <= float(size) + 1e-6
  assert np.abs(x_adv - x).max() > 0.5 * float(size)
  copies, rows = config.augmentation_multiplicity, []
  for clean, adversarial in zip(x, x_adv):
    rows += [clean] * copies
    rows += [adversarial] * copies if config.adversarial_weight else []
  rows = data.augment(tf.stack(rows), config.augmentation, fold(seed, 2), 0.3)
  return tf.reshape(rows, [len(x), -1, *_SHAPE])


def _naive_losses(method, x, y, seed):
  """(L(x) + xi L(x_adv)) / (1 + xi), averaged over copies, one by one."""
  config = method.config
  copies, xi = config.augmentation_multiplicity, config.adversarial_weight
  losses = []
  for rows, label in zip(_naive_rows(method, x, seed), y):
    values = [_cross_entropy(method.network, row, label) for row in rows]
    clean = sum(values[:copies]) / copies
    adversarial = sum(values[copies:]) / copies
    losses.append((clean + xi * adversarial) / (1 + xi))
  return losses


@pytest.mark.parametrize(
  "changes",
  [
    {"adversarial_weight": 3.0},
    {"augmentation": "noise"},
    {
      "augmentation": "noise",
      "augmentation_multiplicity": 3,
      "adversarial_weight": 0.5,
    },
  ],
)
def test_losses_are_those_of_a_naive_loop(changes):
  method = _ready(_method(augmentation_stddev=0.3, **changes))
  x, y = _arrays(5)
  seed = tf.constant([5, 6])
  found, metrics = method._example_losses(
    (tf.constant(x), tf.constant(y)), seed
  )
  np.testing.assert_allclose(
    found, _naive_losses(method, x, y, seed), rtol=1e-4, atol=1e-5
  )
  noisy = _naive_rows(method, x, seed)[:, 0]
  correct = np.argmax(method.network(noisy), axis=1) == y
  np.testing.assert_array_equal(metrics["correct"], correct)


def _naive_gradients(method, x, y, seed):
  """One gradient an example, over both terms, before clipping."""
  variables = method.network.trainable_variables
  with tf.GradientTape(persistent=True) as tape:
    losses = _naive_losses(method, x, y, seed)
  return [
    np.concatenate([g.numpy().ravel() for g in tape.gradient(loss, variables)])
    for loss in losses
  ]


def _flat(tensors):
  return np.concatenate([np.ravel(t) for t in tensors])


def test_a_step_without_noise_is_that_of_a_naive_loop():
  method = _ready(
    _method(
      noise_multiplier=0.0,
      adversarial_weight=1.5,
      l2_clip_norm=1.15,
      sampler="full_batch",
      learning_rate=0.5,
      physical_batch_size=8,
    ),
    count=8,
  )
  x, y = _arrays(8)
  fold = tf.random.experimental.stateless_fold_in
  seed = fold(fold(tf.constant([3, 4]), tf.constant(0, tf.int64)), 1)
  found = _naive_gradients(method, x, y, fold(seed, 0))
  norms = np.array([np.linalg.norm(g) for g in found])
  assert (norms > 1.15).any()
  assert (norms < 1.15).any()
  total = sum(g * min(1, 1.15 / n) for g, n in zip(found, norms))
  start = _flat(method.network.trainable_variables)
  batch = (x[None], y[None], np.ones((1, 8), "float32"))
  method.train_step(tuple(map(tf.constant, batch)))
  moved = start - _flat(method.network.trainable_variables)
  np.testing.assert_allclose(moved, 0.5 * total / 8, rtol=1e-3, atol=1e-6)


def test_both_terms_of_an_example_are_clipped_as_one_gradient():
  """Two clipped gradients would add up to twice the bound."""
  method = _ready(_method(l2_clip_norm=1e-3, adversarial_weight=1.0))
  x, y = _arrays(6)
  whole = method._clipped((tf.constant(x), tf.constant(y)))
  assert float(whole.clipped) == 6
  for row in range(6):
    mask = tf.one_hot(row, 6)
    part = method._clipped((tf.constant(x), tf.constant(y)), mask)
    norm = np.linalg.norm(_flat(part.gradients))
    assert 0.99e-3 < norm <= 1e-3
  # Falsified: the same losses as two examples, clean and adversarial.
  seed = tf.zeros([2], tf.int32)
  rows = _naive_rows(method, x, seed)

  def as_two(batch, seed):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      batch[1], method.network(batch[0])
    )

  twice = gradients.ClippedGradients(as_two, method.network, 1e-3)
  labels = tf.repeat(tf.constant(y[:1]), 2)
  norm = np.linalg.norm(_flat(twice((rows[0], labels)).gradients))
  assert norm > 1.2e-3


def test_one_example_moves_the_sum_by_no_more_than_the_sensitivity():
  method = _ready(_method(l2_clip_norm=0.05, adversarial_weight=1.0))
  method.network.set_weights([20 * w for w in method.network.get_weights()])
  x, y = map(tf.constant, _arrays(6))
  everyone = _flat(method._clipped((x, y)).gradients)
  moves = []
  for row in range(6):
    mask = 1 - tf.one_hot(row, 6)
    rest = _flat(method._clipped((x, y), mask).gradients)
    moves.append(np.linalg.norm(everyone - rest))
  bound = method._clipped.sensitivity("add_or_remove_one")
  assert bound == 0.05
  assert max(moves) <= bound * (1 + 1e-5)
  assert max(moves) > 0.9 * bound


def test_every_engine_gives_the_same_sum():
  """With an attack of no size, whose random starts cannot differ."""
  x, y = map(tf.constant, _arrays(3))
  found = []
  for engine in gradients.ENGINES:
    method = _ready(
      _method(engine=engine, adversarial_weight=1.0, max_attack_eps=0.0)
    )
    assert method._clipped.engine == engine
    found.append(_flat(method._clipped((x, y)).gradients))
  for other in found[1:]:
    np.testing.assert_allclose(other, found[0], atol=1e-5)


def test_without_attack_it_is_dp_sgd_above_a_fixed_layer():
  method = _fit(_method())
  network = _network()
  first = network.layers[0]
  first.set_weights(method.network.layers[0].get_weights())
  first.trainable = False
  names = {f.name for f in dataclasses.fields(methods.DPSGDConfig)}
  settings = dataclasses.asdict(method.config)
  config = methods.DPSGDConfig(**{n: settings[n] for n in names})
  _fit(methods.DPSGD(network, config))
  np.testing.assert_array_equal(_weights(network), _weights(method.network))


def test_training_learns_within_its_budget():
  rng = np.random.default_rng(0)
  x = rng.uniform(-1, 1, (1500, *_SHAPE)).astype("float32")
  x += np.linspace(-1, 1, 6)[:, None, None] * rng.choice(
    [-1, 1], (1500, 1, 1, 1)
  )
  x = x.clip(-1, 1).astype("float32")
  y = (x[:, :3].mean(axis=(1, 2, 3)) > x[:, 3:].mean(axis=(1, 2, 3))).astype(
    int
  )
  method = _method(
    dp_epsilon=6.0,
    noise_multiplier=None,
    dp_delta=1e-4,
    batch_size=150,
    epochs=4,
    learning_rate=2.0,
    l2_clip_norm=0.5,
    adversarial_weight=1.0,
    max_attack_eps=0.1,
  )
  method.fit(x, y, value_range=_RANGE, verbose=0)
  _, accuracy = method.evaluate(x, y, verbose=0)
  assert accuracy > 0.9
  assert method.privacy_statement().proven.dp_epsilon <= 6.0


# The budget.


@pytest.mark.parametrize(
  ("mechanism", "accountant"),
  [("gaussian", "rdp"), ("laplace", "rdp"), ("gaussian", "pld")],
)
def test_proven_budget_is_the_composition_and_within_what_was_asked(
  mechanism, accountant
):
  method = _fit(
    _method(
      dp_epsilon=3.0,
      noise_multiplier=None,
      moment_mechanism=mechanism,
      moment_dp_epsilon=0.8,
      accountant=accountant,
    )
  )
  record, statement = method.run_record, method.privacy_statement()
  sgd = privacy.poisson_sgd(record["noise_multiplier"], 0.25, 4)
  if mechanism == "laplace":
    moments = privacy.Release("moments", dp_epsilon=0.8)
  else:
    noise = mechanisms.GaussianMechanism.analytic(1.0, 0.8, 1e-3)
    moments = privacy.Release("moments", noise.event())
  found = privacy.figures([sgd, moments], 1e-3)
  proven = statement.proven.dp_epsilon
  assert proven == pytest.approx(found.of(accountant), rel=1e-6)
  assert 2.9 < proven <= 3.0
  assert statement.proven.dp_delta == 1e-3
  # Without the moments the figure would be another one.
  alone = privacy.figures(sgd, 1e-3).of(accountant)
  assert alone < proven - 0.05
  if mechanism == "laplace":
    assert proven == pytest.approx(alone + 0.8, rel=1e-6)
  names = [release["name"] for release in statement.releases]
  assert names == ["noisy clipped gradients", "patch moments"]
  assert statement.neighbouring == "add_or_remove_one"
  assert "seed" in " ".join(statement.caveats)


def test_plan_knows_the_moments_before_they_are_released():
  method = _method(noise_multiplier=None, dp_epsilon=3.0)
  before = method.plan(64)
  _fit(method)
  assert method.plan(64) == before
  plain = methods.DPSGD(
    _network(),
    methods.DPSGDConfig(
      dp_epsilon=3.0, dp_delta=1e-3, batch_size=16, epochs=1, accountant="rdp"
    ),
  )
  assert before.noise_multiplier > plain.plan(64).noise_multiplier + 0.01


def test_given_noise_ends_where_the_common_budget_does():
  method = _method(epochs=1000.0, dp_epsilon=4.0, noise_multiplier=1.5)
  plan = method.plan(64)
  moments = plan.extra[0]

  def cost(steps):
    sgd = privacy.poisson_sgd(1.5, 0.25, steps)
    return privacy.dp_epsilon([sgd, moments], 1e-3, "rdp")

  assert cost(plan.steps) <= 4.0 < cost(plan.steps + 1)


def test_history_counts_the_moments_from_the_first_step(tmp_path):
  _fit(_method(), run_dir=tmp_path)
  row = json.loads((tmp_path / "history.jsonl").read_text().splitlines()[0])
  alone = privacy.dp_epsilon(privacy.poisson_sgd(1.0, 0.25, 4), 1e-3, "rdp")
  assert row["dp_epsilon"] > alone


# Killed and resumed.


def test_ledger_holds_the_moments(tmp_path):
  _fit(_method(moment_clip=2.0), run_dir=tmp_path)
  parameters = privacy.read_ledger(tmp_path / "ledger.jsonl").parameters
  exact = mechanisms.GaussianMechanism.analytic(1.0, 1.0, 1e-3).stddev
  assert parameters["moments"] == {
    "mechanism": "gaussian",
    "clip": 2.0,
    "noise_multiplier": pytest.approx(exact),
    "releases": 1,
  }
  assert parameters["method"] == "SoundDPAL"


def test_resumed_run_keeps_its_moments(tmp_path, monkeypatch):
  """Without a seed they can only come from the run folder."""
  with pytest.raises(KeyboardInterrupt):
    _fit(_method(seed=None), run_dir=tmp_path, callbacks=[_Stop(2)])
  before = np.load(tmp_path / "moments.npy")

  def never(*_):
    raise AssertionError("the moments were released again")

  monkeypatch.setattr(mechanisms.PatchMoments, "release", never)
  resumed = _fit(_method(seed=None), run_dir=tmp_path, resume=True)
  np.testing.assert_array_equal(np.load(tmp_path / "moments.npy"), before)
  assert resumed.run_record["moments"]["releases"] == 1
  assert resumed.run_record["steps"] == 4
  filters = mechanisms.filters_from_moments(before, 4, _RANGE)
  np.testing.assert_array_equal(
    resumed.network.layers[0].kernel,
    np.float32(filters.kernel).reshape(3, 3, 1, 4),
  )


_OTHERS = [
  {"moment_dp_epsilon": 0.01},
  {"moment_clip": 1.0},
  {"moment_mechanism": "laplace"},
]


@pytest.mark.parametrize("changes", _OTHERS)
def test_resume_with_other_moments_than_counted_is_refused(tmp_path, changes):
  """Killed before there was a ledger: the count itself knows the noise."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(mechanisms.PatchMoments, "release", _killed)
    with pytest.raises(KeyboardInterrupt):
      _fit(_method(), run_dir=tmp_path)
  assert not (tmp_path / "ledger.jsonl").exists()
  with pytest.raises(ValueError, match="other settings"):
    _fit(_method(**changes), run_dir=tmp_path, resume=True)


def test_resume_with_other_moments_than_released_is_refused(tmp_path):
  """Moments with little noise must not be stated as moments with much."""
  with pytest.raises(KeyboardInterrupt):
    _fit(_method(), run_dir=tmp_path, callbacks=[_Stop(1)])
  for changes in _OTHERS:
    with pytest.raises(ValueError, match="other settings"):
      _fit(_method(**changes), run_dir=tmp_path, resume=True)
  # Nor does the ledger believe a count that was tampered with.
  counter = tmp_path / "moments.json"
  counted = json.loads(counter.read_text())
  counter.write_text(json.dumps({**counted, "releases": 7}))
  with pytest.raises(ValueError, match=r"moments\.releases: 1 -> 7"):
    _fit(_method(), run_dir=tmp_path, resume=True)


def _killed(*_):
  raise KeyboardInterrupt


def test_resume_with_other_gradients_is_refused(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    _fit(_method(), run_dir=tmp_path, callbacks=[_Stop(1)])
  with pytest.raises(ValueError, match="l2_clip_norm"):
    _fit(_method(l2_clip_norm=2.0), run_dir=tmp_path, resume=True)


def test_a_release_that_was_killed_is_stated_twice(tmp_path, monkeypatch):
  settings = {"noise_multiplier": None, "dp_epsilon": 4.0}
  with monkeypatch.context() as patch:
    patch.setattr(mechanisms.PatchMoments, "release", _killed)
    with pytest.raises(KeyboardInterrupt):
      _fit(_method(**settings), run_dir=tmp_path)
  resumed = _fit(_method(**settings), run_dir=tmp_path, resume=True)
  plain = _fit(_method(**settings))
  stated = resumed.privacy_statement()
  assert [release["count"] for release in stated.releases] == [4, 2]
  ledger = privacy.read_ledger(tmp_path / "ledger.jsonl")
  assert ledger.parameters["moments"]["releases"] == 2
  assert 3.9 < stated.proven.dp_epsilon <= 4.0
  # The second release is paid for by more noise on the gradients.
  noise = "noise_multiplier"
  assert resumed.run_record[noise] > plain.run_record[noise] + 1e-3
  # And it has other noise than the first attempt would have had.
  assert (
    resumed.network.layers[0].get_weights()[0]
    != plain.network.layers[0].get_weights()[0]
  ).any()


def test_a_fresh_run_over_an_old_one_is_refused(tmp_path):
  _fit(_method(epochs=0.25), run_dir=tmp_path)
  with pytest.raises(ValueError, match="resume=True"):
    _fit(_method(epochs=0.25), run_dir=tmp_path)


def test_saved_and_loaded(tmp_path):
  method = _fit(_method(seed=123457))
  path = tmp_path / "x.keras"
  method.save(path)
  loaded = tf.keras.models.load_model(path)
  x, _ = _arrays()
  np.testing.assert_array_equal(
    loaded.predict(x, verbose=0), method.predict(x, verbose=0)
  )
  assert loaded.privacy_statement() == method.privacy_statement()
  assert len(loaded.trainable_variables) == 4
  with pytest.raises(ValueError, match="trained for 4 steps"):
    _fit(loaded)
  with zipfile.ZipFile(path) as archive:
    assert "123457" not in archive.read("config.json").decode()


# Certificates, settings, refusals.


def test_certifier_smooths_with_the_noise_of_training():
  noisy = _method(augmentation="noise", augmentation_stddev=0.4)
  assert noisy.certifier() == certify.RandomizedSmoothing(0.4)
  assert _method().certifier() is None


def test_presets_and_variant():
  presets = methods.SoundDPALConfig.presets()
  assert set(presets) == {"mnist_sound", "mnist_5k_sound"}
  for preset in presets.values():
    assert preset.variant == "sound"
    assert preset.dp_epsilon == 3.0
    assert preset.moment_dp_epsilon < preset.dp_epsilon
    assert preset.augmentation == "noise"


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"moment_mechanism": "laplas"}, "Did you mean 'laplace'"),
    ({"moment_dp_epsilon": 0.0}, r"moment_dp_epsilon=0\.0 > 0"),
    ({"moment_clip": -1.0}, r"moment_clip=-1\.0 > 0"),
    ({"features": "ica"}, "Did you mean 'pca'"),
    ({"whitening_floor": 0.0}, r"whitening_floor=0\.0 > 0"),
    ({"adversarial_weight": -1.0}, r"adversarial_weight=-1\.0 >= 0"),
    ({"max_attack_eps": -0.1}, r"max_attack_eps=-0\.1 >= 0"),
    ({"attack_steps": 0}, "attack_steps=0"),
    ({"dp_epsilon": 0.0}, r"dp_epsilon=0\.0 > 0"),
  ],
)
def test_bad_settings_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(_BASE, **changes)


def _normalised(layer):
  return tf.keras.Sequential(
    [
      _layers.Input(_SHAPE),
      _layers.Conv2D(2, 3),
      layer,
      _layers.Flatten(),
      _layers.Dense(_CLASSES),
    ]
  )


@pytest.mark.parametrize(
  ("network", "message"),
  [
    (lambda: _normalised(_layers.BatchNormalization()), "GroupNormalization"),
    (lambda: _normalised(layers.BatchStandardization()), "batch"),
    (lambda: models.dpal_mnist((8, 8, 1), standardization="batch"), "batch"),
    (
      lambda: tf.keras.Sequential(
        [_layers.Input((6, 1)), _layers.Conv1D(2, 3), _layers.Flatten()]
      ),
      "begins with a Conv2D or Dense",
    ),
    (lambda: models.mlp((6,), 3, hidden=()), "besides the first"),
  ],
)
def test_networks_that_cannot_be_sound_are_refused(network, message):
  with pytest.raises(ValueError, match=message):
    methods.SoundDPAL(network(), _BASE)


def test_frozen_batch_normalisation_of_public_weights_is_no_harm():
  layer = _layers.BatchNormalization()
  layer.trainable = False
  methods.SoundDPAL(_normalised(layer), _BASE)


def _with(**changes):
  x, y = _arrays()
  return {"x": x, "y": y, "value_range": _RANGE, **changes}


def _nan():
  x, _ = _arrays()
  x[5, 0, 0, 0] = np.nan
  return x


@pytest.mark.parametrize(
  ("arguments", "changes", "message"),
  [
    (_with(x=_nan()), {}, "NaN or infinity, first in example 5"),
    (_with(x=2 * _arrays()[0]), {}, r"x_train in \[-1\.0, 1\.0\]"),
    (_with(x=_arrays()[0][:, :2]), {}, r"\(6, 6, 1\).*\(2, 6, 1\)"),
    (_with(), {"batch_size": 65}, "batch_size=65 <= n = 64"),
    (_with(), {"dp_epsilon": 0.9}, "patch moments alone cost"),
    (_with(), {"dp_epsilon": 1.5, "noise_multiplier": 0.1}, "allows none"),
  ],
)
def test_bad_data_and_budgets_are_refused_before_any_release(
  tmp_path, arguments, changes, message
):
  with pytest.raises(ValueError, match=message):
    _method(**changes).fit(**arguments, run_dir=tmp_path / "run", verbose=0)
  assert not (tmp_path / "run").exists()


def test_images_smaller_than_a_patch_are_refused(tmp_path):
  """A convolution with padding takes them, but they have no whole patch."""
  network = tf.keras.Sequential(
    [
      _layers.Input((4, 4, 1)),
      _layers.Conv2D(2, 5, padding="same"),
      _layers.Flatten(),
      _layers.Dense(_CLASSES),
    ]
  )
  x, y = _arrays()
  with pytest.raises(ValueError, match="at least 5 x 5 pixels"):
    _method(network).fit(
      x[:, :4, :4], y, value_range=_RANGE, run_dir=tmp_path / "run", verbose=0
    )
  assert not (tmp_path / "run").exists()
