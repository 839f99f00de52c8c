"""All benchmarks, one after the other: `make bench`.

Each prints a table; with BENCH_JSON=folder each writes its JSON there too.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

_BENCHMARKS = (
  "gradients",
  "noise",
  "memory",
  "attacks",
  "smoothing",
  "dpal",
  "transformation",
  "halfspaces",
  "bounds",
  "robust",
  "membership",
)


def main() -> int:
  """Runs them; returns the number that failed."""
  folder = os.environ.get("BENCH_JSON")
  failed = 0
  for name in _BENCHMARKS:
    words = [sys.executable, "-m", f"benchmarks.{name}"]
    if folder:
      pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
      words.append(f"--json={pathlib.Path(folder) / name}.json")
    failed += subprocess.run(words, check=False).returncode != 0
  return failed


if __name__ == "__main__":
  sys.exit(main())
