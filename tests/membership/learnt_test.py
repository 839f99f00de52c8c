import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import membership


def _outputs(count=400, seed=0):
  """Members are near one of two values, non-members in between.

  No threshold on the confidence can tell them apart well, a network can. The
  second class says nothing.
  """
  rng = np.random.default_rng(seed)
  labels = np.repeat([0, 1], count // 2)

  def logits(sizes):
    z = np.zeros((count, 2), np.float32)
    z[:, 0] = np.where(labels == 0, sizes, rng.normal(size=count))
    return z

  ends = 2 * rng.choice([-1, 1], count) + rng.normal(0, 0.3, count)
  middle = rng.normal(0, 0.3, count)
  pair = (logits(ends), logits(middle))
  # Of the adversarial examples, those for other classes tell nothing.
  none = tuple(rng.normal(size=(count, 2)).astype("f4") for _ in range(2))
  targeted = tuple(part[:, None] for part in pair)
  return membership.Outputs(
    labels, labels, pair, adversarial=none, targeted=targeted
  )


@pytest.fixture(scope="module")
def benign():
  return membership.model_inference(_outputs(), "benign", 100, epochs=60)


def test_it_learns_what_a_threshold_cannot(benign):
  first, second = benign.per_class
  assert first["balanced_accuracy"] > 0.9
  assert second["interval"][0] < 0.5 < second["interval"][1]
  scores = membership.score(_outputs(), "benign_confidence")
  by_threshold = membership.class_dependent(scores, 100).per_class[0]
  assert by_threshold["balanced_accuracy"] < 0.85
  assert (benign.num_members, benign.num_nonmembers) == (200, 200)
  mean = (first["balanced_accuracy"] + second["balanced_accuracy"]) / 2
  assert benign.balanced_accuracy == pytest.approx(mean)


def test_the_same_seed_gives_the_same_networks(benign):
  again = membership.model_inference(_outputs(), "benign", 100, epochs=60)
  assert again.to_json() == benign.to_json()
  other = membership.model_inference(
    _outputs(), "benign", 100, seed=1, epochs=60
  )
  assert other.to_json() != benign.to_json()


def test_features_are_those_asked_for():
  none = membership.model_inference(_outputs(), "adversarial", 100, epochs=5)
  assert none.per_class[0]["balanced_accuracy"] < 0.65
  found = membership.model_inference(
    _outputs(), "targeted", 100, epochs=60, log_features=True
  )
  assert found.per_class[0]["balanced_accuracy"] > 0.9
  assert found.label.startswith("model-infer (targeted)")


def test_each_class_starts_anew():
  # With the classes' names exchanged, the same points are told apart.
  outputs = _outputs()
  swapped = membership.Outputs(
    1 - outputs.member_labels,
    1 - outputs.nonmember_labels,
    tuple(part[:, ::-1].copy() for part in outputs.benign),
  )
  found = membership.model_inference(swapped, "benign", 100, epochs=60)
  assert found.per_class[1]["balanced_accuracy"] > 0.9
  assert found.per_class[0]["balanced_accuracy"] < 0.65


def test_the_network_is_the_published_one(monkeypatch):
  made, build = [], tf.keras.Sequential

  def sequential(*layers):
    made.append(build(*layers))
    return made[-1]

  monkeypatch.setattr(tf.keras, "Sequential", sequential)
  membership.model_inference(_outputs(), "benign", 100, epochs=1)
  (network,) = made
  assert [layer.units for layer in network.layers] == [200, 20, 2]


def test_failures():
  outputs = _outputs()
  with pytest.raises(ValueError, match=r"num_fit=200 .* 200 of class 0"):
    membership.model_inference(outputs, "benign", 200)
  with pytest.raises(ValueError, match="Unknown features='benine'"):
    membership.model_inference(outputs, "benine")
  bare = membership.Outputs(
    outputs.member_labels, outputs.nonmember_labels, outputs.benign
  )
  with pytest.raises(ValueError, match="Pass targeted=True"):
    membership.model_inference(bare, "targeted", 10)
