"""What all commands share: flags from dataclasses, help, errors in a sentence.

A command is a module with a docstring, which is its help, a frozen dataclass
`Options`, whose fields are its flags, and `main(options, call)`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import typing
from collections.abc import Sequence
from typing import Any

from absl import flags

from tf_privrob import compat
from tf_privrob import files

PROGRAM = "python -m tf_privrob"  # works with and without an installation
_PREFIX = "config."
_HELP = re.compile(r"--?(help|helpshort|helpfull|h)")


@dataclasses.dataclass(frozen=True)
class Call:
  """How a command was called.

  Attributes:
    line: The command as a user would type it again.
    settings: Settings of a method, with what the flags `--config.<field>` and
      `--objective.<field>` say; None for a command that has none.
    given: Names of the flags that were on the command line.
  """

  line: str = ""
  settings: Any = None
  given: frozenset[str] = frozenset()


def folder(run_dir: str | None, trained: bool = True):
  """The run folder that --run_dir names.

  Args:
    run_dir: Value of the flag.
    trained: Whether it must hold a trained model.
  """
  from tf_privrob import run_folder

  if not run_dir:
    raise ValueError("Expected --run_dir, the folder of the run.")
  found = run_folder.RunFolder(run_dir)
  try:
    found.path.exists()
  except OSError as error:
    raise ValueError(
      f"Expected --run_dir to be a folder that can be made, received {run_dir}"
      f" ({error.strerror}). Choose another."
    ) from error
  if trained and not found.has("model.keras"):
    raise ValueError(
      f"Expected a trained model at {found.file('model.keras')}, found none."
      f" Train one first: {PROGRAM} train --run_dir={shlex.quote(run_dir)}, or"
      " go on with a killed run by --resume."
    )
  return found


def next_steps(run_dir: str, *names: str) -> str:
  """The commands that come after this one."""
  place = f"--run_dir={shlex.quote(run_dir)}"
  return "Next: " + " && ".join(f"{PROGRAM} {name} {place}" for name in names)


def prepare_tensorflow() -> None:
  """Settles what TensorFlow writes, and how it computes, before its import."""
  compat.quiet()
  # Off by default without AVX-512, where it is 2 to 3 times faster.
  os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def run(name: str, module: Any, words: Sequence[str]) -> None:
  """Runs a command; bad input ends it with one sentence and exit code 2.

  Args:
    name: The command as a user types it, such as "python -m tf_privrob train".
    module: A module with docstring, `Options`, `main`, and maybe
      `settings(options)`, the dataclass whose fields become `--config.<field>`
      flags (and those of a dataclass in a field of it `--<name>.<field>`
      flags), and `about()`, what the help adds to the docstring.
    words: The flags.
  """
  prepare_tensorflow()
  try:
    if any(_HELP.fullmatch(word) for word in words):
      print(help_text(name, module, words))
      return
    options, call = parse(name, module, words)
    module.main(options, call)
  except (flags.Error, ValueError, compat.MissingPackageError) as error:
    said = files.shown(f"{name.rsplit(None, 1)[-1]}: {error}")
    print(said, file=sys.stderr)
    sys.exit(2)
  except KeyboardInterrupt:
    sys.exit(_interrupted(module))


def _interrupted(module: Any) -> str:
  """How to go on; a command without --resume looks for what is on disk."""
  flags_of_it = {field.name for field in dataclasses.fields(module.Options)}
  if "resume" in flags_of_it:
    return (
      "Interrupted. What was done is on disk; go on with the same command"
      " and --resume."
    )
  return "Interrupted. Run the same command again."


def parse(name: str, module: Any, words: Sequence[str]) -> tuple[Any, Call]:
  """The options of a command and how it was called; nothing is run.

  Raises:
    flags.Error: a flag is unknown or has a value that cannot be read.
    ValueError: as `settings` of the module says, or for an argument that is no
      flag.
  """
  values, settings = _flags_of(module, words)
  rest = values([name, *words])
  if len(rest) > 1:
    raise ValueError(
      f"Expected flags, which start with --, received {rest[1]!r}."
    )
  if settings is not None:
    settings = _filled(settings, values, _PREFIX)
  given = frozenset(key for key in values if values[key].present)
  line = f"{name} {shlex.join(words)}".strip()
  return _filled(module.Options(), values), Call(line, settings, given)


def help_text(name: str, module: Any, words: Sequence[str] = ()) -> str:
  """Docstring, what the module says about itself, and every flag."""
  words = [word for word in words if not _HELP.fullmatch(word)]
  values, _ = _flags_of(module, words)
  about = getattr(module, "about", None)
  parts = [module.__doc__.strip(), about().strip() if about else ""]
  listed = _listed(values)
  parts.append(f"Flags of {name}:\n{listed}" if listed else "")
  return "\n\n".join(part for part in parts if part)


_OWNER = "flags"


def _listed(values: flags.FlagValues) -> str:
  return values.module_help(_OWNER).partition(f"{_OWNER}:")[2].strip("\n")


def _flags_of(
  module: Any, words: Sequence[str]
) -> tuple[flags.FlagValues, Any]:
  """Flags for the options, and for settings that depend on the options."""
  values = flags.FlagValues()
  _define(values, module.Options())
  settings = None
  if hasattr(module, "settings"):
    values(["", *words], known_only=True)
    settings = module.settings(_filled(module.Options(), values))
    values.unparse_flags()
    _define(values, settings, _PREFIX)
  return values, settings


def _filled(settings: Any, values: flags.FlagValues, prefix: str = "") -> Any:
  found = {}
  for field in dataclasses.fields(settings):
    own, name = getattr(settings, field.name), field.name
    if dataclasses.is_dataclass(own):
      found[name] = _filled(own, values, _prefix_of(name, prefix))
    else:
      found[name] = values[prefix + name].value
  return dataclasses.replace(settings, **found)


def _prefix_of(name: str, prefix: str) -> str:
  """Of the flags of settings inside of settings: `--objective.ramp.length`."""
  return f"{prefix.removeprefix(_PREFIX)}{name}."


class _Parser(flags.ArgumentParser):
  """Reads a value of the field's type; "None" where None is allowed."""

  def __init__(self, kind: Any, optional: bool):
    self._item = typing.get_args(kind)[0] if typing.get_args(kind) else None
    self._kind = kind
    self._optional = optional
    words = (
      f"{self._item.__name__}s with commas" if self._item else kind.__name__
    )
    self.syntactic_help = words + (" or None" if optional else "")

  def flag_type(self) -> str:
    """The type, for --help."""
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
      if self._item is None:
        return self._kind(argument)
      if isinstance(argument, str):
        argument = [word.strip() for word in argument.split(",") if word]
      return tuple(map(self._item, argument))
    except ValueError:
      raise ValueError(
        f"Expected {self.syntactic_help}, received {argument!r}."
      ) from None


class _Serializer(flags.ArgumentSerializer):
  """Writes tuples as they are typed."""

  def serialize(self, value: Any) -> str:
    """The text of a default in --help."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _define(values: flags.FlagValues, settings: Any, prefix: str = "") -> None:
  """One flag for each field, with the field's type, default and meaning."""
  hints = typing.get_type_hints(type(settings))
  for field in dataclasses.fields(settings):
    own = getattr(settings, field.name)
    if dataclasses.is_dataclass(own):
      _define(values, own, _prefix_of(field.name, prefix))
      continue
    kind, optional = hints[field.name], False
    if typing.get_origin(kind) is typing.Union:
      (kind,) = (k for k in typing.get_args(kind) if k is not type(None))
      optional = True
    name, default = prefix + field.name, own
    meaning = meaning_of(type(settings), field.name)
    parser = _Parser(kind, optional)
    if kind is bool and not optional:
      flag = flags.BooleanFlag(name, default, meaning)
      flag.parser = parser
    else:
      flag = flags.Flag(parser, _Serializer(), name, default, meaning)
    flags.DEFINE_flag(flag, values, _OWNER)


def meaning_of(settings: type, name: str) -> str:
  """The field's lines in the Attributes section of the class docstring."""
  pattern = rf"^ +{name}: (.+?)(?=^ +\w+: |\Z)"
  for owner in settings.__mro__:
    found = re.search(pattern, owner.__doc__ or "", re.M | re.S)
    if found:
      return " ".join(found.group(1).split())
  return ""
