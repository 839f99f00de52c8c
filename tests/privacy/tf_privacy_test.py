"""TF Privacy's figure beside our own: the larger one is stated, and by whom."""

import re
import types
from importlib import metadata

import dp_accounting
import pytest

from tf_privrob import compat
from tf_privrob import privacy

_RUN = (1.3, 250 / 60000, 3600, 1e-5)
_OURS = 0.9422002  # by RDP
_for = privacy.PrivacyStatement.for_dp_sgd


@pytest.fixture
def pretended(monkeypatch):
  """A TF Privacy that finds this figure, or raises this error."""
  composed = []

  def pretend(found):
    def get_epsilon(dp_delta):
      assert dp_delta == _RUN[-1]
      if isinstance(found, Exception):
        raise found
      return found

    accountant = types.SimpleNamespace(
      compose=lambda *event: composed.append(event), get_epsilon=get_epsilon
    )
    kind = types.SimpleNamespace(get_accountant=lambda: accountant)
    library = types.SimpleNamespace(
      AccountantType=types.SimpleNamespace(RDP=kind)
    )
    monkeypatch.setattr(compat, "tf_privacy", lambda: library)
    monkeypatch.setattr(
      metadata,
      "version",
      lambda name: {"dp-accounting": "0.5"}.get(name, "0.9"),
    )
    return composed

  return pretend


def _said(stated):
  return [line for line in stated.caveats if "TF Privacy" in line]


def test_the_same_figure_is_named_after_tf_privacy(pretended):
  composed = pretended(_OURS * (1 - 5e-8))
  stated = _for(*_RUN)
  assert stated.accountant["rdp"] == pytest.approx(_OURS, rel=1e-6)
  assert stated.accountant["library"] == "dp_accounting"
  assert stated.accountant["rdp_library"] == "tensorflow_privacy 0.9"
  assert (
    "(dp_accounting 0.5): pld 0.8531, rdp 0.9423 (tensorflow_privacy 0.9)"
    in (stated.text())
  )
  assert _said(stated) == []
  ((event, count),) = composed
  assert isinstance(event, dp_accounting.PoissonSampledDpEvent)
  assert count == 3600


def test_a_larger_one_is_stated(pretended):
  pretended(1.0)
  stated = _for(*_RUN, accountant="rdp", facts=_known())
  assert stated.accountant["rdp"] == 1.0
  assert stated.proven.dp_epsilon == 1.0
  assert _said(stated) == [
    "By RDP TF Privacy finds dp_epsilon=1, and the own bound of tf_privrob is"
    " 0.9423: the larger is stated."
  ]


def test_a_smaller_one_is_not(pretended):
  pretended(0.5)
  stated = _for(*_RUN, accountant="rdp", facts=_known())
  assert stated.proven.dp_epsilon == pytest.approx(_OURS, rel=1e-6)
  assert len(_said(stated)) == 1


def _known():
  return privacy.RunFacts(
    ledger=True, randomness="operating_system", fresh_weights=True
  )


def test_without_it_dp_accounting_is_named(pretended, monkeypatch):
  pretended(ValueError("Renyi divergence cannot be negative."))
  assert _for(*_RUN).accountant["rdp_library"] == "dp_accounting 0.5"
  monkeypatch.setattr(compat, "tf_privacy", lambda: None)
  stated = _for(*_RUN)
  assert stated.accountant["rdp_library"] == "dp_accounting 0.5"
  assert stated.accountant["rdp"] == pytest.approx(_OURS, rel=1e-6)


def test_it_is_asked_about_dp_sgd_alone(pretended):
  composed = pretended(9.0)
  laplace = privacy.Release("input", dp_accounting.LaplaceDpEvent(2.0))
  for stated in (
    _for(*_RUN, extra_releases=[laplace]),
    _for(*_RUN, extra_releases=[privacy.Release("c", dp_epsilon=0.1)]),
    _for(*_RUN, neighbouring="replace_one"),
    _for(0.0, *_RUN[1:]),
    _for(1.3, 0.5, 0, 1e-5),
  ):
    assert stated.accountant["rdp_library"] == "dp_accounting 0.5"
    assert stated.accountant["rdp"] != 9.0
  assert composed == []


@pytest.mark.parametrize(
  ("sampler", "row"),
  [
    ("poisson", "assuming Poisson sampling"),
    ("shuffle", "with each example occurring once per epoch"),
  ],
)
def test_its_own_statement_says_the_same(sampler, row):
  library = compat.tf_privacy()
  if library is None:
    pytest.skip("TF Privacy needs Python < 3.12 and TensorFlow 2.15")
  text = library.compute_dp_sgd_privacy_statement(
    60000, 250, 15, 1.3, 1e-5, used_microbatching=False
  )
  expected = re.search(rf"{row}[ (*)]*: +([\d.]+)", text).group(1)
  stated = _for(*_RUN, sampler=sampler, epochs=15)
  version = metadata.version("tensorflow-privacy")
  assert stated.accountant["rdp_library"] == f"tensorflow_privacy {version}"
  if sampler == "poisson":
    assert f"{stated.accountant['rdp']:.3f}" == expected
  else:  # their relation replaces an example by one without gradient
    once = privacy.shuffled_sgd(1.3, 15, "zero_out")
    assert f"{privacy.dp_epsilon(once, 1e-5, 'rdp'):.3f}" == expected
