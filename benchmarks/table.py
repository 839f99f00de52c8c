"""Tables and JSON files of the benchmarks, with the machine they ran on."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
from importlib import metadata
from typing import Any

_PACKAGES = (
  "tensorflow",
  "tensorflow-privacy",
  "keras",
  "cleverhans",
  "numpy",
)


def _text(value: Any) -> str:
  if isinstance(value, bool) or value is None:
    return {True: "yes", False: "no", None: "-"}[value]
  if isinstance(value, float):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
  return str(value)


def show(title: str, rows: list[dict[str, Any]]) -> None:
  """Prints rows under a title; columns appear in the order of first use."""
  print(f"\n{title}")
  if not rows:
    print("  (nothing was measured)")
    return
  columns = list(dict.fromkeys(key for row in rows for key in row))
  cells = [[_text(row.get(column)) for column in columns] for row in rows]
  widths = [max(map(len, texts)) for texts in zip(columns, *cells)]
  numeric = [
    all(isinstance(row.get(column), (int, float, type(None))) for row in rows)
    for column in columns
  ]

  def line(texts):
    parts = (
      text.rjust(width) if right else text.ljust(width)
      for text, width, right in zip(texts, widths, numeric)
    )
    return "  " + "  ".join(parts).rstrip()

  print(line(columns))
  print("  " + "  ".join("-" * width for width in widths))
  for texts in cells:
    print(line(texts), flush=True)


def machine() -> dict[str, Any]:
  """Returns processor, versions and date: what a figure depends on."""
  versions = {"python": platform.python_version()}
  for package in _PACKAGES:
    try:
      versions[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
      continue
  return {
    "cpu_count": os.cpu_count(),
    "processor": _processor(),
    "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    "platform": platform.platform(),
    "versions": versions,
    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
      timespec="seconds"
    ),
  }


def _processor() -> str:
  info = pathlib.Path("/proc/cpuinfo")
  if info.is_file():
    for text in info.read_text(encoding="utf-8").splitlines():
      if text.startswith("model name"):
        return text.split(":", 1)[1].strip()
  return platform.processor()


def write_json(path: str | os.PathLike, payload: Any) -> None:
  """Writes `{"machine": ..., "results": payload}`, in one piece or not at all.

  Args:
    path: file to write; missing folders are made.
    payload: anything that JSON can hold.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  text = json.dumps({"machine": machine(), "results": payload}, indent=2)
  draft = path.with_name(path.name + ".part")
  draft.write_text(text + "\n", encoding="utf-8")
  draft.replace(path)
