"""Attacks on "proven" that once succeeded: starts, steps, callbacks, errors.

Each test says what happened before. Attacks on gradients, samplers, ledgers and
files are beside the rooms that withstand them.
"""

import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.soundness import small_runs
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import checks
from tf_privrob.methods import outlet as outlet_lib

# What is asked here comes after the gradients were checked.
pytestmark = pytest.mark.usefixtures("checked_once")


def _network(**kwargs):
  return models.mlp((6,), 3, hidden=(5,), **kwargs)


def _method(network=None, *args, **changes):
  return small_runs.method(network or _network(), *args, **changes)


_fit = small_runs.fit


@pytest.fixture(scope="module")
def trained():
  """A default run, to read."""
  return _fit(_method())


@pytest.fixture(scope="module")
def seeded():
  """A run with a seed, to read."""
  return _fit(_method(seed=3))


def _flat(network):
  return np.concatenate([w.ravel() for w in network.get_weights()])


# The noise (item 1). A step's noise followed from 32 bits; a search of all of
# them took minutes.


def test_noise_does_not_follow_from_the_seed_of_a_step():
  """The step's seed, which augmentation shows, told the noise."""
  found = []
  for _ in range(2):
    method = _method(seed=7)
    method.simulate(64)
    method.set_step(np.array([1, 2]), 0)
    before = _flat(method.network)
    x, y = small_runs.arrays(16)
    method.train_step((x[None], y[None], np.zeros([1, 16], "float32")))
    found.append(_flat(method.network) - before)
  assert np.abs(found[0] - found[1]).min() > 0


def test_no_key_of_a_run_is_shorter_than_256_bits(monkeypatch):
  lengths = []
  real = randomness.Key.__init__

  def watched(self, secret):
    lengths.append(len(set(secret)))
    real(self, secret)

  monkeypatch.setattr(randomness.Key, "__init__", watched)
  _fit(_method())
  assert len(lengths) > 10
  assert min(lengths) > 16  # of 32 bytes: a word or two of entropy would show


def test_model_and_record_hold_no_key(trained, tmp_path):
  with pytest.raises(ValueError, match="training in progress"):
    _ = trained.outlet
  trained.save(tmp_path / "model.keras")
  loaded = models.load_model(tmp_path / "model.keras")
  assert loaded.config.seed is None


def test_less_noise_than_is_accounted_proves_nothing(monkeypatch):
  real = outlet_lib.Outlet.gaussian

  def halved(self, sums, stddevs, sensitivity):
    return real(self, sums, stddevs / 2, sensitivity)

  monkeypatch.setattr(outlet_lib.Outlet, "gaussian", halved)
  found = _fit(_method()).privacy_statement()
  assert found.proven is None
  assert "less noise than is accounted" in found.caveats[0]


# The seed (item 2). It was 0 by default: two models had identical weights.


@pytest.mark.parametrize("name", methods.NAMES)
def test_noise_is_from_the_operating_system_by_default(name):
  assert methods.preset(name, None).seed is None


def test_two_default_runs_share_nothing(trained, seeded):
  other = _fit(_method())
  assert np.abs(_flat(trained.network) - _flat(other.network)).min() > 0
  again = _fit(_method(seed=3))
  np.testing.assert_array_equal(_flat(seeded.network), _flat(again.network))


def test_a_seed_stands_beside_the_figure(trained, seeded):
  free, seeded = trained.privacy_statement(), seeded.privacy_statement()
  assert free.condition == ""
  assert seeded.condition == "only against those who do not know the seed"
  assert f"{seeded.proven} ({seeded.condition})" in seeded.text()
  assert "neither know nor guess the seed" in seeded.caveats[0]


# Starting weights (item 2). A network trained without privacy on the same data
# and wrapped for six steps was called proven.


def _leaky():
  network = _network()
  network.compile(
    tf.keras.optimizers.Adam(0.05),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  network.fit(*small_runs.arrays(), epochs=20, verbose=0)
  return network


def test_a_network_that_was_trained_is_refused():
  with pytest.raises(ValueError, match=r"signs of training.*public_weights"):
    _fit(_method(_leaky()))


def test_weights_that_show_no_signs_are_drawn_anew():
  network = tf.keras.Sequential(
    [
      tf.keras.layers.Input((6,)),
      tf.keras.layers.Dense(40, use_bias=False),
      tf.keras.layers.Dense(3, use_bias=False),
    ]
  )
  leaky = [
    np.random.default_rng(1).permutation(w.ravel()).reshape(w.shape)
    for w in network.get_weights()
  ]
  network.set_weights(leaky)
  _fit(_method(network, learning_rate=1e-6))
  for old, new in zip(leaky, network.get_weights()):
    assert abs(np.corrcoef(old.ravel(), new.ravel())[0, 1]) < 0.5
    assert (old != new).all()


def test_declared_weights_are_kept_and_named():
  network = _leaky()
  before = _flat(network)
  method = _fit(_method(network, "trained on ImageNet", learning_rate=1e-6))
  assert np.corrcoef(before, _flat(network))[0, 1] > 0.99
  text = method.privacy_statement().text()
  assert "declared public: trained on ImageNet [the caller]" in text


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_declaration_has_a_reason(reason):
  with pytest.raises(ValueError, match="public_weights to say why"):
    _method(public_weights=reason)


def test_an_optimizer_that_remembers_is_refused():
  """Momentum of an earlier training went into the first steps."""
  optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
  variable = tf.Variable([1.0])
  optimizer.apply_gradients([(tf.constant([1.0]), variable)])
  method = _method()
  method.compile(optimizer=optimizer)
  with pytest.raises(ValueError, match="new optimizer"):
    _fit(method)


# Steps that the statement missed (item 9).


def test_a_step_that_is_interrupted_counts(monkeypatch, tmp_path):
  """25 of 30 interrupted steps were missed."""
  method = _method()
  charged = []
  real = privacy.Ledger.charge

  def charge(self):
    charged.append(real(self))
    if charged[-1] == 3:
      raise KeyboardInterrupt
    return charged[-1]

  monkeypatch.setattr(privacy.Ledger, "charge", charge)
  with pytest.raises(KeyboardInterrupt):
    _fit(method, run_dir=tmp_path)
  assert charged == [1, 2, 3]
  assert method.run_record["steps"] == 3
  assert method.privacy_statement().releases[0]["count"] == 4  # as planned


@pytest.mark.parametrize("how", ["fit", "train_on_batch", "train_step"])
def test_keras_cannot_train_beside_the_outlet(trained, how):
  """tf.keras.Model.fit(model, ...) trained on, and nobody counted."""
  method = trained
  x, y = small_runs.arrays(16)
  batch = (x[None], y[None], np.ones([1, 16], "float32"))
  before = _flat(method.network)
  train = {
    "fit": lambda: tf.keras.Model.fit(
      method, tf.data.Dataset.from_tensors(batch), verbose=0
    ),
    "train_on_batch": lambda: method.train_on_batch(x, y),
    "train_step": lambda: method.train_step(batch),
  }[how]
  with pytest.raises(ValueError, match=r"own fit|Call fit"):
    train()
  np.testing.assert_array_equal(before, _flat(method.network))


def test_a_callback_cannot_train_in_between():
  x, y = small_runs.arrays(16)
  batch = (x[None], y[None], np.ones([1, 16], "float32"))

  class Nested(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch_number, logs=None):
      tf.keras.Model.fit(
        self.model, tf.data.Dataset.from_tensors(batch), verbose=0
      )

  with pytest.raises(ValueError, match="own fit"):
    _fit(_method(), callbacks=[Nested()])


def test_one_network_is_not_trained_twice(trained):
  """Wrapped three times, it said 2.999 each time."""
  network = trained.network
  with pytest.raises(ValueError, match="carry 4 releases"):
    _fit(_method(network))
  head = tf.keras.Model(network.inputs, network.outputs)
  with pytest.raises(ValueError, match="releases of an earlier training"):
    _fit(_method(head, "declared"))


def test_weights_that_were_changed_prove_nothing(trained):
  method = trained
  assert method.privacy_statement().proven is not None
  kernel = method.network.layers[-1].kernel
  value = kernel.numpy()
  kernel.assign_add(1e-3 * tf.ones_like(kernel))
  changed = method.privacy_statement()
  assert changed.proven is None
  assert "not those that the training released" in changed.caveats[0]
  kernel.assign(value)
  assert method.privacy_statement().proven is not None


def test_a_statement_cites_the_ledger_where_there_is_one(trained, tmp_path):
  ledger = "tf_privrob.privacy.ledger"
  assert ledger not in trained.privacy_statement().text()
  run = _fit(_method(), run_dir=tmp_path)
  assert ledger in run.privacy_statement().text()


# Callbacks (item 10). EarlyStopping on the training loss had no caveat.


class _Seen(tf.keras.callbacks.Callback):
  def __init__(self):
    super().__init__()
    self.names = set()

  def _note(self, logs):
    self.names |= set(logs or {})

  def on_train_batch_end(self, batch, logs=None):
    self._note(logs)

  def on_epoch_end(self, epoch, logs=None):
    self._note(logs)
    self._note(self.model.history.history)  # of the epochs before

  def on_train_end(self, logs=None):
    self._note(logs)


def test_callbacks_see_public_logs_only():
  seen = _Seen()
  method = _fit(
    _method(epochs=3),
    callbacks=[seen],
    validation_data=small_runs.arrays(20, 1),
  )
  assert seen.names == {"val_accuracy", "val_loss"}
  assert "nonprivate/loss" in method.history.history
  assert "Callbacks saw" not in method.privacy_statement().text()


def test_callbacks_that_see_more_are_named_in_the_statement():
  seen = _Seen()
  method = _fit(_method(), callbacks=[seen], nonprivate_logs=True)
  assert "nonprivate/loss" in seen.names
  assert "Callbacks saw training metrics" in " ".join(
    method.privacy_statement().caveats
  )


def test_early_stopping_on_the_training_loss_does_nothing():
  stop = tf.keras.callbacks.EarlyStopping("nonprivate/loss", patience=0)
  method = _fit(_method(epochs=4), callbacks=[stop])
  assert method.run_record["steps"] == 16
  on_public = tf.keras.callbacks.EarlyStopping("val_loss", min_delta=100)
  method = _fit(
    _method(epochs=4),
    callbacks=[on_public],
    validation_data=small_runs.arrays(20, 1),
  )
  assert method.run_record["steps"] < 16


# One row that is not a number (item 7). D trained, D' raised.


class Logarithm(tf.keras.layers.Layer):
  """log x: a value of 0 has no finite loss."""

  def call(self, inputs):
    return tf.math.log(inputs)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_row_without_a_gradient_changes_nothing(jit_compile):
  x, y = small_runs.arrays()
  x = np.maximum(x, 0.1)
  x[-1] = 0.0

  def network():
    return tf.keras.Sequential(
      [
        tf.keras.layers.Input((6,)),
        Logarithm(),
        tf.keras.layers.Dense(
          3, kernel_initializer=tf.keras.initializers.GlorotUniform(1)
        ),
      ]
    )

  found = []
  for count in (64, 63):
    method = _method(
      network(), noise_multiplier=0.0, batch_size=count, jit_compile=jit_compile
    )
    history = method.fit(x[:count], y[:count], verbose=0)
    found.append(_flat(method.network) - 0.0)
    assert np.isfinite(found[-1]).all()
  del history
  start = _flat(network())
  # The sums are equal; the divisors are 64 and 63.
  np.testing.assert_allclose(
    64 * (found[0] - start), 63 * (found[1] - start), rtol=1e-3, atol=1e-3
  )


# Resuming (items 13, 15). Lost lines, other settings and other data passed.


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
  """A run that was killed after three steps, to read."""
  folder = tmp_path_factory.mktemp("stopped")

  def stop(self):
    if self.steps == 3:
      raise KeyboardInterrupt

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(outlet_lib.Outlet, "require_budget", stop)
    with pytest.raises(KeyboardInterrupt):
      _fit(_method(seed=1), run_dir=folder)
  return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
  """A complete run of the same settings, to read."""
  folder = tmp_path_factory.mktemp("other")
  _fit(_method(seed=1), run_dir=folder)
  return folder


@pytest.fixture
def killed(stopped, tmp_path):
  """A copy of it, to change."""
  return shutil.copytree(stopped, tmp_path / "run")


def _cut(folder, lines):
  path = folder / "ledger.jsonl"
  path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-lines]))


def test_a_killed_run_goes_on(killed):
  method = _fit(_method(seed=1), run_dir=killed, resume=True)
  assert method.run_record["steps"] == 4
  assert method.privacy_statement().proven is not None


@pytest.mark.usefixtures("not_rehearsed")
@pytest.mark.parametrize("lines", [1, 2])
def test_a_ledger_that_lost_lines_is_refused(killed, lines):
  """Two last lines removed: 135 stated, 136 taken."""
  _cut(killed, lines)
  with pytest.raises(ValueError, match="the ledger lost lines"):
    _fit(_method(seed=1), run_dir=killed, resume=True)


@pytest.mark.usefixtures("not_rehearsed")
def test_a_ledger_of_another_run_is_refused(killed, other):
  (killed / "ledger.jsonl").write_bytes((other / "ledger.jsonl").read_bytes())
  with pytest.raises(ValueError, match="ledger of this run"):
    _fit(_method(seed=1), run_dir=killed, resume=True)


@pytest.mark.usefixtures("not_rehearsed")
@pytest.mark.parametrize("resume", [True, False])
def test_a_lost_ledger_is_not_begun_anew(killed, resume):
  (killed / "ledger.jsonl").unlink()
  message = "found no ledger.jsonl" if resume else "fresh run_dir"
  with pytest.raises(ValueError, match=message):
    _fit(_method(seed=1), run_dir=killed, resume=resume)


@pytest.mark.usefixtures("not_rehearsed")
def test_lost_weights_are_not_silently_drawn_again(killed):
  """Both checkpoints unreadable: the run ended with fresh weights, exit 0."""
  for path in (killed / "checkpoints").glob("*.npz"):
    path.write_bytes(b"spoilt")
  with pytest.raises(ValueError, match="begin a new run_dir"):
    _fit(_method(seed=1), run_dir=killed, resume=True)


def test_a_checkpoint_of_another_run_is_not_restored(killed, other):
  source = max((other / "checkpoints").glob("*.npz"))
  target = killed / "checkpoints" / "step-999999999.npz"
  target.write_bytes(source.read_bytes())
  # It is passed over: the name is not its own. Its weights have seen 4 steps.
  method = _fit(_method(seed=1), run_dir=killed, resume=True)
  assert int(method.optimizer.iterations) == 4


@pytest.mark.usefixtures("not_rehearsed")
@pytest.mark.parametrize(
  ("changes", "name"),
  [
    ({"momentum": 0.9}, "momentum"),
    ({"ema_decay": 0.5}, "ema_decay"),
    ({"learning_rate": 1.0}, "learning_rate"),
    ({"augmentation": "noise"}, "augmentation"),
    ({"seed": 2}, "seed"),
    ({"seed": None}, "seeded"),
    ({"dp_epsilon": 60.0}, "dp_epsilon"),
    ({"epochs": 2}, "epochs"),
  ],
)
def test_other_settings_are_refused(stopped, changes, name):
  with pytest.raises(ValueError, match=name):
    _fit(_method(**{"seed": 1, **changes}), run_dir=stopped, resume=True)


def test_speed_settings_may_change(killed):
  method = _method(seed=1, physical_batch_size=8, checkpoint_every=2)
  assert _fit(method, run_dir=killed, resume=True).run_record["steps"] == 4


@pytest.mark.usefixtures("not_rehearsed")
def test_other_data_are_refused(stopped):
  x, y = small_runs.arrays(seed=5)
  with pytest.raises(ValueError, match="training data that the run began with"):
    _method(seed=1).fit(x, y, run_dir=stopped, resume=True, verbose=0)
  x, y = small_runs.arrays()
  with pytest.raises(ValueError, match="value_range"):
    _method(seed=1).fit(
      x, y, value_range=(-1, 1), run_dir=stopped, resume=True, verbose=0
    )


@pytest.mark.usefixtures("not_rehearsed")
def test_a_misspelt_folder_begins_no_run(tmp_path):
  with pytest.raises(ValueError, match=r"found no ledger\.jsonl"):
    _fit(_method(), run_dir=tmp_path / "runz", resume=True)
  assert not (tmp_path / "runz").exists()


def test_a_folder_continued_twice_is_seen(killed, tmp_path):
  copy = shutil.copytree(killed, tmp_path / "copy")
  for folder in (killed, copy):
    method = _fit(_method(seed=1), run_dir=folder, resume=True)
  assert "a copy that was continued" in method.privacy_statement().text()
  assert "moved or copied" in method.privacy_statement().caveats[1]
  assert privacy.diverged(killed / "ledger.jsonl", copy / "ledger.jsonl")


# Errors after the first payment (item 16).


def _half():
  inputs = tf.keras.Input((6,), dtype="float16")
  return tf.keras.Model(
    inputs, tf.keras.layers.Dense(3, dtype="float16")(inputs)
  )


def _with_nan():
  network = _network()
  network.layers[-1].kernel.assign(
    np.nan * tf.ones_like(network.layers[-1].kernel)
  )
  return network


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: _method(_half(), "of a test"), "float32"),
    (lambda: _method(_with_nan(), "of a test"), "finite weights"),
    (lambda: _method(learning_rate=1e30), "learning_rate=1e\\+30"),
    (lambda: _method(physical_batch_size=10**11), "fit into memory"),
    (lambda: _method(seed=-1), "seed=-1"),
  ],
)
def test_nothing_is_paid_where_the_first_step_cannot_run(
  tmp_path, make, message
):
  """One or two steps were charged, then a foreign error came."""
  with pytest.raises(ValueError, match=message):
    _fit(make(), run_dir=tmp_path)
  assert not list(tmp_path.iterdir())  # the folder is not blocked


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_labels_of_any_whole_type_train(dtype):
  x, y = small_runs.arrays()
  method = _method()
  method.fit(x, y.astype(dtype), verbose=0)
  assert method.run_record["steps"] == 4


def test_a_rehearsal_leaves_no_trace():
  method = _method(seed=1, momentum=0.9, ema_decay=0.9)
  started = []

  class Start(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
      started.append(_flat(self.model.network))
      started.append(int(self.model.optimizer.iterations))

  _fit(method, callbacks=[Start()])
  fresh = _network()
  models.redraw(fresh, randomness.Key.of(1).child("initial weights"))
  np.testing.assert_array_equal(started[0], _flat(fresh))
  assert started[1] == 0


# Replicas (item 17). The guard looked at the strategy around fit only.


def test_replicas_of_the_model_are_seen():
  two = types.SimpleNamespace(num_replicas_in_sync=2)
  one = types.SimpleNamespace(num_replicas_in_sync=1)
  weight = types.SimpleNamespace(distribute_strategy=one)
  model = types.SimpleNamespace(
    distribute_strategy=one,
    network=types.SimpleNamespace(weights=[weight], built=True),
  )
  checks.refuse_replicas(model)
  for place in (model, weight):
    place.distribute_strategy = two
    with pytest.raises(ValueError, match="one replica"):
      checks.refuse_replicas(model)
    place.distribute_strategy = one
