import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks

_QUICK = {"binary_search_steps": 4, "max_iterations": 40, "learning_rate": 0.05}


def _linear_binary(x):
  z = tf.linalg.matvec(tf.reshape(x, [-1, 2]), [3.0, -4.0]) + 0.25
  return tf.stack([-z, z], axis=1)


def _points():
  x = np.array([[0.6, 0.4], [0.3, 0.6], [0.8, 0.5]], np.float32)
  y = np.argmax(_linear_binary(x), axis=1)
  return x, y


@pytest.mark.parametrize("targeted", [False, True])
def test_carlini_wagner_finds_the_distance_to_the_boundary(targeted):
  x, y = _points()
  attack = attacks.CarliniWagnerL2(targeted=targeted, **_QUICK)
  x_adv = attack(_linear_binary, x, 1 - y if targeted else y, 0).numpy()
  assert (np.argmax(_linear_binary(x_adv), axis=1) != y).all()
  found = np.linalg.norm(x_adv - x, axis=1)
  distance = np.abs(x @ [3.0, -4.0] + 0.25) / 5
  assert (found >= distance - 1e-5).all()
  np.testing.assert_allclose(found, distance, rtol=0.25, atol=0.01)


def test_carlini_wagner_keeps_to_the_radius_and_spares_wrong_examples():
  x, y = _points()
  y = y.copy()
  y[1] = 1 - y[1]
  attack = attacks.CarliniWagnerL2(0.01, **_QUICK)
  x_adv = attack(_linear_binary, x, y, 0).numpy()
  np.testing.assert_array_equal(x_adv[1], x[1])
  assert (np.linalg.norm(x_adv - x, axis=1) <= 0.01 + 1e-6).all()
  images = x.reshape(3, 1, 2, 1)
  wide = attack(_linear_binary, images, y, 0).numpy()
  np.testing.assert_allclose(wide.reshape(3, 2), x_adv, atol=1e-5)


def test_spsa_sees_through_masked_gradients(network, batch):
  x, y = batch[0][:6], batch[1][:6]

  def masked(inputs):
    return network(tf.stop_gradient(inputs))

  attack = attacks.SPSA(0.4, steps=20, samples=64, learning_rate=0.05)
  x_adv = attack(masked, x, y, 0).numpy()
  assert np.mean(np.argmax(network(x), 1) == y) > 0.8
  assert np.mean(np.argmax(network(x_adv), 1) == y) < 0.4
  assert np.abs(x_adv - x).max() <= 0.4 + 1e-6
  assert x_adv.min() >= 0
  assert x_adv.max() <= 1


def test_spsa_is_reproducible_and_touches_no_global_state(network, batch):
  x, y = batch[0][:3], batch[1][:3]
  attack = attacks.SPSA(0.05, steps=3, samples=8)
  tf.random.set_seed(3)
  expected = tf.random.uniform([2]).numpy()
  tf.random.set_seed(3)
  first = attack(network, x, y, 0).numpy()
  np.testing.assert_array_equal(tf.random.uniform([2]), expected)
  np.testing.assert_array_equal(attack(network, x, y, 0), first)
  assert np.abs(attack(network, x, y, 1) - first).max() > 1e-3


def test_spsa_learning_rate_is_the_one_asked_for(network, batch):
  """Adam's first step has the length of the learning rate.

  cleverhans drops the rate under Keras 2.15 and steps by 0.001.
  """
  x = np.full((1, 64), 0.5, np.float32)
  y = np.argmax(network(x), axis=1)
  start, moved = (
    attacks.SPSA(0.3, steps=steps, samples=8, learning_rate=0.02)(
      network, x, y, 0
    ).numpy()
    for steps in (1, 2)
  )
  step = np.abs(moved - start)
  assert 0.01 < np.median(step[step > 0]) < 0.03


@pytest.mark.parametrize(
  ("build", "message"),
  [
    (lambda: attacks.SPSA(0.1, samples=7), "samples=7 to be even"),
  ],
)
def test_bad_fields(build, message):
  with pytest.raises(ValueError, match=message):
    build()


def test_refused_inside_a_graph(network, batch):
  x, y = (tf.constant(part) for part in batch)
  for attack in (attacks.SPSA(0.1), attacks.CarliniWagnerL2()):
    with pytest.raises(ValueError, match="to be called eagerly"):
      tf.function(lambda x, y, a=attack: a(network, x, y, 0))(x, y)


def test_part_of_an_ensemble(network, batch):
  x, y = batch[0][:4], batch[1][:4]
  both = attacks.ensemble(
    [attacks.FGSM(0.1), attacks.SPSA(0.1, steps=3, samples=8)]
  )
  assert not both.in_graph
  result = attacks.evaluate(both, network, x, y, 0, progress=False)
  single = attacks.evaluate(attacks.FGSM(0.1), network, x, y, 0, progress=False)
  assert result.accuracy <= single.accuracy
