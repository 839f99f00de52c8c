"""Where results are from, and which of them are about one model."""

import pytest

from experiments.grid import provenance


def _result(weights, training=None, commit="abc"):
  known = provenance.of_today("python -m tiny", commit, weights, training)
  return {provenance.KEY: known.to_json()}


def test_a_commit_whose_changes_are_not_known_is_not_called_clean(monkeypatch):
  answers = iter(["abc", None])
  monkeypatch.setattr(provenance, "_git", lambda *words: next(answers))
  assert provenance.commit() == "abc, perhaps with changes"


@pytest.mark.parametrize(
  ("answers", "said"),
  [
    (["abc", ""], "abc"),
    (["abc", " M a.py"], "abc, with changes"),
    ([None], "unknown"),
  ],
)
def test_a_commit_says_whether_it_was_changed(monkeypatch, answers, said):
  answers = iter(answers)
  monkeypatch.setattr(provenance, "_git", lambda *words: next(answers))
  assert provenance.commit() == said


def test_a_model_has_the_commit_of_the_study_that_trained_it():
  own = {"weights": "w", "commit": "abc"}
  assert provenance.identity(_result("w")) == own
  other = {"weights": "v", "commit": "fed"}  # of what the training needed
  assert provenance.identity(_result("w", other)) == own
  adopted = {"weights": "w", "commit": "fed"}
  assert provenance.identity(_result("w", adopted)) == adopted
  nothing = {"weights": None, "commit": "unknown"}
  assert provenance.identity({}) == nothing


def test_a_result_belongs_to_the_training_of_its_weights_only():
  trained = _result("w")
  known = provenance.identity(trained)
  assert provenance.belongs(_result("w", known), trained)
  assert not provenance.belongs(_result("w", known), _result("v"))
  assert not provenance.belongs(_result("w"), trained)
  assert not provenance.belongs({}, {})  # nobody knows
