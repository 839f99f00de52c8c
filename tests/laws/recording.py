"""Runs the real sampler and the real step, and notes what leaves exactly.

Two neighbours are compared as an attacker would compare them: whatever was
released before is the same for both, so the steps of both begin with the same
weights. The recorder therefore hands out fixed numbers in place of noisy sums,
and notes the sums themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import gradients
from tf_privrob import randomness
from tf_privrob.data import batching
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.privacy import accounting
from tf_privrob.privacy import gaussian_dp


@dataclasses.dataclass(frozen=True)
class Noted:
  """One release: exact sums and the noise that they would have got.

  Attributes:
    sums: one array a tensor.
    stddevs: of the noise, one a tensor; None where it is not fixed before the
      data are seen, or where there is none.
    sensitivity: what the outlet was told.
  """

  sums: tuple[np.ndarray, ...]
  stddevs: tuple[float, ...] | None
  sensitivity: float | None

  def scaled(self) -> np.ndarray:
    """All sums in one vector, each over the standard deviation of its noise."""
    pairs = zip(self.sums, self.stddevs)
    return np.concatenate(
      [total.astype(np.float64).ravel() / stddev for total, stddev in pairs]
    )

  def flat(self) -> np.ndarray:
    """All sums in one vector."""
    return np.concatenate([s.astype(np.float64).ravel() for s in self.sums])


class ZeroKey(randomness.Key):
  """Uniform numbers that make Gaussian and Laplace noise zero."""

  def __init__(self):
    super().__init__(bytes(32))

  def uniform(self, count: int) -> np.ndarray:
    """Zeros."""
    return np.zeros(count)

  def child(self, *names) -> ZeroKey:
    """Itself."""
    return self


class Recorder(outlet_lib.Simulation):
  """Notes every release and hands out the same numbers for all data.

  Attributes:
    noted: releases of steps, in their order.
    once_noted: exact results of releases that are made once, by name.
    counted: exact counts that leave with Laplace noise beside a noted sum.
  """

  def __init__(self):
    super().__init__(randomness.Key.of(0))
    self.noted: list[Noted] = []
    self.once_noted: dict[str, np.ndarray] = {}
    self.counted: list[np.ndarray] = []

  def gaussian(self, sums, stddevs, sensitivity):
    """Notes sums, noise and sensitivity."""
    if not isinstance(stddevs, (list, tuple)):
      stddevs = [stddevs] * len(sums)
    fixed = all(isinstance(stddev, (int, float)) for stddev in stddevs)
    stddevs = tuple(stddevs) if fixed else None
    return self._noisy(sums, stddevs, sensitivity)

  def gaussian_and_laplace(self, sums, stddev, counts, laplace):
    """Notes the sums as above, and the counts by themselves."""
    noisy = self._noisy([sums], (stddev,), 1.0).tensors
    noted = tf.numpy_function(self._count, [counts], tf.float64)
    noted = tf.ensure_shape(noted, counts.shape)
    return self._as_released([*noisy, laplace.scale * noted])

  def _count(self, counts):
    """Notes counts and hands out numbers that are the same for all data."""
    self.counted.append(counts.copy())
    return np.random.default_rng(1).normal(size=counts.shape)

  def without_noise(self, sums):
    """Notes sums that have none."""
    return self._noisy(sums, None, None)

  def rest_without_noise(self, sums):
    """Notes sums that have none."""
    return self._noisy(sums, None, None)

  def select(self, scores, mechanism):
    """Notes the scores; the first candidate is chosen."""
    with self._noting([scores], None, mechanism.sensitivity):
      chosen = tf.zeros(scores.shape[:-1], tf.int64)
      return self._as_released([tf.identity(chosen)])

  def once(self, name, compute, settings=None):
    """Notes the result without noise."""
    found = compute(ZeroKey())
    self.once_noted[name] = np.array(found)
    return found, 1

  def _noisy(self, sums, stddevs, sensitivity):
    """Numbers of the size of the noise, the same in every step."""
    rng = np.random.default_rng(0)
    with self._noting(sums, stddevs, sensitivity):
      drawn = [
        tf.constant(scale * rng.normal(size=total.shape), total.dtype)
        for total, scale in zip(sums, stddevs or [1.0] * len(sums))
      ]
      return self._as_released([tf.identity(tensor) for tensor in drawn])

  def _noting(self, sums, stddevs, sensitivity):
    def note(*arrays):
      self.noted.append(Noted(arrays, stddevs, sensitivity))
      return np.zeros((), np.int64)

    return tf.control_dependencies(
      [tf.numpy_function(note, list(sums), tf.int64)]
    )

  def _as_released(self, tensors):
    return super().rest_without_noise(tensors)


def simulate(method, num_examples: int, value_range) -> Recorder:
  """Makes a method ready to release to a recorder.

  The trial of the loss that comes before the first step (`gradients.checking`)
  is left out: whatever it lets pass, the step itself has to keep the law.
  """
  with mock.patch.object(gradients.ClippedGradients, "check"):
    return method.simulate(num_examples, value_range, outlet=Recorder())


class Bench:
  """A method whose steps are run on any data, from the same weights.

  Args:
    method: not yet prepared.
    num_examples: n of the plan.
    value_range: of the inputs.
    x: inputs, for what is released before the first step.
    y: their labels.
    ready: what else is to be done to the method before its steps are traced.
  """

  def __init__(self, method, num_examples, value_range, x, y, ready=None):
    self.method = method
    self.outlet = simulate(method, num_examples, value_range)
    method.begin(x, y, value_range)
    if ready is not None:
      ready(method)
    rows = method.sampler.physical_batch_size
    self._step = tf.function(
      method.train_step,
      input_signature=[
        (
          tf.TensorSpec([None, rows, *x.shape[1:]], tf.float32),
          tf.TensorSpec([None, rows], tf.int64),
          tf.TensorSpec([None, rows], tf.float32),
        )
      ],
      autograph=False,
    )

  @functools.cached_property
  def _start(self) -> list[tuple[tf.Variable, np.ndarray]]:
    """All variables that a step reads or writes, as they are at first."""
    found = self._step.get_concrete_function().graph.variables
    found = {v.ref(): v for v in (*self.method.state_variables(), *found)}
    return [(variable, variable.numpy()) for variable in found.values()]

  def run(self, sampler: data.Sampler, x, y, key, steps: int) -> Run:
    """The releases of the first steps."""
    for variable, value in self._start:
      variable.assign(value)
    self.outlet.noted, state = [], []
    for step in range(steps):
      seed = randomness.Key.of(7).child("step", step).stateless_seed()
      self.method.set_step(seed, step)
      rows = sampler.indices(key, step)
      self._step(
        batching.gather_chunks(x, y, rows, sampler.physical_batch_size)
      )
      state += [variable.numpy() for variable, _ in self._start]
    return Run(self.outlet.noted, state)

  def accounted(self, steps: int) -> dict[str, Any]:
    """What the method's own statement counts as the release of its steps.

    The figures that follow from it are left out, which take seconds.
    """
    self.method.count_steps(steps, 1)
    figures = accounting.Figures(1.0, 1.0, "left out", "left out")
    with contextlib.ExitStack() as stack:
      for owner, name, value in (
        (accounting, "figures", figures),
        (accounting, "dp_epsilon", 1.0),
        (gaussian_dp, "gaussian_mu", None),
      ):
        stack.enter_context(mock.patch.object(owner, name, return_value=value))
      return self.method.statement().releases[0]


@dataclasses.dataclass(frozen=True)
class Run:
  """What some steps released, and the state that each of them left behind."""

  noted: list[Noted]
  state: list[np.ndarray]


class Dealt(randomness.Key):
  """Deals the neighbour of a shuffled epoch, as `privacy.shuffled_sgd` couples.

  The larger data set has one example more, the last row. In each permutation
  that `key` deals to it, the place of that row is taken by the last example.
  """

  def __init__(self, key: randomness.Key):
    super().__init__(bytes(32))
    self._key = key

  def child(self, *names) -> Dealt:
    """The neighbour of the child."""
    return Dealt(self._key.child(*names))

  def permutation(self, count: int) -> np.ndarray:
    """The coupled order of the first `count` rows."""
    order = self._key.permutation(count + 1).copy()
    order[order == count] = order[-1]
    return order[:-1]
