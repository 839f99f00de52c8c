"""The house as a whole: light to import, honest versions, imports one way."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pathlib
import re
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
_EVERYONES = {
  "binomial",
  "compat",
  "inflation",
  "files",
  "progress",
  "randomness",
  "run_folder",
  "validate",
}
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
  "methods": _LOWER | {"certify", "privacy", "records"},
  "papers": _LOWER | {"certify", "methods", "privacy"},
  "records": {"privacy"},
  "report": {"privacy", "records"},
  "runs": _LOWER
  | {"certify", "membership", "methods", "privacy", "records", "report"},
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


def _troubles_of_import(name):
  """What keeps a module from being imported and read."""
  try:
    module = importlib.import_module(name)
  except Exception as error:
    return [f"{name}: {error!r}"]
  found = [] if module.__doc__ else [f"{name} does not say what it is for"]
  return found + [
    f"{name}.__all__ promises {public}"
    for public in getattr(module, "__all__", ())
    if not hasattr(module, public)
  ]


def test_every_module_can_be_imported():
  found = map(_troubles_of_import, _module_names())
  assert [trouble for troubles in found for trouble in troubles] == []
  assert _troubles_of_import("tf_privrob.no_such_module")


# Versions.


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


# What a room offers.

# Offered for those who write code of their own; here only tests call them.
# A name that is used elsewhere by now is taken off.
_ONLY_OFFERED = {
  "certify": ("ABSTAIN Certifier"),
  "data": "DatasetNotFoundError NAMES gather_chunks",
  "layers": "RandomFourierFeatures",
  "mechanisms": "gaussian_dp_delta",
  "membership": "NAMES tpr_at_fpr",
  "methods": "NAMES",
  "models": (
    "convolutional_denoiser dpal_cifar10 fashion_mnist_cnn"
    " pixeldp_mnist random_features_linear scattering_linear small_dual_resnet"
    " vgg_cifar10 wide_resnet yale_cnn"
  ),
  "privacy": ("dp_epsilon_lower_bound one_run_lower_bound read_ledger"),
  "report": "Report RunFolder",
}


def _exports_nobody_uses(room):
  """Names in a room's `__all__` that no other code and no page mentions."""
  folder = _PACKAGE / room
  code = [
    path.read_text(encoding="utf-8")
    for top in ("tf_privrob", "experiments", "benchmarks")
    for path in _sources(_ROOT / top)
    if folder not in path.parents
  ]
  pages = [_ROOT / "README.md", *_ROOT.glob("docs/**/*.md")]
  text = [page.read_text(encoding="utf-8") for page in pages]
  used = set(re.findall(rf"\b{room}\.(\w+)", "\n".join(code)))
  used |= set(re.findall(r"\w+", "\n".join(text)))
  module = importlib.import_module(f"tf_privrob.{room}")
  return set(getattr(module, "__all__", ())) - used


# `papers` is a table of homes that are read by name.
@pytest.mark.parametrize("room", sorted({*_MAY_IMPORT} - {"papers"}))
def test_every_export_is_used_or_documented(room):
  offered = set(_ONLY_OFFERED.get(room, "").split())
  assert _exports_nobody_uses(room) == offered


# Every module has a test of its name.

# Modules that tests of another name try. A module with a test of its name, and
# one that is gone, is taken off; a new one is not put here without need.
_TESTED_ELSEWHERE = {
  ".": "__main__ inflation",
  "attacks": ("base carlini_wagner catalog ensembles gradient spsa verdict"),
  "bounds": "activations domain interval program projection zonotope",
  "certify": "certifier record",
  "certify/audit": "result search targets",
  "certify/noise_layer": "noisy_scores",
  "certify/norms": "keras_norms",
  "certify/smoothing": "votes",
  "console": "certify evaluate train",
  "data": "catalog sources",
  "gradients": (
    "checking draws factors places recording rules state unclipped"
  ),
  "mechanisms": "mechanism",
  "membership": "inference predictions thresholds",
  "methods": "journal plan proven registry run_files updates",
  "methods/objectives": (
    "content_hash diffai ibp inner natural presets ramp trades wrm"
  ),
  "models": "known_layers logits operations precision",
  "models/files": (
    "archive description hdf5 known rebuilding saved_model stored_weights"
  ),
  "models/zoo": "building networks wide_residual",
  "papers/adlm": "config published sound",
  "papers/dpal": "config published sound",
  "papers/halfspaces": "config perceptron pure trials",
  "papers/pixeldp": "layer projection",
  "papers/secure_sgd": "config published released sound",
  "papers/transdenoiser": "config denoising published sound",
  "papers/transdenoiser/s_min": "double grids mixed paths spreading",
  "privacy": (
    "composition dp_sgd_statement ledger_file ledger_format"
    " loss_distribution renyi run_facts stated statement_text"
  ),
  "privacy/audit": "two_world",
  "report": "canvas card pages views",
  "runs": "certificates evaluate references train",
  "runs/audit": "perform record source steps",
}


def test_every_module_has_a_test_of_its_name():
  tested = {path.name for path in (_ROOT / "tests").rglob("*_test.py")}
  without = {
    path.relative_to(_PACKAGE).with_suffix("").as_posix()
    for path in _sources()
    if path.stem != "__init__" and f"{path.stem}_test.py" not in tested
  }
  listed = {
    f"{folder}/{stem}".removeprefix("./")
    for folder, stems in _TESTED_ELSEWHERE.items()
    for stem in stems.split()
  }
  assert without == listed


# Sizes: what is above a limit may only shrink.

_MOST_FIELDS = 25
_MOST_CLASSES = 3


def _classes():
  for name in _module_names():
    for value in vars(importlib.import_module(name)).values():
      if inspect.isclass(value) and value.__module__ == name:
        yield value


def test_settings_have_few_fields():
  found = {
    cls.__name__: len(dataclasses.fields(cls))
    for cls in _classes()
    if dataclasses.is_dataclass(cls) and cls.__name__.endswith("Config")
  }
  assert found
  assert {n: size for n, size in found.items() if size > _MOST_FIELDS} == {}


def test_models_are_few_classes_below_keras():
  import tensorflow as tf

  found = {
    cls.__name__: sum(
      issubclass(base, tf.keras.Model)
      and base.__module__.startswith("tf_privrob")
      for base in cls.__mro__
    )
    for cls in _classes()
    if issubclass(cls, tf.keras.Model)
  }
  assert found
  assert {n: depth for n, depth in found.items() if depth > _MOST_CLASSES} == {}


# Documented names of namedtuples and of os, which only look private.
_PUBLIC_IN_SPITE = ("_exit", "_replace")
# The one file that may touch private names: those of other libraries.
_FOREIGN = _ROOT / "tests" / "foreign.py"


def _private_names(tree):
  """Attributes `x._name` of anything but the object itself."""
  return [
    node.attr
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute)
    and node.attr.startswith("_")
    and not node.attr.startswith("__")
    and node.attr not in _PUBLIC_IN_SPITE
    and ast.unparse(node.value) not in ("cls", "self", "super()")
  ]


def test_tests_touch_no_private_names():
  found = [
    f"{path.relative_to(_ROOT)}: {name}"
    for path in _sources(_ROOT / "tests")
    if path != _FOREIGN
    for name in _private_names(ast.parse(path.read_text(encoding="utf-8")))
  ]
  assert found == []


def test_a_private_name_is_seen():
  tree = ast.parse("self._a; x._b; x.__dict__; x.y; x.y._c()")
  assert _private_names(tree) == ["_b", "_c"]


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


# Keras' graphs are read in one place.

_KERAS_GRAPHS = frozenset(
  """
    _flatten_layers _has_explicit_input_shape _inbound_nodes _is_graph_network
    _keras_history _layers_by_depth _network_nodes _nodes_by_depth
    _outbound_nodes _run_internal_graph call_args call_kwargs flat_input_ids
    flat_output_ids inbound_layers inbound_nodes iterate_inbound keras_inputs
    outbound_layer outbound_nodes parent_nodes
  """.split()
)


def _graph_internals(tree):
  """Names of Keras' own records of a graph that a syntax tree reads."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      yield from {node.attr} & _KERAS_GRAPHS
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
      if node.func.id in {"delattr", "getattr", "hasattr", "setattr"}:
        yield from {getattr(node.args[1], "value", "")} & _KERAS_GRAPHS


@pytest.mark.parametrize("folder", ["tf_privrob", "experiments", "benchmarks"])
def test_only_graph_py_reads_keras_graphs(folder):
  found = {
    f"{path.relative_to(_ROOT)}: {name}"
    for path in _sources(_ROOT / folder)
    if path != _PACKAGE / "models" / "graph.py"
    for name in _graph_internals(ast.parse(path.read_text(encoding="utf-8")))
  }
  assert found == set()


@pytest.mark.parametrize(
  ("line", "name"),
  [
    ("layer, index, _ = tensor._keras_history", "_keras_history"),
    ("for node in layer.inbound_nodes: pass", "inbound_nodes"),
    ("getattr(model, '_nodes_by_depth', {})", "_nodes_by_depth"),
    ("hasattr(tensor, '_keras_history')", "_keras_history"),
  ],
)
def test_a_reader_of_graphs_of_its_own_is_seen(line, name):
  assert list(_graph_internals(ast.parse(line))) == [name]
  for fine in ("graph.calls(model)", "value.get('inbound_nodes')"):
    assert list(_graph_internals(ast.parse(fine))) == []


# Files are written in one place.

_WRITERS = {
  ("os", "replace"),
  ("np", "savez"),
  ("np", "savez_compressed"),
  ("json", "dump"),
  ("tempfile", "mkstemp"),
  ("tempfile", "NamedTemporaryFile"),
}


def _own_writers(tree):
  """Calls that write a file past files.py; appending ones are no such."""
  for node in ast.walk(tree):
    if not isinstance(node, ast.Call):
      continue
    called = node.func
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
      if (called.value.id, called.attr) in _WRITERS:
        yield f"{called.value.id}.{called.attr}"
    if isinstance(called, ast.Name) and called.id == "open":
      modes = [*node.args[1:2], *(k.value for k in node.keywords)]
      values = [getattr(mode, "value", "") for mode in modes]
      if any(value in ("w", "wb", "x", "xb", "w+b") for value in values):
        yield "open to write"


@pytest.mark.parametrize("folder", ["tf_privrob", "experiments"])
def test_only_files_py_replaces_files(folder):
  found = {
    f"{path.relative_to(_ROOT)}: {name}"
    for path in _sources(_ROOT / folder)
    if path != _PACKAGE / "files.py"
    for name in _own_writers(ast.parse(path.read_text(encoding="utf-8")))
  }
  assert found == set()


@pytest.mark.parametrize(
  ("line", "name"),
  [
    ("os.replace(a, b)", "os.replace"),
    ("np.savez(path, x=x)", "np.savez"),
    ("json.dump(x, stream)", "json.dump"),
    ("open(path, 'w', encoding='utf-8')", "open to write"),
    ("open(path, mode='wb')", "open to write"),
  ],
)
def test_a_writer_of_its_own_is_seen(line, name):
  assert list(_own_writers(ast.parse(line))) == [name]
  for fine in ("open(path)", "open(path, 'a+b')", "json.dumps(x)"):
    assert list(_own_writers(ast.parse(fine))) == []


def test_there_is_no_utils():
  assert [path for path in _sources() if path.stem in ("utils", "util")] == []
