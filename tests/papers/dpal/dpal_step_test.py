"""DPAL step by step: objectives, noise and attacks of both variants."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.papers.dpal import dpal_cases as cases
from tf_privrob import models
from tf_privrob import papers

_layers = tf.keras.layers


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"adversarial_weight": 0.0},
    {"attack_steps": 6, "max_attack_eps": 0.9},
    {"weight_decay": 0.3, "adversarial_weight": 3.0},
    cases.RELEASED,
  ],
  ids=["paper", "no adversarial", "long attacks", "weights", "released"],
)
def test_steps_are_those_of_a_naive_implementation(changes):
  method = cases.make(**changes)
  naive = cases.Naive(method)
  cases.ready(method)
  start = cases.weights(method)
  for step in range(3):
    batch = cases.pair(step)
    cases.begin_step(method, step)
    found = method.train_step(batch)
    size, features, loss = naive.step(batch, step)
    assert float(found["nonprivate/attack_eps"]) == pytest.approx(size)
    assert float(found["nonprivate/reconstruction"]) == pytest.approx(
      features, rel=1e-4
    )
    assert float(found["nonprivate/loss"]) == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(
      cases.weights(method), naive.weights(), atol=2e-5
    )
  assert np.abs(cases.weights(method) - start).max() > 1e-2


def test_dense_first_layer_behind_a_flatten():
  method = cases.make(cases.flat_network())
  naive = cases.Naive(method)
  cases.ready(method)
  for step in range(2):
    cases.begin_step(method, step)
    method.train_step(cases.pair(step))
    naive.step(cases.pair(step), step)
    np.testing.assert_allclose(
      cases.weights(method), naive.weights(), atol=2e-5
    )


@pytest.mark.parametrize(
  "changes", [{}, cases.RELEASED], ids=["paper", "released"]
)
def test_logits_are_those_of_a_naive_implementation(changes):
  method = cases.make(**changes)
  x, _ = cases.arrays(5)
  np.testing.assert_allclose(
    method(x), cases.Naive(method).logits(x), atol=1e-5
  )


def test_features_are_trained_by_adam_and_the_rest_as_asked():
  method = cases.make()
  method.simulate(24, cases.VALUE_RANGE)
  assert isinstance(method.feature_optimizer, tf.keras.optimizers.Adam)
  assert float(method.feature_optimizer.learning_rate) == pytest.approx(0.01)
  assert isinstance(method.optimizer, tf.keras.optimizers.Adam)
  plain = cases.make(optimizer="sgd")
  plain.compile()
  assert isinstance(plain.optimizer, tf.keras.optimizers.SGD)


def test_the_label_noise_has_no_gradient_below_the_last_kernel():
  """Soundness of Lemma 6: labels reach the layers below without any noise."""

  def after(scale):
    method = cases.ready(cases.make())
    method.label_noise.assign(scale * method.label_noise)
    method.train_step(cases.pair())
    return method.network.get_weights()

  quiet, loud = after(0.0), after(1000.0)
  for i, (a, b) in enumerate(zip(quiet, loud)):
    assert np.array_equal(a, b) == (i != 4)  # the last kernel


# What the released code does in another way.


@pytest.mark.parametrize(
  ("changes", "noisy"), [({}, True), (cases.RELEASED, False)]
)
def test_adversarial_examples_carry_input_noise_in_the_paper_only(
  changes, noisy
):
  """What x_adv adds to the loss of the features does not see chi_1, or does."""
  method = cases.ready(cases.make(**changes))
  method.feature_optimizer = tf.keras.optimizers.SGD(0.0)
  x, _, first, _ = cases.pair()
  noise = method.autoencoder.input_noise.noise
  differences = []
  for level in (0.0, 0.5):
    noise.assign(tf.fill(noise.shape, level))
    terms = [float(method.train_features(x, x_adv)) for x_adv in (first, x)]
    differences.append(terms[0] - terms[1])
  same = differences[0] == pytest.approx(differences[1], abs=1e-4)
  assert same != noisy


def test_released_attacks_meet_another_draw_and_no_feature_noise():
  """They are crafted against a stand-in that is never deployed."""
  method = cases.ready(cases.make(**cases.RELEASED))
  sources = cases.pair()[2]
  _, crafted = method.craft(sources)
  method.autoencoder.input_noise.noise.assign_add(
    5 * tf.ones_like(method.autoencoder.input_noise.noise)
  )
  method.autoencoder.hidden_noise.noise.assign_add(
    5 * tf.ones_like(method.autoencoder.hidden_noise.noise)
  )
  np.testing.assert_array_equal(method.craft(sources)[1], crafted)
  flip = tf.reshape(tf.range(36.0) % 2, [1, *cases.SHAPE]) * 2 - 1
  method.crafting_noise.noise.assign(flip)
  assert (method.craft(sources)[1].numpy() != crafted.numpy()).any()


def test_the_papers_attacks_meet_the_network_as_deployed():
  method = cases.ready(cases.make())
  assert not method.crafting_noise.noise.numpy().any()
  sources = cases.pair()[2]
  _, crafted = method.craft(sources)
  flip = tf.reshape(tf.range(36.0) % 2, [1, *cases.SHAPE]) * 2 - 1
  method.autoencoder.input_noise.noise.assign(flip)
  assert (method.craft(sources)[1].numpy() != crafted.numpy()).any()


def test_stand_in_leaves_the_standardisation_in_place():
  method = cases.ready(cases.make(**cases.RELEASED))
  before = method(cases.arrays()[0]).numpy()
  method.craft(cases.pair()[2])
  np.testing.assert_array_equal(method(cases.arrays()[0]), before)


def test_standardisation_comes_back_when_an_attack_fails(monkeypatch):
  method = cases.ready(cases.make(**cases.RELEASED))
  before = method(cases.arrays()[0]).numpy()

  def broken(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(method, "training_attacks", [broken] * 3)
  with pytest.raises(KeyboardInterrupt):
    method.craft(cases.pair()[2])
  np.testing.assert_array_equal(method(cases.arrays()[0]), before)


def test_released_cifar10_noise_is_a_penalty_and_the_mean_is_over_classes():
  method = cases.ready(
    cases.make(label_noise="released_cifar10", adversarial_weight=0)
  )
  naive = cases.Naive(method)
  x, y, _, _ = cases.pair()
  last = method.network.layers[-1].kernel
  start = last.numpy()
  with tf.GradientTape() as tape:
    loss = naive.label_loss(naive.logits(x), y) / cases.CLASSES
    kernel = naive.theta_2[2]
    total = loss + tf.reduce_mean(tf.abs(naive.chi_3 * kernel))
  expected = tape.gradient(total, kernel)
  found = method.train_classifier(x, y, x, y)
  assert float(found["nonprivate/loss"]) == pytest.approx(float(loss), rel=1e-5)
  np.testing.assert_allclose((start - last.numpy()) / 0.05, expected, atol=1e-4)


def test_the_rate_of_the_paper_is_that_of_a_loss_summed_over_classes():
  """Its step is the code's, whose 5e-2 goes with the mean over K classes."""
  presets = papers.DPALConfig.presets()
  steps = {}
  for name in ("cifar10_paper", "cifar10_released"):
    network = models.by_name("dpal_cifar10_narrow", (28, 28, 3), 10, seed=0)
    config = dataclasses.replace(
      presets[name],
      variant="paper",
      copied_channels=False,
      dp_epsilon_features=1e6,  # which leaves the units within their bound
      batch_size=3,
      attack_steps=1,
      seed=1,
    )
    method = papers.DPAL(network, config)
    method.compile()
    method.simulate(24, cases.VALUE_RANGE)
    cases.begin_step(method, 0)
    method.label_noise.assign(tf.zeros_like(method.label_noise))
    x = np.random.default_rng(0).uniform(-1, 1, (3, 28, 28, 3)).astype("f")
    y = np.array([1, 5, 9])
    before = [weight.numpy() for weight in network.trainable_weights[2:]]
    method.train_classifier(x, y, x[::-1], y)
    after = [weight.numpy() for weight in network.trainable_weights[2:]]
    steps[name] = [b - a for a, b in zip(before, after)]
  for paper, code in zip(*steps.values()):
    assert np.abs(code).max() > 0
    np.testing.assert_allclose(paper, code, rtol=1e-4, atol=1e-8)


# Augmentation.


def test_both_batches_are_augmented_anew_in_every_step(monkeypatch):
  """Before any noise, and with draws that no two batches share."""
  method = cases.ready(cases.make(augmentation="shift_flip"))
  seen = []

  def seeing(name):
    whole = getattr(method, name)

    def spy(*args):
      seen.append((name, [np.asarray(a) for a in args]))
      return whole(*args)

    monkeypatch.setattr(method, name, spy)

  seeing("craft")
  seeing("train_classifier")
  batch = cases.pair()
  for step in range(2):
    cases.begin_step(method, step)
    method.train_step(batch)
  sources = [args[0] for name, args in seen if name == "craft"]
  benign = [args[0] for name, args in seen if name != "craft"]
  for found, image in ((sources, batch[2]), (benign, batch[0])):
    assert (found[0] != image.numpy()).any()
    assert (found[0] != found[1]).any()
  # The same image would be moved otherwise in the other batch.
  x, y = batch[0], batch[1]
  seen.clear()
  method.train_step((x, y, x, y))
  assert (seen[0][1][0] != seen[1][1][0]).any()


# Scales of the draws.


def test_scales_of_the_paper_by_hand():
  noise = cases.make().noise
  # A patch of 9, 3 x 3 positions; 5 hidden units.
  assert noise.input_scale == pytest.approx(9 * (9 + 2) / (6 * 200))
  assert noise.hidden_scale == pytest.approx(2 * noise.input_scale)
  assert noise.label_scale == pytest.approx(2 * 5 / (6 * 5.0))
  literal = cases.make(sensitivity="paper").noise
  assert literal.input_scale == pytest.approx(36 * (18 + 2) / (6 * 200))


def test_scales_of_the_released_code_are_golden():
  """Facts 1.5: b = 1.71, 3.41 and 2.05 on MNIST at a total of 2."""
  config = papers.DPALConfig.presets()["mnist_released"]
  network = models.by_name("dpal_mnist_released", (28, 28, 1), 10)
  noise = papers.DPAL(network, config).noise
  assert noise.reconstruction_sensitivity == 4950
  assert noise.input_scale == pytest.approx(1.71, rel=0.02)
  assert noise.hidden_scale == pytest.approx(3.41, rel=0.02)
  assert noise.label_scale == pytest.approx(2.05, rel=0.01)
  shrunk = noise.effective_dp_epsilon_features / noise.dp_epsilon_features
  assert shrunk == pytest.approx(0.611, rel=0.02)


def test_released_code_spends_less_of_the_feature_budget():
  """eps_1' = eps_1 / (1 + m s / (2 Delta) + m / Delta), Delta = 99, m = 6."""
  kernel = tf.keras.initializers.GlorotUniform(seed=0)([3, 3, 1, 2])
  norm = np.linalg.norm(np.reshape(kernel, [9, 2]), 2)
  method = cases.make(**cases.RELEASED)
  factor = 1 + 6 * norm / (2 * 99) + 6 / 99
  expected = 99 / (6 * 200) * factor
  assert method.noise.input_scale == pytest.approx(expected)
  assert cases.make().noise.input_scale == pytest.approx(99 / (6 * 200))


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
def test_draws_have_the_law_of_their_scales(factor, accepted):
  network = tf.keras.Sequential(
    [
      _layers.Input((60, 60, 1)),
      _layers.Conv2D(4, 5, 2, "same", activation="relu"),
      _layers.AveragePooling2D(15),
      _layers.Flatten(),
      _layers.Dense(400, "tanh"),
      _layers.Dense(10),
    ]
  )
  method = papers.DPAL(
    network, dataclasses.replace(cases.BASE, variant="released_code", seed=5)
  )
  noise = method.noise
  scales = (noise.input_scale, noise.hidden_scale, noise.label_scale)
  for draw, scale in zip(cases.draws(method), (*scales, noise.input_scale)):
    p_value = stats.kstest(draw.ravel() / (factor * scale), "laplace").pvalue
    assert (p_value > 1e-3) == accepted


def test_draws_are_independent_of_each_other():
  method = cases.make(**cases.RELEASED)
  benign, _, _, crafting = cases.draws(method)
  assert (benign != crafting).all()
  ratio = cases.draws(method)[1].ravel()[:18] / benign.ravel()[:18]
  assert ratio.std() > 0.1 * abs(ratio.mean())


def test_copied_channels_leave_colour_without_noise():
  network = tf.keras.Sequential(
    [
      _layers.Input((6, 6, 3)),
      _layers.Conv2D(2, 3, 2, "same", activation="relu"),
      _layers.Flatten(),
      _layers.Dense(5, "tanh"),
      _layers.Dense(cases.CLASSES),
    ]
  )
  draw = cases.draws(cases.make(network, copied_channels=True))[0]
  assert draw.shape == (1, 6, 6, 3)
  np.testing.assert_array_equal(draw[..., 0], draw[..., 2])
  assert (cases.draws(cases.make(network))[0][..., 0] != draw[..., 0]).any()


# Crafting.


def test_crafted_examples_stay_in_ball_and_range():
  method = cases.ready(cases.make(attack_steps=3, max_attack_eps=0.9))
  craft = tf.function(method.craft)
  sources = cases.pair()[2]
  reached = []
  for step in range(12):
    cases.begin_step(method, step)
    size, x_adv = (t.numpy() for t in craft(sources))
    assert 0 <= size < 0.9
    assert x_adv.min() >= -1
    assert x_adv.max() <= 1
    gap = np.abs(x_adv - sources).max(axis=(1, 2, 3))
    assert (gap <= size + 1e-6).all()
    reached.append(gap / size)
  assert np.median(reached) > 0.9
  assert craft.experimental_get_tracing_count() == 1


def test_each_attack_has_its_third_and_its_seed():
  method = cases.ready(cases.make())
  names = [type(attack).__name__ for attack in method.training_attacks]
  assert names == ["BIM", "MIM", "PGD"]
  seen = []

  def fake(number):
    def attack(logits_fn, x, y, seed, size):
      seen.append((tuple(seed.numpy()), y, float(size)))
      return x + number

    return attack

  method.training_attacks = [fake(number) for number in range(3)]
  sources = cases.pair()[2]
  size, x_adv = method.craft(sources)
  moved = (x_adv - sources).numpy().mean(axis=(1, 2, 3))
  np.testing.assert_allclose(moved, [0, 0, 1, 1, 2, 2], atol=1e-6)
  cases.begin_step(method, 1)
  method.craft(sources)
  assert len({seed for seed, _, _ in seen}) == 6
  assert {labels for _, labels, _ in seen} == {None}
  assert [each for _, _, each in seen[:3]] == [float(size)] * 3


def test_attack_size_is_uniform():
  method = cases.ready(cases.make(max_attack_eps=0.8, attack_steps=1))
  craft = tf.function(lambda: method.craft(cases.pair()[2])[0])
  sizes = []
  for step in range(400):
    cases.begin_step(method, step)
    sizes.append(float(craft()))
  assert stats.kstest(np.array(sizes) / 0.8, "uniform").pvalue > 1e-3
  for wrong in (0.8 * 2 / 3, 0.8 * 1.5):
    assert stats.kstest(np.array(sizes) / wrong, "uniform").pvalue < 1e-6


def test_adversarial_examples_keep_the_true_label():
  """Attacks leave the network's own label, training returns to the true one."""
  method = cases.ready(cases.make(adversarial_weight=1e6, max_attack_eps=1e-6))
  x, y, sources, y_adv = cases.pair()
  first = method.train_step((x, y, sources, y_adv))["nonprivate/loss"]
  method = cases.ready(cases.make(adversarial_weight=1e6, max_attack_eps=1e-6))
  other = method.train_step((x, y, sources, (y_adv + 1) % 3))["nonprivate/loss"]
  assert float(first) != pytest.approx(float(other), rel=1e-3)
