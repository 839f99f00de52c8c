from __future__ import annotations

import math

import dp_accounting
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests import foreign
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob.privacy import accounting

_ROW_1 = (1.1, 256 / 60000, 14062)
_LAPLACE = privacy.Release("input", dp_accounting.LaplaceDpEvent(2.0))


@pytest.mark.parametrize(
  ("run", "rdp", "pld"),
  [
    (_ROW_1, 2.5966, 2.3817),
    ((1.3, 250 / 60000, 3600), 0.9422, 0.8530),
    ((1.5, 0.04, 2250), 7.3293, 6.7688),
  ],
)
def test_golden(run, rdp, pld):
  found = privacy.figures(privacy.poisson_sgd(*run), 1e-5)
  assert found.rdp == pytest.approx(rdp, abs=3e-4)
  assert found.pld == pytest.approx(pld, abs=6e-5)
  assert (found.rdp_route, found.pld_route) == ("rdp", "pld")
  for accountant in ("rdp", "pld"):
    alone = privacy.dp_epsilon(privacy.poisson_sgd(*run), 1e-5, accountant)
    assert alone == found.of(accountant)


def test_figure_that_opacus_pins():
  found = privacy.dp_epsilon(privacy.poisson_sgd(1.5, 0.04, 2250), 1e-5, "rdp")
  assert found == pytest.approx(7.32911117143, abs=1e-9)


def test_parity_with_tf_privacy():
  lib = pytest.importorskip(
    "tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib"
  )
  text = lib.compute_dp_sgd_privacy_statement(
    number_of_examples=60000,
    batch_size=250,
    num_epochs=15,
    noise_multiplier=1.3,
    delta=1e-5,
    used_microbatching=False,
    accountant_type=lib.AccountantType.PLD,
  )
  poisson = privacy.dp_epsilon(
    privacy.poisson_sgd(1.3, 250 / 60000, 3600), 1e-5
  )
  once = privacy.dp_epsilon(privacy.shuffled_sgd(1.3, 15, "zero_out"), 1e-5)
  assert (
    f"Poisson sampling (*):  {poisson:26.3f}".split()
    == next(
      line for line in text.splitlines() if "Poisson sampling (*):" in line
    ).split()[2:]
  )
  assert f"{once:.3f}" in text
  old, _ = lib.compute_dp_sgd_privacy(60000, 250, 1.3, 15, 1e-5)
  rdp = privacy.dp_epsilon(
    privacy.poisson_sgd(1.3, 250 / 60000, 3600), 1e-5, "rdp"
  )
  assert rdp == pytest.approx(old, rel=2e-2)  # Other orders, the same curve.


def test_mechanisms_of_one_model_compose():
  found = privacy.figures([_LAPLACE, privacy.poisson_sgd(*_ROW_1)], 1e-5)
  assert found.pld == pytest.approx(2.7897, abs=6e-5)
  assert found.rdp == pytest.approx(3.0071, abs=6e-5)
  assert found.pld_route == "pld"


def test_pure_terms_are_added():
  both = [
    privacy.Release("coefficients", dp_epsilon=0.25, count=2),
    privacy.poisson_sgd(*_ROW_1),
  ]
  found = privacy.figures(both, 1e-5)
  assert found.pld == pytest.approx(2.3817 + 0.5, abs=6e-5)
  assert found.rdp == pytest.approx(2.5966 + 0.5, abs=6e-5)
  assert found.pld_route == "pld + analytic"


def test_pure_only():
  terms = [_LAPLACE, privacy.Release("x", dp_epsilon=0.25, count=3)]
  at_zero = privacy.figures(terms, 0.0)
  assert at_zero.rdp == at_zero.pld == pytest.approx(1.25)
  assert at_zero.pld_route == "analytic"
  # The trap: the library itself knows nothing finite at dp_delta = 0.
  library = dp_accounting.pld.PLDAccountant().compose(_LAPLACE.event)
  assert library.get_epsilon(0) == math.inf
  assert privacy.figures(_LAPLACE, 1e-5).pld == pytest.approx(
    0.5 + 2 * math.log1p(-1e-5), abs=1e-6
  )
  assert privacy.figures(privacy.poisson_sgd(*_ROW_1), 0.0).pld == math.inf


def test_sampled_laplace_is_amplified():
  event = dp_accounting.PoissonSampledDpEvent(0.1, _LAPLACE.event)
  expected = math.log(1 + 0.1 * (math.exp(0.5) - 1))
  found = privacy.figures(privacy.Release("x", event, count=4), 0.0)
  assert found.rdp == found.pld == pytest.approx(4 * expected)


def test_composition_is_flattened_and_merged():
  gauss = dp_accounting.GaussianDpEvent(4.0)
  nested = dp_accounting.ComposedDpEvent(
    [
      dp_accounting.SelfComposedDpEvent(gauss, 3),
      dp_accounting.NoOpDpEvent(),
      dp_accounting.PoissonSampledDpEvent(1.0, gauss),
    ]
  )
  exact = mechanisms.gaussian_dp_epsilon(4.0 / math.sqrt(8), 1e-5)
  assert privacy.dp_epsilon(
    privacy.Release("x", nested, count=2), 1e-5
  ) == pytest.approx(exact, rel=1e-4)
  sampled = dp_accounting.PoissonSampledDpEvent(0.1, nested)
  single = dp_accounting.PoissonSampledDpEvent(
    0.1, dp_accounting.GaussianDpEvent(2.0)
  )
  assert privacy.figures(sampled, 1e-5) == privacy.figures(single, 1e-5)
  assert privacy.dp_epsilon([], 1e-5) == 0.0


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
  noise=st.floats(0.9, 8.0),
  prob=st.floats(1e-3, 0.1),
  steps=st.integers(10, 500),
)
def test_monotone_and_rdp_is_looser(noise, prob, steps):
  def cost(noise, prob, steps):
    return privacy.figures(privacy.poisson_sgd(noise, prob, steps), 1e-5)

  base = cost(noise, prob, steps)
  assert base.rdp >= base.pld * (1 - 1e-3)
  longer, oftener = cost(noise, prob, 2 * steps), cost(noise, 1.5 * prob, steps)
  noisier = cost(1.5 * noise, prob, steps)
  for accountant in ("pld", "rdp"):
    here = base.of(accountant)
    assert longer.of(accountant) > here
    assert oftener.of(accountant) > here
    assert noisier.of(accountant) < here


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (5.0, 40), (0.2, 3)])
def test_full_batch_is_the_analytic_gaussian(noise, steps):
  exact = mechanisms.gaussian_dp_epsilon(noise / math.sqrt(steps), 1e-5)
  found = privacy.dp_epsilon(privacy.poisson_sgd(noise, 1.0, steps), 1e-5)
  assert exact <= found <= exact * (1 + 1e-3)


def test_small_losses_get_a_fine_grid():
  run = privacy.poisson_sgd(30.0, 1e-3, 10**5)
  coarse = dp_accounting.pld.PLDAccountant().compose(run.event, 10**5)
  found = privacy.figures(run, 1e-5)
  assert found.pld < found.rdp < coarse.get_epsilon(1e-5)


def test_shuffled_batches_by_hand():
  shifts = {"zero_out": 1.0, "replace_one": 2.0, "add_or_remove_one": 5**0.5}
  for relation, shift in shifts.items():
    found = privacy.dp_epsilon(privacy.shuffled_sgd(4.0, 9, relation), 1e-5)
    exact = mechanisms.gaussian_dp_epsilon(4.0 / (3 * shift), 1e-5)
    assert found == pytest.approx(exact, rel=1e-3)


def test_group_privacy():
  run = privacy.poisson_sgd(*_ROW_1)
  single = privacy.dp_epsilon(run, 1e-5)
  assert privacy.group_dp_epsilon(run, 1e-5, 1) == pytest.approx(single)
  pair = privacy.group_dp_epsilon(run, 1e-5, 2)
  assert 2 * single < pair < 3 * single
  half = pair / 2
  dp_delta = _delta(run, half)
  assert dp_delta * (1 + math.exp(half)) == pytest.approx(1e-5, rel=5e-3)
  # A direct accounting of the pair, where there is one, is below.
  gauss = privacy.poisson_sgd(8.0, 1.0, 10)
  direct = privacy.dp_epsilon(privacy.poisson_sgd(4.0, 1.0, 10), 1e-5)
  assert direct < privacy.group_dp_epsilon(gauss, 1e-5, 2) < 2 * direct
  assert privacy.group_dp_epsilon(run, 1e-5, 10**4) == math.inf


def _delta(run, dp_epsilon):
  pld = dp_accounting.pld.PLDAccountant()
  return pld.compose(run.event, run.count).get_delta(dp_epsilon)


def test_group_parity_with_tf_privacy():
  lib = pytest.importorskip(
    "tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib"
  )
  expected = foreign.user_privacy(
    lib, 15, 1.3, 1e-5, 2, False, 250 / 60000, lib.AccountantType.RDP
  )
  run = privacy.poisson_sgd(1.3, 250 / 60000, 3600)
  found = privacy.group_dp_epsilon(run, 1e-5, 2, "rdp")
  assert found == pytest.approx(expected, rel=1e-3)


def test_no_noise_has_no_bound():
  silent = dp_accounting.GaussianDpEvent(0.0)
  for event in (
    silent,
    dp_accounting.LaplaceDpEvent(0.0),
    dp_accounting.PoissonSampledDpEvent(0.5, silent),
    dp_accounting.NonPrivateDpEvent(),
  ):
    found = privacy.figures([_LAPLACE, event], 1e-5)
    assert found.rdp == found.pld == math.inf, event


def test_unsupported_event_names_the_accountant():
  event = dp_accounting.UnsupportedDpEvent()
  assert privacy.figures(event, 1e-5).pld == math.inf
  with pytest.raises(ValueError, match="'pld' has no bound for Unsupported"):
    privacy.dp_epsilon(event, 1e-5)
  with pytest.raises(ValueError, match=r"'replace_one'.*group_dp_epsilon"):
    privacy.dp_epsilon(
      privacy.poisson_sgd(*_ROW_1), 1e-5, neighbouring="replace_one"
    )


def test_event_that_cannot_be_hashed():
  event = dp_accounting.SampledWithoutReplacementDpEvent(
    1000,
    10,
    dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(2.0)]),
  )
  found = privacy.figures(event, 1e-5, "replace_one")
  assert 0 < found.rdp < math.inf
  assert found.pld == math.inf


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: privacy.dp_epsilon([], 1e-5, "pdl"), "Did you mean 'pld'"),
    (lambda: privacy.dp_epsilon([], 1.0), "0 < dp_delta=1.0 < 1"),
    (lambda: privacy.figures([], -1e-5), "dp_delta"),
    (lambda: privacy.figures([], 0.1, "replace"), "Did you mean 'replace_one'"),
    (lambda: privacy.Release("x"), "an event or a pure dp_epsilon"),
    (lambda: privacy.poisson_sgd(1.0, 0.0, 5), "sampling_prob=0.0"),
    (lambda: privacy.poisson_sgd(-1.0, 0.5, 5), "noise_multiplier=-1.0"),
    (lambda: privacy.poisson_sgd(1.0, 0.5, 1.5), "count=1.5"),
    (lambda: privacy.shuffled_sgd(0.0, 3), "noise_multiplier=0.0 > 0"),
    (lambda: privacy.shuffled_sgd(1.0, 3, "zero"), "'zero_out'"),
    (
      lambda: privacy.shuffled_sgd(1.0, 3, drop_last=True),
      "another number of steps",
    ),
    (lambda: privacy.group_dp_epsilon([], 1e-5, 0), "group_size=0"),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def test_record_is_plain():
  record = privacy.poisson_sgd(1.1, 0.01, 7).record()
  assert record["count"] == 7
  assert record["parameters"] == {
    "event": "PoissonSampledDpEvent(GaussianDpEvent)",
    "sampling_probability": 0.01,
    "noise_multiplier": 1.1,
  }
  assert accounting.library()["library"] == "dp_accounting"
