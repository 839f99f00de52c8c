"""A training step, or a few, again and again with fresh randomness.

What is audited is the method's own `train_step`. The adversary of differential
privacy knows all other records, the weights before and the settings; it sees
what every step applied to the weights. All runs of one world are one graph: the
loop over runs, and over the steps of a run, is inside.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

REPLACE_ONE, ADD_OR_REMOVE_ONE = "replace_one", "add_or_remove_one"
STATISTICS = ("projection", "distance", "jumps", "canary loss")
_REFERENCES = 16  # pairs of runs that settle direction and centre
_EACH = 250  # runs of one call of the graph


@dataclasses.dataclass(frozen=True)
class Worlds:
  """Two neighbouring data sets.

  Attributes:
    x: inputs [n, ...]; the last one is the canary.
    y: labels [n].
    instead: input and label that take the canary's place where records are
      replaced, not removed; None: it is removed.
  """

  x: np.ndarray
  y: np.ndarray
  instead: tuple[np.ndarray, int] | None = None

  @property
  def neighbouring(self) -> str:
    """How the data sets differ."""
    return ADD_OR_REMOVE_ONE if self.instead is None else REPLACE_ONE


class Runs:
  """Short trainings of a method in two worlds.

  Args:
    method: not trained; its config has the noise, clip and sampler to audit.
    worlds: the data sets.
    steps: of each run; a step takes part of the data as the method's sampler
      says.
    value_range: of the inputs.
    start: initial weights of the network; default as they are.
  """

  def __init__(
    self, method, worlds: Worlds, steps: int = 1, value_range=(0.0, 1.0),
    start=None,
  ):  # fmt: skip
    import tensorflow as tf

    self._tf = tf
    self.method, self.worlds, self.steps = method, worlds, steps
    shape = worlds.x.shape[1:]
    if start is not None:
      method.network.set_weights(start)
    method.compile(tf.keras.optimizers.SGD(1.0))
    _begin(method, worlds, value_range)
    plan = method.plan(len(worlds.x), shape)
    method._plan = plan
    method.prepare(plan, shape, value_range, method.network.output_shape[-1])
    method.count_steps(steps, 1)
    self._size = plan.sampler.expected_batch_size
    self._variables = method.network.trainable_variables
    self._start = [v.numpy() for v in method.network.variables]
    self._reference = None
    self._batches = _Batches(plan.sampler, worlds, steps)
    self._many = {
      present: tf.function(lambda k, n, p=present: self._loop(k, n, p))
      for present in (True, False)
    }

  def statement(self):
    """What the method states for exactly these steps."""
    return self.method.privacy_statement()

  def raw(self, present: bool, seeds) -> np.ndarray:
    """What the runs applied to the weights, step by step: [runs, steps, d]."""
    found = self._collect(present, seeds)
    return found[0]

  def table(self, present: bool, seeds) -> np.ndarray:
    """The statistics of runs, [runs, 4]; see `STATISTICS`.

    With u_t what step t applied, in units of a sum over the batch, d_t and c_t
    the mean of the difference between the worlds and of the world without the
    record, over pairs of runs that share their randomness:

      projection  sum_t <u_t - c_t, d_t / |d_t|>
      distance    sum_t |u_t - c_t|^2
      jumps       sum_t |(u_t - c_t) - (u_(t-1) - c_(t-1))|^2
      canary loss after the last step
    """
    directions, centre = self._settle()
    made = []
    for first in range(0, len(seeds), _EACH):
      updates, losses = self._collect(present, seeds[first : first + _EACH])
      left = updates - centre
      jumps = np.diff(left, axis=1)
      made.append(
        np.stack(
          [
            np.einsum("ntd,td->n", left, directions),
            (left**2).sum(axis=(1, 2)),
            (jumps**2).sum(axis=(1, 2)),
            losses,
          ],
          axis=1,
        )
      )
    return np.concatenate(made)

  def collect(self, run, part, present, seeds) -> np.ndarray:
    """For `privacy.audit_two_world`: many runs at once."""
    del run, part
    return self.table(present, np.asarray(seeds))

  def _settle(self):
    """Directions d_t / |d_t| and centres c_t, from runs of their own."""
    if self._reference is None:
      # Seeds of runs are below 2^31; these are words that no run has.
      seeds = -1 - np.arange(_REFERENCES)
      pairs = [self.raw(present, seeds) for present in (True, False)]
      gap = (pairs[0] - pairs[1]).mean(axis=0)
      norms = np.linalg.norm(gap, axis=1, keepdims=True)
      self._reference = (
        gap / np.maximum(norms, 1e-30), pairs[1].mean(axis=0)
      )  # fmt: skip
    return self._reference

  def _collect(self, present, seeds):
    keys = [_key(int(seed)) for seed in seeds]
    batches = self._batches.of_runs(present, seeds)
    found = self._many[present](self._tf.constant(np.stack(keys)), batches)
    return [part.numpy().astype(np.float64) for part in found]

  def _loop(self, keys, batches, present):
    tf = self._tf

    def one(arguments):
      key, rows = arguments
      return self._run(key, rows, present)

    signature = (
      tf.TensorSpec(None, tf.float32),
      tf.TensorSpec([], tf.float32),
    )
    return tf.map_fn(
      one,
      (keys, batches),
      fn_output_signature=signature,
      parallel_iterations=1,
    )

  def _run(self, key, rows, present):
    """One training from the start: updates [steps, d] and the loss."""
    tf, method = self._tf, self.method
    for variable, value in zip(method.network.variables, self._start):
      variable.assign(value)
    for optimizer in _optimizers(method):
      for variable in optimizer.variables:
        variable.assign(tf.zeros_like(variable))
    _set_session(method, key)
    updates = []
    for step in range(self.steps):
      with _applied(method) as captured:
        method.train_step(self._batches.batch(rows[step], present))
      flat = [tf.reshape(gradient, [-1]) for gradient in captured]
      updates.append(self._size * tf.concat(flat, axis=0))
    x = tf.constant(self.worlds.x[-1:])
    logits = method.network(x, training=False)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.constant(self.worlds.y[-1:]), logits
    )
    return tf.stack(updates), loss[0]


class _Batches:
  """The batches of a run, as the method's sampler draws them.

  The rows of a step are drawn in NumPy and passed as a mask over all records,
  so that the graph has one shape. Samplers of fixed batches always have the
  canary in the first one.
  """

  def __init__(self, sampler, worlds: Worlds, steps: int):
    self._sampler, self._worlds, self._steps = sampler, worlds, steps
    self._paired = getattr(sampler, "paired", None)
    self.fixed = self._paired is not None or sampler.kind == "shuffle"
    if self.fixed and worlds.instead is None:
      raise ValueError(
        "Expected worlds that differ by a replaced record: batches of a fixed"
        " size cannot lose one. Pass Worlds(instead=(x, y))."
      )

  def of_runs(self, present: bool, seeds) -> np.ndarray:
    """Masks [runs, steps, n], or rows [runs, steps, rows of a step]."""
    return np.stack([self._of_run(present, int(seed)) for seed in seeds])

  def _of_run(self, present: bool, seed: int) -> np.ndarray:
    count = len(self._worlds.x)
    rows = [
      self._sampler.indices(seed % 2**63, 0, step)
      for step in range(self._steps)
    ]
    if not self.fixed:
      masks = np.zeros([self._steps, count], np.float32)
      for mask, chosen in zip(masks, rows):
        mask[chosen] = 1
      masks[:, -1] *= present
      return masks
    rows = np.stack(rows)
    if count - 1 not in rows[0]:
      rows[0][0] = count - 1
    return rows.astype(np.int64)

  def batch(self, rows, present: bool):
    """One element of the input pipeline."""
    import tensorflow as tf

    x, y = self._worlds.x, self._worlds.y.astype(np.int64)
    if self._worlds.instead is not None and not present:
      x, y = x.copy(), y.copy()
      x[-1], y[-1] = self._worlds.instead
    x, y = tf.constant(x), tf.constant(y)
    if not self.fixed:
      return x[tf.newaxis], y[tf.newaxis], rows[tf.newaxis]
    x, y = tf.gather(x, rows), tf.gather(y, rows)
    if self._paired is None:
      return x[tf.newaxis], y[tf.newaxis], tf.ones([1, *y.shape])
    if not self._paired:
      return x, y
    half = self._sampler.batch_size
    return x[:half], y[:half], x[half:], y[half:]


@contextlib.contextmanager
def _applied(method):
  """The gradients that a step hands to its optimizers, as they are applied."""
  captured = []
  optimizers = _optimizers(method)

  def watch(optimizer):
    apply = optimizer.apply_gradients

    def applied(pairs, *args, **kwargs):
      pairs = [(gradient, variable) for gradient, variable in pairs]
      captured.extend(gradient for gradient, _ in pairs)
      return apply(pairs, *args, **kwargs)

    optimizer.apply_gradients = applied

  for optimizer in optimizers:
    watch(optimizer)
  try:
    yield captured
  finally:
    for optimizer in optimizers:
      del optimizer.apply_gradients


def _optimizers(method) -> list:
  found = [method.optimizer, getattr(method, "feature_optimizer", None)]
  return [optimizer for optimizer in found if optimizer is not None]


def _key(seed: int) -> np.ndarray:
  words = np.random.SeedSequence([17, seed % 2**64]).generate_state(2)
  return words.view(np.int32)


def _begin(method, worlds: Worlds, value_range) -> None:
  """What `fit` does before the plan; nothing is written."""
  method.begin(worlds.x, worlds.y, None, False, value_range)


def _set_session(method, key) -> None:
  """Fresh randomness, of the steps and of what is drawn once before them."""
  import tensorflow as tf

  from tf_privrob import mechanisms

  fold_in = tf.random.experimental.stateless_fold_in
  state = method._state
  if hasattr(state, "drawn"):  # AdLM
    state.key.assign(key)
    state.step.assign(0)
    state.input_noise.assign(method.input_noise(fold_in(key, 101)))
    draw = mechanisms.LaplaceMechanism(1.0, 1.0).sample(
      state.label_noise.shape, fold_in(key, 102)
    )
    state.label_noise.assign(method.label_scale * draw)
    return
  method.set_session(key, 0)
  if hasattr(method, "fixed_noise"):  # SecureSGD
    method.fixed_noise.assign(method.draw(fold_in(key, 103), 2.0))
  if hasattr(method, "crafting_noise"):  # DPAL
    draws = [
      (method.autoencoder.input_noise.noise, method.noise.input_scale),
      (method.autoencoder.hidden_noise.noise, method.noise.hidden_scale),
      (method.label_noise, method.noise.label_scale),
    ]
    for number, (variable, scale) in enumerate(draws):
      mechanism = mechanisms.LaplaceMechanism(scale, 1.0)
      variable.assign(mechanism.sample(variable.shape, fold_in(key, number)))
