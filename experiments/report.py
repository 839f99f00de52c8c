"""Writes the report of a run, or a comparison of several.

python -m experiments.report --run_dir=runs/demo
python -m experiments.report --compare=runs/a,runs/b --out=runs/compare.html

The report is one self-contained page, the same as Markdown and as JSON, and
scalars for TensorBoard.
"""

from __future__ import annotations

from absl import flags

from experiments import command

_RUN_DIR = flags.DEFINE_string(
  "run_dir", None, "The run folder that train and evaluate wrote."
)
_COMPARE = flags.DEFINE_list(
  "compare", [], "Run folders to put side by side, instead of --run_dir."
)
_OUT = flags.DEFINE_string("out", "runs/compare.html", "The page of --compare.")
_TENSORBOARD = flags.DEFINE_bool(
  "tensorboard", True, "Write the figures to tb/report of the run as well."
)


def main() -> None:
  """Writes the report and prints what it says and where it is."""
  from tf_privrob import report

  if _COMPARE.value:
    if _RUN_DIR.value:
      raise ValueError("Expected --run_dir or --compare, received both.")
    written = report.compare(_COMPARE.value, _OUT.value)
    if written.summary:
      print(written.summary)
    print(f"Comparison: {written.html.resolve()}")
    return
  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  written = report.write(_RUN_DIR.value, tensorboard=_TENSORBOARD.value)
  print(written.summary)
  print(f"Report: {written.html.resolve()}")


if __name__ == "__main__":
  command.run(main)
