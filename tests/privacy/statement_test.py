from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import dp_accounting
import pytest

from tf_privrob import privacy

_for = privacy.PrivacyStatement.for_dp_sgd
_RUN = (1.3, 250 / 60000, 3600, 1e-5)


def test_poisson():
  found = _for(*_RUN, num_examples=60000)
  assert found.proven.dp_epsilon == pytest.approx(0.8530, abs=6e-5)
  assert found.claimed == found.proven
  assert found.proven.dp_delta == 1e-5
  assert found.accountant["pld"] == found.proven.dp_epsilon
  assert found.accountant["rdp"] == pytest.approx(0.9422, abs=6e-5)
  assert found.accountant["version"] == "0.4.3"
  assert found.releases[0]["count"] == 3600
  assert any("Hyper-parameter" in caveat for caveat in found.caveats)
  assert all(a.enforced_by.startswith("tf_privrob.") for a in found.assumptions)
  by_rdp = _for(*_RUN, accountant="rdp")
  assert by_rdp.proven.dp_epsilon == found.accountant["rdp"]


def test_shuffle_proves_only_the_figure_without_amplification():
  found = _for(*_RUN, sampler="shuffle", epochs=15)
  assert found.claimed.dp_epsilon == pytest.approx(0.8530, abs=6e-5)
  release = privacy.shuffled_sgd(1.3, 15, "add_or_remove_one")
  assert found.proven.dp_epsilon == privacy.dp_epsilon(release, 1e-5)
  zero_out = privacy.dp_epsilon(privacy.shuffled_sgd(1.3, 15, "zero_out"), 1e-5)
  assert "not Poisson sampled" in found.caveats[0]
  assert f"dp_epsilon={zero_out:.4g}" in found.caveats[0]
  assert zero_out < found.proven.dp_epsilon
  replace = _for(
    *_RUN, sampler="shuffle", epochs=15, neighbouring="replace_one"
  )
  assert zero_out < replace.proven.dp_epsilon < found.proven.dp_epsilon


def test_epochs_are_counted_from_whole_batches():
  def uses(prob, steps):
    found = _for(50.0, prob, steps, 1e-5, sampler="shuffle")
    return found.releases[0]["count"]

  assert uses(0.1, 30) == 3
  assert uses(0.1, 31) == 4
  assert uses(1 / 3, 6) == 2
  assert uses(256 / 60000, 14062) == 61  # 234 whole batches an epoch.


def test_replace_one():
  pair = _for(*_RUN, neighbouring="replace_one")
  expected = privacy.group_dp_epsilon(privacy.poisson_sgd(*_RUN[:3]), 1e-5, 2)
  assert pair.proven.dp_epsilon == expected
  assert "group privacy" in pair.accountant["pld_route"]
  full = _for(
    8.0, 0.3, 10, 1e-5, sampler="full_batch", neighbouring="replace_one"
  )
  halved = privacy.dp_epsilon(privacy.poisson_sgd(4.0, 1.0, 10), 1e-5)
  assert full.proven.dp_epsilon == halved


def test_other_releases_are_composed():
  laplace = privacy.Release("input layer", dp_accounting.LaplaceDpEvent(2.0))
  found = _for(1.1, 256 / 60000, 14062, 1e-5, extra_releases=[laplace])
  assert found.proven.dp_epsilon == pytest.approx(2.7897, abs=6e-5)
  assert [r["name"] for r in found.releases][1] == "input layer"


def test_without_noise_nothing_is_proven():
  found = _for(0, 0.01, 100, 1e-5)
  assert found.proven is None
  assert found.claimed is None
  assert "proven none known" in found.text()
  assert any("noise_multiplier is 0" in caveat for caveat in found.caveats)
  assert found.accountant["pld"] == math.inf
  assert privacy.PrivacyStatement.from_json(found.to_json()) == found


def test_before_the_first_step_nothing_is_spent():
  assert _for(1.0, 0.01, 0, 1e-5).proven.dp_epsilon == 0.0
  assert _for(1.0, 0.01, 0, 1e-5, sampler="shuffle").proven.dp_epsilon == 0.0


def test_dp_delta_that_says_little():
  with pytest.warns(UserWarning, match="publishing one"):
    found = _for(1.0, 0.01, 10, 1e-2, num_examples=100)
  assert any("not below 1/n" in caveat for caveat in found.caveats)


def test_a_figure_that_one_accountant_lacks_comes_from_the_other():
  found = _for(4.0, 0.01, 10, 1e-16)
  assert found.accountant["pld"] == math.inf
  assert found.proven.dp_epsilon == found.accountant["rdp"]
  assert any("no finite figure" in caveat for caveat in found.caveats)


def test_text_is_one_paragraph_with_all_three():
  base = privacy.PrivacyStatement(privacy.Budget(1.0, 1e-5), proven=None)
  text = str(base)
  assert "\n" not in text
  assert "claimed dp_epsilon=1 at dp_delta=1e-05 / proven none known" in text
  assert "audited not run" in text
  full = _for(*_RUN).replace(audited=0.5, audit_note="95% confidence")
  assert "audited dp_epsilon>=0.5 (95% confidence)" in full.text()
  assert "claimed none" in privacy.PrivacyStatement(None, None).text()


def test_violated():
  budget = privacy.Budget
  statement = privacy.PrivacyStatement
  assert not statement(budget(1, 0), budget(3, 0)).violated
  assert not statement(budget(4, 0), budget(3, 0), audited=2.9).violated
  assert statement(budget(4, 0), budget(3, 0), audited=3.1).violated
  assert statement(budget(1, 0), budget(3, 0), audited=2.0).violated
  assert statement(budget(1, 0), None, audited=2.0).violated
  assert not statement(None, None, audited=2.0).violated
  assert "VIOLATED" in statement(budget(1, 0), None, audited=2.0).text()


def test_json_round_trip_is_strict():
  def refuse(name):
    raise AssertionError(f"{name} is not JSON")

  full = _for(*_RUN, sampler="shuffle", extra_caveats=["because"]).replace(
    audited=math.inf, audit_note="all canaries found"
  )
  text = full.to_json()
  parsed = json.loads(text, parse_constant=refuse)
  assert parsed["audited"] == "Infinity"
  assert parsed["violated"] is True
  assert parsed["text"] == full.text()
  assert privacy.PrivacyStatement.from_json(text) == full
  bare = privacy.PrivacyStatement(None, None)
  assert privacy.PrivacyStatement.from_json(bare.to_json()) == bare


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: privacy.Budget(-1.0, 0.0), "dp_epsilon=-1.0 >= 0"),
    (lambda: privacy.Budget(math.inf, 0.0), "dp_epsilon=inf"),
    (lambda: privacy.Budget(1.0, 1.0), "dp_delta=1.0 < 1"),
    (lambda: _for(-1.0, 0.1, 5, 1e-5), "noise_multiplier=-1.0"),
    (lambda: _for(1.0, 1.1, 5, 1e-5), "sampling_prob=1.1"),
    (lambda: _for(1.0, 0.1, -5, 1e-5), "steps=-5"),
    (lambda: _for(1.0, 0.1, 5, 0.0), "dp_delta=0.0"),
    (lambda: _for(1.0, 0.1, 5, 1e-5, "poison"), "Did you mean 'poisson'"),
    (
      lambda: privacy.PrivacyStatement(None, None, sampler="shufle"),
      "Did you mean 'shuffle'",
    ),
    (
      lambda: privacy.PrivacyStatement(None, None, audited=math.nan),
      "audited=nan",
    ),
    (
      lambda: privacy.PrivacyStatement.from_dict({"proved": None}),
      "Did you mean 'proven'",
    ),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def test_is_frozen():
  with pytest.raises(dataclasses.FrozenInstanceError):
    _for(*_RUN).proven = None


def test_room_needs_neither_tensorflow_nor_dp_accounting_to_import():
  code = (
    "import sys, tf_privrob.privacy;"
    "print([m for m in ('tensorflow', 'dp_accounting', 'scipy',"
    " 'tf_privrob.methods') if m in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "[]"
