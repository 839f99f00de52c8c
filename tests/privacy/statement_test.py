from __future__ import annotations

import dataclasses
import functools
import json
import math
import subprocess
import sys
from importlib import metadata

import dp_accounting
import pytest

from tf_privrob import privacy
from tf_privrob.privacy import rounding
from tf_privrob.privacy import run_facts

_FACTS = privacy.RunFacts(
  ledger=True, randomness="operating_system", fresh_weights=True
)
_for = functools.partial(privacy.PrivacyStatement.for_dp_sgd, facts=_FACTS)
_RUN = (1.3, 250 / 60000, 3600, 1e-5)


def test_poisson():
  found = _for(*_RUN, num_examples=60000)
  assert found.proven.dp_epsilon == pytest.approx(0.8530, abs=6e-5)
  assert found.claimed == found.proven
  assert found.proven.dp_delta == 1e-5
  assert found.accountant["pld"] == found.proven.dp_epsilon
  assert found.accountant["rdp"] == pytest.approx(0.9422, abs=6e-5)
  assert found.accountant["version"] == metadata.version("dp-accounting")
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
  assert f"dp_epsilon={rounding.up(zero_out)}" in found.caveats[0]
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


# How the training was run.


def test_the_seed_is_the_first_thing_said():
  seeded = dataclasses.replace(_FACTS, randomness="seed")
  found = _for(*_RUN, facts=seeded, first_caveats=["second"], sampler="shuffle")
  first, second = found.caveats[:2]
  assert first.startswith("Proven only against those who neither know nor")
  assert second == "second"
  figures = (
    f"proven {found.proven} (only against those who do not know the seed)"
    f" / audited not run. Caveats: {first}"
  )
  assert figures in found.text()
  assert "hash of the seed" in found.side_channels
  mu = dict(found.coverage())["Gaussian DP"]
  assert mu.endswith("(only against those who do not know the seed)")
  plain = _for(*_RUN)
  assert plain.condition == ""
  assert "seed" not in plain.text()
  assert "keyed by the operating system" in plain.side_channels
  assert f"proven {plain.proven} / audited" in plain.text()


def test_without_a_ledger_none_is_cited():
  def counted(**changes):
    facts = dataclasses.replace(_FACTS, **changes)
    return _for(*_RUN, facts=facts)

  with_ledger = counted()
  assert "tf_privrob.privacy.ledger" in with_ledger.text()
  assert run_facts.COPIES_CAVEAT in with_ledger.caveats
  without = counted(ledger=False)
  assert "ledger" not in without.text()
  assert "counted in memory" in without.text()
  moved = counted(moved=True)
  assert moved.caveats[0] == run_facts.MOVED_CAVEAT


def test_initial_weights_are_drawn_or_public_or_nothing_is_proven():
  unknown = _for(*_RUN, facts=dataclasses.replace(_FACTS, fresh_weights=False))
  assert unknown.proven is None
  assert unknown.gaussian_mu is None
  assert unknown.claimed == _for(*_RUN).proven
  assert unknown.caveats[0] == run_facts.WEIGHTS_CAVEAT
  assert privacy.PrivacyStatement.for_dp_sgd(*_RUN).proven is None

  drawn = _for(*_RUN).assumptions[-1]
  assert drawn.enforced_by == "tf_privrob.models.fresh"
  public = dataclasses.replace(
    _FACTS, fresh_weights=False, public_weights="trained on CIFAR-100"
  )
  found = _for(*_RUN, facts=public)
  assert found.proven == _for(*_RUN).proven
  declared = found.assumptions[-1]
  assert declared.text.endswith("declared public: trained on CIFAR-100")
  assert declared.enforced_by == "the caller"


def test_callbacks_that_saw_metrics():
  facts = dataclasses.replace(_FACTS, callbacks_saw_metrics=True)
  assert _for(*_RUN, facts=facts).caveats[0] == run_facts.CALLBACKS_CAVEAT
  assert run_facts.CALLBACKS_CAVEAT not in _for(*_RUN).caveats


def test_facts_are_plain_values():
  values = json.loads(json.dumps(dataclasses.asdict(_FACTS)))
  assert privacy.RunFacts(**values) == _FACTS


def test_no_statement_speaks_ill_of_the_generator():
  assert "not cryptographic" not in _for(*_RUN).text()


def test_a_dropped_batch_proves_nothing():
  found = _for(*_RUN, sampler="shuffle", epochs=15, drop_last=True)
  assert found.proven is None
  assert "Incomplete batches were left out" in found.caveats[0]
  assert "Poisson" not in found.releases[0]["description"]
  pair = _for(
    *_RUN,
    sampler="shuffle",
    epochs=15,
    drop_last=True,
    neighbouring="replace_one",
  )
  assert pair.proven is not None


# What the statement covers.


def test_gaussian_mu_stands_beside_the_figure():
  found = _for(*_RUN)
  expected = privacy.gaussian_mu(privacy.poisson_sgd(*_RUN[:3]))
  assert found.gaussian_mu == expected
  assert f"mu={rounding.up(expected)}" in found.text()
  assert found.replace(audited=0.1).gaussian_mu == expected
  # Another figure is not that of this mu.
  assert found.replace(proven=None).gaussian_mu is None
  pair = _for(*_RUN, neighbouring="replace_one")
  assert pair.gaussian_mu is None
  assert "Gaussian DP: no mu known" in pair.text()
  full = _for(
    8.0, 0.3, 10, 1e-5, sampler="full_batch", neighbouring="replace_one"
  )
  assert full.gaussian_mu == pytest.approx(math.sqrt(10) / 4, rel=1e-3)


def test_every_question_has_an_answer():
  found = _for(*_RUN, num_examples=60000, unprotected=["the random features"])
  assert any("to validate with" in line for line in found.unprotected)
  rows = dict(found.coverage())
  assert rows["Unit of privacy"].startswith("one example")
  for part in (
    "n = 60,000",
    "number of steps, 3,600",
    "classes of the labels",
    "range of the values",
    "architecture",
    "the random features",
  ):
    assert part in rows["Taken to be public"]
  assert "Not covered" in rows["Tuning"]
  assert "Not covered" in rows["Preprocessing"]
  assert rows["Trust model"].startswith("Central")
  for part in ("time, memory", "floating point", "AES-256"):
    assert part in rows["Side channels"]
  text = found.text()
  assert "\n" not in text
  assert "Not stated" not in text
  assert all(answer.rstrip(".") in text for answer in rows.values())


def test_files_of_earlier_versions_say_what_they_do_not_state():
  old = _for(*_RUN).to_dict()
  for name in (
    "condition",
    "gaussian_mu",
    "unit",
    "unprotected",
    "preprocessing",
    "tuning",
    "trust_model",
    "side_channels",
  ):
    del old[name]
  found = privacy.PrivacyStatement.from_dict(old)
  rows = dict(found.coverage())
  assert rows.pop("Gaussian DP") == "no mu known"
  assert set(rows.values()) == {"not stated"}
  assert "Not stated: unit of privacy, taken to be public," in found.text()
  assert privacy.PrivacyStatement.from_json(found.to_json()) == found


def test_all_three_figures_are_rounded_against_the_reader():
  found = privacy.PrivacyStatement(
    privacy.Budget(2.00049, 1e-5),
    privacy.Budget(3.00049, 1.00001e-5),
    audited=0.99999,
    accountant={
      "name": "pld",
      "library": "dp_accounting",
      "version": "0",
      "pld": 3.00049,
      "rdp": 4.00049,
    },
  ).text()
  assert "claimed dp_epsilon=2.001 at dp_delta=1e-05" in found
  assert "proven dp_epsilon=3.001 at dp_delta=1.001e-05" in found
  assert "audited dp_epsilon>=0.9999." in found
  assert "pld 3.001, rdp 4.001" in found


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
    audited=50.0, audit_note="all canaries found"
  )
  full = full.replace(accountant={**full.accountant, "rdp": math.inf})
  text = full.to_json()
  parsed = json.loads(text, parse_constant=refuse)
  assert parsed["accountant"]["rdp"] is None
  assert parsed["violated"] is True
  assert parsed["text"] == full.text()
  assert privacy.PrivacyStatement.from_json(text) == full
  parsed["accountant"]["rdp"] = "Infinity"  # as versions before wrote it
  assert privacy.PrivacyStatement.from_dict(parsed) == full
  bare = privacy.PrivacyStatement(None, None)
  assert privacy.PrivacyStatement.from_json(bare.to_json()) == bare


@pytest.mark.parametrize(
  ("call", "message"),
  [
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
      lambda: privacy.PrivacyStatement(None, None, audited=math.inf),
      "audited=inf >= 0",
    ),
    (
      lambda: privacy.PrivacyStatement.from_dict({"accountant": ["rdp"]}),
      "to be an object",
    ),
    (lambda: privacy.RunFacts(randomness="sed"), "Did you mean 'seed'"),
    (
      lambda: privacy.RunFacts(fresh_weights=True, public_weights="x"),
      "Give one of them",
    ),
    (
      lambda: privacy.PrivacyStatement(None, None, gaussian_mu=1.0),
      "where nothing is proven",
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
