"""Writes the report of a run, or a comparison of several.

python -m tf_privrob report --run_dir=runs/demo
python -m tf_privrob report --compare=runs/a,runs/b --out=runs/compare.html

The report is one self-contained page, the same as Markdown and as JSON, and
scalars for TensorBoard.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    run_dir: The run folder that train and evaluate wrote.
    compare: Run folders to put side by side, instead of --run_dir.
    out: The page of --compare.
    tensorboard: Write the figures to tb/report of the run as well.
  """

  run_dir: Optional[str] = None
  compare: tuple[str, ...] = ()
  out: str = "runs/compare.html"
  tensorboard: bool = True


def main(options: Options, call: command.Call) -> None:
  """Writes the report and prints what it says and where it is."""
  from tf_privrob import report

  del call
  if options.compare:
    if options.run_dir:
      raise ValueError("Expected --run_dir or --compare, received both.")
    written = report.compare(options.compare, options.out)
    if written.summary:
      print(written.summary)
    print(f"Comparison: {written.html.resolve()}")
    return
  command.folder(options.run_dir, trained=False)
  written = report.write(options.run_dir, tensorboard=options.tensorboard)
  print(written.summary)
  print(f"Report: {written.html.resolve()}")
