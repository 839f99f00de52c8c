import numpy as np
import pytest
from scipy import stats

from tf_privrob import membership
from tf_privrob.membership import likelihood_ratio


def _game(models=16, points=600, effect=1.0, seed=0, spread=3.0):
  """Points of very different hardness; training on one adds `effect`."""
  rng = np.random.default_rng(seed)
  n = points // 2
  hardness = rng.normal(0, spread, points)
  is_in = rng.random((models, points)) < 0.5
  is_in[:2], is_in[2:4] = True, False
  references = hardness + effect * is_in + rng.normal(size=is_in.shape)
  target = hardness + effect * (np.arange(points) < n)
  target = target + rng.normal(size=points)
  scores = membership.Scores("benign_margin", target[:n], target[n:])
  return scores, references, is_in


@pytest.mark.parametrize("shared", [True, False])
def test_parity_with_scipy_point_by_point(shared):
  scores, references, is_in = _game(points=40)
  found = likelihood_ratio.lira_scores(
    scores, references, is_in, "online", shared
  )
  offline = likelihood_ratio.lira_scores(
    scores, references, is_in, "offline", shared
  )
  columns = range(40)

  def values(column, inside):
    return references[is_in[:, column] == inside, column]

  def pooled(inside):
    parts = [values(c, inside) for c in columns]
    squares = sum(((part - part.mean()) ** 2).sum() for part in parts)
    return np.sqrt(squares / sum(len(part) - 1 for part in parts))

  for column in columns:
    score = np.r_[scores.members, scores.nonmembers][column]
    inside, outside = values(column, True), values(column, False)
    stds = (inside.std(ddof=1), outside.std(ddof=1))
    if shared:
      stds = (pooled(True), pooled(False))
    ratio = stats.norm.logpdf(score, inside.mean(), stds[0])
    ratio -= stats.norm.logpdf(score, outside.mean(), stds[1])
    got = np.r_[found.members, found.nonmembers][column]
    assert got == pytest.approx(ratio, rel=1e-9)
    got = np.r_[offline.members, offline.nonmembers][column]
    # The p-value of Carlini et al. orders points as this does.
    p = stats.norm.cdf(score, outside.mean(), stds[1])
    assert stats.norm.cdf(got) == pytest.approx(p, rel=1e-9)


def test_it_beats_one_threshold_where_points_differ_in_hardness():
  scores, references, is_in = _game(effect=2.0)
  plain = membership.oracle(scores)
  for mode in ("online", "offline"):
    found = membership.lira(scores, references, is_in, mode)
    assert found.auc > plain.auc + 0.1
    assert found.strategy == "lira"
  online = membership.lira(scores, references, is_in)
  assert online.threshold == 0
  # The best possible is Phi(effect / 2) = 0.84, given the hardness.
  assert online.interval[0] < stats.norm.cdf(1.0)
  assert online.balanced_accuracy > 0.7


def test_nothing_is_found_where_training_leaves_no_trace():
  scores, references, is_in = _game(effect=0.0)
  found = membership.lira(scores, references, is_in)
  assert found.interval[0] < 0.5 < found.interval[1]


def test_with_few_models_one_variance_is_taken():
  scores, references, is_in = _game(models=8)
  chosen = likelihood_ratio.lira_scores(scores, references, is_in)
  shared = likelihood_ratio.lira_scores(
    scores, references, is_in, global_variance=True
  )
  np.testing.assert_array_equal(chosen.members, shared.members)


def test_scores_of_reference_models_as_scores():
  scores, references, is_in = _game(points=20)
  given = [
    membership.Scores("benign_margin", row[:10], row[10:]) for row in references
  ]
  first = likelihood_ratio.lira_scores(scores, given, is_in)
  second = likelihood_ratio.lira_scores(scores, references, is_in)
  np.testing.assert_array_equal(first.members, second.members)


def test_failures():
  scores, references, is_in = _game(points=20)
  with pytest.raises(ValueError, match=r"bools of shape \(16, 20\)"):
    membership.lira(scores, references, is_in[:3])
  with pytest.raises(ValueError, match="of the 20 points"):
    membership.lira(scores, references[:, :5], is_in[:, :5])
  never = is_in.copy()
  never[:, 7] = False
  with pytest.raises(ValueError, match=r"trained with it.*1 points .* is 7"):
    membership.lira(scores, references, never)
  likelihood_ratio.lira_scores(scores, references, never, "offline")
  always = np.ones_like(is_in)
  with pytest.raises(ValueError, match="trained without it"):
    membership.lira(scores, references, always, "offline")
  with pytest.raises(ValueError, match="at least two reference models"):
    membership.lira(scores, references[2:3], is_in[2:3], "offline")
  bad = references.copy()
  bad[4, 2] = np.nan
  with pytest.raises(ValueError, match="from reference model 4"):
    membership.lira(scores, bad, is_in)
