"""The sound heir of DPAL: what one example can move, and what is paid."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.soundness import dpal_runs
from tf_privrob import papers
from tf_privrob import privacy

CLIP = 0.5


@functools.lru_cache(None)
def trained(**changes):
  """A run, to read, and its data."""
  rng = np.random.default_rng(0)
  x = rng.uniform(-1, 1, (64, 6)).astype("float32")
  y = rng.integers(0, 3, 64)
  settings = {
    "dp_epsilon": 3.0,
    "dp_delta": 1e-3,
    "moments": papers.Moments(dp_epsilon=1.0),
    "l2_clip_norm": CLIP,
    "batch_size": 16,
    "epochs": 1,
    "accountant": "rdp",  # calibrates four times faster than "pld"
    "seed": 0,
    **changes,
  }
  found = papers.SoundDPAL(
    dpal_runs.network(6, 8, 5, 3), papers.SoundDPALConfig(**settings)
  )
  found.fit(x, y, value_range=(-1, 1), verbose=0)
  return found, x, y


def clipped_sums(dpal, x, y):
  """The clipped sum of these rows as a function of the mask."""

  dpal.set_step(np.array([1, 2]), 0)

  @tf.function
  def total(mask):
    return dpal.nonprivate_sum(tf.constant(x[None]), tf.constant(y[None]), mask)

  def flat(mask):
    parts = total(tf.constant(mask, tf.float32)[None])
    return np.concatenate([np.ravel(part) for part in parts])

  return flat


@pytest.mark.parametrize(
  "weight",
  [0.0, *(pytest.param(w, marks=pytest.mark.slow) for w in (1.5, 100.0))],
)
def test_clean_and_adversarial_terms_are_clipped_as_one(weight):
  """An example moves the sum by at most C, whatever xi is; others by none."""
  dpal, x, y = trained(adversarial_weight=weight, max_attack_eps=0.5)
  x, y = x[:8], y[:8]
  dpal.network.layers[-1].kernel.assign(
    30 * dpal.network.layers[-1].kernel  # gradients beyond the clip norm
  )
  clipped_sum = clipped_sums(dpal, x, y)
  everyone, lengths = clipped_sum(np.ones(8)), []
  for row in range(8):
    others = np.arange(8) != row
    part = everyone - clipped_sum(others)
    assert np.linalg.norm(part) <= CLIP * (1 + 1e-5)
    alone = clipped_sum(~others)
    np.testing.assert_allclose(part, alone, atol=1e-5)
    lengths.append(np.linalg.norm(alone))
  assert 0.995 * CLIP < max(lengths) <= CLIP


def test_the_first_layer_is_a_function_of_the_release():
  """Gradients never reach it."""
  dpal, _, _ = trained(moments=papers.Moments("gaussian", 1.0))
  assert not dpal.network.layers[0].trainable
  assert len(dpal.network.trainable_variables) == 4


@pytest.mark.parametrize(
  "mechanism", ["gaussian", pytest.param("laplace", marks=pytest.mark.slow)]
)
def test_moments_and_steps_are_composed(mechanism):
  dpal, _, _ = trained(moments=papers.Moments(mechanism, 1.0))
  statement = dpal.privacy_statement()
  names = [release["name"] for release in statement.releases]
  assert "patch moments" in names
  assert len(names) == 2
  (moments,) = dpal.extra_releases()
  alone = privacy.dp_epsilon(moments, 1e-3)
  assert alone == pytest.approx(1.0, rel=0.01)
  assert alone < statement.proven.dp_epsilon <= 3.0
