import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob.attacks import verdict

_ATTACK = attacks.PGD(0.05, steps=5)


def _noisy(network, stddev):
  def logits(x, seed):
    noise = tf.random.stateless_normal(tf.shape(x), seed, stddev=stddev)
    return network(x + noise)

  return logits


def _predict(model, x):
  return np.argmax(model(x), axis=1)


def test_result_agrees_with_the_model(network, batch):
  x, y = batch
  result = attacks.evaluate(
    _ATTACK, network, x, y, 0, batch_size=40, progress=False
  )
  clean = _predict(network, x) == y
  robust = clean & (_predict(network, result.x_adv) == y)
  assert result.count == 96
  assert result.clean_accuracy == clean.mean()
  assert result.accuracy == robust.mean()
  assert 0.05 < result.accuracy < result.clean_accuracy
  np.testing.assert_array_equal(result.success, ~robust)
  np.testing.assert_array_equal(result.x_adv[~clean], x[~clean])
  assert np.abs(result.x_adv - x).max() <= 0.05 + 1e-6
  assert result.interval[0] < result.accuracy < result.interval[1]
  assert result.warnings == []
  assert result.seconds > 0
  assert "under attack" in str(result)


@pytest.mark.parametrize("batch_size", [1, 7, 96, 1000])
def test_batches_do_not_change_a_deterministic_attack(
  network, batch, batch_size
):
  x, y = batch[0][:15], batch[1][:15]
  attack = attacks.BIM(0.05, steps=3)
  result = attacks.evaluate(
    attack, network, x, y, 0, batch_size=batch_size, progress=False
  )
  whole = attacks.evaluate(attack, network, x, y, 0, progress=False)
  np.testing.assert_allclose(result.x_adv, whole.x_adv, atol=1e-6)
  np.testing.assert_array_equal(result.success, whole.success)


def test_padding_does_not_retrace(batch):
  x, y = batch
  weights = tf.random.stateless_normal((64, 10), [1, 2])
  shapes = []

  def model(inputs):
    if not tf.executing_eagerly():
      shapes.append(inputs.shape)
    return inputs @ weights

  attacks.evaluate(
    attacks.BIM(0.1), model, x, y, 0, batch_size=36, progress=False
  )
  assert len(shapes) == 2  # One graph for the attack, one for the verdict.
  assert {tuple(shape) for shape in shapes} == {(36, 64)}


def test_targeted(network, batch):
  x, y = batch
  targets = (y + 3) % 10
  attack = attacks.PGD(0.25, steps=20, targeted=True)
  result = attacks.evaluate(
    attack, network, x, y, 0, progress=False, targets=targets
  )
  reached = _predict(network, result.x_adv) == targets
  np.testing.assert_array_equal(result.success, reached)
  assert reached.mean() > 0.5
  assert result.accuracy <= 1 - reached.mean()


@dataclasses.dataclass(frozen=True, repr=False)
class _Swap(attacks.Attack):
  """Swaps the two coordinates, which repairs as often as it harms."""

  value_range = (0.0, 1.0)
  targeted = True
  name = "swap"

  def __call__(self, logits_fn, x, y, seed, attack_eps=None):
    return x[:, ::-1]


def test_an_attack_cannot_make_a_wrong_example_robust():
  def model(x):
    return tf.concat([x, 0 * x[:, :1]], axis=1)

  x = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.2]], np.float32)
  y, targets = np.array([0, 0, 1]), np.array([1, 1, 2])
  result = attacks.evaluate(
    _Swap(), model, x, y, 0, progress=False, targets=targets
  )
  assert result.clean_accuracy == pytest.approx(1 / 3)
  assert result.accuracy == 0
  np.testing.assert_array_equal(result.success, [True, False, False])


def test_randomised_model_is_judged_by_majority(network, batch):
  """A model that is right in 70 % of its draws is right, not 70 % robust."""
  x, y = batch[0][:32], batch[1][:32]
  truth = tf.one_hot(y, 10)

  def coin(inputs, seed):
    wrong = tf.random.stateless_uniform((32, 1), seed) < 0.3
    logits = tf.where(wrong, tf.roll(truth, 1, axis=1), truth)
    return logits + 0 * tf.reduce_sum(inputs)

  attack = attacks.FGSM(0.1)
  result = attacks.evaluate(
    attack, coin, x, y, 0, verdict_draws=101, progress=False
  )
  assert result.accuracy == 1
  assert any("randomised-output" in warning for warning in result.warnings)
  with pytest.raises(ValueError, match="verdict_draws >= 2 for a randomised"):
    attacks.evaluate(attack, coin, x, y, 0, progress=False)


def test_eot_is_judged_by_single_draws(network, batch):
  x, y = batch
  wrapped = attacks.eot(_noisy(network, 0.2), 4)
  result = attacks.evaluate(
    attacks.BIM(0.1, steps=4),
    wrapped,
    x,
    y,
    0,
    verdict_draws=25,
    progress=False,
  )
  assert result.warnings == []
  assert result.accuracy < result.clean_accuracy
  again = attacks.evaluate(
    attacks.BIM(0.1, steps=4),
    wrapped,
    x,
    y,
    0,
    verdict_draws=25,
    progress=False,
  )
  np.testing.assert_array_equal(result.x_adv, again.x_adv)
  np.testing.assert_array_equal(result.success, again.success)


def test_a_tie_goes_to_the_attacker():
  votes = tf.constant([[5.0, 5.0, 0.0], [6.0, 4.0, 0.0], [0.0, 9.0, 1.0]])
  got = verdict.predicts(votes, tf.constant([0, 0, 0]))
  np.testing.assert_array_equal(got, [False, True, False])


def test_votes_are_counted():
  def model(x, seed):
    return tf.random.stateless_normal((2, 4), seed)

  votes = verdict.count_votes(model, tf.zeros((2, 1)), tf.constant([0, 1]), 400)
  np.testing.assert_array_equal(tf.reduce_sum(votes, axis=1), [400, 400])
  assert np.abs(votes.numpy() - 100).max() < 45


def test_progress_line(network, batch, capsys):
  attacks.evaluate(_ATTACK, network, *batch, 0)
  line = capsys.readouterr().err
  assert "PGD(attack_eps=0.05" in line
  assert "96/96 (100%)" in line


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"batch_size": 0}, "batch_size=0 to be a whole number"),
    ({"verdict_draws": 0}, "verdict_draws=0 to be a whole number"),
    ({"targets": np.zeros(96, int)}, "exactly for a targeted attack"),
    ({"y": np.full(96, 12)}, r"labels in \[0, 10\)"),
    ({"x": np.full((96, 64), 2.0, np.float32)}, "Rescale it"),
  ],
)
def test_bad_inputs(network, batch, fields, message):
  arguments = {"x": batch[0], "y": batch[1], "seed": 0, **fields}
  with pytest.raises(ValueError, match=message):
    attacks.evaluate(_ATTACK, network, progress=False, **arguments)


def test_targets_must_differ_from_the_truth(network, batch):
  attack = attacks.PGD(0.1, targeted=True)
  with pytest.raises(ValueError, match="true label as target of example 0"):
    attacks.evaluate(attack, network, *batch, 0, targets=batch[1])
