"""What the binaries share: flags from a config, and errors without traces."""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from typing import Callable

from absl import app
from absl import flags
from ml_collections import config_flags


def run(
  main: Callable[[], None], settings: Callable[[], object] | None = None
) -> None:
  """Runs a binary; bad input ends it with one sentence and exit code 2.

  Args:
    main: the job.
    settings: gives the config dataclass whose fields become `--config.<field>`
      flags. It may look at the other flags, which are parsed by then.
  """

  def parse(argv: list[str]) -> list[str]:
    try:
      if settings is None:
        return flags.FLAGS(argv)
      flags.FLAGS(argv, known_only=True)
      config = settings()
      _check_fields(argv, config)
      config_flags.DEFINE_config_dataclass("config", config)
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


def _stop(program: str, error) -> None:
  name = re.sub(r".*/|\.py$", "", program)
  print(f"{name}: {error}", file=sys.stderr)
  sys.exit(2)


def _check_fields(argv: list[str], config) -> None:
  """Names the nearest field where a `--config.` flag is misspelt."""
  known = [field.name for field in dataclasses.fields(config)]
  for argument in argv[1:]:
    found = re.match(r"--?config\.(\w+)", argument)
    if found and found.group(1) not in known:
      near = difflib.get_close_matches(found.group(1), known, n=1, cutoff=0.4)
      hint = f" Did you mean --config.{near[0]}?" if near else ""
      raise ValueError(
        f"Unknown flag --config.{found.group(1)}.{hint} Known fields:"
        f" {', '.join(known)}."
      )
