"""The house as a whole: light to import, honest versions, imports one way."""

from __future__ import annotations

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

import tf_privrob

_PACKAGE = pathlib.Path(tf_privrob.__file__).parent
_ROOT = _PACKAGE.parent
_HEAVY = (
  "cleverhans",
  "dp_accounting",
  "matplotlib",
  "mlxtend",
  "sklearn",
  "tensorflow",
  "tensorflow_datasets",
  "tensorflow_privacy",
)

# docs/design.md section 2: which rooms a room may import. Anyone may import
# the modules in _EVERYONES.
_EVERYONES = {"binomial", "progress", "randomness", "run_folder", "validate"}
_FLOOR = {"data", "mechanisms"}
_BUILT = _FLOOR | {"layers", "losses", "models"}
_LOWER = _BUILT | {"attacks", "bounds", "gradients"}
_MAY_IMPORT = {
  "data": set(),
  "mechanisms": set(),
  "layers": {"mechanisms"},
  "losses": {"mechanisms"},
  "models": {"layers"},
  "gradients": {"models"},
  "attacks": set(),
  "bounds": {"models"},
  "certify": _LOWER,
  "privacy": _LOWER,
  "membership": _LOWER,
  "methods": _LOWER | {"certify", "privacy"},
  "papers": _LOWER | {"certify", "methods", "privacy"},
  "report": _LOWER | {"certify", "membership", "privacy"},
  "runs": _LOWER | {"certify", "membership", "methods", "privacy", "report"},
  "console": _LOWER | {"membership", "methods", "report", "runs"},
  "__main__": {"console"},
}


def _python(code):
  return subprocess.run(
    [sys.executable, "-c", code],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )


def _sources(folder=_PACKAGE):
  return sorted(folder.rglob("*.py"))


def _rooms():
  return sorted(path.parent.name for path in _PACKAGE.glob("*/__init__.py"))


def _module_names():
  names = []
  for path in _sources():
    parts = path.relative_to(_ROOT).with_suffix("").parts
    names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
  return names


# Import.


def test_import_is_light():
  result = _python(
    "import sys, tf_privrob;"
    f"print([name for name in {_HEAVY!r} if name in sys.modules])"
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout.strip() == "[]"


def test_rooms_come_on_first_use():
  result = _python(
    "import sys, tf_privrob; 'tf_privrob.data' in sys.modules and exit(3);"
    "tf_privrob.data.load; print('tf_privrob.data' in sys.modules)"
  )
  assert result.stdout.strip() == "True", result.stderr


def test_an_unknown_room_is_an_attribute_error():
  with pytest.raises(
    AttributeError, match=r"'tf_privrob' has no attribute 'ro"
  ):
    tf_privrob.roof  # noqa: B018


def test_every_room_is_offered():
  assert set(_rooms()) <= set(tf_privrob.__all__)
  assert dir(tf_privrob) == sorted(tf_privrob.__all__)


@pytest.mark.parametrize("name", _module_names())
def test_every_module_can_be_imported(name):
  module = importlib.import_module(name)
  assert module.__doc__, "a module says in its first line what it is for"
  for public in getattr(module, "__all__", ()):
    assert hasattr(module, public), f"{name}.__all__ promises {public}"


# Versions.


@pytest.mark.parametrize("version", ["2.16.1", "2.14.0", "3.0.0", "2.150.0"])
def test_another_tensorflow_is_refused_in_one_sentence(version):
  result = _python(
    "from importlib import metadata;"
    f"metadata.version = lambda name: {version!r};"
    "import tf_privrob"
  )
  assert result.returncode == 1
  error = result.stderr.strip().splitlines()[-1]
  assert error.startswith("ImportError: tf_privrob ")
  assert "needs TensorFlow 2.15" in error
  assert f"found {version}" in error
  assert error.endswith('pip install "tensorflow>=2.15,<2.16"')


def test_no_tensorflow_is_refused_too(monkeypatch):
  def not_installed(name):
    raise importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(importlib.metadata, "version", not_installed)
  with pytest.raises(ImportError, match=r"needs TensorFlow 2\.15 .*found None"):
    tf_privrob._check_tensorflow()


@pytest.mark.parametrize("wheel", ["tensorflow", "tensorflow-cpu"])
def test_any_wheel_of_2_15_will_do(monkeypatch, wheel):
  def version(name):
    if name == wheel:
      return "2.15.1"
    raise importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(importlib.metadata, "version", version)
  tf_privrob._check_tensorflow()


def test_the_version_is_a_release_number():
  assert len([int(part) for part in tf_privrob.__version__.split(".")]) == 3


# The order of the house.


def _imported_rooms(path, package):
  """Rooms that a file imports anywhere, even inside a function."""
  here = path.relative_to(package.parent).with_suffix("").parts
  found = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    names = []
    if isinstance(node, ast.Import):
      names = [alias.name.split(".") for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      # `from . import x` counts from the file's own package.
      base = list(here[: -node.level]) if node.level else []
      base += node.module.split(".") if node.module else []
      names = [[*base, alias.name] for alias in node.names]
    elif isinstance(node, ast.Attribute):
      # `tf_privrob.room`, which imports the room on first use.
      if isinstance(node.value, ast.Name) and node.value.id == "tf_privrob":
        names = [["tf_privrob", node.attr]]
    found |= {
      name[1] for name in names if name[0] == "tf_privrob" and len(name) > 1
    }
  return found


def _upward_imports(package):
  """Every import that the order of the house does not allow."""
  known = {*_MAY_IMPORT, *_EVERYONES}
  found = []
  for path in _sources(package):
    parts = path.relative_to(package).parts
    if parts == ("__init__.py",):
      continue  # it names the rooms as strings
    room = parts[0].removesuffix(".py") if len(parts) == 1 else parts[0]
    allowed = _MAY_IMPORT.get(room, set()) | _EVERYONES | {room}
    found += [
      f"{'/'.join(parts)} imports {other}"
      for other in sorted(_imported_rooms(path, package) & known - allowed)
    ]
  return found


def test_nothing_imports_upwards():
  assert _upward_imports(_PACKAGE) == []


def test_every_room_has_its_place_in_the_order():
  assert set(_rooms()) <= set(_MAY_IMPORT)
  for room, allowed in _MAY_IMPORT.items():
    for other in allowed:
      assert room not in _MAY_IMPORT[other], f"{room} and {other} in a circle"


@pytest.mark.parametrize(
  ("room", "line", "upward"),
  [
    ("data", "from tf_privrob import methods", "methods"),
    ("data", "from tf_privrob.methods import dp_sgd", "methods"),
    ("data", "import tf_privrob.report.page as page", "report"),
    ("data", "from ..privacy import ledger", "privacy"),
    ("data", "from .. import mechanisms", "mechanisms"),
    ("privacy", "def f():\n  from tf_privrob import methods", "methods"),
    ("certify", "import tf_privrob\ntf_privrob.methods.DPSGD", "methods"),
    ("methods", "from tf_privrob import report", "report"),
    ("methods", "from tf_privrob import certify, privacy, gradients", None),
    ("data", "from tf_privrob import progress, validate", None),
    ("data", "from tf_privrob.data import other\nfrom . import x", None),
  ],
)
def test_an_upward_import_is_seen(tmp_path, room, line, upward):
  package = tmp_path / "tf_privrob"
  (package / room).mkdir(parents=True)
  (package / "__init__.py").write_text("")
  (package / room / "module.py").write_text(line)
  expected = [f"{room}/module.py imports {upward}"] if upward else []
  assert _upward_imports(package) == expected


# What must not be in the house at all.


def _forbidden(tree):
  """Names of unsafe or unstable things that a syntax tree uses."""
  for node in ast.walk(tree):
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      names = {alias.name.split(".")[0] for alias in node.names}
      if isinstance(node, ast.ImportFrom):
        names = {(node.module or "").split(".")[0]}
      yield from names & {"cloudpickle", "dill", "joblib", "pickle"}
    elif isinstance(node, ast.Attribute):
      if node.attr in {"compiled_loss", "legacy", "estimator", "set_seed"}:
        yield node.attr
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
      yield from {node.func.id} & {"eval", "exec"}
    elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
      if not (isinstance(node.value, ast.Constant) and not node.value.value):
        yield "allow_pickle"


@pytest.mark.parametrize("folder", ["tf_privrob", "experiments", "benchmarks"])
def test_no_unsafe_or_unstable_api(folder):
  found = {
    f"{path.relative_to(_ROOT)}: {name}"
    for path in _sources(_ROOT / folder)
    for name in _forbidden(ast.parse(path.read_text(encoding="utf-8")))
  }
  # The benchmark of TF Privacy needs the optimizers TF Privacy is built on.
  assert {hit for hit in found if not hit.startswith("benchmarks")} == set()
  assert not {hit for hit in found if hit.endswith(("pickle", "eval", "exec"))}


@pytest.mark.parametrize(
  ("line", "name"),
  [
    ("import pickle", "pickle"),
    ("from pickle import loads", "pickle"),
    ("np.load(f, allow_pickle=True)", "allow_pickle"),
    ("np.load(f, allow_pickle=flag)", "allow_pickle"),
    ("eval('1')", "eval"),
    ("tf.random.set_seed(1)", "set_seed"),
    ("tf.keras.optimizers.legacy.SGD()", "legacy"),
  ],
)
def test_unsafe_api_is_seen(line, name):
  assert list(_forbidden(ast.parse(line))) == [name]
  assert list(_forbidden(ast.parse("np.load(f, allow_pickle=False)"))) == []


def test_there_is_no_utils():
  assert [path for path in _sources() if path.stem in ("utils", "util")] == []
