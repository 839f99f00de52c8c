"""Runs the long cells of all studies, one at a time, over many sessions.

python -m experiments.grid.queue --list
python -m experiments.grid.queue --minutes=150 --nice

The next cell is the first of `agenda.AGENDA` that has no record yet. It runs in
a process of its own with the checkpoints of its study, below runs/studies, and
its record goes to results/. The queue may be stopped at any moment, and goes on
with the same command. Data come from $TF_PRIVROB_DATA.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Callable
from typing import Optional

from experiments.grid import agenda
from experiments.grid import engine as grid
from experiments.grid import estimates
from experiments.grid import flags as grid_flags
from experiments.grid import records as grid_records
from experiments.grid import studies
from tf_privrob import files
from tf_privrob.console import command

_STATE = "queue.json"
_LOCK = "queue.lock"
_EMBEDDED = ("", "mnist_5k", "digits")
_AUTOGROUP = "/proc/self/autogroup"  # of Linux
_PARENT_DIED = 1  # PR_SET_PDEATHSIG of Linux
_PATIENCE = 60.0  # seconds for a cell that is told to end
_LEAST = 5.0  # minutes worth starting a cell for that no session can finish


@dataclasses.dataclass(frozen=True)
class Places:
  """Where everything is.

  Attributes:
    runs: Folders of the studies, with checkpoints; not committed.
    records: Records of what is done; committed.
  """

  runs: pathlib.Path = pathlib.Path("runs/studies")
  records: pathlib.Path = pathlib.Path("results")


@dataclasses.dataclass(frozen=True)
class Task:
  """A cell of the agenda.

  Attributes:
    row: Where it stands in the agenda.
    cell: The cell.
    words: The command line behind `python`.
    recorded: Tells whether it has a record with the settings of today.
    waiting: Why it cannot be run yet, "" if it can.
    estimate: What it takes, measured or guessed.
  """

  row: agenda.Row
  cell: grid.Cell
  words: tuple[str, ...]
  recorded: Callable[[], bool]
  waiting: str
  estimate: estimates.Estimate

  @property
  def done(self) -> bool:
    """By the records of now: a training that is repeated undoes what is."""
    return self.recorded()

  @property
  def name(self) -> str:
    """Study, scale, data set and cell."""
    return self._name_of(self.cell)

  def needs(self) -> Iterator[str]:
    """Names of the trainings that must be done before."""
    cell = self.cell
    while cell.training != cell:
      cell = cell.training
      yield self._name_of(cell)

  def _name_of(self, cell: grid.Cell) -> str:
    row = self.row
    place = [row.study, row.scale, row.dataset, cell.name]
    return " ".join(word for word in place if word)


def tasks(rows: Sequence[agenda.Row], places: Places) -> list[Task]:
  """All cells of the agenda, each once, trainings before what needs them."""
  found: dict[tuple[str, str, str], Task] = {}
  known = {}
  store = grid_records.Store(places.records)
  for row in rows:
    key = (row.study, row.scale, row.dataset)
    if key not in known:
      experiment = studies.described(*key, places.runs)
      done = store.of(experiment)
      times = estimates.of_cells(experiment, done, rows)
      known[key] = experiment, done, times
    experiment, done, times = known[key]
    for cell in grid.select(experiment.cells, row.cells):
      place = (row.study, experiment.group, cell.name)
      if place not in found:
        estimate = times[cell.name]
        found[place] = _task(row, cell, experiment, places, estimate)
  return list(found.values())


def _task(row, cell, experiment, places: Places, estimate) -> Task:
  words = studies.command(experiment, row.scale, row.dataset, cell.name)
  store = grid_records.Store(places.records)

  def recorded():
    record = store.of_cell(experiment, cell)
    return bool(record) and record.fingerprint == experiment.fingerprint(cell)

  return Task(
    row,
    cell,
    (*words, f"--records={places.records}"),
    recorded,
    missing_data(row.dataset) or experiment.missing(cell),
    estimate,
  )


def missing_data(dataset: str) -> str:
  """Why a data set cannot be read here, "" if it can."""
  from tf_privrob.data import sources

  folder = os.environ.get(sources.DATA_VARIABLE)
  if dataset in _EMBEDDED:
    return ""
  if not folder:
    return f"${sources.DATA_VARIABLE} is not set, for {dataset}.npz"
  path = pathlib.Path(folder).expanduser() / f"{dataset}.npz"
  return "" if path.is_file() else f"there is no file {path}"


class Queue:
  """Runs tasks one at a time.

  Args:
    places: Where everything is.
    minutes: How long it may take.
    nice: Whether it runs at the lowest priority.
    clock: Gives the time in seconds.
  """

  def __init__(
    self,
    places: Places,
    minutes: float,
    nice: bool = False,
    clock: Callable[[], float] = time.monotonic,
  ):
    from tf_privrob import run_folder

    self._places = places
    self._minutes = minutes
    self._nice = nice
    self._folder = run_folder.RunFolder(places.runs)
    self._clock = clock
    self._deadline = clock() + 60 * minutes
    self._lock = -1

  def run(self, todo: Sequence[Task]) -> list[str]:
    """Runs what fits; returns the names of the cells that failed."""
    failed: list[Task] = []
    with self._locked():
      fresh = list(todo)
      while (task := self._next(fresh, failed)) is not None:
        fresh.remove(task)
        if not self._run_one(task):
          failed.append(task)
    return [task.name for task in failed]

  def _next(
    self, fresh: Sequence[Task], failed: Sequence[Task]
  ) -> Optional[Task]:
    """The first that is to be run; each is looked at again every time."""
    lost = {t.name for t in failed}
    for task in fresh if self._left() > 0 else ():
      if lost & set(task.needs()):
        continue
      if not task.waiting and self._fits(task) and not task.done:
        return task
    return None

  def _left(self) -> float:
    return (self._deadline - self._clock()) / 60

  def _fits(self, task: Task) -> bool:
    """Whether it can be done in time, or is longer than any session."""
    minutes = task.estimate.minutes
    needed = max(minutes - self.spent().get(task.name, 0.0), 1.0)
    if needed > self._minutes:
      return self._left() >= _LEAST
    return needed <= self._left()

  def spent(self) -> dict[str, float]:
    """Minutes that cells have run so far, by name."""
    return (self._folder.read_json(_STATE) or {}).get("spent", {})

  def _run_one(self, task: Task) -> bool:
    """Runs a cell until it is done or time is up; whether it did not fail."""
    left = f"{self._left():.0f} min left"
    about = f"about {task.estimate.minutes:.3g} min ({task.estimate.source})"
    print(f"{task.name}, {about}, {left}", flush=True)
    started, before = self._clock(), self.spent()
    before_others = {k: v for k, v in before.items() if k != task.name}
    log = self._folder.file(f"log/{task.name.replace('/', ' ')}.txt")
    files.append(log, f"{task.name} {' '.join(task.words)}\n")
    with open(log, "ab") as stream:
      child = subprocess.Popen(
        [sys.executable, *task.words],
        stdout=stream,
        stderr=stream,
        pass_fds=[self._lock],  # held as long as the cell runs
        preexec_fn=self._prepare,
      )
    try:
      while child.poll() is None and self._left() > 0:
        minutes = before.get(task.name, 0.0) + (self._clock() - started) / 60
        spent = {**before, task.name: round(minutes, 2)}
        self._folder.write_json(
          _STATE, {"running": task.name, "process": child.pid, "spent": spent}
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
          child.wait(min(10.0, max(60 * self._left(), 0.1)))
    finally:
      stopped = child.poll() is None
      if stopped:
        child.terminate()
      with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_PATIENCE)
      child.kill()  # the one that does not hear; nothing if it has ended
      child.wait()
    if stopped:
      print("Stopped at the limit; its checkpoints stay.", flush=True)
    elif child.returncode:
      print(f"Failed, exit code {child.returncode}, see {log}.", flush=True)
    elif not task.done:
      print(f"Failed: it left no record, see {log}.", flush=True)
    else:  # should it be stale one day, it takes all its time again
      self._folder.write_json(_STATE, {"spent": before_others})
    return stopped or (child.returncode == 0 and task.done)

  def _prepare(self) -> None:
    """In the process of a cell: low priority, and an end with the queue's."""
    import ctypes

    if self._nice:
      _yield_to_all()
    if sys.platform == "linux":
      ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGTERM)

  @contextlib.contextmanager
  def _locked(self) -> Iterator[None]:
    """Refuses a second queue in the same folder."""
    path = self._folder.file(_LOCK)
    with files.told(f"write {path}", "Choose a disk that may be written"):
      self._folder.path.mkdir(parents=True, exist_ok=True)
      self._lock = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
      if not _acquire(self._lock):
        raise ValueError(
          f"Expected no other queue in {self._folder.path}, found one at work"
          f" on {running(self._places)!r}. Wait for it, or end it."
        )
      yield
    finally:
      os.close(self._lock)


def _yield_to_all() -> None:
  """Gives this process the lowest priority, in every way that the system has.

  Where the kernel shares the processor among sessions, niceness counts within
  a session only; so the process gets a session, and that the lowest share.
  """
  os.setpriority(os.PRIO_PROCESS, 0, 19)
  with contextlib.suppress(OSError):
    os.setsid()
  with contextlib.suppress(OSError):
    descriptor = os.open(_AUTOGROUP, os.O_WRONLY)
    os.write(descriptor, b"19")
    os.close(descriptor)
  for name in ("SCHED_IDLE", "SCHED_BATCH"):
    if hasattr(os, name):
      with contextlib.suppress(OSError):
        os.sched_setscheduler(0, getattr(os, name), os.sched_param(0))
        return


def _acquire(descriptor: int) -> bool:
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


def running(places: Places) -> str:
  """The name of the cell that runs now, "" if none does."""
  from tf_privrob import run_folder

  folder = run_folder.RunFolder(places.runs)
  if not folder.has(_LOCK):
    return ""
  with open(folder.file(_LOCK), "rb") as stream:
    if _acquire(stream.fileno()):
      return ""
  return (folder.read_json(_STATE) or {}).get("running", "")


def listing(todo: Sequence[Task], now: str, spent: dict[str, float]) -> str:
  """One line for each cell below what it is for, and what is left in all."""
  lines, totals, why = [], {}, ""
  for task in todo:
    if task.row.why != why:
      why = task.row.why
      lines.append(f"For {why}:")
    state, done = "waiting" if task.waiting else "left", task.done
    state = "done" if done else state
    state = "running" if task.name == now else state
    count, minutes = totals.get(state, (0, 0.0))
    totals[state] = (count + 1, minutes + task.estimate.minutes)
    line = f"{state:8}{task.estimate.minutes:6.3g} min  {task.name}"
    line += f" ({task.estimate.source})"
    if task.name in spent and not done:
      line += f" ({spent[task.name]:.0f} min run so far)"
    if state == "waiting":
      line += f" ({task.waiting})"
    lines.append(line)
  words = [
    f"{count} {state} ({minutes / 60:.1f} h)"
    for state, (count, minutes) in totals.items()
  ]
  return "\n".join([*lines, f"Estimated: {', '.join(words)}."])


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the queue.

  Attributes:
    minutes: No cell is started that does not fit, none runs longer.
    nice: Run at the lowest priority.
    list: Show what is done, running and left.
  """

  minutes: float = 150.0
  nice: bool = False
  list: bool = False


def main(options: Options, call: command.Call) -> None:
  """Shows the list, or runs what fits."""
  del call
  os.chdir(grid_records.ROOT)
  if not options.minutes > 0:
    raise ValueError(f"Expected --minutes above 0, received {options.minutes}.")
  places = Places()
  queue = Queue(places, options.minutes, options.nice)
  todo = tasks(agenda.AGENDA, places)
  if options.list:
    print(listing(todo, running(places), queue.spent()))
    return
  try:
    failed = queue.run(todo)
  except KeyboardInterrupt:
    sys.exit("Stopped. What was done is on disk; the same command goes on.")
  if failed:
    raise ValueError(
      f"Expected every cell to end well, but these failed: {', '.join(failed)}."
      " Their logs are in runs/studies/log; the same command tries them again."
    )


if __name__ == "__main__":
  grid_flags.start(sys.modules[__name__])
