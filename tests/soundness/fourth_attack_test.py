"""What a fourth round of attackers found, and what came of it.

They resumed runs before their first step, and put older files back.
"""

import functools
import json
import shutil
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.soundness import small_runs
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob.methods import identity
from tf_privrob.methods import session as session_lib

# What is asked here comes after the gradients were checked.
pytestmark = pytest.mark.usefixtures("checked_once")

_MAP = np.arange(1.0, 7.0)


def _made(kind, settings=None, **given):
  config = kind.config_class(
    noise_multiplier=2.0,
    batch_size=16,
    epochs=1,
    dp_epsilon=50.0,
    dp_delta=1e-3,
    **(settings or {}),
  )
  return kind(models.mlp((6,), 3, hidden=(5,)), config, **given)


_RDP = {"accountant": "rdp"}  # plans four times faster than "pld"
_adlm = functools.partial(_made, papers.SoundAdLM, _RDP)
_short = papers.MeasuredRedistribution(throwaway_steps=2)
_secure = functools.partial(_made, papers.SecureSGD, {"redistribution": _short})
_sound_secure = functools.partial(_made, papers.SoundSecureSGD, _RDP)


_fit = small_runs.fit


def _killed_before_the_first_step(method, **kwargs):
  """All that comes before the plan was made, and nothing after it."""
  settle = mock.patch.object(
    session_lib.Session, "settle", side_effect=KeyboardInterrupt
  )
  with settle, pytest.raises(KeyboardInterrupt):
    _fit(method, **kwargs)


# Resumed before the first step.


@pytest.mark.parametrize(
  ("make", "began", "other", "name"),
  [
    (_adlm, {}, {"relevance_map": _MAP}, "relevance_map"),
    pytest.param(
      _adlm,
      {"relevance_map": _MAP},
      {"relevance_map": -_MAP},
      "relevance_map",
      marks=pytest.mark.slow,
    ),
    (
      _adlm,
      {"relevance_budget": privacy.Budget(3.0, 0.0)},
      {},
      "relevance_budget",
    ),
    pytest.param(
      _secure,
      {},
      {"redistribution": np.ones(5)},
      "redistribution",
      marks=pytest.mark.slow,
    ),
    pytest.param(
      _sound_secure,
      {"public_data": small_runs.arrays(20, seed=1)},
      {},
      "public_data",
      marks=pytest.mark.slow,
    ),
  ],
)
def test_a_resume_is_given_what_the_run_began_with(
  tmp_path, make, began, other, name
):
  """A map that was paid for was left out: 0.79 for 1.32; a budget: 3 less."""
  _killed_before_the_first_step(make(**began), run_dir=tmp_path)
  with pytest.raises(ValueError, match=f"given.{name}"):
    _fit(make(**other), run_dir=tmp_path, resume=True)
  _fit(make(**began), run_dir=tmp_path, resume=True)


def test_a_release_that_no_plan_counts_is_refused(tmp_path):
  """Whatever a method says that it was given."""
  silent = mock.patch.object(
    papers.SoundAdLM, "given", return_value={}, create=True
  )
  with silent:
    _killed_before_the_first_step(_adlm(), run_dir=tmp_path)
    with pytest.raises(ValueError, match="paid for, 'relevance'"):
      _fit(_adlm(relevance_map=_MAP), run_dir=tmp_path, resume=True)


@pytest.mark.parametrize(
  "resume", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_a_release_in_memory_is_not_forgotten_with_a_folder(tmp_path, resume):
  """Two maps were made by one object, and one was stated."""
  if resume:
    _killed_before_the_first_step(_adlm(), run_dir=tmp_path)
  method = _adlm()
  _killed_before_the_first_step(method)
  with pytest.raises(ValueError, match="'relevance' in memory"):
    _fit(method, run_dir=tmp_path, resume=resume)
  assert _fit(method).privacy_statement().releases[1]["count"] == 2


# Facts that take a proof away.


def _dp_sgd():
  return methods.DPSGD(models.mlp((6,), 3, hidden=()), small_runs.CONFIG)


def _fails(*unused):
  raise RuntimeError("one example too many")


def test_an_older_file_does_not_bring_a_proof_back(tmp_path):
  """2.51 was proven of a run that an error had ended."""
  kept = tmp_path / "nonprivate" / "resume.json"
  older = tmp_path / "older.json"
  hooks = {
    "on_train_begin": lambda logs: shutil.copy(kept, older),
    "on_train_batch_end": _fails,
  }
  failing = tf.keras.callbacks.LambdaCallback(**hooks)
  with pytest.raises(RuntimeError):
    _fit(_dp_sgd(), run_dir=tmp_path, callbacks=[failing])
  shutil.copy(older, kept)
  method = _fit(_dp_sgd(), run_dir=tmp_path, resume=True)
  assert method.privacy_statement().proven is None


def test_a_fact_is_one_line_that_tells_no_more(tmp_path):
  failing = tf.keras.callbacks.LambdaCallback(on_train_batch_end=_fails)
  with pytest.raises(RuntimeError):
    _fit(_dp_sgd(), run_dir=tmp_path, callbacks=[failing])
  lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
  *_, last = map(json.loads, lines)
  del last["checksum"]
  assert last == {"type": "fact", "name": "ended_by_error", "session": 0}
  assert "error" not in (tmp_path / "nonprivate" / "resume.json").read_text()


def test_a_ledger_that_lost_a_fact_is_refused(tmp_path):
  """1.0 was proven again once its last line was cut off."""
  failing = tf.keras.callbacks.LambdaCallback(on_train_batch_end=_fails)
  with pytest.raises(RuntimeError):
    _fit(_dp_sgd(), run_dir=tmp_path, callbacks=[failing])
  ledger = tmp_path / "ledger.jsonl"
  lines = ledger.read_text().splitlines(keepends=True)
  ledger.write_text("".join(lines[:-1]))
  with pytest.raises(ValueError, match="replaced or edited"):
    _fit(_dp_sgd(), run_dir=tmp_path, resume=True)


def test_a_run_that_kept_its_facts_elsewhere_is_not_resumed(tmp_path):
  parameters = identity.parameters

  def before(*args):
    return {k: v for k, v in parameters(*args).items() if k != "given"}

  with mock.patch.object(identity, "parameters", before):
    _killed_before_the_first_step(_dp_sgd(), run_dir=tmp_path)
  with pytest.raises(ValueError, match="given: 'absent'"):
    _fit(_dp_sgd(), run_dir=tmp_path, resume=True)
