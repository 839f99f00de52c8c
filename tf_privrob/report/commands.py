"""The command lines that a report prints, ready to be run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from tf_privrob import records
from tf_privrob.report import results as results_lib

_WIDTH = 88
_ALONE = ("poisson", "full_batch")


def command(results: results_lib.Results, binary: str) -> str:
  """The command line that runs `binary` on this folder."""
  if binary == "train":
    return train(results)
  folder = shlex.quote(results.run_dir)
  more = ""
  if binary == "audit":
    # One run serves where records come and go alone, and something is proven.
    privacy = results.privacy
    alone = privacy and privacy.proven and privacy.sampler in _ALONE
    more = f" --kind={'one_run' if alone else 'step'}"
  return f"python -m tf_privrob {binary} --run_dir={folder}{more}"


def train(results: results_lib.Results) -> str:
  """The command that trained the run, with every setting it had.

  A seed that is kept secret is left out. None is said only where a preset might
  have another value.
  """
  config = results.config or records.Config()
  flags = {
    "method": config.method and config.method.split(" (")[0],  # no variant
    "dataset": config.dataset,
    "network": config.network,
    **(config.flags or {}),
    "run_dir": results.run_dir,
  }
  settings = config.config or {}
  objective = settings.get("objective")
  if isinstance(objective, Mapping):
    flags["objective"] = objective.get("name")
  for name, item in _setting_flags(settings):
    if name != "config.seed" or not isinstance(item, str):
      unsaid = item is None and flags.get("preset") and name != "config.seed"
      flags[name] = "None" if unsaid else item
  parts = [
    f"--{name}={shlex.quote(_value(item))}"
    for name, item in flags.items()
    if isinstance(item, (bool, int, float, str)) and item != ""
  ]
  lines = ["python -m tf_privrob train"]
  for part in parts:
    if len(lines[-1]) + len(part) < _WIDTH:
      lines[-1] += f" {part}"
    else:
      lines.append(f"  {part}")
  return " \\\n".join(lines)


def _setting_flags(
  fields: Mapping[str, Any], prefix: str = "config."
) -> Iterator[tuple[str, Any]]:
  """Flags of settings, and of settings inside of them."""
  for name, item in fields.items():
    if isinstance(item, Mapping):
      inner = f"{prefix.removeprefix('config.')}{name}."
      rest = {key: value for key, value in item.items() if key != "name"}
      yield from _setting_flags(rest, inner)
    else:
      yield prefix + name, item


def _value(item: bool | int | float | str) -> str:
  return str(item).lower() if isinstance(item, bool) else str(item)


def everything(results: results_lib.Results) -> list[str]:
  """All commands that made the run folder, each once, in their order."""
  found = []
  if not results.predictions:
    found.append(train(results))
    found += results.commands or [command(results, "evaluate")]
  parts = (results.membership, *results.audits, results.certificate_audit)
  found += [part.command for part in parts if part and part.command]
  found.append(command(results, "report"))
  return list(dict.fromkeys(found))
