"""The sound heir of DPAL: its first layer, its loss and its gradient."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.papers.dpal import dpal_sound_cases as cases
from tf_privrob import attacks
from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import methods
from tf_privrob import papers
from tf_privrob import randomness

pytestmark = pytest.mark.usefixtures("checked_once")

# The first layer.


@pytest.mark.parametrize(
  ("network", "index", "features", "paired"),
  [
    (cases.conv_network, 0, "pca", True),
    (cases.conv_network, 0, "taylor", True),
    (lambda: cases.conv_network("tanh"), 0, "pca", False),
    (cases.flat_network, 1, "pca", False),
  ],
)
def test_first_layer_is_made_of_the_released_moments_alone(
  network, index, features, paired
):
  network = network()
  method = cases.make(
    network, moments=papers.Moments(dp_epsilon=1.0, features=features)
  )
  moments = cases.begin(method)
  first = network.layers[index]
  filters = papers.filters_from_moments(
    moments,
    first.kernel.shape[-1],
    cases.VALUE_RANGE,
    features,
    paired=paired,
  )
  np.testing.assert_array_equal(
    first.kernel, np.float32(filters.kernel).reshape(first.kernel.shape)
  )
  np.testing.assert_array_equal(first.bias, np.float32(filters.bias))
  assert not first.trainable
  assert all(v is not first.kernel for v in method.trainable_variables)


def test_steps_leave_the_first_layer_alone():
  method = cases.make()
  cases.begin(method)
  released = method.network.layers[0].get_weights()
  others = cases.weights(method.network)[-18:]
  key = randomness.Key.of(0)
  for batch in method.sampler.batches(*cases.arrays(), key, 0, 3):
    method.train_step(batch)
  for a, b in zip(released, method.network.layers[0].get_weights()):
    np.testing.assert_array_equal(a, b)
  assert (cases.weights(method.network)[-18:] != others).all()


def test_moments_are_those_of_the_training_images():
  """With hardly any noise they are what the query says of the data."""
  method = cases.make(
    moments=papers.Moments(dp_epsilon=1e9), noise_multiplier=0.0
  )
  matrix = cases.begin(method)
  x, _ = cases.arrays()
  query = papers.PatchMoments(
    (3, 3), (2, 2), cases.VALUE_RANGE, 3.0, "gaussian", 1e9, 1e-3
  )
  total = query.parts(x).numpy().sum(axis=0)
  rows, columns = np.triu_indices(10)
  root = np.where(rows == columns, 1.0, np.sqrt(2))
  np.testing.assert_allclose(
    matrix[rows, columns] * root, total, rtol=1e-3, atol=1e-2
  )


def test_the_key_decides_on_the_moments():
  first, again, other = (cases.begin(cases.make(), seed) for seed in (1, 1, 2))
  np.testing.assert_array_equal(first, again)
  assert (first != other).all()
  assert (cases.begin(cases.make(), None) != first).all()


@pytest.mark.slow
def test_same_seed_same_run():
  first, second = (
    cases.fit(cases.make(seed=1, epochs=0.25, adversarial_weight=1.0))
    for _ in range(2)
  )
  np.testing.assert_array_equal(
    cases.weights(first.network), cases.weights(second.network)
  )


# The loss and its gradient.


def _cross_entropy(network, image, label):
  logits = network(image[None])[0]
  return tf.reduce_logsumexp(logits) - logits[int(label)]


def _naive_rows(method, x, seed):
  """Each example's rows: clean copies, then adversarial copies, with noise."""
  config, fold = method.config, randomness.fold_in
  # One size a step, whatever chunk an example is in.
  of_step = fold(cases.STEP_SEED, tf.constant(2, tf.int64))
  size = config.max_attack_eps * tf.random.stateless_uniform([], of_step)
  attack = attacks.PGD(
    config.max_attack_eps,
    value_range=cases.VALUE_RANGE,
    steps=config.attack_steps,
  )
  _, y = cases.arrays(len(x))
  x_adv = attack(method.network, x, y, fold(seed, 1), size)
  assert np.abs(x_adv - x).max() <= float(size) + 1e-6
  assert np.abs(x_adv - x).max() > 0.5 * float(size)
  copies, rows = config.augmentation_multiplicity, []
  for clean, adversarial in zip(x, x_adv):
    rows += [clean] * copies
    rows += [adversarial] * copies if config.adversarial_weight else []
  rows = data.augment(tf.stack(rows), config.augmentation, fold(seed, 2), 0.3)
  return tf.reshape(rows, [len(x), -1, *cases.SHAPE])


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
  method = cases.ready(cases.make(augmentation_stddev=0.3, **changes))
  x, y = cases.arrays(5)
  seed = tf.constant([5, 6])
  found, metrics = method.example_losses((tf.constant(x), tf.constant(y)), seed)
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
  method = cases.ready(
    cases.make(
      noise_multiplier=0.0,
      adversarial_weight=1.5,
      l2_clip_norm=1.15,
      sampler="full_batch",
      learning_rate=0.5,
      physical_batch_size=8,
    ),
    count=8,
  )
  x, y = cases.arrays(8)
  fold = randomness.fold_in
  seed = fold(cases.STEP_SEED, tf.constant(1, tf.int64))
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
  method = cases.ready(cases.make(l2_clip_norm=1e-3, adversarial_weight=1.0))
  x, y = cases.arrays(6)
  whole = method.clipped_gradients((tf.constant(x), tf.constant(y)))
  assert float(whole.clipped) == 6
  for row in range(6):
    mask = tf.one_hot(row, 6)
    part = method.clipped_gradients((tf.constant(x), tf.constant(y)), mask)
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
  method = cases.ready(cases.make(l2_clip_norm=0.05, adversarial_weight=1.0))
  method.network.set_weights([20 * w for w in method.network.get_weights()])
  x, y = map(tf.constant, cases.arrays(6))
  everyone = _flat(method.clipped_gradients((x, y)).gradients)
  moves = []
  for row in range(6):
    mask = 1 - tf.one_hot(row, 6)
    rest = _flat(method.clipped_gradients((x, y), mask).gradients)
    moves.append(np.linalg.norm(everyone - rest))
  bound = method.clipped_gradients.sensitivity("add_or_remove_one")
  assert bound == 0.05
  assert max(moves) <= bound * (1 + 1e-5)
  assert max(moves) > 0.9 * bound


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A row of this network")
def test_every_engine_gives_the_same_sum():
  """With an attack of no size, whose random starts cannot differ."""
  x, y = map(tf.constant, cases.arrays(3))
  found = []
  for engine in gradients.ENGINES:
    method = cases.ready(
      cases.make(engine=engine, adversarial_weight=1.0, max_attack_eps=0.0)
    )
    assert method.clipped_gradients.engine in (engine, "loop")
    found.append(_flat(method.clipped_gradients((x, y)).gradients))
  for other in found[1:]:
    np.testing.assert_allclose(other, found[0], atol=1e-5)


@pytest.mark.usefixtures("one_noise")
def test_without_attack_it_is_dp_sgd_above_a_fixed_layer():
  method = cases.fit(cases.make())
  network = cases.conv_network()
  first = network.layers[0]
  first.set_weights(method.network.layers[0].get_weights())
  first.trainable = False
  names = {f.name for f in dataclasses.fields(methods.DPSGDConfig)}
  settings = dataclasses.asdict(method.config)
  config = methods.DPSGDConfig(**{n: settings[n] for n in names & {*settings}})
  cases.fit(methods.DPSGD(network, config, public_weights="of a test"))
  np.testing.assert_array_equal(
    cases.weights(network), cases.weights(method.network)
  )


@pytest.mark.slow
def test_training_learns_within_its_budget():
  rng = np.random.default_rng(0)
  x = rng.uniform(-1, 1, (1500, *cases.SHAPE)).astype("float32")
  x += np.linspace(-1, 1, 6)[:, None, None] * rng.choice(
    [-1, 1], (1500, 1, 1, 1)
  )
  x = x.clip(-1, 1).astype("float32")
  y = (x[:, :3].mean(axis=(1, 2, 3)) > x[:, 3:].mean(axis=(1, 2, 3))).astype(
    int
  )
  method = cases.make(
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
  method.fit(x, y, value_range=cases.VALUE_RANGE, verbose=0)
  _, accuracy = method.evaluate(x, y, verbose=0)
  assert accuracy > 0.9
  assert method.privacy_statement().proven.dp_epsilon <= 6.0
