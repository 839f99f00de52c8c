"""What the binaries share: flags from settings, and errors without traces."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import typing
from typing import Any
from typing import Callable

from absl import app
from absl import flags

_PREFIX = "config."
# TensorFlow's start-up lines, among them errors about GPUs that are not there.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Off by default on processors without AVX-512, where it is 2 to 3 times faster.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def run(
  main: Callable[[], None], settings: Callable[[], Any] | None = None
) -> None:
  """Runs a binary; bad input ends it with one sentence and exit code 2.

  Args:
    main: the job.
    settings: gives the dataclass whose fields become `--config.<field>` flags.
      It may look at the other flags, which are parsed by then.
  """

  def parse(argv: list[str]) -> list[str]:
    try:
      if settings is not None:
        early = [a for a in argv if not re.match(r"--?help", a)]
        flags.FLAGS(early, known_only=True)
        _define(settings())
        flags.FLAGS.unparse_flags()
      return flags.FLAGS(argv)
    except (flags.Error, ValueError) as error:
      _stop(argv[0], error)

  def guarded(argv: list[str]) -> None:
    if len(argv) > 1:
      _stop(argv[0], f"Unexpected argument {argv[1]!r}. Flags start with --.")
    try:
      main()
    except ValueError as error:
      _stop(argv[0], error)
    except KeyboardInterrupt:
      sys.exit(
        "Interrupted. What was done is on disk; go on with the same command"
        " and --resume."
      )

  app.run(guarded, flags_parser=parse)


def chosen(settings: Any) -> Any:
  """The settings with what the `--config.<field>` flags say."""
  return dataclasses.replace(
    settings,
    **{
      field.name: flags.FLAGS[_PREFIX + field.name].value
      for field in dataclasses.fields(settings)
    },
  )


class _Parser(flags.ArgumentParser):
  """Reads a value of the field's type; "None" where None is allowed."""

  def __init__(self, kind: type, optional: bool):
    self._kind = kind
    self._optional = optional
    self.syntactic_help = kind.__name__ + (" or None" if optional else "")

  def flag_type(self) -> str:
    """For --help."""
    return self.syntactic_help

  def parse(self, argument: Any) -> Any:
    """The value; a ValueError becomes absl's message about the flag."""
    if argument is None or (self._optional and argument == "None"):
      return None
    if self._kind is bool and isinstance(argument, str):
      words = {"true": True, "1": True, "false": False, "0": False}
      if argument.lower() not in words:
        raise ValueError(f"Expected true or false, received {argument!r}.")
      return words[argument.lower()]
    try:
      return self._kind(argument)
    except ValueError:
      raise ValueError(
        f"Expected {self.syntactic_help}, received {argument!r}."
      ) from None


def _define(settings: Any) -> None:
  """One flag for each field, with the field's type, default and meaning."""
  hints = typing.get_type_hints(type(settings))
  for field in dataclasses.fields(settings):
    options = typing.get_args(hints[field.name])
    optional = type(None) in options
    kind = next((o for o in options if o is not type(None)), hints[field.name])
    flags.DEFINE(
      _Parser(kind, optional),
      _PREFIX + field.name,
      getattr(settings, field.name),
      _meaning(type(settings), field.name),
      module_name=sys.argv[0],
    )


def _meaning(settings: type, name: str) -> str:
  """The field's lines in the Attributes section of the class docstring."""
  pattern = rf"^ +{name}: (.+?)(?=^ +\w+: |\Z)"
  for owner in settings.__mro__:
    found = re.search(pattern, owner.__doc__ or "", re.M | re.S)
    if found:
      return " ".join(found.group(1).split())
  return ""


def _stop(program: str, error: Any) -> None:
  name = re.sub(r".*/|\.py$", "", program)
  print(f"{name}: {error}", file=sys.stderr)
  sys.exit(2)
