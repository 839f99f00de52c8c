"""Shared by all tests: quiet logs, a fair share of the cores, real data.

TensorFlow's and NumPy's global seeds are not set here: every test passes its
own, and a hidden use of theirs in the library shows. Only the initial weights
of networks without a seed are the same in every run.
"""

from __future__ import annotations

import functools
import gc
import os
import pathlib
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:
  _THREADS = str(max(1, (os.cpu_count() or 1) // _WORKERS))
  for _variable in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
  ):
    os.environ.setdefault(_variable, _THREADS)

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from tests import foreign  # noqa: E402
from tests import slow_cases  # noqa: E402

# The same examples in every run, and no time limit on a busy machine.
hypothesis.settings.register_profile(
  "repeatable", derandomize=True, deadline=None, database=None
)
hypothesis.settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Marks the cases that need not run every time."""
  for item in items:
    if slow_cases.is_slow(item.nodeid):
      item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
  """What is imported stays: the collector need not look at it every time."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(50_000, 20, 50)


def _place_free(node) -> str:
  """The name of a test or module, wherever its file lies."""
  return node.nodeid.rsplit("/", 1)[-1]


@pytest.fixture(scope="module", autouse=True)
def _initial_weights_of_the_module(request):
  random.seed(_place_free(request.node))


@pytest.fixture(autouse=True)
def _initial_weights(request):
  """Keras draws the seeds of unseeded initialisers from Python's `random`.

  A test that sets a global seed of Keras' would have it draw them otherwise
  from then on: the next test begins without.
  """
  seeds = foreign.keras_seeds()
  if seeds is not None:
    vars(seeds).pop("generator", None)
  random.seed(_place_free(request.node))


@pytest.fixture(scope="session", autouse=True)
def _one_step_is_accounted_once():
  """Two slow functions remember what they returned.

  Both are of one step; composing steps, and all else, is done as always.
  """
  from dp_accounting.rdp import rdp_privacy_accountant

  from tf_privrob.privacy import one_use

  with pytest.MonkeyPatch.context() as patch:
    for module, name, size in (
      (one_use, "gaussian", 64),
      (rdp_privacy_accountant, "_compute_log_a_frac", 100_000),
    ):
      real = getattr(module, name)
      patch.setattr(module, name, functools.lru_cache(size)(real))
    yield


@pytest.fixture(scope="session")
def real_data():
  """Loads a real data set from $TF_PRIVROB_DATA once, or skips the test."""
  loaded = {}

  def get(name):
    folder = os.environ.get("TF_PRIVROB_DATA")
    if not folder:
      pytest.skip("TF_PRIVROB_DATA is not set: no real data sets here")
    if not (pathlib.Path(folder) / f"{name}.npz").is_file():
      pytest.skip(f"there is no {name}.npz in $TF_PRIVROB_DATA")
    if name not in loaded:
      from tf_privrob import data

      loaded[name] = data.load(name)
    return loaded[name]

  return get


@pytest.fixture
def one_noise(monkeypatch):
  """Runs with one seed share noise and batches, whatever their settings."""
  from tf_privrob.methods import identity

  monkeypatch.setattr(identity, "digest", lambda *_: "one")


# Settings that no loss reads.
_OF_A_RUN = {
  "accountant",
  "batch_size",
  "checkpoint_every",
  "dp_delta",
  "dp_epsilon",
  "ema_decay",
  "epochs",
  "learning_rate",
  "momentum",
  "noise_multiplier",
  "physical_batch_size",
  "sampler",
  "seed",
}


@pytest.fixture(scope="module")
def checked_once():
  """Of gradients of one kind, those of the first fit in a module are checked.

  For modules that fit many alike and ask for what comes later: a check is two
  traces, half of a small fit. The kind: losses with their settings, and the
  network with its types and shapes.
  """
  from tf_privrob import gradients

  kinds, real = set(), gradients.ClippedGradients.check

  def check(self, *args, **kwargs):
    owner = getattr(self._loss_fn, "__self__", None)
    settings = vars(getattr(owner, "config", self))
    kind = (
      type(owner).__name__ + str(getattr(self._loss_fn, "__func__", owner)),
      str({k: v for k, v in settings.items() if k not in _OF_A_RUN}),
      str([type(layer) for layer in self._network.submodules]),
      str([weight.shape for weight in self._network.weights]),
      (type(self), self.engine, self._jit_compile),
    )
    if owner is None or kind not in kinds:
      real(self, *args, **kwargs)
    kinds.add(kind)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(gradients.ClippedGradients, "check", check)
    yield


@pytest.fixture
def not_rehearsed(monkeypatch):
  """What is refused after the rehearsal is refused without it: a trace less."""
  from tf_privrob.methods import session

  monkeypatch.setattr(session.Session, "rehearse", lambda *args: None)


@pytest.fixture
def small_chunks(monkeypatch):
  """Chunks of any size, so that a few rows are several of them.

  What whole packets of rows are for, `third_attack_test` tries.
  """
  from tf_privrob import data

  monkeypatch.setattr(data, "whole_packets", lambda rows: rows)
