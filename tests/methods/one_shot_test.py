import json

import numpy as np
import pytest

from tf_privrob.methods import one_shot


def _count(folder):
  return json.loads((folder / "map.json").read_text())["releases"]


def _noise(seed, attempt):
  return np.random.default_rng(one_shot.seed_of(seed, attempt)).random(3)


def _never(attempt):
  raise AssertionError(f"the data were touched again, attempt {attempt}")


def _crash(attempt):
  raise KeyboardInterrupt


def test_in_memory_nothing_is_written(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  found, releases = one_shot.once(None, "map", False, lambda attempt: attempt)
  assert (found, releases) == (0, 1)
  assert not list(tmp_path.iterdir())


def test_the_count_is_on_disk_before_the_data_are_touched(tmp_path):
  folder = tmp_path / "deep" / "run"
  seen = []

  def compute(attempt):
    seen.append((attempt, _count(folder), (folder / "map.npy").exists()))
    return np.arange(3.0)

  found, releases = one_shot.once(folder, "map", False, compute)
  assert seen == [(0, 1, False)]
  assert releases == 1
  np.testing.assert_array_equal(np.load(folder / "map.npy"), found)
  assert {path.name for path in folder.iterdir()} == {"map.json", "map.npy"}


def test_resume_returns_the_same_array_without_computing(tmp_path):
  first, _ = one_shot.once(tmp_path, "map", False, lambda a: _noise(None, a))
  for _ in range(2):
    again, releases = one_shot.once(tmp_path, "map", True, _never)
    np.testing.assert_array_equal(again, first)
    assert releases == 1


def test_a_killed_release_is_counted_and_made_with_other_noise(tmp_path):
  noise = []

  def killed(attempt):
    noise.append(_noise(7, attempt))
    raise KeyboardInterrupt

  for resume in (False, True):
    with pytest.raises(KeyboardInterrupt):
      one_shot.once(tmp_path, "map", resume, killed)
  found, releases = one_shot.once(
    tmp_path, "map", True, lambda attempt: _noise(7, attempt)
  )
  assert releases == _count(tmp_path) == 3
  noise.append(found)
  for i in range(3):
    for j in range(i):
      assert (noise[i] != noise[j]).all()


def test_a_kill_while_the_result_is_written_counts_too(tmp_path, monkeypatch):
  def save(file, array):
    file.write(b"half")
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(np, "save", save)
    with pytest.raises(KeyboardInterrupt):
      one_shot.once(tmp_path, "map", False, lambda attempt: np.zeros(2))
  assert not (tmp_path / "map.npy").exists()
  found, releases = one_shot.once(tmp_path, "map", True, lambda a: np.ones(2))
  assert releases == 2
  np.testing.assert_array_equal(found, [1, 1])


@pytest.mark.parametrize("compute", [_crash, lambda attempt: np.zeros(2)])
def test_a_fresh_run_over_an_old_one_is_refused(tmp_path, compute):
  try:
    one_shot.once(tmp_path, "map", False, compute)
  except KeyboardInterrupt:
    pass
  with pytest.raises(ValueError, match=r"fresh run_dir.*resume=True"):
    one_shot.once(tmp_path, "map", False, _never)
  assert _count(tmp_path) == 1


def test_resume_of_nothing_begins(tmp_path):
  assert one_shot.once(tmp_path, "map", True, np.array) == (0, 1)


def test_names_do_not_share_a_count(tmp_path):
  one_shot.once(tmp_path, "map", False, lambda attempt: np.zeros(2))
  found = one_shot.once(tmp_path, "other", False, lambda attempt: np.ones(2))
  assert found[1] == 1
  np.testing.assert_array_equal(found[0], [1, 1])


@pytest.mark.parametrize("compute", [_crash, lambda attempt: np.zeros(2)])
def test_other_settings_than_those_counted_are_refused(tmp_path, compute):
  """An array of little noise must not pass for one of much noise."""
  try:
    one_shot.once(tmp_path, "map", False, compute, {"noise": 1.0, "clip": 2})
  except KeyboardInterrupt:
    pass
  for settings in ({"noise": 9.0, "clip": 2}, {"noise": 1.0}, {}):
    with pytest.raises(ValueError, match="other settings"):
      one_shot.once(tmp_path, "map", True, _never, settings)
  assert _count(tmp_path) == 1
  _, releases = one_shot.once(
    tmp_path, "map", True, lambda a: np.ones(2), {"noise": 1.0, "clip": 2}
  )
  assert releases == (2 if compute is _crash else 1)


def test_seeds_of_attempts():
  seeds = [one_shot.seed_of(s, a) for s in range(20) for a in range(20)]
  assert len(set(seeds)) == 400
  assert seeds == [one_shot.seed_of(s, a) for s in range(20) for a in range(20)]
  drawn = {one_shot.seed_of(None, 0) for _ in range(20)}
  assert len(drawn) == 20
  for seed in (*seeds, *drawn, one_shot.seed_of(2**64 - 1, 3)):
    assert 0 <= seed < 2**63
