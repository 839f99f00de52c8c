import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import membership
from tf_privrob import models
from tf_privrob.membership import asking

_EPS = 0.1


@pytest.fixture(scope="module")
def network():
  return models.mlp((6,), 3, seed=1)


@pytest.fixture(scope="module")
def points():
  rng = np.random.default_rng(0)
  x = rng.random((37, 6), dtype=np.float32)
  y = rng.integers(0, 3, 37)
  return (x[:20], y[:20]), (x[20:], y[20:])


@pytest.fixture(scope="module")
def outputs(network, points):
  return membership.Request(
    network,
    *points,
    attack_eps=_EPS,
    domain=bounds.Interval(),
    targeted=True,
    batch_size=8,
    progress=False,
  )()


def _loss(network, x, y):
  return tf.keras.losses.sparse_categorical_crossentropy(
    y, network(x), from_logits=True
  )


def _walk(network, x, y, direction):
  """20 signed steps of 2.5 eps / 20 from x, by a loop over examples."""
  moved = []
  for example, label in zip(x, y):
    x_adv = tf.constant(example[None])
    for _ in range(20):
      with tf.GradientTape() as tape:
        tape.watch(x_adv)
        loss = _loss(network, x_adv, [label])
      step = direction * tf.sign(tape.gradient(loss, x_adv))
      x_adv = x_adv + 2.5 * _EPS / 20 * step
      x_adv = tf.clip_by_value(x_adv, example - _EPS, example + _EPS)
      x_adv = tf.clip_by_value(x_adv, 0, 1)
    moved.append(network(x_adv)[0])
  return np.stack(moved)


def test_benign_and_adversarial_against_a_loop(network, points, outputs):
  for part, (x, y) in enumerate(points):
    np.testing.assert_allclose(outputs.benign[part], network(x), atol=1e-5)
    rows = [0, 7, 8, len(x) - 1]  # ends of batches
    expected = _walk(network, x[rows], y[rows], +1)
    found = outputs.adversarial[part][rows]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_targeted_descends_to_every_other_class(network, points, outputs):
  x, y = points[1][0][-5:], points[1][1][-5:]
  for place in range(2):
    targets = np.array([[c for c in range(3) if c != t][place] for t in y])
    expected = _walk(network, x, targets, -1)
    np.testing.assert_allclose(
      outputs.targeted[1][-5:, place], expected, atol=1e-4
    )


def test_worst_cases_bound_the_attack(points, outputs):
  for part, (_, y) in enumerate(points):
    worst, rows = outputs.worst_case[part], np.arange(len(y))
    np.testing.assert_array_equal(worst[rows, y], 0)
    for logits in (outputs.benign[part], outputs.adversarial[part]):
      assert (logits - logits[rows, y][:, None] <= worst + 1e-5).all()
  scores = [
    membership.score(outputs, f"{kind}_confidence").members
    for kind in ("verified", "adversarial", "benign")
  ]
  assert (scores[0] <= scores[1] + 1e-6).all()
  assert (scores[1] <= scores[2] + 1e-6).all()


def test_a_final_softmax_is_taken_off(network, points, outputs):
  probabilities = tf.keras.layers.Softmax()(network.output)
  soft = tf.keras.Model(network.input, probabilities)
  found = membership.Request(soft, *points, progress=False)()
  np.testing.assert_allclose(found.benign[0], outputs.benign[0], atol=1e-5)
  assert found.adversarial is None


def test_random_starts_are_the_seeds(network, points):
  from tf_privrob import attacks

  attack = attacks.PGD(_EPS, steps=1, step_size=1e-3)

  def ask(seed):
    return membership.Request(
      network, *points, attack=attack, seed=seed, progress=False
    )().adversarial[0]

  np.testing.assert_array_equal(ask(1), ask(1))
  assert np.abs(ask(1) - ask(2)).max() > 1e-3


def test_what_is_refused(network, points):
  (x, y), others = points

  def ask(**settings):
    fields = {"members": (x, y), "nonmembers": others, **settings}
    return membership.Request(network, progress=False, **fields)()

  overlap = (np.concatenate([others[0], x[3:5]]), np.zeros(19, int))
  with pytest.raises(
    ValueError, match=r"2 of 19 are: non-member 17 \(member 3"
  ):
    ask(nonmembers=overlap)
  kept = membership.distinct(x, overlap[0])
  np.testing.assert_array_equal(kept, np.arange(17))
  with pytest.raises(ValueError, match=r"labels in \[0, 3\), received max 7"):
    ask(members=(x, np.full(20, 7)))
  with pytest.raises(ValueError, match=r"members_x in \[0.0, 1.0\]"):
    ask(members=(x + 1, y))
  with pytest.raises(ValueError, match=r"attack_eps=.* for targeted=True"):
    ask(targeted=True)
  with pytest.raises(ValueError, match="for worst-case logits"):
    ask(domain=bounds.Interval())
  attack = asking.evaluation_attack(0.2)
  with pytest.raises(ValueError, match="Expected one radius"):
    ask(attack=attack, attack_eps=0.1)


# In the run folder.


def _request(points, seed=1, **settings):
  model = models.mlp((6,), 3, seed=seed)
  return membership.Request(model, *points, progress=False, **settings)


def test_outputs_are_asked_for_once(tmp_path, points, monkeypatch):
  first = membership.cached_outputs(tmp_path, "a", _request(points))
  monkeypatch.setattr(
    membership.Request, "__call__", lambda self: pytest.fail("asked again")
  )
  again = membership.cached_outputs(tmp_path, "a", _request(points))
  np.testing.assert_array_equal(first.benign[0], again.benign[0])
  assert (tmp_path / "nonprivate" / "membership" / "a.npz").is_file()


def test_anything_that_changed_is_asked_again(tmp_path, points):
  (x, y), others = points
  known = {_request(points).fingerprint}
  for other in (
    _request(points, seed=2),
    _request(((x + 1e-7, y), others)),
    _request(((x, (y + 1) % 3), others)),
    _request(points, attack_eps=0.1),
    membership.Request(models.mlp((6,), 3, seed=1), *points, seed=5),
  ):
    assert other.fingerprint not in known
    known.add(other.fingerprint)
  before = membership.cached_outputs(tmp_path, "a", _request(points))
  after = membership.cached_outputs(tmp_path, "a", _request(points, seed=2))
  assert np.abs(before.benign[0] - after.benign[0]).max() > 1e-3
  loaded = membership.cached_outputs(tmp_path, "a", _request(points, seed=2))
  np.testing.assert_array_equal(loaded.benign[0], after.benign[0])


def test_bad_keys_and_functions_without_a_fingerprint(tmp_path, points):
  with pytest.raises(ValueError, match=r"fingerprint=\.\.\. with a function"):
    membership.cached_outputs(tmp_path, "a", lambda: None)
  with pytest.raises(ValueError, match="Expected a key"):
    membership.cached_outputs(tmp_path, "../a", _request(points))
