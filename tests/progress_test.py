from __future__ import annotations

import io

import pytest

from tf_privrob import progress


class _Clock:
  def __init__(self):
    self.now = 100.0

  def __call__(self):
    return self.now


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def _run(stream, units, seconds, **kwargs):
  """Does `units` units of work, each of which takes `seconds`."""
  clock = _Clock()
  line = progress.Progress(stream=stream, clock=clock, **kwargs)
  for _ in range(units):
    clock.now += seconds
    line.update()
  return stream.getvalue()


def test_a_line_in_a_log_file_by_hand():
  text = _run(io.StringIO(), 1, 10.0, total=10, label="certify")
  assert text == "certify: 1/10 (10%)  0.1/s  ETA 0:01:30\n"


def test_a_log_file_gets_a_line_an_interval_and_the_last_one():
  text = _run(io.StringIO(), 100, 1.0, total=100, label="train")
  lines = text.splitlines()
  assert len(lines) == 10
  assert lines[0].startswith("train: 10/100 (10%)  1/s  ETA 0:01:30")
  assert lines[-1].startswith("train: 100/100 (100%)  1/s  ETA 0:00:00")
  assert "\r" not in text


def test_quick_work_shows_only_its_end():
  text = _run(io.StringIO(), 50, 0.01, total=50, label="attack")
  assert text.count("\n") == 1
  assert "50/50 (100%)" in text


def test_a_terminal_rewrites_one_line():
  text = _run(_Terminal(), 4, 1.0, total=4, label="train")
  assert text.count("\r\x1b[K") == 4
  assert text.count("\n") == 1
  assert text.endswith("\n")


def test_a_terminal_is_not_flooded():
  text = _run(_Terminal(), 1000, 0.01, total=1000, label="train")
  assert 40 <= text.count("\r") <= 60  # 10 seconds at five lines a second


def test_a_resumed_run_counts_all_but_times_only_its_own():
  text = _run(io.StringIO(), 1, 10.0, total=100, label="train", done=80)
  assert text == "train: 81/100 (81%)  0.1/s  ETA 0:03:10\n"


def test_a_note_and_several_units_at_once():
  stream, clock = io.StringIO(), _Clock()
  line = progress.Progress(8, "attack", stream=stream, clock=clock)
  clock.now += 2
  line.update(8, note="accuracy 0.5")
  assert stream.getvalue() == (
    "attack: 8/8 (100%)  4/s  ETA 0:00:00  accuracy 0.5\n"
  )


def test_no_rate_means_no_eta():
  stream, clock = io.StringIO(), _Clock()
  line = progress.Progress(8, "attack", stream=stream, clock=clock)
  clock.now += 20
  line.update(0)
  assert "ETA ?" in stream.getvalue()


@pytest.mark.parametrize(("total", "count"), [(0, 0), (2, 5)])
def test_odd_totals_do_not_break_the_work(total, count):
  stream, clock = io.StringIO(), _Clock()
  line = progress.Progress(total, "attack", stream=stream, clock=clock)
  clock.now += 1
  line.update(count)
  assert f"attack: {count}/{total}" in stream.getvalue()
  assert "-" not in stream.getvalue()


def test_standard_error_is_the_default(capsys):
  progress.Progress(1, "work").update()
  captured = capsys.readouterr()
  assert captured.out == ""
  assert captured.err.startswith("work: 1/1 (100%)")
