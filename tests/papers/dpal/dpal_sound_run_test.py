"""The sound heir of DPAL: its budget, killed and resumed runs, refusals."""

import json
import shutil
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tests.papers.dpal import dpal_sound_cases as cases
from tf_privrob import certify
from tf_privrob import layers
from tf_privrob import mechanisms
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy

pytestmark = pytest.mark.usefixtures("checked_once")

_layers = tf.keras.layers


# The budget.


@pytest.mark.parametrize(
  ("mechanism", "accountant", "sampler"),
  [("laplace", "rdp", "full_batch"), ("gaussian", "pld", "poisson")],
)
def test_proven_budget_is_the_composition_and_within_what_was_asked(
  mechanism, accountant, sampler
):
  whole = sampler == "full_batch"
  method = cases.fit(
    cases.make(
      dp_epsilon=3.0,
      noise_multiplier=None,
      moments=papers.Moments(mechanism, 0.8),
      accountant=accountant,
      sampler=sampler,
      epochs=4.0 if whole else 1.0,
    )
  )
  record, statement = method.run_record, method.privacy_statement()
  prob = 1.0 if whole else 0.25
  sgd = privacy.poisson_sgd(record["noise_multiplier"], prob, 4)
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
  assert "nor guess the seed" in statement.caveats[0]


def test_plan_knows_the_moments_before_they_are_released():
  method = cases.make(noise_multiplier=None, dp_epsilon=3.0)
  before = method.plan(64)
  cases.begin(method)
  assert method.plan(64) == before
  plain = methods.DPSGD(
    cases.conv_network(),
    methods.DPSGDConfig(
      dp_epsilon=3.0, dp_delta=1e-3, batch_size=16, epochs=1, accountant="rdp"
    ),
  )
  assert before.noise_multiplier > plain.plan(64).noise_multiplier + 0.01


def test_given_noise_ends_where_the_common_budget_does():
  method = cases.make(epochs=1000.0, dp_epsilon=4.0, noise_multiplier=1.5)
  plan = method.plan(64)
  moments = plan.extra[0]

  def cost(steps):
    sgd = privacy.poisson_sgd(1.5, 0.25, steps)
    return privacy.dp_epsilon([sgd, moments], 1e-3, "rdp")

  assert cost(plan.steps) <= 4.0 < cost(plan.steps + 1)


# Killed and resumed.


def test_ledger_holds_the_moments(tmp_path):
  cases.fit(
    cases.make(moments=papers.Moments(dp_epsilon=1.0, clip=2.0)),
    run_dir=tmp_path,
  )
  ledger = privacy.read_ledger(tmp_path / "ledger.jsonl")
  exact = mechanisms.GaussianMechanism.analytic(1.0, 1.0, 1e-3).stddev
  assert ledger.plan["moments"] == {
    "mechanism": "gaussian",
    "clip": 2.0,
    "noise_multiplier": pytest.approx(exact),
    "releases": 1,
  }
  assert ledger.releases["moments"].count == 1
  assert ledger.parameters["method"] == "SoundDPAL"
  # So does the figure of every epoch.
  row = json.loads((tmp_path / "history.jsonl").read_text().splitlines()[0])
  alone = privacy.dp_epsilon(privacy.poisson_sgd(1.0, 0.25, 4), 1e-3, "rdp")
  assert row["dp_epsilon"] > alone + 0.05


def test_resumed_run_keeps_its_moments(tmp_path, monkeypatch):
  """Without a seed they can only come from the run folder."""
  with pytest.raises(KeyboardInterrupt):
    cases.fit(
      cases.make(seed=None),
      run_dir=tmp_path,
      callbacks=[interrupt.StopAfter(2)],
    )
  before = np.load(tmp_path / "moments.npy")

  def never(*_):
    raise AssertionError("the moments were released again")

  monkeypatch.setattr(papers.PatchMoments, "release", never)
  resumed = cases.fit(cases.make(seed=None), run_dir=tmp_path, resume=True)
  np.testing.assert_array_equal(np.load(tmp_path / "moments.npy"), before)
  assert resumed.run_record["moments"]["releases"] == 1
  assert resumed.run_record["steps"] == 4
  filters = papers.filters_from_moments(before, 4, cases.VALUE_RANGE)
  np.testing.assert_array_equal(
    resumed.network.layers[0].kernel,
    np.float32(filters.kernel).reshape(3, 3, 1, 4),
  )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
  """A run that was stopped after one step."""
  folder = tmp_path_factory.mktemp("stopped")
  with pytest.raises(KeyboardInterrupt):
    cases.fit(cases.make(), run_dir=folder, callbacks=[interrupt.StopAfter(1)])
  return folder


@pytest.mark.usefixtures("not_rehearsed")
@pytest.mark.parametrize(
  "changes",
  [
    {"moments": papers.Moments(dp_epsilon=0.01)},
    {"moments": papers.Moments(dp_epsilon=1.0, clip=1.0)},
    {"moments": papers.Moments("laplace", 1.0)},
    {"l2_clip_norm": 2.0},
  ],
)
def test_resume_with_other_settings_is_refused(stopped, changes):
  """Moments with little noise must not be stated as moments with much."""
  with pytest.raises(
    ValueError, match=rf"other parameters .*{min(changes)}[.:]"
  ):
    cases.fit(cases.make(**changes), run_dir=stopped, resume=True)


@pytest.mark.usefixtures("not_rehearsed")
def test_moments_that_were_lost_are_not_made_again(stopped, tmp_path):
  """Steps were paid for that rest on them: nothing more is released."""
  shutil.copytree(stopped, tmp_path / "run")
  (tmp_path / "run" / "moments.npy").unlink()
  with pytest.raises(ValueError, match="found it lost or changed"):
    cases.fit(cases.make(), run_dir=tmp_path / "run", resume=True)
  ledger = privacy.read_ledger(tmp_path / "run" / "ledger.jsonl")
  assert ledger.releases["moments"].count == 1


def _killed(*_):
  raise KeyboardInterrupt


def test_a_release_that_was_killed_is_stated_twice(tmp_path, monkeypatch):
  settings = {
    "noise_multiplier": None,
    "dp_epsilon": 4.0,
    "sampler": "full_batch",  # calibrates in no time
    "epochs": 4.0,
  }
  with monkeypatch.context() as patch:
    patch.setattr(papers.PatchMoments, "release", _killed)
    with pytest.raises(KeyboardInterrupt):
      cases.fit(cases.make(**settings), run_dir=tmp_path)
  resumed = cases.fit(cases.make(**settings), run_dir=tmp_path, resume=True)
  plain = cases.fit(cases.make(**settings))
  stated = resumed.privacy_statement()
  assert [release["count"] for release in stated.releases] == [4, 2]
  ledger = privacy.read_ledger(tmp_path / "ledger.jsonl")
  assert ledger.plan["moments"]["releases"] == 2
  assert 3.9 < stated.proven.dp_epsilon <= 4.0
  # The second release is paid for by more noise on the gradients.
  noise = resumed.run_record["noise_multiplier"]
  assert noise > plain.run_record["noise_multiplier"] + 1e-3
  # And it has other noise than the first attempt would have had.
  assert (
    resumed.network.layers[0].get_weights()[0]
    != plain.network.layers[0].get_weights()[0]
  ).any()


@pytest.mark.usefixtures("not_rehearsed")
def test_a_fresh_run_over_an_old_one_is_refused(stopped):
  with pytest.raises(ValueError, match="resume=True"):
    cases.fit(cases.make(), run_dir=stopped)


def test_saved_and_loaded(tmp_path):
  method = cases.fit(cases.make(seed=123457))
  path = tmp_path / "x.keras"
  method.save(path)
  loaded = tf.keras.models.load_model(path)
  x, _ = cases.arrays()
  np.testing.assert_array_equal(
    loaded.predict(x, verbose=0), method.predict(x, verbose=0)
  )
  assert loaded.privacy_statement() == method.privacy_statement()
  assert len(loaded.trainable_variables) == 4
  with pytest.raises(ValueError, match="trained for 4 steps"):
    cases.fit(loaded)
  with zipfile.ZipFile(path) as archive:
    assert "123457" not in archive.read("config.json").decode()


# Certificates, settings, refusals.


def test_certifier_smooths_with_the_noise_of_training():
  noisy = cases.make(augmentation="noise", augmentation_stddev=0.4)
  assert noisy.certifier() == certify.RandomizedSmoothing(0.4)
  assert cases.make().certifier() is None


def test_presets_and_variant():
  presets = papers.SoundDPALConfig.presets()
  assert set(presets) == {"mnist_sound", "mnist_5k_sound"}
  for preset in presets.values():
    assert preset.variant == "sound"
    assert preset.dp_epsilon == 3.0
    assert preset.moments.dp_epsilon < preset.dp_epsilon
    assert preset.augmentation == "noise"


def _normalised(layer):
  return tf.keras.Sequential(
    [
      _layers.Input(cases.SHAPE),
      _layers.Conv2D(2, 3),
      layer,
      _layers.Flatten(),
      _layers.Dense(cases.CLASSES),
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
    papers.SoundDPAL(network(), cases.BASE)


def test_frozen_batch_normalisation_of_public_weights_is_no_harm():
  layer = _layers.BatchNormalization()
  layer.trainable = False
  papers.SoundDPAL(_normalised(layer), cases.BASE)


def _with(**changes):
  x, y = cases.arrays()
  return {"x": x, "y": y, "value_range": cases.VALUE_RANGE, **changes}


def _nan():
  x, _ = cases.arrays()
  x[5, 0, 0, 0] = np.nan
  return x


@pytest.mark.parametrize(
  ("arguments", "changes", "message"),
  [
    (_with(x=_nan()), {}, "NaN or infinity, first in example 5"),
    (_with(x=2 * cases.arrays()[0]), {}, r"x_train in \[-1\.0, 1\.0\]"),
    (_with(x=cases.arrays()[0][:, :2]), {}, r"\(6, 6, 1\).*\(2, 6, 1\)"),
    (_with(), {"batch_size": 65}, "batch_size=65 <= n = 64"),
    (_with(), {"dp_epsilon": 0.9}, "patch moments alone cost"),
    (_with(), {"dp_epsilon": 1.5, "noise_multiplier": 0.1}, "allows none"),
  ],
)
def test_bad_data_and_budgets_are_refused_before_any_release(
  tmp_path, arguments, changes, message
):
  with pytest.raises(ValueError, match=message):
    cases.make(**changes).fit(**arguments, run_dir=tmp_path / "run", verbose=0)
  assert not (tmp_path / "run").exists()


def test_images_smaller_than_a_patch_are_refused(tmp_path):
  """A convolution with padding takes them, but they have no whole patch."""
  network = tf.keras.Sequential(
    [
      _layers.Input((4, 4, 1)),
      _layers.Conv2D(2, 5, padding="same"),
      _layers.Flatten(),
      _layers.Dense(cases.CLASSES),
    ]
  )
  x, y = cases.arrays()
  with pytest.raises(ValueError, match="at least 5 x 5 pixels"):
    cases.make(network).fit(
      x[:, :4, :4],
      y,
      value_range=cases.VALUE_RANGE,
      run_dir=tmp_path / "run",
      verbose=0,
    )
  assert not (tmp_path / "run").exists()
