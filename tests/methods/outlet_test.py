"""The outlet: counted before it is seen, full noise, no other way out."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import outlet as outlet_lib


def _outlet(seed=0, **kwargs):
  outlet = outlet_lib.Outlet()
  outlet.open(randomness.Key.of(seed), **kwargs)
  return outlet


def _ledger(folder, limit=None):
  ledger = privacy.Ledger.open(folder / "ledger.jsonl", {"a": 1})
  ledger.settle({}, limit)
  return ledger


def test_noise_has_the_law_that_is_stated():
  sums = [tf.zeros([200, 300]), tf.ones([10_000])]
  found = _outlet().gaussian(sums, [2.0, 3.0], 1.0).tensors
  assert stats.kstest(found[0].numpy().ravel() / 2, "norm").pvalue > 1e-3
  assert stats.kstest((found[1].numpy() - 1) / 3, "norm").pvalue > 1e-3
  wrong = stats.kstest(found[0].numpy().ravel() / 3, "norm").pvalue
  assert wrong < 1e-6


def test_a_sum_and_a_count_have_noise_of_both_laws_and_are_one_release():
  outlet, laplace = _outlet(), mechanisms.LaplaceMechanism(1.0, 0.25)
  sums, counts = tf.zeros([200, 100]), tf.ones([20_000], tf.float64)
  released = outlet.gaussian_and_laplace(sums, 3.0, counts, laplace)
  sums, counts = (part.numpy().ravel() for part in released.tensors)
  assert stats.kstest(sums / 3, "norm").pvalue > 1e-3
  for scale, fits in ((4.0, True), (6.0, False), (8 / 3, False)):
    assert (stats.kstest((counts - 1) / scale, "laplace").pvalue > 1e-3) == fits
  assert abs(np.corrcoef(sums, counts)[0, 1]) < 0.03
  assert outlet.steps == 1
  assert outlet.noise_multiplier == 3.0


def test_every_release_has_noise_of_its_own():
  outlet = _outlet()
  step = tf.function(lambda: outlet.gaussian([tf.zeros([4])], 1.0, 1.0).tensors)
  drawn = {step()[0].numpy().tobytes() for _ in range(50)}
  assert len(drawn) == 50 == outlet.steps


def test_noise_repeats_by_seed_and_not_without():
  def draw(seed):
    return _outlet(seed).gaussian([tf.zeros([4])], 1.0, 1.0).tensors[0].numpy()

  np.testing.assert_array_equal(draw(3), draw(3))
  assert (draw(3) != draw(4)).all()
  assert (draw(None) != draw(None)).all()


def test_it_is_on_disk_before_it_is_seen(tmp_path):
  ledger = _ledger(tmp_path)
  outlet = _outlet(ledger=ledger, folder=tmp_path)
  seen = []
  charge = ledger.charge

  def watched():
    seen.append("paid")
    return charge()

  ledger.charge = watched
  release = tf.function(
    lambda: outlet.gaussian([tf.zeros(2)], 1.0, 1.0).tensors
  )
  release()
  seen.append("released")
  assert seen == ["paid", "released"]
  assert privacy.read_ledger(tmp_path / "ledger.jsonl").steps == 1
  assert outlet.steps == 1


def test_nothing_leaves_where_it_cannot_be_paid(tmp_path):
  ledger = _ledger(tmp_path, limit=2)
  outlet = _outlet(ledger=ledger, folder=tmp_path)
  release = tf.function(
    lambda: outlet.gaussian([tf.zeros(2)], 1.0, 1.0).tensors
  )
  release()
  release()
  with pytest.raises(tf.errors.OpError):
    release()
  assert isinstance(outlet.failure, privacy.BudgetExceeded)
  assert outlet.steps == 2


@pytest.mark.parametrize("how", ["new", "closed"])
def test_outside_a_session_nothing_is_released(how):
  outlet = outlet_lib.Outlet()
  if how == "closed":
    outlet.open(randomness.Key.of(0))
    outlet.close()
  with pytest.raises(RuntimeError, match="training in progress"):
    outlet.gaussian([tf.zeros(2)], 1.0, 1.0)
  assert isinstance(outlet.failure, RuntimeError)
  assert outlet.steps == 0


def test_the_budget_holds_without_a_ledger():
  outlet = _outlet()
  outlet.limit_to(1)
  outlet.gaussian([tf.zeros(2)], 1.0, 1.0)
  with pytest.raises(privacy.BudgetExceeded, match="1 steps performed"):
    outlet.require_budget()
  with pytest.raises(privacy.BudgetExceeded):
    outlet.gaussian([tf.zeros(2)], 1.0, 1.0)
  assert outlet.steps == 1


def test_a_rehearsal_is_not_counted_and_shares_no_noise():
  outlet = outlet_lib.Outlet()
  release = tf.function(
    lambda: outlet.gaussian([tf.zeros(4)], 1.0, 1.0).tensors
  )
  with outlet.rehearsal():
    first = release()[0].numpy()
  outlet.open(randomness.Key.of(0))
  assert outlet.steps == 0
  assert (release()[0].numpy() != first).all()
  assert outlet.steps == 1


def test_the_least_noise_is_remembered():
  outlet = _outlet()
  assert outlet.noise_multiplier is None
  outlet.gaussian([tf.zeros(2), tf.zeros(3)], [3.0, 2.0], 0.5)
  assert outlet.noise_multiplier == 4.0
  outlet.gaussian([tf.zeros(2)], 7.0, 0.5)
  assert outlet.noise_multiplier == 4.0
  outlet.gaussian([tf.zeros(2)], [tf.constant(7.0)], 0.5)
  assert outlet.noise_multiplier is None


@pytest.mark.parametrize("name", ["without_noise", "rest_without_noise"])
def test_what_left_without_noise_is_remembered(name):
  outlet = _outlet()
  outlet.gaussian([tf.zeros(2)], 1.0, 1.0)
  found = getattr(outlet, name)([tf.constant([1.0, 2.0])])
  np.testing.assert_array_equal(found.tensors[0], [1.0, 2.0])
  assert outlet.noise_multiplier is None
  assert outlet.steps == 1 + (name == "without_noise")


def test_only_an_outlet_makes_what_is_released():
  with pytest.raises(TypeError, match="what an Outlet hands out"):
    outlet_lib.Released([tf.zeros(2)], object())
  released = _outlet().gaussian([tf.zeros(2)], 1.0, 1.0)
  doubled = released.map(lambda tensors: [2 * t for t in tensors])
  assert isinstance(doubled, outlet_lib.Released)
  np.testing.assert_allclose(doubled.tensors[0], 2 * released.tensors[0])


def test_selection_has_the_law_of_the_mechanism():
  outlet = _outlet()
  mechanism = mechanisms.ExponentialMechanism(1.0, math.log(2), monotone=True)
  scores = tf.constant(np.tile([0.0, 1.0, 2.0], (7000, 1)))
  index = outlet.select(scores, mechanism).tensors[0].numpy()
  counts = np.bincount(index, minlength=3)
  assert stats.chisquare(counts, [1000, 2000, 4000]).pvalue > 1e-3
  assert outlet.steps == 1


# Releases that are made once.


def _noise(key):
  return key.uniform(3)


def test_once_without_a_ledger_is_made_in_memory():
  found, count = _outlet(5).once("map", _noise)
  again, _ = _outlet(5).once("map", _noise)
  np.testing.assert_array_equal(found, again)
  other, _ = _outlet(5).once("other", _noise)
  assert count == 1
  assert (found != other).all()


def test_once_is_paid_before_it_is_computed(tmp_path):
  ledger = _ledger(tmp_path)

  def compute(key):
    assert ledger.release_of("map").count == 1
    assert ledger.release_of("map").digest is None
    return key.uniform(3)

  outlet = _outlet(ledger=ledger, folder=tmp_path)
  found, count = outlet.once("map", compute, {"noise": 1.0})
  assert count == 1
  kept, count = outlet.once("map", None, {"noise": 1.0})
  np.testing.assert_array_equal(found, kept)
  assert count == 1


@pytest.mark.parametrize("damage", ["deleted", "changed", "cut"])
def test_a_lost_result_is_made_again_and_counted_again(tmp_path, damage):
  """moments.json deleted: the release was made again and counted once."""
  outlet = _outlet(ledger=_ledger(tmp_path), folder=tmp_path)
  first, _ = outlet.once("map", _noise)
  path = tmp_path / "map.npy"
  if damage == "deleted":
    path.unlink()
  elif damage == "changed":
    np.save(path, np.zeros(3))
  else:
    path.write_bytes(path.read_bytes()[:-3])
  second, count = outlet.once("map", _noise)
  assert count == 2
  assert (first != second).all()


def test_a_release_that_was_killed_counts(tmp_path):
  def killed(key):
    raise KeyboardInterrupt

  outlet = _outlet(ledger=_ledger(tmp_path), folder=tmp_path)
  for _ in range(2):
    with pytest.raises(KeyboardInterrupt):
      outlet.once("map", killed)
  assert outlet.once("map", _noise)[1] == 3


def test_other_settings_are_refused(tmp_path):
  outlet = _outlet(ledger=_ledger(tmp_path), folder=tmp_path)
  outlet.once("map", _noise, {"noise": 1.0})
  (tmp_path / "map.npy").unlink()
  with pytest.raises(ValueError, match="noise"):
    outlet.once("map", _noise, {"noise": 2.0})


def test_what_the_ledger_paid_for_must_be_asked_for(tmp_path):
  ledger = _ledger(tmp_path)
  ledger.begin_release("map", {})
  outlet = _outlet(ledger=ledger, folder=tmp_path)
  outlet.once("other", _noise)
  with pytest.raises(ValueError, match=r"'map'.*would not count it"):
    outlet.require_all_asked()
  outlet.once("map", _noise)
  outlet.require_all_asked()


# A simulation.


def test_a_simulation_repeats_and_pays_nothing():
  outlet = outlet_lib.Simulation(randomness.Key.of(1))
  release = tf.function(
    lambda: outlet.gaussian([tf.zeros(4)], 1.0, 1.0).tensors
  )
  drawn = [release()[0].numpy() for _ in range(2)]
  assert (drawn[0] != drawn[1]).all()
  outlet.restart(randomness.Key.of(1))
  np.testing.assert_array_equal(release()[0], drawn[0])
