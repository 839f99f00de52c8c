"""What is true of DPAL's lemmas; docs/soundness.md has the reasons.

A test shows the failure of a claim on the library's own implementation, or
that the claim holds. Those of Prop. 1 and of psi are in tests/certify, too.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from scipy import stats

from tests.soundness import dpal_runs
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import layers
from tf_privrob import losses
from tf_privrob import mechanisms
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import randomness
from tf_privrob.certify.noise_layer import score_bounds

_layers = tf.keras.layers


def step_score(seed, pieces=12):
  """A random step function to [0, 1]; returns h -> E f(h + Lap(1))."""
  rng = np.random.default_rng(seed)
  ends = np.r_[-np.inf, np.sort(rng.uniform(-3, 3, pieces)), np.inf]
  heights = rng.uniform(0, 1, pieces + 1) ** 4
  return lambda h: heights @ np.diff(stats.laplace.cdf(ends - h))


# Lemma 1: holds.


@pytest.mark.parametrize("seed", range(8))
def test_lemma_1_holds_for_random_scores(seed):
  expected = step_score(seed)
  for x in np.linspace(-4, 4, 17):
    for change in (-1.5, -0.3, 0.3, 1.5):
      bound = math.exp(abs(change)) * expected(x + change)
      assert expected(x) <= bound * (1 + 1e-12)


def test_lemma_1_is_not_idle():
  """f = 1[z > 9]: the ratio is e^change, so no smaller factor would do."""

  def expected(h):
    return stats.laplace.sf(9 - h)

  assert expected(1.0) / expected(0.0) == pytest.approx(math.e)


# Lemma 2: another constant.


def dense_autoencoder(kernel, scale=0.0, form="paper", seed=0):
  layer = _layers.Dense(
    kernel.shape[1],
    use_bias=False,
    kernel_initializer=tf.keras.initializers.Constant(kernel),
  )
  found = papers.FunctionalMechanismAutoencoder(
    layer, scale, 2 * scale, form=form, seed=seed
  )
  found.build((None, len(kernel)))
  return found


def coefficients(autoencoder, x):
  """(1/2 - x) h^T: what theta_1 is multiplied with in Eq. 6, summed over B."""
  h = autoencoder(x, perturb_input=False, perturb_hidden=False).numpy()
  return np.einsum("bj,bk->jk", 0.5 - x, h)


@pytest.mark.parametrize(("inputs", "units"), [(4, 3), (10, 20), (30, 8)])
def test_lemma_2_is_exceeded_by_the_coefficients_of_the_objective(
  inputs, units
):
  """One replaced record moves them by up to 3 d beta, not by d (beta + 2)."""
  kernel = np.zeros([inputs, units], "float32")
  kernel[0] = 1.0  # h = x_1 in every unit
  autoencoder = dense_autoencoder(kernel)
  x = np.full([5, inputs], -1.0, "float32")
  neighbour = x.copy()
  neighbour[2, 0] = 1.0
  change = np.abs(
    coefficients(autoencoder, x) - coefficients(autoencoder, neighbour)
  ).sum()
  assert change == pytest.approx((3 * inputs - 2) * units)
  claimed = papers.reconstruction_sensitivity((inputs,), (units,), kernel.shape)
  assert claimed == inputs * (units + 2)
  assert claimed < change <= 3 * inputs * units
  products = [
    np.einsum(
      "bj,bk->jk", batch, autoencoder.affine(batch)
    )  # x h^T alone, without the 1/2
    for batch in (x, neighbour)
  ]
  assert np.abs(products[0] - products[1]).sum() == 2 * (inputs - 1) * units


@pytest.mark.parametrize("seed", range(3))
def test_lemma_2_holds_with_3_d_beta(seed):
  rng = np.random.default_rng(seed)
  inputs, units = 6, 4
  autoencoder = dense_autoencoder(
    rng.normal(size=(inputs, units)).astype("float32")
  )
  pairs = rng.choice([-1.0, 0.0, 1.0], (2, 400, inputs)).astype("float32")
  parts = []
  for batch in pairs:
    h = autoencoder(batch, perturb_input=False, perturb_hidden=False).numpy()
    parts.append(np.einsum("bj,bk->bjk", 0.5 - batch, h))
  change = np.abs(parts[0] - parts[1]).sum(axis=(1, 2))
  assert change.max() <= 3 * inputs * units
  assert change.max() > inputs * (units + 2) / 2


def test_lemma_2_released_constant_ignores_the_filters():
  """4950 for a 25 x 32 matrix summed over 196 patches: 30 times too small."""
  claimed = papers.reconstruction_sensitivity(
    (28, 28, 1), (14, 14, 32), (5, 5, 1, 32), "released_code"
  )
  kernel = np.zeros([5, 5, 1, 32], "float32")
  kernel[2, 2] = 1.0  # h = the patch's central pixel, in every filter
  layer = _layers.Conv2D(
    32,
    5,
    2,
    "same",
    use_bias=False,
    kernel_initializer=tf.keras.initializers.Constant(kernel),
  )
  autoencoder = papers.FunctionalMechanismAutoencoder(layer, 0.0, 0.0)
  dark = np.full([1, 28, 28, 1], -1.0, "float32")
  bright = dark.copy()
  # "same" pads by 1 before and 2 after: patch (i, j) has its centre at
  # (2 i + 1, 2 j + 1).
  bright[:, 1::2, 1::2] = 1.0
  sums = []
  for image in (dark, bright):
    h = autoencoder(image).numpy().reshape(196, 32)
    patches = tf.image.extract_patches(
      image, [1, 5, 5, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"
    ).numpy()
    sums.append((0.5 - patches.reshape(196, 25)).T @ h)
  change = np.abs(sums[0] - sums[1]).sum()
  assert claimed == 4950
  assert 30 * claimed < change <= 3 * 196 * 25 * 32


# Lemma 3: fails.


def records(count=6, inputs=5, seed=0):
  rng = np.random.default_rng(seed)
  return rng.uniform(-1, 1, (count, inputs)).astype("float32")


def perturb(x, dp_epsilon=0.1, batch_size=300):
  """x_bar of a DPAL model at a claimed total of 0.2."""
  dpal = dpal_runs.method(
    dpal_runs.network(x.shape[1], 4, 3, 2),
    dp_epsilon_features=dp_epsilon,
    batch_size=batch_size,
  )
  x_bar, _ = dpal.autoencoder.autoencode(x)
  return x_bar.numpy()


def test_lemma_3_differences_of_perturbed_inputs_are_exact():
  """x_bar_i - x_bar_j = x_i - x_j, however large the noise."""
  x = records()
  x_bar = perturb(x, batch_size=30)
  assert np.abs(x_bar - x).max() > 5
  np.testing.assert_allclose(x_bar - x_bar[:1], x - x[:1], atol=1e-5)


def test_lemma_3_the_covariance_has_no_noise():
  """The gradient of theta_1 is made of it."""
  x = records(200)
  np.testing.assert_allclose(
    np.cov(perturb(x, batch_size=30).T), np.cov(x.T), atol=1e-5
  )


def test_lemma_3_sums_over_two_batches_differ_exactly():
  """A record is rebuilt from two sums that share the draw."""
  x = records(301)
  canary, batch = x[300], x[:300]
  with_canary = np.r_[batch[:299], [canary]]
  x_bar, other = perturb(batch), perturb(with_canary)
  noise = (x_bar - batch)[0]
  assert np.abs(300 * noise).max() > 50  # on the sum, by Lap(Delta_R / eps_1)
  difference = other.sum(axis=0, dtype=float) - x_bar.sum(axis=0, dtype=float)
  np.testing.assert_allclose(difference + batch[299], canary, atol=1e-4)


def test_lemma_3_holds_for_one_released_sum():
  """What the proof covers: sum x changes by 2 d <= d (beta + 2) at most."""
  inputs, units, dp_epsilon = 5, 4, 0.1
  sensitivity = papers.reconstruction_sensitivity(
    (inputs,), (units,), (inputs, units)
  )
  law = stats.laplace(scale=sensitivity / dp_epsilon)
  sums = np.random.default_rng(0).normal(scale=500, size=(1000, inputs))
  for first, second in ((-np.ones(5), np.ones(5)), records(2)):
    loss = (law.logpdf(sums) - law.logpdf(sums + first - second)).sum(axis=1)
    assert np.abs(loss).max() <= dp_epsilon


# Lemma 4: fails for one draw; another constant for a draw each.


@pytest.mark.parametrize(("inputs", "units"), [(6, 3), (3, 8)])
def test_lemma_4_a_record_moves_the_hidden_layer_by_2_d_norms(inputs, units):
  """Its sensitivity is that of an l1 change of 1, not of a record."""
  theta = np.full([inputs, units], 0.01, "float32")
  autoencoder = dense_autoencoder(theta)
  x = np.full([4, inputs], -1.0, "float32")
  neighbour = np.r_[x[:3], -x[3:]]
  hidden = [
    autoencoder(batch).numpy().astype(float) for batch in (x, neighbour)
  ]
  change = np.abs(hidden[0] - hidden[1]).sum()  # of the set, and of the sum
  columns = np.abs(theta).sum(axis=0).max()
  rows = np.abs(theta).sum(axis=1).max()  # the norm of theta^T from l1 to l1
  assert change == pytest.approx(2 * inputs * rows, rel=1e-5)
  assert change == pytest.approx(2 * units * columns, rel=1e-5)
  assert change > 5 * max(rows, columns)


def test_lemma_4_differences_of_hidden_units_are_exact():
  rng = np.random.default_rng(1)
  theta = rng.normal(scale=0.01, size=(5, 7)).astype("float32")
  autoencoder = dense_autoencoder(theta, scale=5.0)
  x = records()
  hidden = autoencoder(x).numpy()
  assert np.abs(hidden - x @ theta).max() > 5
  np.testing.assert_allclose(
    hidden - hidden[:1], (x - x[:1]) @ theta, atol=1e-5
  )


# Lemma 5: holds, without batch statistics.


def label_coefficients(h, y, classes=4):
  return np.einsum("bj,bk->jk", h, np.eye(classes)[y])


def test_lemma_5_holds_and_is_attained():
  rng = np.random.default_rng(0)
  units, worst = 7, 0.0
  h, y = rng.uniform(-1, 1, (5, units)), rng.integers(0, 4, 5)
  for _ in range(300):
    other, label = h.copy(), y.copy()
    other[3] = rng.choice([-1.0, 1.0], units)
    label[3] = rng.integers(0, 4)
    change = label_coefficients(h, y) - label_coefficients(other, label)
    worst = max(worst, np.abs(change).sum())
  assert worst <= papers.label_sensitivity(units)
  h[3] = 1.0
  other = h.copy()
  other[3] = -1.0
  change = label_coefficients(h, y) - label_coefficients(other, y)
  assert np.abs(change).sum() == papers.label_sensitivity(units)


# Batch statistics: neither Lemma 2 nor Lemma 5 survives them.


def standardized(x, gain=10.0):
  """The released code's hidden unit of a one-dimensional record."""
  autoencoder = dense_autoencoder(
    np.array([[gain]], "float32"), form="released_code"
  )
  hidden = layers.BatchStandardization()(tf.nn.relu(autoencoder.affine(x)))
  return tf.clip_by_value(hidden, -1.0, 1.0).numpy()


def test_batch_statistics_couple_a_batch():
  """One changed record moves the hidden units of all others."""
  x = np.random.default_rng(0).uniform(0.4, 0.6, (99, 1)).astype("float32")
  neighbour = x.copy()
  neighbour[0] = -1.0
  first, second = standardized(x), standardized(neighbour)
  inside = (np.abs(first) < 1) & (np.abs(second) < 1)
  inside[0] = False
  assert inside.sum() > 50
  assert np.abs(first - second)[inside].min() > 1e-3


@pytest.mark.parametrize("count", [100, 1000])
def test_batch_statistics_break_the_sensitivity_of_the_sum(count):
  """sum h moves by a share of the batch; assumed are 2 a hidden unit."""
  x = np.zeros([count, 1], "float32")
  x[: count // 10] = 0.02  # a tenth of the records is a little brighter
  neighbour = x.copy()
  neighbour[-1] = 1.0
  sums = [standardized(batch).sum(dtype=float) for batch in (x, neighbour)]
  assert abs(sums[0] - sums[1]) > count / 20 > 2
  plain = [np.clip(10 * batch, -1, 1).sum() for batch in (x, neighbour)]
  assert abs(plain[0] - plain[1]) <= 2


# Lemma 6: fails.


def mnist_step(label, label_noise=None, seed=0):
  """One step on small images; the classifier's update by layer name."""
  net = models.dpal_mnist((8, 8, 1), 10, seed=seed)
  dpal = dpal_runs.method(
    net, dp_epsilon_features=1e4, batch_size=3, learning_rate=0.1
  )
  if label_noise is not None:
    dpal.label_noise.assign(label_noise * tf.ones_like(dpal.label_noise))
  rng = np.random.default_rng(1)
  x = rng.uniform(-1, 1, (6, 8, 8, 1)).astype("float32")
  y = np.array([label, 1, 2, 3, 4, 5])
  before = [layer.get_weights() for layer in net.layers]
  dpal.train_step((x[:3], y[:3], x[3:], y[3:]))
  after = [layer.get_weights() for layer in net.layers]
  weighted = [i for i, weights in enumerate(before) if weights]
  return {
    name: after[i][0] - before[i][0]
    for name, i in zip(("conv1", "conv2", "fc1", "fc2"), weighted)
  }


def test_lemma_6_label_noise_has_no_gradient_below():
  net = models.dpal_mnist((8, 8, 1))
  kernel = net.layers[-1].kernel
  noise = mechanisms.LaplaceMechanism(1.0, 1.0).sample(kernel.shape, seed=1)
  for form in losses.taylor.NOISE_FORMS:
    with tf.GradientTape() as tape:
      term = losses.label_noise_term(noise, kernel, form)
    gradients = tape.gradient(term, net.trainable_variables)
    reached = [
      variable
      for variable, gradient in zip(net.trainable_variables, gradients)
      if gradient is not None and np.any(gradient)
    ]
    assert [id(variable) for variable in reached] == [id(kernel)]


def test_lemma_6_one_label_moves_the_layers_below_whatever_the_noise():
  """The change of conv2 is the same for chi_3 = 0 and for 1e6."""
  changes = []
  for size in (0.0, 1.0, 1e6):
    first, second = mnist_step(0, size), mnist_step(9, size)
    changes.append({name: second[name] - first[name] for name in first})
  for name in ("conv2", "fc1"):
    assert np.abs(changes[0][name]).max() > 1e-6
    for other in changes[1:]:
      np.testing.assert_array_equal(other[name], changes[0][name])
  assert np.abs(mnist_step(0, 1e6)["fc2"]).min() > 1e4  # the noise is there


def test_lemma_6_below_the_last_kernel_an_update_tells_the_label():
  """Drawn noise on the labels does not even blur it."""
  updates = [mnist_step(label)["conv2"] for label in (0, 9, 0)]
  np.testing.assert_array_equal(updates[0], updates[2])
  assert np.any(updates[0] != updates[1])


def test_lemma_6_one_draw_for_all_classes_hides_no_difference():
  """chi_3 has |h_pi| values in Algorithm 1, the coefficients |h_pi| K."""
  rng = np.random.default_rng(0)
  h, y = rng.uniform(-1, 1, (30, 6)), rng.integers(0, 4, 30)
  exact = label_coefficients(h, y)
  noise = mechanisms.LaplaceMechanism(papers.label_sensitivity(6), 0.1).sample(
    [6, 1], seed=2, dtype=tf.float64
  )
  released = exact + noise.numpy()
  assert np.abs(released - exact).min() > 1
  np.testing.assert_allclose(
    released[:, :1] - released, exact[:, :1] - exact, atol=1e-10
  )


# The total budget without accumulation: fails.


def test_total_budget_two_gradients_cancel_the_label_noise():
  """Their difference is mean h h^T (W - W') / 4: the exact second moments."""
  rng = np.random.default_rng(0)
  h = rng.uniform(-1, 1, (50, 4)).astype("float32")
  y = rng.integers(0, 3, 50)
  noise = mechanisms.LaplaceMechanism(8.0, 0.001).sample([4, 3], seed=3)
  kernels = [np.eye(4, 3, k).astype("float32") for k in (0, -1)]
  gradients = []
  for kernel in kernels:
    kernel = tf.Variable(kernel)
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(losses.taylor_cross_entropy(h @ kernel, y))
      loss += losses.label_noise_term(noise, kernel)
    gradients.append(tape.gradient(loss, kernel).numpy())
  assert np.abs(gradients[0]).max() > 1000
  wanted = (h.T @ h / 50) @ (kernels[0] - kernels[1]) / 4
  found = gradients[0] - gradients[1]
  np.testing.assert_allclose(found, wanted, atol=1e-2)
  assert np.abs(wanted).max() > 5e-2


# Parallel composition: fails for random batches.


def roles(order, num_examples, batch_size, steps):
  sampler = data.FixedBatchSampler(num_examples, batch_size, order)
  benign, sources = set(), set()
  for step in range(steps):
    rows = sampler.indices(randomness.Key.of(0), step)
    assert len(set(rows.tolist())) == 2 * batch_size  # disjoint in one step
    benign.update(rows[:batch_size].tolist())
    sources.update(rows[batch_size:].tolist())
  return benign, sources


def test_parallel_composition_an_example_plays_both_roles():
  benign, sources = roles("random", 60, 15, steps=60)
  assert benign == sources == set(range(60))


@pytest.mark.parametrize(("slices", "shared"), [(22, 0), (27, 27 * 3)])
def test_parallel_composition_holds_in_the_mnist_code_by_accident(
  slices, shared
):
  """22 slices (MNIST) keep their roles for ever, 27 (CIFAR-10) swap them."""
  benign, sources = roles("sequential", 3 * slices + 1, 3, steps=100)
  assert len(benign & sources) == shared


def test_parallel_composition_needs_a_draw_for_each_batch():
  """Both terms carry one chi_3: their difference is exact."""
  rng = np.random.default_rng(4)
  h, y = rng.uniform(-1, 1, (2, 20, 5)), rng.integers(0, 4, (2, 20))
  noise = mechanisms.LaplaceMechanism(10.0, 0.1).sample(
    [5, 4], seed=1, dtype=tf.float64
  )
  exact = [label_coefficients(*batch) for batch in zip(h, y)]
  released = [value + noise.numpy() for value in exact]
  np.testing.assert_allclose(
    released[0] - released[1], exact[0] - exact[1], atol=1e-9
  )


# Lemma 7: holds.


@pytest.mark.parametrize("seed", range(8))
def test_lemma_7_holds_for_products_of_independent_passes(seed):
  """Scores with noise at x, and with noise at h = 2 x, twice as strong."""
  at_input, at_hidden = step_score(seed), step_score(seed + 100)

  def expected(x):  # dp_epsilons 1 a unit at x, 2 / 1.5 a unit at h
    return at_input(x) * at_hidden(2 * x / 1.5)

  for x in np.linspace(-3, 3, 13):
    for change in (-0.7, 0.2, 0.7):
      total = abs(change) * (1 + 2 / 1.5)
      assert expected(x) <= math.exp(total) * expected(x + change) * (1 + 1e-12)


# Theorem 1: holds for expectations, not for the empirical means it names.


def test_theorem_1_holds_for_expectations():
  """p1 > e^(2 r) p2 at x keeps the order within r, for random scores."""
  tried = 0
  for seed in range(40):
    scores = [step_score(seed), step_score(seed + 1000)]
    for x in np.linspace(-3, 3, 25):
      p2, p1 = sorted(score(x) for score in scores)
      top = scores[0] if scores[0](x) == p1 else scores[1]
      other = scores[1] if top is scores[0] else scores[0]
      radius = float(score_bounds.robust_epsilon(p1, p2)) * (1 - 1e-9)
      for change in (-radius, radius):
        tried += 1
        assert top(x + change) >= other(x + change) * (1 - 1e-12)
  assert tried == 2000


def test_theorem_1_fails_for_the_empirical_mean():
  """f = 1[x + N > 0] at the edge: nearly every second sample errs."""
  x = 0.05
  p1, p2 = stats.laplace.sf(-x), stats.laplace.cdf(-x)
  radius = float(score_bounds.robust_epsilon(p1, p2))
  p_moved = stats.laplace.sf(-(x - radius))
  assert p_moved > 0.5  # the expectation keeps its class
  wrong = special.bdtr(1000, 2000, p_moved)  # P(votes for it <= half)
  assert wrong > 0.4  # Ê of 2000 draws at x + alpha does not


# Proposition 1 and Eq. 16: fail.


@pytest.mark.parametrize("kappa", [0.1, 0.5])
def test_proposition_1_multiplies_where_it_must_divide(kappa):
  """Lap(kappa Delta / eps_r) is eps_r / kappa-DP, not kappa eps_r."""
  sensitivity, robust_epsilon = 2.0, 1.0
  law = stats.laplace(scale=kappa * sensitivity / robust_epsilon)
  ratio = law.logsf(9 - sensitivity) - law.logsf(9)
  assert ratio == pytest.approx(robust_epsilon / kappa)
  assert ratio > 1.9 * kappa * robust_epsilon


def test_equation_16_kappa_is_a_multiple_of_mu():
  """kappa mu is the size; kappa is compared with mu."""
  scale, robust_epsilon = 1.71, 1.0
  sizes = []
  for mu in (0.05, 0.1, 0.5):
    sensitivity = papers.input_sensitivity(mu, 784)
    sizes.append(robust_epsilon * scale / sensitivity)
  true_radius = certify.SingleLayerCertificate(scale, rule="pure_dp").radius(
    math.exp(2 * robust_epsilon) * 0.1, 0.1, 784
  )
  np.testing.assert_allclose(
    np.multiply(sizes, (0.05, 0.1, 0.5)), true_radius, rtol=1e-6
  )
  assert sizes[0] / true_radius == pytest.approx(20)  # over-claim of 1 / mu


def test_equation_16_input_sensitivity_forgets_channels():
  change = np.full([28, 28, 3], 0.1)  # within linf(0.1)
  assert np.abs(change).sum() == pytest.approx(
    3 * papers.input_sensitivity(0.1, 28 * 28)
  )


def test_equation_16_hidden_sensitivity_is_no_bound():
  """One change within linf(1) moves h by 1217, whichever way theta_1 is read.

  sqrt(beta) times a row norm, for the positions and for the units: of the
  kernel's taps 23 and 130, of its filters 18 and 100, of the 784 x 6272 matrix
  171 and 967. The released code's size is 100.
  """
  layer = models.dpal_mnist(seed=0).layers[0]
  change = np.random.default_rng(0).choice([-1.0, 1.0], (1, 28, 28, 1))
  change = tf.Variable(change.astype("float32"))
  for _ in range(10):  # ascent by signs
    with tf.GradientTape() as tape:
      moved = tf.nn.conv2d(change, layer.kernel, 2, "SAME")
      size = tf.reduce_sum(tf.abs(moved))
    change.assign(tf.sign(tape.gradient(size, change)))
  assert float(size) == pytest.approx(1217, abs=1)
  kernel = layer.kernel.numpy()
  filters = _layers.Dense(25)
  filters.build((None, 32))
  filters.kernel.assign(kernel.reshape(25, 32).T)
  readings = {
    "kernel": papers.paper_hidden_sensitivity(layer, 1),
    "filters": papers.paper_hidden_sensitivity(filters, 1),
    "matrix": papers.paper_hidden_sensitivity(layer, 1, "matrix"),
  }
  found = {
    name: [round(math.sqrt(units) * norm) for units in (196, 6272)]
    for name, norm in readings.items()
  }
  assert found == {
    "kernel": [23, 130],
    "filters": [18, 100],
    "matrix": [171, 967],
  }
  released = papers.released_hidden_sensitivity(kernel, 196)
  assert round(released) == 100
  bound = certify.linear_map(layer, (28, 28, 1)).norms().bound("linf", "l1")
  assert float(size) <= bound  # what `linear_norms` computes is one


# Appendix J: fails.


def test_appendix_j_the_limit_is_not_the_noise_free_score():
  """n draws of Lap(b / psi) average f, not its argument."""
  scale, psi, x = 1.71, 2.0, 0.1  # x stands for x + chi_1
  law = stats.laplace(scale=scale / psi)
  draws = law.rvs(200_000, random_state=0)
  estimate = np.mean(x + draws > 0)
  assert estimate == pytest.approx(law.sf(-x), abs=5e-3)
  assert estimate < 0.6  # where the noise-free score is 1


@pytest.mark.parametrize("psi", [2.0, 10.0])
def test_appendix_j_the_ratio_is_that_of_the_smaller_noise(psi):
  """E f moves by e^(psi r / b), not by e^(r / b)."""
  scale, radius = 1.0, 0.5
  law = stats.laplace(scale=scale / psi)
  ratio = law.logsf(2 - radius) - law.logsf(2)
  assert ratio == pytest.approx(psi * radius / scale)


# Copied channels: the mechanism at x has no finite budget.


@pytest.mark.parametrize("fixed", [True, False])
def test_copied_noise_leaves_chroma_a_point_mass(fixed):
  layer = layers.LaplaceNoise(1.6, fixed=fixed, copied_channels=True)
  x = np.random.default_rng(0).uniform(-1, 1, (40, 6, 6, 3)).astype("float32")
  noisy = layer(x).numpy()
  assert np.abs(noisy - x).max() > 4
  for direction in ([1, -1, 0], [1, 1, -2]):
    np.testing.assert_allclose(noisy @ direction, x @ direction, atol=1e-5)
  separate = layers.LaplaceNoise(1.6, fixed=fixed)(x).numpy()
  assert np.std((separate - x) @ [1, -1, 0]) == pytest.approx(3.2, rel=0.2)


def test_copied_noise_does_not_mask_a_chroma_perturbation():
  """Size 0.01, 160 times below the noise: told apart in every draw."""
  layer = layers.LaplaceNoise(1.6, fixed=False, copied_channels=True)
  x = tf.zeros([1000, 4, 4, 3])
  change = 0.01 * tf.constant([1.0, -1.0, 0.0])
  clean, attacked = layer(x), layer(x + change)

  def score(images):
    return np.mean(images[..., 0] - images[..., 1], axis=(1, 2))

  assert score(clean.numpy()).max() < 0.01 < score(attacked.numpy()).min()


# AdLM's bound on the whole Taylor loss: holds, but the noise covers a part.


def taylor_coefficients(h, label, classes):
  """Of W: h (1/2 - y_k), and h h^T / 8 for every class."""
  linear = np.outer(h, 0.5 - np.eye(classes)[label])
  quadratic = np.repeat(np.outer(h, h)[None] / 8, classes, axis=0)
  return np.r_[linear.ravel(), quadratic.ravel()]


def test_adlm_label_sensitivity_holds():
  rng = np.random.default_rng(0)
  units, classes, largest = 5, 3, 0.0
  for _ in range(500):
    h = rng.choice([-1.0, 0.0, 1.0], (2, units))
    label = rng.integers(0, classes, 2)
    parts = [taylor_coefficients(*p, classes) for p in zip(h, label)]
    largest = max(largest, np.abs(parts[0] - parts[1]).sum())
  bound = papers.adlm_label_sensitivity(units, classes)
  assert bound / 3 < largest <= bound


def test_dpal_leaves_out_the_term_that_adlm_counts():
  """512 against 166,400 at |h| = 256: not tighter, but of another query."""
  ours = papers.label_sensitivity(256)
  theirs = papers.adlm_label_sensitivity(256, 10)
  assert theirs / ours == pytest.approx(325)
  h, zeros = np.ones(256), np.zeros(256)
  whole = [taylor_coefficients(part, 0, 10) for part in (h, zeros)]
  assert np.abs(whole[0] - whole[1]).sum() > 100 * ours


def test_dpal_claims_the_sum_and_proves_nothing():
  statement = dpal_runs.method(
    dpal_runs.network(2, 3, 2, 3)
  ).privacy_statement()
  assert statement.claimed.dp_epsilon == pytest.approx(0.2)
  assert statement.proven is None
