"""The console command: `tf-privrob train`, or `python -m tf_privrob train`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from tf_privrob import validate
from tf_privrob.console import command

COMMANDS = {
  "train": "trains a model into a run folder",
  "evaluate": "attacks and certifies the model of a run folder",
  "certify": "certifies it and attacks nothing",
  "infer": "infers who was in its training set",
  "lira": "the same by reference models, the stronger attack",
  "audit": "bounds its dp_epsilon from below by attacking the training",
  "audit_certificates": "attacks inside its certified radii",
  "report": "writes one page: what you may promise",
  "public_classifier": "trains a classifier on public data",
}


def module(name: str):
  """The module of a command.

  Raises:
    ValueError: For an unknown name, with the nearest known one.
  """
  validate.one_of(COMMANDS, command=name)
  return importlib.import_module(f"{__name__}.{name}")


def main(words: Sequence[str] | None = None) -> None:
  """Runs the command that the words begin with.

  Args:
    words: The command and its flags; None: those of the process.
  """
  words = list(sys.argv[1:] if words is None else words)
  if not words or words[0].lstrip("-") in ("help", "h"):
    print(_overview())
    return
  try:
    found = module(words[0])
  except ValueError as error:
    print(f"tf-privrob: {error}", file=sys.stderr)
    sys.exit(2)
  command.run(f"{command.PROGRAM} {words[0]}", found, words[1:])


def run(name: str) -> None:
  """One command as a binary of its own: `python -m experiments.<name>`."""
  command.run(f"python -m experiments.{name}", module(name), sys.argv[1:])


def _overview() -> str:
  width = max(map(len, COMMANDS))
  lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
  return "\n".join(
    [
      __doc__,
      "",
      *lines,
      "",
      f"{command.PROGRAM} <command> --help lists its flags.",
    ]
  )
