"""The only way from private sums to weights: counted first, then noisy.

Everything that a training publishes leaves through an `Outlet`. It takes the
exact sum and how far one example can move it, counts the release (in the
ledger, on disk, if the run has one), draws the noise from the key of the
session, and only then hands on the noisy sum as `Released`. `Method.apply`
takes nothing else, so that no step can reach the weights without noise or
without being counted; statements read the count from here.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import pathlib
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob import files
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import randomness

_Law = Callable[[randomness.Key, int], np.ndarray]
_MADE_BY_OUTLET = object()


class Released:
  """Tensors that left through an outlet, or were computed from such."""

  def __init__(self, tensors: Sequence[tf.Tensor], maker: object):
    if maker is not _MADE_BY_OUTLET:
      raise TypeError(
        "Expected what an Outlet hands out: nothing else is counted and noisy."
      )
    self.tensors = list(tensors)

  def map(self, function: Callable[[list[tf.Tensor]], Any]) -> Released:
    """Post-processing: a function of the tensors and of nothing private."""
    return Released(function(self.tensors), _MADE_BY_OUTLET)


class Outlet:
  """Counts every release of a session and adds its noise.

  Guarantee: each release has the law "sum + noise" with noise from AES-256 in
  counter mode under a key of its own (`randomness`), and is counted before
  anybody sees it. What that is worth is for the accountant to say: `steps`
  releases with at least `noise_multiplier`.

  It is made before a run is opened, so that a step can be rehearsed, and
  releases nothing before `open` gives it a key.
  """

  def __init__(self):
    self._key: randomness.Key | None = None
    self._ledger: privacy.Ledger | None = None
    self._folder: pathlib.Path | None = None
    self._limit: int | None = None
    self._made_once: dict[str, int] = {}
    self._asked: set[str] = set()
    self._counted = 0
    self._rehearsing = False
    self._multipliers: list[float | None] = []
    self.failure: BaseException | None = None

  def open(
    self,
    key: randomness.Key,
    ledger: privacy.Ledger | None = None,
    folder: pathlib.Path | None = None,
    made_once: dict[str, int] | None = None,
  ) -> None:
    """Begins a session.

    Args:
      key: of the session; no two sessions share one.
      ledger: where releases are paid for; None: they are counted in memory.
      folder: where releases that are made once keep their results.
      made_once: how many of each name were begun without a ledger, by earlier
        sessions too; counted on here.
    """
    self._key, self._ledger, self._folder = key, ledger, folder
    self._made_once = {} if made_once is None else made_once

  @property
  def steps(self) -> int:
    """Releases counted so far, over all sessions of the run."""
    return self._ledger.steps if self._ledger else self._counted

  @property
  def noise_multiplier(self) -> float | None:
    """The least noise over sensitivity of any release of this session.

    None where a release had no noise, or noise of a scale that is not fixed
    before the data are seen.
    """
    if not self._multipliers or None in self._multipliers:
      return None
    return min(self._multipliers)

  @property
  def in_ledger(self) -> bool:
    """Whether releases are paid for on disk."""
    return self._ledger is not None

  def forget_traces(self) -> None:
    """Forgets the noise of steps that were traced and will not be run."""
    self._multipliers.clear()

  def limit_to(self, limit: int | None) -> None:
    """Sets what the budget allows, once the plan is settled."""
    self._limit = limit

  def require_budget(self) -> None:
    """Raises where the next release would exceed the budget."""
    if self._limit is not None and self.steps >= self._limit:
      raise privacy.BudgetExceeded(
        f"{self.steps} steps performed + 1 requested > {self._limit} allowed by"
        " the privacy budget. The step was not taken. Stop here, or begin a run"
        " with a larger budget or more noise."
      )

  # Inside a training step.

  def gaussian(
    self,
    sums: Sequence[tf.Tensor],
    stddevs: Sequence[float | tf.Tensor] | float,
    sensitivity: float,
  ) -> Released:
    """Releases sums with Gaussian noise, all together as one release.

    Args:
      sums: exact sums, all of one floating-point type.
      stddevs: of the noise: one number, or one for each sum. A tensor, whose
        value may depend on data, proves nothing: see `noise_multiplier`.
      sensitivity: the largest l2 change of all sums together that one example
        can make.
    """
    if not isinstance(stddevs, (list, tuple)):
      stddevs = [stddevs] * len(sums)
    fixed = all(isinstance(stddev, (int, float)) for stddev in stddevs)
    self._multipliers.append(min(stddevs) / sensitivity if fixed else None)
    sizes = [int(np.prod(t.shape)) for t in sums]
    noise = self._drawn(randomness.Key.normal, sum(sizes))
    noisy = _added(sums, stddevs, tf.split(noise, sizes))
    return Released(noisy, _MADE_BY_OUTLET)

  def gaussian_and_laplace(
    self,
    sums: tf.Tensor,
    stddev: float,
    counts: tf.Tensor,
    laplace: mechanisms.LaplaceMechanism,
  ) -> Released:
    """Releases sums with Gaussian and counts with Laplace noise, as one.

    Args:
      sums: exact, of l2 sensitivity 1.
      stddev: of their noise.
      counts: exact, of the mechanism's l1 sensitivity.
      laplace: gives the scale of their noise.

    Returns:
      The noisy sums and the noisy counts. Both are of the same examples, which
      no accountant of sums alone knows.
    """
    self._multipliers.append(stddev)
    sizes = [int(np.prod(t.shape)) for t in (sums, counts)]

    def law(key: randomness.Key, count: int) -> np.ndarray:
      del count
      normal = key.child("normal").normal(sizes[0])
      return np.concatenate([normal, key.child("laplace").laplace(sizes[1])])

    noise = tf.split(self._drawn(law, sum(sizes)), sizes)
    noisy = _added([sums, counts], [stddev, laplace.scale], noise)
    return Released(noisy, _MADE_BY_OUTLET)

  def select(
    self, scores: tf.Tensor, mechanism: mechanisms.ExponentialMechanism
  ) -> Released:
    """Releases one index for each row of scores; each costs `event()`."""
    self._multipliers.append(1.0 / mechanism.dp_epsilon)
    size = int(np.prod(scores.shape))
    needed = mechanism.uniforms_needed(size)
    uniform = self._drawn(randomness.Key.uniform, needed)
    index = mechanism.select_from_uniform(scores, uniform)
    return Released([index], _MADE_BY_OUTLET)

  def without_noise(self, sums: Sequence[tf.Tensor]) -> Released:
    """Hands sums on as they are: counted, and nothing is proven of it."""
    self._multipliers.append(None)
    with tf.control_dependencies([self._drawn(randomness.Key.uniform, 0)]):
      return Released([tf.identity(tensor) for tensor in sums], _MADE_BY_OUTLET)

  def rest_without_noise(self, sums: Sequence[tf.Tensor]) -> Released:
    """More of a release that is counted already, of which nothing is proven."""
    self._multipliers.append(None)
    return Released(sums, _MADE_BY_OUTLET)

  def _drawn(self, law: _Law, count: int) -> tf.Tensor:
    """Numbers of this law, drawn when the step runs, after it was counted."""
    drawn = tf.numpy_function(
      lambda: law(self._key_of_release(), count), [], tf.float64
    )
    return tf.ensure_shape(drawn, [count])

  def _key_of_release(self) -> randomness.Key:
    """Counts a release; returns a key that no other release has."""
    if self._rehearsing:
      return randomness.Key.of(None)
    try:
      number = self._pay()
    except BaseException as error:
      self.failure = error  # TensorFlow hands on its text only
      raise
    return self._key.child("release", number)

  def _pay(self) -> int:
    """Counts one release; returns its number, which no other one has."""
    if self._key is None:
      raise RuntimeError(
        "Expected a training in progress: a step outside of it would be"
        " released unpaid. Train with the model's own fit."
      )
    self.require_budget()
    if self._ledger:
      return self._ledger.charge()
    self._counted += 1
    return self._counted

  # Before the first step.

  def once(
    self,
    name: str,
    compute: Callable[[randomness.Key], np.ndarray],
    settings: Mapping[str, Any] | None = None,
  ) -> tuple[np.ndarray, int]:
    """A release that is made once in a run, and counted whenever it is begun.

    It is paid for before the data are touched, and its result is kept whole
    with the ledger's hash of it. A run that is killed in between, or whose
    result is lost or changed, makes it again with new noise and pays again.

    Args:
      name: of the release and of the file `<name>.npy`.
      compute: makes it, with noise from the key that it is given.
      settings: what its cost depends on, as JSON values.

    Returns:
      The released array, and how many releases of this name were begun.
    """
    self._asked.add(name)
    if self._ledger is None:
      count = self._made_once[name] = self._made_once.get(name, 0) + 1
      return compute(self._key.child("once", name, count)), count
    path = self._folder / f"{name}.npy"
    entry = self._ledger.release_of(name)
    if entry is not None and entry.digest is not None:
      kept = _read_if(path, entry.digest)
      if kept is not None:
        return kept, entry.count
    if self._ledger.steps:
      raise ValueError(
        f"Expected {path}, which the {self._ledger.steps} steps of this run"
        " rest on, found it lost or changed. Put it back, or begin a new"
        " run_dir."
      )
    count = self._ledger.begin_release(name, dict(settings or {}))
    array = compute(self._key.child("once", name, count))
    try:
      digest = _write(path, array)
    except ValueError as error:
      raise ValueError(
        f"{error} The release is paid for and lost: {count} of {name!r} count."
        " Free the disk before you resume, which makes and pays for another"
        " one."
      ) from error.__cause__
    self._ledger.finish_release(name, digest)
    return array, count

  def require_all_asked(self) -> None:
    """Raises where the ledger paid for a release that no plan will count."""
    missed = {*self._ledger.releases} - self._asked
    if missed:
      raise ValueError(
        f"Expected a method that makes what this run paid for, {min(missed)!r},"
        " received one that does not: its plan would not count it. Resume with"
        " what the run began with, or begin a new run_dir."
      )

  # The life of a session.

  @contextlib.contextmanager
  def rehearsal(self) -> Iterator[None]:
    """Within it steps are neither counted nor paid: for synthetic data only."""
    self._rehearsing = True
    try:
      yield
    finally:
      self._rehearsing = False

  def close(self) -> None:
    """Ends the session: nothing is released any more."""
    self._counted = self.steps
    self._key = None


class Simulation(Outlet):
  """An outlet of audits, benchmarks and tests: nothing is counted or paid.

  Args:
    key: of all draws; they repeat after `restart` with the same key.
  """

  def __init__(self, key: randomness.Key):
    super().__init__()
    self.open(key)

  def _pay(self) -> int:
    self._counted += 1
    return self._counted

  def restart(self, key: randomness.Key) -> None:
    """Draws from this key, from the beginning."""
    self._key, self._counted = key, 0


def _added(sums, scales, noise) -> list[tf.Tensor]:
  """Sums plus scaled noise, in the type of the sums.

  Rounder noise would leave their last bits bare.
  """
  return [
    exact
    + tf.cast(scale, exact.dtype)
    * tf.reshape(tf.cast(part, exact.dtype), exact.shape)
    for exact, scale, part in zip(sums, scales, noise)
  ]


def _write(path: pathlib.Path, array: np.ndarray) -> str:
  """Writes an array, whole or not at all; returns the hash of its bytes."""
  buffer = io.BytesIO()
  np.save(buffer, array, allow_pickle=False)
  content = buffer.getvalue()
  files.write_bytes(path, content)
  return hashlib.sha256(content).hexdigest()


def _read_if(path: pathlib.Path, digest: str) -> np.ndarray | None:
  """The array of a file, if its bytes are the ones that were released."""
  try:
    content = path.read_bytes()
  except OSError:
    return None
  if hashlib.sha256(content).hexdigest() != digest:
    return None
  return np.load(io.BytesIO(content), allow_pickle=False)
