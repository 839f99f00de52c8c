"""One check of a report: its status, what must hold, and what was found."""

from __future__ import annotations

import dataclasses

PASS = "pass"
NOTE = "note"
WARN = "warn"
FAIL = "fail"
NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class Check:
  """One comparison: its status, what must hold, and what was found."""

  status: str
  title: str
  detail: str
