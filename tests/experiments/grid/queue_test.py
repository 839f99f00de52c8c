"""The queue: order, limits, stops, and an agenda that names real cells."""

import dataclasses
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from experiments.grid import agenda
from experiments.grid import estimates
from experiments.grid import queue as grid_queue

_ROOT = pathlib.Path(__file__).parents[3]
_SESSION = 150.0  # minutes of `make studies`


@dataclasses.dataclass(frozen=True)
class Cell:
  model: str
  part: str

  @property
  def name(self):
    return f"{self.model}/{self.part}"

  @property
  def training(self):
    return Cell(self.model, "train")


def task_of(
  name, code="pass", minutes=1.0, done=False, waiting="", record=None
):
  """Its record is a file, or else there from the second look at it."""
  row = agenda.Row("tiny", "small", "digits", name, minutes, "a test")
  estimate = estimates.Estimate(minutes, "guess")
  looks = iter([done])
  recorded = record.exists if record else lambda: next(looks, True)
  return grid_queue.Task(
    row, Cell(*name.split("/")), ("-c", code), recorded, waiting, estimate
  )


@pytest.fixture
def places(tmp_path):
  return grid_queue.Places(tmp_path / "runs", tmp_path / "records")


def _touch(path):
  return f"import pathlib; pathlib.Path({str(path)!r}).touch()"


def test_cells_run_in_order_unless_done_or_waiting(places, tmp_path, capsys):
  todo = [
    task_of("a/train", _touch(tmp_path / "a"), done=True),
    task_of("b/train", _touch(tmp_path / "b"), waiting="no data"),
    task_of("c/train", _touch(tmp_path / "c")),
    task_of("d/train", _touch(tmp_path / "d")),
  ]
  assert grid_queue.Queue(places, 10).run(todo) == []
  ran = [name for name in "abcd" if (tmp_path / name).exists()]
  assert ran == ["c", "d"]
  lines = capsys.readouterr().out.splitlines()
  assert [line.split(",")[0] for line in lines] == [
    "tiny small digits c/train",
    "tiny small digits d/train",
  ]


def test_a_cell_that_does_not_fit_is_not_started(places, tmp_path):
  todo = [
    task_of("a/train", _touch(tmp_path / "a"), minutes=5.0),
    task_of("b/train", _touch(tmp_path / "b"), minutes=1.0),
  ]
  clock = iter([0.0])  # half of the session is over when the first is looked at
  queue = grid_queue.Queue(places, 6, clock=lambda: next(clock, 180.0))
  queue.run(todo)
  assert not (tmp_path / "a").exists()
  assert (tmp_path / "b").exists()


def test_a_cell_longer_than_any_session_is_started(places, tmp_path):
  queue = grid_queue.Queue(places, 6)
  queue.run([task_of("a/train", _touch(tmp_path / "a"), minutes=600.0)])
  assert (tmp_path / "a").exists()


def test_a_running_cell_is_stopped_at_the_limit(places, capsys):
  clock = itertools.count(0, 30)  # half a minute passes at every look
  queue = grid_queue.Queue(places, 3, clock=lambda: next(clock))
  todo = [task_of("a/train", "import time; time.sleep(90)"), task_of("b/train")]
  started = time.monotonic()
  assert queue.run(todo) == []
  assert time.monotonic() - started < 60
  lines = capsys.readouterr().out.splitlines()
  assert "Stopped at the limit; its checkpoints stay." in lines
  assert len(lines) == 2  # the second was not started


def test_a_failed_training_takes_its_cells_along_only(places, tmp_path):
  todo = [
    task_of("a/train", "raise SystemExit(3)"),
    task_of("a/attack", _touch(tmp_path / "a")),
    task_of("b/train", _touch(tmp_path / "b")),
  ]
  failed = grid_queue.Queue(places, 10).run(todo)
  assert failed == ["tiny small digits a/train"]
  assert not (tmp_path / "a").exists()
  assert (tmp_path / "b").exists()


def test_a_failed_measurement_takes_nothing_along(places, tmp_path):
  """Nor does one of another model, or another case of a shared folder."""
  todo = [
    task_of("a/train"),
    task_of("a/attack", "raise SystemExit(3)"),
    task_of("a/certify", _touch(tmp_path / "a")),
  ]
  failed = grid_queue.Queue(places, 10).run(todo)
  assert failed == ["tiny small digits a/attack"]
  assert (tmp_path / "a").exists()


def test_a_cell_that_leaves_no_record_has_failed(places, tmp_path, capsys):
  record = tmp_path / "record"
  todo = [task_of("a/train", record=record), task_of("a/attack")]
  assert grid_queue.Queue(places, 10).run(todo) == [todo[0].name]
  lines = capsys.readouterr().out.splitlines()
  assert lines[1].startswith("Failed: it left no record, see ")
  assert len(lines) == 2  # nothing is measured of it
  todo = [task_of("a/train", _touch(record), record=record)]
  assert grid_queue.Queue(places, 10).run(todo) == []


def test_what_a_training_undoes_is_done_again(places, tmp_path):
  """Its record goes where the training is repeated for another cell."""
  stale = tmp_path / "certified"
  stale.touch()
  undo = f"import os; os.remove({str(stale)!r})"
  todo = [
    task_of("a/certify", _touch(stale), record=stale),
    task_of("a/attack", undo),
  ]
  queue = grid_queue.Queue(places, 10)
  assert queue.run(todo) == []
  assert stale.exists()
  assert queue.spent() == {}  # it would take all its time again


def test_a_cell_that_does_not_end_at_the_limit_is_killed(places, monkeypatch):
  monkeypatch.setattr(grid_queue, "_PATIENCE", 1.0)
  code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
  clock = itertools.count(0, 30)
  queue = grid_queue.Queue(places, 3, clock=lambda: next(clock))
  started = time.monotonic()
  assert queue.run([task_of("a/train", f"{code}; time.sleep(90)")]) == []
  assert time.monotonic() - started < 80


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
  (tmp_path / "runs").write_text("a file")
  places = grid_queue.Places(tmp_path / "runs", tmp_path / "records")
  with pytest.raises(ValueError, match="runs"):
    grid_queue.Queue(places, 10).run([task_of("a/train")])


_PRIORITY = """
import os
nice, policy = os.nice(0), os.sched_getscheduler(0)
own = os.getsid(0) == os.getpid()
open({path!r}, "w").write(f"{{nice}} {{policy}} {{own}}")
"""


@pytest.mark.parametrize("there", [True, False])
def test_the_priority_is_the_lowest(places, tmp_path, monkeypatch, there):
  """Also among sessions, where the kernel shares the processor by them."""
  path, group = tmp_path / "nice", tmp_path / "autogroup"
  monkeypatch.setattr(grid_queue, "_AUTOGROUP", str(group))
  if there:
    group.write_text("/autogroup-38 nice 0")
  code = _PRIORITY.format(path=str(path))
  queue = grid_queue.Queue(places, 10, nice=True)
  assert queue.run([task_of("a/train", code)]) == []
  idle = getattr(os, "SCHED_IDLE", None)
  nice, policy, own = path.read_text().split()
  assert (nice, own) == ("19", "True")
  assert idle is None or int(policy) in (idle, os.SCHED_BATCH)
  assert group.exists() == there
  assert not there or group.read_text().startswith("19")


_KILLED = """
import pathlib
from experiments.grid import agenda
from experiments.grid import queue
from tests.experiments.grid import queue_test
places = queue.Places(pathlib.Path({runs!r}), pathlib.Path({records!r}))
code = "import os, time; open({child!r}, 'w').write(str(os.getpid()));"
code += "time.sleep(180)"
queue.Queue(places, 10).run([queue_test.task_of("a/train", code)])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the cell")
def test_a_killed_queue_takes_its_cell_along(places, tmp_path):
  child = tmp_path / "child"
  words = {"runs": places.runs, "records": places.records, "child": child}
  code = _KILLED.format(**{k: str(v) for k, v in words.items()})
  process = subprocess.Popen(
    [sys.executable, "-c", textwrap.dedent(code)], cwd=_ROOT
  )
  try:
    _wait(lambda: child.exists() and child.read_text())
    name = "tiny small digits a/train"
    _wait(lambda: grid_queue.running(places) == name)
    with pytest.raises(ValueError, match="found one at work on 'tiny small"):
      grid_queue.Queue(places, 10).run([task_of("b/train")])
  finally:
    process.send_signal(signal.SIGKILL)
    process.wait()
  _wait(lambda: not _runs(int(child.read_text())))
  _wait(lambda: grid_queue.running(places) == "")
  again = grid_queue.Queue(places, 10)
  assert name in again.spent()
  assert again.run([task_of("a/train", _touch(tmp_path / "again"))]) == []
  assert (tmp_path / "again").exists()


def _wait(condition):
  for _ in range(300):
    if condition():
      return
    time.sleep(0.1)
  pytest.fail("waited in vain")


def _runs(process):
  try:
    text = pathlib.Path(f"/proc/{process}/stat").read_text()
  except OSError:
    return False
  return text.rsplit(")", 1)[1].split()[0] != "Z"


def test_the_list_shows_states_and_the_total():
  todo = [
    task_of("a/train", done=True, minutes=30),
    task_of("b/train", minutes=60),
    task_of("c/train", minutes=90, waiting="there is no file x.npz"),
    task_of("d/train", minutes=15),
  ]
  name = "tiny small digits b/train"
  text = grid_queue.listing(todo, name, {name: 12.0})
  assert text.splitlines()[0] == "For a test:"
  assert [line.split()[0] for line in text.splitlines()[1:-1]] == [
    "done",
    "running",
    "waiting",
    "left",
  ]
  assert "b/train (guess) (12 min run so far)" in text
  assert "c/train (guess) (there is no file x.npz)" in text
  total = "1 done (0.5 h), 1 running (1.0 h), 1 waiting (1.5 h), 1 left (0.2 h)"
  assert f"Estimated: {total}." in text


def test_absent_data_are_a_reason_to_wait(monkeypatch, tmp_path):
  monkeypatch.delenv("TF_PRIVROB_DATA", raising=False)
  assert "TF_PRIVROB_DATA is not set" in grid_queue.missing_data("usps")
  monkeypatch.setenv("TF_PRIVROB_DATA", str(tmp_path))
  assert "there is no file" in grid_queue.missing_data("usps")
  (tmp_path / "usps.npz").touch()
  assert grid_queue.missing_data("usps") == ""
  assert grid_queue.missing_data("digits") == ""


@pytest.fixture(scope="module")
def every(tmp_path_factory):
  """The cells of the agenda, none of them done."""
  folder = tmp_path_factory.mktemp("agenda")
  places = grid_queue.Places(folder / "runs", folder / "records")
  return grid_queue.tasks(agenda.AGENDA, places)


def test_the_agenda_names_cells_and_trainings_come_first(every):
  assert not any(task.done for task in every)
  seen = set()
  for task in every:
    place = (task.row.study, task.row.scale, task.row.dataset)
    training = task.cell.training
    assert training == task.cell or (*place, training.name) in seen, task.name
    seen.add((*place, task.cell.name))


def test_no_training_takes_the_estimate_of_a_measurement(every):
  """A row that brings a training along would give it a wrong estimate."""
  for task in every:
    assert task.row.cells in task.cell.name, task.name


def test_what_no_session_can_finish_has_checkpoints(every):
  for task in every:
    if task.estimate.minutes > _SESSION:
      assert task.cell.part == "train", task.name


def test_commands_of_the_queue_are_understood(every):
  task = every[0]
  done = subprocess.run(
    [sys.executable, *task.words, "--help"],
    cwd=_ROOT,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
    check=False,
  )
  assert "Unknown command line flag" not in done.stderr
  assert "python -m experiments.audits" in done.stdout
