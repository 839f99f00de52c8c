"""DP-SGD for any objective: an example's terms are one clipped gradient."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests import marking
from tests.methods.objectives import robust_cases as cases
from tf_privrob import methods
from tf_privrob import randomness

# Bounds add up over ten classes, which goes by place: one example at a time.
pytestmark = pytest.mark.filterwarnings("ignore:A row of this network")
CLIP = 0.02
SEED = tf.constant([3, 4])
_FAST = ("natural", "pgd", "trades", "wrm_linf", "ibp", "box", "dual")


def private(case, **changes):
  return cases.prepared(case, private=True, l2_clip_norm=CLIP, **changes)


@functools.cache
def shared(case):
  """A method with shifted copies, and its clipped sum of four rows."""
  method = private(case, augmentation="shift", augmentation_multiplicity=2)
  labels = cases.tensors(4)[1]

  @tf.function
  def total(images, mask):
    return method.clipped_gradients((images, labels), mask, SEED).gradients

  return method, total


def example_loss(method, images, labels, row):
  """As the engine sees it: among companions, or alone with its own seed."""
  if method.clipped_gradients.engine == "ghost":
    return cases.example_losses(method, images, labels, SEED)[0][row]
  seed = randomness.fold_in(SEED, row)
  one = (images[row : row + 1], labels[row : row + 1])
  return cases.example_losses(method, *one, seed)[0][0]


@pytest.mark.parametrize("case", marking.slow_but(_FAST, cases.CASES))
def test_clipped_sum_is_that_of_single_examples(case):
  method, total = shared(case)
  images, labels = cases.tensors(4)
  rows = []
  for row in range(2):
    with tf.GradientTape() as tape:
      loss = example_loss(method, images, labels, row)
    found = tape.gradient(loss, method.network.trainable_variables)
    norm = float(tf.linalg.global_norm(found))
    assert norm > CLIP  # clipping is at work
    rows.append([CLIP / norm * gradient for gradient in found])
  mask = tf.constant([1.0, 1.0, 0.0, 0.0])
  for found, *parts in zip(total(images, mask), *rows):
    np.testing.assert_allclose(found, sum(parts), rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("case", marking.slow_but(_FAST, cases.CASES))
def test_a_neighbour_moves_the_sum_by_at_most_the_clip_norm(case):
  """Removed, or replaced by anything: the others' parts stay as they are."""
  _, total = shared(case)
  images, _ = cases.tensors(4)
  mask = tf.constant([1.0, 1.0, 0.0, 1.0])
  whole, without = total(images, tf.ones(4)), total(images, mask)
  moved = tf.linalg.global_norm([a - b for a, b in zip(whole, without)])
  assert 0.8 * CLIP < float(moved) <= CLIP
  other = tf.tensor_scatter_nd_update(images, [[2]], [1 - images[2]])
  for a, b in zip(without, total(other, mask)):
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_mean_over_the_batch_would_break_it():
  """Why WRM's published mean is refused: it moves the others' parts."""
  with pytest.raises(ValueError, match="Set mean_over='example'"):
    methods.DPSGDConfig(objective=methods.WRM())
  method = private("wrm_linf", step_scale=2.0)
  object.__setattr__(method.objective, "mean_over", "batch")
  images, labels = cases.tensors(4)
  mask = tf.constant([1.0, 1.0, 0.0, 1.0])
  other = tf.tensor_scatter_nd_update(images, [[2]], [1 - images[2]])
  found = [
    method.clipped_gradients((x, labels), mask, SEED) for x in (images, other)
  ]
  gaps = zip(found[0].gradients, found[1].gradients)
  assert max(np.abs(a - b).max() for a, b in gaps) > 1e-5


@pytest.mark.parametrize("case", ["trades", "ibp"])
def test_noise_and_steps_are_those_of_dp_sgd(case):
  budget = {"noise_multiplier": None, "dp_epsilon": 3.0}
  plan, plain = (
    cases.build(c, private=True, **budget).plan(640) for c in (case, "natural")
  )
  assert plan.noise_multiplier == plain.noise_multiplier > 0
  assert plan.steps == plain.steps


@pytest.mark.parametrize("case", ["pgd", "ibp"])
def test_statement_of_a_private_run(case, tmp_path):
  method = cases.build(case, private=True)
  method.fit(*cases.arrays(), run_dir=tmp_path, verbose=0)
  statement = method.privacy_statement()
  assert statement.claimed == statement.proven
  assert 0 < statement.proven.dp_epsilon <= 50
  assert (tmp_path / "ledger.jsonl").read_text().count("\n") >= 4


def test_engines_agree_where_nothing_is_random():
  images, labels = cases.tensors(3)
  found = [
    private("dual", engine=engine).clipped_gradients((images, labels)).gradients
    for engine in ("vectorized", "loop")
  ]
  for a, b in zip(*found):
    np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
  ("case", "changes", "message"),
  [
    ("ibp", {"engine": "ghost"}, "outside their layers"),
    ("pgd", {"domain_adaptation_weight": 1.0}, "Set domain_adaptation_wei"),
    ("trades", {"augmentation": "noise"}, "leaves the value range"),
  ],
)
def test_what_cannot_be_private(case, changes, message):
  with pytest.raises(ValueError, match=message):
    cases.build(case, private=True, **changes)


def test_batch_normalization_cannot_be_private():
  layers = tf.keras.layers
  net = tf.keras.Sequential(
    [
      layers.Input(cases.SHAPE),
      layers.Flatten(),
      layers.BatchNormalization(),
      layers.Dense(cases.CLASSES),
    ]
  )
  with pytest.raises(ValueError, match="BatchNormalization"):
    cases.build("pgd", net, private=True)
