"""Every command that a page, an error, a help or the docs print can be run."""

from __future__ import annotations

import importlib
import pathlib
import re
import shlex

import pytest

from tf_privrob import console
from tf_privrob import records
from tf_privrob.console import command
from tf_privrob.methods import registry
from tf_privrob.methods import settings as settings_lib
from tf_privrob.report import commands
from tf_privrob.report import results as results_lib

_ROOT = pathlib.Path(__file__).parents[2]
_PRINTED = re.compile(r"python -m (?:experiments|tf_privrob)[ .][^\n`|#&;()]*")
_HOLE = re.compile(r"\{[^{}]*\}|\$\([A-Z]+\)|\.\.\.")


def _sources():
  found = [_ROOT / "README.md", _ROOT / "Makefile"]
  for folder in ("docs", "tf_privrob", "experiments"):
    found += sorted((_ROOT / folder).rglob("*.md"))
    found += sorted((_ROOT / folder).rglob("*.py"))
  return found


def _printed(text: str) -> list[str]:
  """Commands of a file; texts that Python joins are joined."""
  text = re.sub(r'"\s*\n\s*f?"', "", text.replace("\\\n", " "))
  commands = _PRINTED.findall(text)
  return [
    _HOLE.sub("x", found).split('"')[0].split("'")[0].rstrip(" .,:")
    for found in commands
  ]


def _module(name: str):
  """The module of `python -m experiments.<name>`."""
  if name in console.COMMANDS:
    return console.module(name)
  found = importlib.import_module(f"experiments.{name}")
  if not hasattr(found, "__path__"):
    return found
  return importlib.import_module(f"experiments.{name}.__main__")


def _parse(line: str):
  """The options of a printed command; raises where it cannot be run."""
  words = shlex.split(line)[2:]
  if words[0] == "tf_privrob":
    module, flags = console.module(words[1]), words[2:]
  else:
    name = words[0].removeprefix("experiments.")
    module = _module(name)
    flags = words[1:]
  flags = [word for word in flags if word.startswith("--") and "=x" not in word]
  options, call = command.parse(line, module, flags)
  if hasattr(module, "STUDY") and options.out_dir:
    module.STUDY.check(options)
  return options, call


def _all():
  found = {}
  for path in _sources():
    for line in _printed(path.read_text(encoding="utf-8")):
      found.setdefault(line, path.relative_to(_ROOT))
  return {line: path for line, path in found.items() if "<" not in line}


@pytest.mark.parametrize(("line", "path"), _all().items())
def test_every_printed_command_parses(line, path):
  if line.split()[2] in ("tf_privrob", "experiments.x"):
    if len(line.split()) < 4 or line.split()[3] == "x":
      return  # the name of the command is filled in elsewhere
  try:
    _parse(line)
  except Exception as error:
    raise AssertionError(f"{path} prints {line!r}: {error}") from error


def test_the_search_finds_commands_in_docs_errors_and_help():
  places = {str(path).split("/")[0] for path in _all().values()}
  assert {"README.md", "Makefile", "tf_privrob", "experiments"} <= places
  assert len(_all()) > 40


def test_a_wrong_command_is_noticed():
  with pytest.raises(Exception, match="Did you mean"):
    _parse("python -m tf_privrob train --run_dri=runs/first")
  with pytest.raises(ValueError, match="Did you mean 'mnist_5k'"):
    _parse("python -m experiments.dpal --dataset=mnist_5 --out_dir=runs/y")


def _results(method, settings, variant):
  config = {
    "method": f"{method} ({variant})",
    "dataset": "mnist_5k",
    "network": "mlp",
    "config": {**settings_lib.described(settings), "seed": "kept out"},
    "flags": {"preset": registry.preset_of(method, settings)},
  }
  return results_lib.Results("a b", records.Config.from_json(config))


_SETTINGS = [
  (name, preset, settings)
  for name in registry.NAMES
  for preset, settings in registry.presets(name).items()
]


@pytest.mark.parametrize(("method", "preset", "settings"), _SETTINGS)
def test_reproduce_this_page_comes_to_the_same_settings(
  method, preset, settings
):
  del preset
  line = commands.train(_results(method, settings, "paper"))
  options, call = _parse(line.replace("\\\n", " "))
  assert options.method == method
  assert options.run_dir == "a b"
  assert call.settings == settings
