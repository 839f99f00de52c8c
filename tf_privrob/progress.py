"""One progress line with a rate and an ETA, for terminals and log files."""

from __future__ import annotations

import datetime
import sys
import time
from typing import Callable
from typing import TextIO


class Progress:
  """Reports `done/total`, the rate and the time left.

  A terminal sees one line that is rewritten; a log file sees a new line at
  most every `interval` seconds, so hours of work stay readable.

  Args:
    total: Units of work in all, counting those `done` by an earlier session.
    label: What is being done.
    done: Units that were done before this session (a resumed run).
    interval: Seconds between two lines; 0.2 on a terminal.
    stream: Where to write, standard error by default.
    clock: Seconds; a test passes its own.
  """

  def __init__(
    self,
    total: int,
    label: str,
    done: int = 0,
    interval: float = 10.0,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
  ):
    self._total = total
    self._label = label
    self._start_done = done
    self._done = done
    self._stream = sys.stderr if stream is None else stream
    self._terminal = self._stream.isatty()
    self._interval = min(interval, 0.2) if self._terminal else interval
    self._clock = clock
    self._started = self._shown = clock()

  def update(self, count: int = 1, note: str = "") -> None:
    """Counts `count` more units and shows the line if it is due."""
    self._done += count
    now = self._clock()
    if now - self._shown >= self._interval or self._done >= self._total:
      self._shown = now
      self._write(now, note)

  def _write(self, now: float, note: str) -> None:
    elapsed = max(now - self._started, 1e-9)
    rate = (self._done - self._start_done) / elapsed
    left = max(self._total - self._done, 0)
    eta = datetime.timedelta(seconds=round(left / rate)) if rate > 0 else "?"
    line = (
      f"{self._label}: {self._done}/{self._total}"
      f" ({100 * self._done / max(self._total, 1):.0f}%)"
      f"  {rate:.3g}/s  ETA {eta}{'  ' + note if note else ''}"
    )
    end = "\n" if not self._terminal or self._done >= self._total else ""
    start = "\r\x1b[K" if self._terminal else ""
    self._stream.write(start + line + end)
    self._stream.flush()
