"""DPAL's and AdLM's arithmetic: by hand, and the published constants."""

import dataclasses

import pytest

from tf_privrob import papers
from tf_privrob.papers.dpal import functional

MNIST = {
  "input_shape": (28, 28, 1),
  "hidden_shape": (14, 14, 32),
  "kernel_shape": (5, 5, 1, 32),
}
CIFAR10 = {
  "input_shape": (28, 28, 3),
  "hidden_shape": (14, 14, 128),
  "kernel_shape": (4, 4, 3, 128),
}


def noise(**changes):
  """The released MNIST code at a total budget of 2."""
  settings = {
    "reconstruction_sensitivity": 4950.0,
    "label_sensitivity": 512.0,
    "batch_size": 2499,
    "dp_epsilon_features": 1.9,
    "dp_epsilon_labels": 0.1,
    "weight_norm": 0.52,
  }
  return papers.FunctionalNoise(**{**settings, **changes})


# Sensitivities.


@pytest.mark.parametrize(
  ("shapes", "wanted"),
  [(MNIST, (14 * 14 + 2) * 25), (CIFAR10, 3 * (14 * 14 + 2) * 16)],
)
def test_released_reconstruction_sensitivity_golden(shapes, wanted):
  found = papers.reconstruction_sensitivity(
    **shapes, sensitivity="released_code"
  )
  assert found == wanted
  assert wanted in (4950, 9504)


def test_literal_reconstruction_sensitivity_golden():
  found = papers.reconstruction_sensitivity(**MNIST)
  assert found == 784 * (6272 + 2)
  assert found == pytest.approx(4.92e6, rel=1e-3)
  assert found / 4950 == pytest.approx(994, abs=1)


def test_dense_reconstruction_sensitivity_has_one_reading():
  for sensitivity in functional.SENSITIVITIES:
    assert papers.reconstruction_sensitivity(
      (3,), (5,), (3, 5), sensitivity
    ) == 3 * (5 + 2)


def test_label_sensitivities_golden():
  assert papers.label_sensitivity(256) == 512
  assert papers.adlm_label_sensitivity(25, 10) == 1812.5
  # What DPAL's paper compares its 512 with.
  assert papers.adlm_label_sensitivity(256, 10) == 10 * (256 + 256**2 / 4)


def test_adlm_input_sensitivities_golden():
  found = papers.adlm_input_sensitivity((14, 14, 32), (5, 5, 1, 32))
  assert found == 9800
  found = papers.adlm_input_sensitivity((10, 10, 128), (3, 3, 3, 128))
  assert found == 5400
  assert papers.adlm_input_sensitivity((7,), (4, 7)) == 2 * 4 * 7


# Budgets.


def test_hidden_factor_by_hand_and_golden():
  assert papers.hidden_factor(10.0, 5, 2.0) == 2.0
  gamma = papers.hidden_factor(4950, 2499, 0.52)
  assert gamma == pytest.approx(7.6, abs=0.05)
  # "eps_1 / gamma is tiny in practice (about 1e-3)": it is an eighth of eps_1.
  assert 1 / gamma == pytest.approx(0.13, abs=0.005)
  assert papers.hidden_factor(9504, 1851, 0.565) == pytest.approx(18, abs=0.2)


def test_reduced_dp_epsilon_by_hand_and_golden():
  # gamma = 2, gamma_x = 2: 3 / (1 + 1/2 + 1/2).
  assert papers.reduced_dp_epsilon(3.0, 10.0, 5, 2.0) == 1.5
  found = papers.reduced_dp_epsilon(1.0, 4950, 2499, 0.52)
  assert found == pytest.approx(0.611, abs=1e-3)
  found = papers.reduced_dp_epsilon(1.0, 9504, 1851, 0.565)
  assert found == pytest.approx(0.80, abs=5e-3)


def test_reduced_terms_add_up_to_the_budget():
  reduced = papers.reduced_dp_epsilon(1.9, 4950, 2499, 0.52)
  gamma = papers.hidden_factor(4950, 2499, 0.52)
  assert reduced * (1 + 1 / gamma + 2499 / 4950) == pytest.approx(1.9)


@pytest.mark.parametrize(
  ("dp_epsilon_features", "at_input", "at_hidden"),
  [(1.9, 1.71, 3.41), (0.1, 32.4, 64.8)],
)
def test_mnist_scales_golden(dp_epsilon_features, at_input, at_hidden):
  """Totals 2 and 0.2 with 0.1 for the labels."""
  subject = noise(dp_epsilon_features=dp_epsilon_features)
  assert subject.input_scale == pytest.approx(at_input, rel=3e-3)
  assert subject.hidden_scale == pytest.approx(at_hidden, rel=3e-3)
  assert subject.label_scale == pytest.approx(2.05, abs=5e-3)
  assert subject.claimed_dp_epsilon == pytest.approx(dp_epsilon_features + 0.1)


@pytest.mark.parametrize(("dp_epsilon", "wanted"), [(4.0, 1.60), (1.0, 6.4)])
def test_cifar10_scales_golden(dp_epsilon, wanted):
  subject = noise(
    reconstruction_sensitivity=9504.0,
    batch_size=1851,
    dp_epsilon_features=dp_epsilon,
    weight_norm=0.565,
  )
  assert subject.input_scale == pytest.approx(wanted, abs=0.03)


def test_paper_scales_by_hand():
  """Without a weight norm eps_1 stays as it is."""
  subject = noise(
    reconstruction_sensitivity=60.0,
    label_sensitivity=8.0,
    batch_size=10,
    dp_epsilon_features=3.0,
    dp_epsilon_labels=0.5,
    weight_norm=None,
  )
  assert subject.effective_dp_epsilon_features == 3.0
  assert subject.input_scale == 60 / (10 * 3)
  assert subject.hidden_scale == 2 * 60 / (10 * 3)
  assert subject.label_scale == 8 / (10 * 0.5)
  assert subject.claimed_dp_epsilon == 3.5


def test_reduction_makes_the_noise_larger_and_leaves_the_claim():
  plain, reduced = noise(weight_norm=None), noise()
  assert reduced.input_scale > 1.6 * plain.input_scale
  assert reduced.label_scale == plain.label_scale
  assert reduced.claimed_dp_epsilon == plain.claimed_dp_epsilon == 2.0


def test_is_frozen():
  with pytest.raises(dataclasses.FrozenInstanceError):
    noise().batch_size = 1


# Failures.


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (
      lambda: papers.reconstruction_sensitivity(
        **MNIST, sensitivity="relased_code"
      ),
      "Did you mean 'released_code'",
    ),
    (lambda: papers.label_sensitivity(0), "hidden_units=0"),
    (lambda: papers.label_sensitivity(2.5), r"hidden_units=2\.5"),
    (lambda: papers.adlm_label_sensitivity(3, 0), "num_classes=0"),
    (lambda: papers.hidden_factor(0.0, 1, 1.0), r"sensitivity=0\.0 > 0"),
    (lambda: papers.hidden_factor(1.0, 0, 1.0), "batch_size=0"),
    (lambda: papers.hidden_factor(1.0, 1, -1.0), r"weight_norm=-1\.0 > 0"),
    (
      lambda: papers.reduced_dp_epsilon(0.0, 1.0, 1, 1.0),
      r"dp_epsilon=0\.0 > 0",
    ),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()
