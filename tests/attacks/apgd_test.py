"""Auto-PGD, and radii that differ from example to example."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob.attacks import apgd
from tf_privrob.attacks import norms
from tf_privrob.attacks import objectives

_ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}
_RADII = {"linf": 0.1, "l2": 0.8, "l1": 2.0}
_DUAL = {"linf": 1, "l2": 2, "l1": np.inf}


def _lengths(norm, delta):
  flat = np.asarray(delta, np.float64).reshape(len(delta), -1)
  return np.linalg.norm(flat, _ORDERS[norm], axis=1)


def test_checkpoints_of_the_paper():
  assert apgd.checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
  assert apgd.checkpoints(1) == [1]
  assert apgd.checkpoints(10) == [3, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("norm", list(_ORDERS))
def test_linear_model_closed_form_with_radii_of_their_own(norm):
  """The margin falls by radius_i ||w||_dual, the most that is possible."""
  weights = np.random.default_rng(0).normal(size=6).astype(np.float32)

  def model(x):
    z = tf.linalg.matvec(x, weights)
    return tf.stack([-z, z], axis=1)

  x = np.random.default_rng(1).uniform(-0.5, 0.5, (20, 6)).astype(np.float32)
  y = (x @ weights > 0).astype(np.int64)
  radii = np.geomspace(0.01, 3, 20).astype(np.float32)
  attack = attacks.APGD(0.0, norm, (-9.0, 9.0), steps=30)
  x_adv = attack.compile(model)(x, y, 3, radii).numpy()
  fall = (2 * y - 1) * ((x - x_adv) @ weights)
  best = radii * np.linalg.norm(weights, _DUAL[norm])
  np.testing.assert_allclose(fall, best, rtol=1e-3)


def _by_loop(attack, gradient, x, label, project, steepest):
  """Algorithm 1 for one example, in NumPy, without a random start."""
  marks = apgd.checkpoints(attack.steps)
  eta = 2 * attack.attack_eps
  grad, value = gradient(x, label)
  here, previous = x, x
  top = (here, grad, value)
  seen = [(value, here)]
  rises, last, halved, last_value = 0, 0, False, value
  for number in range(1, attack.steps + 1):
    z = project(here + eta * steepest(grad))
    weight = 1.0 if number == 1 else 0.75
    moved = here + weight * (z - here) + (1 - weight) * (here - previous)
    moved = project(moved)
    new_grad, new_value = gradient(moved, label)
    rises += new_value > value
    previous, here, grad, value = here, moved, new_grad, new_value
    seen.append((value, here))
    if value > top[2]:
      top = (here, grad, value)
    if number in marks:
      few = rises < 0.75 * (number - last)
      stuck = not halved and top[2] <= last_value
      halved = few or stuck
      if halved:
        eta /= 2
        here, grad, value = top
        previous = here
      rises, last, last_value = 0, number, top[2]
  return max(seen, key=lambda pair: pair[0])[1]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_equals_algorithm_1_one_example_at_a_time(network, batch, norm):
  x, y = batch[0][:6], batch[1][:6]
  attack = attacks.APGD(
    _RADII[norm], norm, loss="margin", steps=25, random_start=False
  )

  def gradient(point, label):
    point = tf.constant(point[None], tf.float32)
    with tf.GradientTape() as tape:
      tape.watch(point)
      value = objectives.margin(network(point), tf.constant([label]))
    return tape.gradient(value, point)[0].numpy(), float(value[0])

  found = attack.compile(network)(x, y, 0).numpy()
  for row in range(len(x)):
    center = x[row]

    def project(point, center=center):
      delta = np.clip(point, 0, 1) - center
      if norm == "linf":
        delta = np.clip(delta, -attack.attack_eps, attack.attack_eps)
      else:
        delta *= min(1.0, attack.attack_eps / (np.linalg.norm(delta) + 1e-30))
      return np.clip(center + delta, 0, 1).astype(np.float32)

    def steepest(grad):
      return np.sign(grad) if norm == "linf" else grad / np.linalg.norm(grad)

    want = _by_loop(attack, gradient, center, int(y[row]), project, steepest)
    # The same path, up to rounding; its end is what counts.
    values = [gradient(point, int(y[row]))[1] for point in (found[row], want)]
    assert values[0] == pytest.approx(values[1], rel=0.02, abs=0.02)
    np.testing.assert_allclose(found[row], want, atol=0.02)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_never_worse_than_pgd_on_average(network, batch, norm):
  """Mean worst margin at least PGD's, at the same number of steps."""
  x, y = batch
  label = tf.constant(y, tf.int32)
  reached = {}
  for name in ("pgd", "apgd"):
    attack = attacks.by_name(
      name,
      attack_eps=_RADII[norm],
      norm=norm,
      loss="margin",
      steps=40,
      keep_best=True,
    )
    x_adv = attack.compile(network)(x, y, 0)
    margins = objectives.margin(network(x_adv), label).numpy()
    reached[name] = margins.mean(), (margins > 0).sum()
  assert reached["apgd"][0] >= reached["pgd"][0] - 0.02
  assert reached["apgd"][1] >= reached["pgd"][1]


def test_halving_finds_a_peak_that_fixed_steps_jump_over():
  """The class changes within 0.01 of one point; the first step is 2."""
  peak = np.array([0.31, -0.17], np.float32)

  def model(x):
    distance = tf.norm(x - peak, axis=1)
    return tf.stack([tf.zeros_like(distance), 0.01 - distance], axis=1)

  x, y = np.zeros([4, 2], np.float32), np.zeros(4, int)
  fields = {"norm": "l2", "value_range": (-2.0, 2.0), "loss": "margin"}
  found = attacks.APGD(1.0, steps=100, **fields)(model, x, y, 0)
  assert (np.argmax(model(found), axis=1) == 1).all()
  fixed = attacks.PGD(1.0, steps=100, step_size=2.0, keep_best=True, **fields)
  assert (np.argmax(model(fixed(model, x, y, 0)), axis=1) == 0).all()


# One radius an example, for all attacks of the room.


@pytest.mark.parametrize("norm", list(_ORDERS))
@pytest.mark.parametrize("name", ["fgsm", "mim", "pgd", "apgd"])
def test_radii_of_their_own_hold_in_images(convnet, images, name, norm):
  x, y = images
  radii = _RADII[norm] * np.linspace(0, 1, len(x)).astype(np.float32)
  fields = attacks.accepted(name, steps=5)
  attack = attacks.by_name(name, attack_eps=9.0, norm=norm, **fields)
  x_adv = attack.compile(convnet)(x, y, 0, radii).numpy()
  lengths = _lengths(norm, x_adv - x)
  assert (lengths <= radii * (1 + 1e-5) + 1e-6).all()
  assert (lengths[1:] >= 0.2 * radii[1:]).all()
  np.testing.assert_array_equal(x_adv[0], x[0])


@pytest.mark.parametrize("norm", list(_ORDERS))
def test_projection_with_radii_of_their_own_is_that_of_each(norm):
  rng = np.random.default_rng(0)
  center = tf.constant(rng.uniform(size=(5, 3, 4, 1)), tf.float32)
  point = tf.constant(rng.normal(size=(5, 3, 4, 1)), tf.float32)
  radii = tf.constant([0.0, 0.1, 0.5, 2.0, 50.0])
  together = norms.ball(
    norm, center, norms.per_example(radii, center), (0.0, 1.0)
  ).project(point)
  for row in range(5):
    one = slice(row, row + 1)
    alone = norms.ball(norm, center[one], radii[row], (0.0, 1.0))
    np.testing.assert_allclose(
      together[one], alone.project(point[one]), atol=1e-6
    )


def test_pieces_of_a_batch_keep_their_radii(monkeypatch, network, batch):
  """A batch that is cut into pieces hands each its own radii."""
  x, y = batch
  radii = np.linspace(0, 0.3, len(x)).astype(np.float32)
  attack = attacks.APGD(0.0, steps=5)
  whole = attack.compile(network, split_batch=False)(x, y, 0, radii)
  monkeypatch.setattr("os.cpu_count", lambda: 3)
  cut = attack.compile(network)(x, y, 0, radii)
  np.testing.assert_allclose(cut, whole, atol=1e-5)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"keep_best": False}, "Expected keep_best=True: this attack goes back"),
  ],
)
def test_bad_settings(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(attacks.APGD(0.1), **change)


def test_a_wrong_number_of_radii_is_refused(network, batch):
  with pytest.raises(ValueError, match="one for each of 4 examples"):
    attacks.PGD(0.1)(network, batch[0][:4], batch[1][:4], 0, tf.ones([3]))
