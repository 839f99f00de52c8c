"""The file under a ledger: it only grows, and only one process may write it.

A line is on the disk before `append` returns. Whoever is interrupted in it must
close the file: what is on the disk is the truth, and only a resume reads that.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import secrets
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

import tf_privrob
from tf_privrob import files
from tf_privrob.privacy import ledger_format

try:
  import fcntl
except ImportError:  # Not on Windows: there, nothing guards against two runs.
  fcntl = None

_RESUME = (
  "the step must not be taken. Free the disk and resume; what was half written"
  " counts."
)
_ADVICE = {
  "fact": "the step must not be taken. What bears on the proof may be lost:"
  " free the disk and begin a new run_dir.",
  "statement": "privacy.json stays as it was. Free the disk and do this again.",
}
# Waits until what was written is on the disk.
sync_data = getattr(os, "fdatasync", os.fsync)


class LedgerFile:
  """An open file of checked lines, made by `begin` or `resume`.

  Attributes:
    path: The path of the file.
  """

  def __init__(self, fd: int, path: str):
    self._fd: int | None = fd
    self._pid = os.getpid()
    self.path = path
    self._size = os.fstat(fd).st_size
    self._checksums = {"": None}  # In their order, and quick to look up.

  @classmethod
  def create(
    cls, path: str, lines: Callable[[LedgerFile], Iterable[dict]]
  ) -> LedgerFile:
    """A new file with the given first lines: it is whole, or it is not there.

    It is written and locked under another name: no header is ever torn.
    """
    draft = f"{path}.{secrets.token_hex(16)}.tmp"
    try:
      os.makedirs(os.path.dirname(path), exist_ok=True)
      flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND
      file = cls(os.open(draft, flags, 0o644), draft)
    except OSError as error:
      raise ledger_format.LedgerError(
        f"Cannot begin a ledger at {path} ({error}). Choose a run_dir that can"
        " be written."
      ) from error
    try:
      _lock(file._fd, path)
      for line in lines(file):
        file.append(line)
      _give_name(draft, path)
      files.sync(os.path.dirname(path))
    except BaseException:
      file.close()
      raise
    finally:
      with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    file.path = path
    return file

  @classmethod
  def open(cls, path: str) -> tuple[LedgerFile, ledger_format.History]:
    """The locked file at `path`, and what it says."""
    try:
      file = cls(os.open(path, os.O_RDWR | os.O_APPEND), path)
    except FileNotFoundError:
      raise ledger_format.LedgerError(
        f"Expected a ledger to resume at {path}, found none. If the run never"
        " began, start it without resume; if the file was lost, the steps its"
        " weights have seen are unknown: begin a new run_dir."
      ) from None
    except OSError as error:
      raise ledger_format.LedgerError(
        f"Expected a ledger to resume at {path}, but it cannot be opened"
        f" ({error}). Give this user the right to write it."
      ) from error
    try:
      _lock(file._fd, path)
      history = ledger_format.read(path)
    except BaseException:
      file.close()
      raise
    file._size = history.size + len(history.torn)
    file._checksums = dict.fromkeys(history.checksums)
    return file, history

  @property
  def closed(self) -> bool:
    """Whether nothing can be written any more."""
    return self._fd is None

  @property
  def checksum(self) -> str:
    """Over all lines so far."""
    return next(reversed(self._checksums))

  def knows(self, checksum: str) -> bool:
    """Whether it was the checksum after one of the lines."""
    return checksum != "" and checksum in self._checksums

  def place(self, run: str) -> str:
    """Where the file lies, told only to those who know the run."""
    found = os.fstat(self._fd)
    place = f"{run} {found.st_dev} {found.st_ino}"
    return hashlib.sha256(place.encode()).hexdigest()[:32]

  def append(self, line: dict) -> None:
    """Writes a line; on return it is on the disk.

    All but charges and facts get the time, to the minute. A step takes longer
    with more examples, so that times between steps would tell the sizes of the
    samples.
    """
    self.check()
    if line["type"] not in ("charge", "fact"):
      now = datetime.datetime.now(datetime.timezone.utc)
      line = {**line, "time": now.isoformat(timespec="minutes")}
    text, checksum = ledger_format.encode(line, self.checksum)
    try:
      written = 0
      while written < len(text):
        written += os.write(self._fd, text[written:])
      sync_data(self._fd)
    except OSError as error:
      if line["type"] == "statement":  # half of it would count as a charge
        with contextlib.suppress(OSError):
          self.cut(self._size)
      raise ledger_format.LedgerError(
        f"Cannot write ledger {self.path} ({error}):"
        f" {_ADVICE.get(line['type'], _RESUME)}"
      ) from error
    self._size += len(text)
    self._checksums[checksum] = None

  def check(self) -> None:
    """Requires the file to be open, in its place, and as it was left."""
    if self._fd is None or os.getpid() != self._pid:
      raise ledger_format.LedgerError(
        f"Ledger {self.path} is closed or was opened by another process:"
        " no step may be taken. Open it with resume=True."
      )
    here = os.fstat(self._fd)
    try:
      same = os.path.samestat(os.stat(self.path), here)
    except OSError:
      same = False
    if not same or here.st_size != self._size:
      raise ledger_format.LedgerError(
        f"Ledger {self.path} was moved, removed or changed while it was in"
        " use: no step may be taken. Put it back and open it with resume=True,"
        " or begin a new run_dir."
      )

  def cut(self, size: int) -> None:
    """Takes an unfinished last line away."""
    os.ftruncate(self._fd, size)
    self._size = size

  def close(self) -> None:
    """Closes the file and lets other processes resume."""
    if self._fd is not None:
      os.close(self._fd)
      self._fd = None


def begin(path: str, parameters: dict) -> LedgerFile:
  """A new ledger with its header and its first session."""
  run = secrets.token_hex(16)
  header = {
    "type": "header",
    "format": ledger_format.FORMAT,
    "library": "tf_privrob",
    "version": tf_privrob.__version__,
    "run": run,
    "parameters": parameters,
  }
  return LedgerFile.create(
    path, lambda file: (header, _session_line(0, 0, file.place(run)))
  )


def resume(path: str, parameters: dict) -> LedgerFile:
  """The ledger of the same run, its last line mended, with a new session."""
  file, history = LedgerFile.open(path)
  try:
    if history.format != ledger_format.FORMAT:
      raise ledger_format.LedgerError(
        f"Cannot resume {path}: expected a ledger of format"
        f" {ledger_format.FORMAT}, received format {history.format} of version"
        f" {history.version}, whose checkpoints cannot be checked against it."
        " Begin a new run_dir."
      )
    ledger_format.require_same(path, "run", history.parameters, parameters)
    _mend(file, history)
    session = history.sessions[-1]["session"] + 1
    place = file.place(history.run)
    file.append(_session_line(session, history.steps, place))
  except BaseException:
    file.close()
    raise
  return file


def _mend(file: LedgerFile, history: ledger_format.History) -> None:
  """Puts what a torn last line counts as in its place."""
  if history.torn:
    # What it was to pay for never began: a crash in here may lose the line,
    # and the count is still not too low.
    file.cut(history.size)
  if history.mended:
    file.append(history.mended)


@contextlib.contextmanager
def noting(
  path: str | os.PathLike,
  statement: str | os.PathLike,
  text: str,
  anew: bool,
) -> Iterator[None]:
  """Notes the text that a statement is given within the block.

  The line counts nothing. It is on the disk before the block, and tells of what
  the file holds until then as well; a second one, after the block, of the new
  text alone. Where nobody has noted that, the new text
  is not noted either unless it is `anew`: an edit by hand does not become the
  run's own by an audit. Ledgers of format 1 have no such lines.

  Args:
    path: Path of the ledger, which nobody else may write within the block.
    statement: Path of privacy.json.
    text: What it is about to hold.
    anew: Whether the training itself says so; False: made of the text before.

  Raises:
    LedgerError: If the ledger is damaged, in use or cannot be written.
  """
  file, history = LedgerFile.open(os.path.abspath(path))
  with contextlib.closing(file):
    before = files.read_bytes(statement)
    known = history.noted(before)
    if history.format == ledger_format.FORMAT and (known or anew):
      _mend(file, history)
      line = {"type": "statement", "sha256": _hash(text.encode("utf-8"))}
      kept = known and before is not None
      file.append({**line, "before": _hash(before) if kept else None})
      yield
      if kept:  # the earlier text is not the run's any more
        file.append({**line, "before": None})
    else:
      yield


def _hash(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()


def _session_line(session: int, steps: int, place: str) -> dict:
  return {
    "type": "session",
    "session": session,
    "id": secrets.token_hex(16),
    "steps": steps,
    "place": place,
    "version": tf_privrob.__version__,
    "pid": os.getpid(),
  }


def _lock(fd: int, path: str) -> None:
  """Takes the ledger for this process alone, until it ends."""
  if fcntl is None:
    return
  try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except (BlockingIOError, PermissionError):
    raise ledger_format.LedgerError(
      f"Ledger {path} is in use by another process: two runs cannot share a"
      " budget. Wait for it to end, or choose another run_dir."
    ) from None
  except OSError as error:
    raise ledger_format.LedgerError(
      f"Expected to lock ledger {path}, but the file system cannot ({error})."
      " Choose a run_dir on a local disk."
    ) from error


def _give_name(draft: str, path: str) -> None:
  """Links the draft to its name unless that is taken."""
  taken = ledger_format.LedgerError(
    f"A ledger exists at {path}: pass resume=True or choose another run_dir."
  )
  try:
    os.link(draft, path)
  except FileExistsError:
    raise taken from None
  except OSError:  # A file system without links.
    if os.path.exists(path):
      raise taken from None
    os.rename(draft, path)
