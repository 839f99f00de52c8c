"""Input noise that is drawn once belongs to the example and to the run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import interrupt
from tests.papers.transdenoiser import transdenoiser_cases as cases

pytestmark = pytest.mark.usefixtures("checked_once")


def test_fixed_noise_belongs_to_the_example():
  found = cases.prepared(input_noise="fixed")
  x = tf.constant(cases.arrays(8)[0])
  first = found.training_noise(x, tf.constant([1, 2]))
  again = found.training_noise(x[::-1], tf.constant([3, 4]))[::-1]
  np.testing.assert_array_equal(first, again)
  assert len(np.unique(np.round(first[:, 0], 6))) == 8
  other = cases.prepared(input_noise="fixed", seed=4)
  assert not np.any(first == other.training_noise(x, tf.constant([1, 2])))
  many = tf.constant(cases.arrays(3000)[0])
  drawn = found.training_noise(many, None).numpy()
  np.testing.assert_allclose(drawn.std(), 0.25, rtol=0.03)
  fresh = cases.prepared()
  seeds = (tf.constant([1, 2]), tf.constant([3, 4]))
  one, other = (fresh.training_noise(x, seed) for seed in seeds)
  assert not np.any(one == other)


def _sessions(folder, **changes):
  """A run that is stopped after two steps, and the one that goes on with it."""
  found = [cases.method(variant="sepdp", **changes) for _ in range(2)]
  with pytest.raises(KeyboardInterrupt):
    found[0].fit(
      *cases.arrays(),
      run_dir=folder,
      callbacks=[interrupt.StopAfter(2)],
      verbose=0,
    )
  found[1].fit(*cases.arrays(), run_dir=folder, resume=True, verbose=0)
  return found


@pytest.mark.parametrize("seed", [None, 3])
def test_fixed_noise_stays_when_a_run_is_resumed(seed, tmp_path):
  x = tf.constant(cases.arrays(8)[0])
  noises = [
    found.training_noise(x, None)
    for found in _sessions(tmp_path / "run", input_noise="fixed", seed=seed)
  ]
  np.testing.assert_array_equal(*noises)
  if seed is None:
    files = (p for p in (tmp_path / "run").rglob("*") if p.is_file())
    kept = json.loads((tmp_path / "run/nonprivate/resume.json").read_text())
    shown = [p for p in files if p.parent.name != "nonprivate"]
    assert len(shown) > 3
    for secret in (kept["salt"].encode(), bytes.fromhex(kept["salt"])):
      assert not any(secret in path.read_bytes() for path in shown)
    other = cases.method(variant="sepdp", input_noise="fixed", seed=None)
    other.fit(*cases.arrays(), run_dir=tmp_path / "other", verbose=0)
    assert not np.any(other.training_noise(x, None) == noises[0])
