"""Writes the report of a run: one self-contained page and its data.

python -m experiments.report --run_dir=runs/demo
"""

from __future__ import annotations

from absl import flags

from experiments import command

_RUN_DIR = flags.DEFINE_string(
  "run_dir", None, "The run folder that train and evaluate wrote."
)


def main() -> None:
  """Writes the report and prints what it says and where it is."""
  from tf_privrob import report

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  written = report.write(_RUN_DIR.value)
  print(written.summary)
  print(f"Report: {written.html.resolve()}")


if __name__ == "__main__":
  command.run(main)
