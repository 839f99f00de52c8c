"""A training step, or a few, again and again with fresh randomness.

What is audited is the method's own `train_step`. The adversary of differential
privacy knows all other records, the weights before and the settings; it sees
what every step applied to the weights. All runs of one world are one graph: the
loop over runs, and over the steps of a run, is inside.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math

import numpy as np

from tf_privrob import randomness

REPLACE_ONE, ADD_OR_REMOVE_ONE = "replace_one", "add_or_remove_one"
STATISTICS = ("projection", "likelihood", "distance", "jumps", "canary loss")
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

  Where the method sums clipped gradients of Poisson or full batches, the
  adversary subtracts what all other records add, which it knows: DP holds for
  every choice of them, and of the batches they are in. What is left of step t,
  in units of a sum over the batch, is r_t = noise + (canary in it) d_t with d_t
  the canary's clipped gradient. Elsewhere r_t is what the step applied minus
  its mean in the world without the record, and d_t the mean difference of both
  worlds, over pairs of runs that share their randomness.

  Args:
    method: not trained; its config has the noise, clip and sampler to audit.
    worlds: the data sets.
    steps: of each run; a step takes part of the data as the method's sampler
      says.
    value_range: of the inputs.
    learning_rate: of plain gradient descent, which follows on the release and
      hence bears on no guarantee; default the config's.
    references: pairs of runs that settle means and directions, where they are
      not known.
  """

  def __init__(
    self,
    method,
    worlds: Worlds,
    steps: int = 1,
    value_range: tuple[float, float] = (0.0, 1.0),
    learning_rate: float | None = None,
    references: int = 16,
  ):
    import tensorflow as tf

    self._tf = tf
    self.method, self.worlds, self.steps = method, worlds, steps
    rate = learning_rate or getattr(method.config, "learning_rate", 1.0)
    method.compile(tf.keras.optimizers.SGD(rate))
    self._outlet = method.simulate(len(worlds.x), value_range)
    self._outlet.restart(_key().child("before the steps"))
    method.begin(worlds.x, worlds.y, value_range)
    method.count_steps(steps, 1)
    sampler = method.plan(len(worlds.x), worlds.x.shape[1:]).sampler
    self._size = sampler.expected_batch_size
    self._start = [v.numpy() for v in method.network.variables]
    self._batches = _Batches(sampler, worlds, steps)
    self._residual = not self._batches.fixed and _sums_clipped(method)
    self._compiled = {}
    self._reference, self._references = None, references

  @property
  def gaussian(self) -> bool:
    """Whether steps are fixed sums of clipped gradients with Gaussian noise."""
    return self._residual and self.method.sampler.kind == "full_batch"

  def statement(self):
    """What the method states for exactly these steps."""
    return self.method.statement()

  def table(self, present: bool, seeds) -> np.ndarray:
    """The statistics of runs, [runs, 5], in the order of `STATISTICS`.

    projection   sum_t <r_t, d_t> / |d_t|
    likelihood   sum_t ln(1 - q + q exp((<r_t, d_t> - |d_t|^2 / 2) / s^2)),
                 the likelihood ratio for noise of standard deviation s
    distance     sum_t |r_t|^2
    jumps        sum_t |r_t - r_(t-1)|^2
    canary loss  after the last step
    """
    if self._reference is None and not self._residual:
      self._reference = self._settle()
    return np.concatenate(
      [
        self._call("statistics", present, seeds[first : first + _EACH])
        for first in range(0, len(seeds), _EACH)
      ]
    )

  def updates(self, present: bool, seeds) -> np.ndarray:
    """What the runs applied to the weights: [runs, steps, parameters]."""
    return self._call("updates", present, seeds)

  def collect(self, run, part, present, seeds) -> np.ndarray:
    """For `privacy.audit_two_world`: many runs at once."""
    del run, part
    return self.table(present, np.asarray(seeds))

  def _settle(self):
    """Directions d_t and means of the world without, from runs of their own.

    With enough of them d_t is Fisher's: the inverse covariance of what a step
    applies, times the mean difference of the worlds.
    """
    seeds = -1 - np.arange(self._references)  # seeds of runs are not negative
    with_it, without = (self.updates(p, seeds) for p in (True, False))
    gap, centre = (with_it - without).mean(axis=0), without.mean(axis=0)
    if self._references >= 3 * gap.shape[1]:
      gap = np.stack(
        [_whitened(gap[t], without[:, t]) for t in range(self.steps)]
      )
    return gap.astype(np.float32), centre.astype(np.float32)

  def _call(self, what: str, present: bool, seeds) -> np.ndarray:
    tf = self._tf
    keys = np.stack([_key(int(s)).stateless_seed() for s in seeds])
    batches = self._batches.of_runs(present, seeds)
    if what not in self._compiled:
      self._compiled[what] = tf.function(
        lambda keys, batches, present: tf.map_fn(
          lambda pair: self._run(*pair, present, what),
          (keys, batches),
          fn_output_signature=tf.float32,
          parallel_iterations=1,
        ),
        input_signature=[
          *(
            tf.TensorSpec([None, *array.shape[1:]], array.dtype)
            for array in (keys, batches)
          ),
          tf.TensorSpec([], tf.bool),
        ],
        autograph=False,
      )
    found = self._compiled[what](keys, batches, tf.constant(present))
    return found.numpy().astype(np.float64)

  def _run(self, key, rows, present, what: str):
    """One training from the start; the loop over its steps is in the graph."""
    tf, method = self._tf, self.method
    for variable, value in zip(method.network.variables, self._start):
      variable.assign(value)
    _set_session(method, key)

    def step(rows):
      batch = self._batches.batch(rows, present)
      known = self._known(batch) if self._residual else ()
      return (*known, self._applied(batch))

    with tf.control_dependencies([tf.numpy_function(self._restart, [key], [])]):
      found = tf.map_fn(
        step,
        tf.identity(rows),
        fn_output_signature=(tf.float32,) * (3 if self._residual else 1),
        parallel_iterations=1,
      )
    if what == "updates":
      return found[-1]
    if not self._residual:
      found = (*map(tf.constant, self._reference), found[-1])
    directions, known, updates = found
    return self._statistics(updates - known, directions)

  def _restart(self, key) -> None:
    """Noise of the run's own, draw by draw: both worlds share it."""
    self._outlet.restart(_key(*map(int, key)).child("noise"))

  def _applied(self, batch):
    """One step; what it handed to its optimizers, times the batch size."""
    tf = self._tf
    with _watched(self.method) as captured:
      self.method.train_step(batch)
    if not captured:
      raise ValueError(
        f"Expected a method that hands gradients to an optimizer, received"
        f" {type(self.method).__name__}, which does not. Audit its mechanism:"
        " privacy.refute."
      )
    flat = [tf.reshape(gradient, [-1]) for gradient in captured]
    return self._size * tf.concat(flat, axis=0)

  def _known(self, batch):
    """The canary's gradient and what all others add, before the step."""
    from tf_privrob.methods import updates

    tf, method = self._tf, self.method
    x, y, mask = batch
    seed = method.run_state.seed(1)  # of the copies, as in `DPSGD.train_step`
    variables = method.network.trainable_variables
    without = 1 - tf.one_hot(mask.shape[1] - 1, mask.shape[1])
    others = method.clipped_gradients.over_chunks((x, y), mask * without, seed)
    canary = method.clipped_gradients((x[0, -1:], y[0, -1:]), seed=seed)
    public = updates.regularization_gradients(method.network, variables)
    flat = [
      tf.concat(
        [tf.cast(tf.reshape(g, [-1]), tf.float32) for g in found], axis=0
      )
      for found in (canary.gradients, others.gradients, public)
    ]
    return flat[0], flat[1] + self._size * flat[2]

  def _statistics(self, left, directions):
    tf, method = self._tf, self.method
    inner = tf.reduce_sum(left * directions, axis=1)
    squares = tf.reduce_sum(directions**2, axis=1)
    jumps = left[1:] - left[:-1]
    return tf.stack(
      [
        tf.reduce_sum(inner / tf.sqrt(tf.maximum(squares, 1e-30))),
        self._likelihood(inner, squares),
        tf.reduce_sum(left**2),
        tf.reduce_sum(jumps**2),
        _loss(method, self.worlds),
      ]
    )

  def _likelihood(self, inner, squares):
    tf, plan = self._tf, self.method.settled_plan
    if not self._residual or not plan.noise_multiplier:
      return tf.reduce_sum(inner)
    stddev = plan.noise_multiplier * self.method.config.l2_clip_norm
    prob = getattr(plan.sampler, "sampling_prob", 1.0)
    log_ratio = (inner - squares / 2) / stddev**2
    if prob >= 1:
      return tf.reduce_sum(log_ratio)
    terms = [tf.fill(tf.shape(log_ratio), math.log1p(-prob))]
    terms.append(math.log(prob) + log_ratio)
    return tf.reduce_sum(tf.reduce_logsumexp(tf.stack(terms), axis=0))


def _whitened(gap: np.ndarray, rows: np.ndarray) -> np.ndarray:
  """Fisher's direction for a difference of means, lightly ridged."""
  spread = rows.std(axis=0) + 1e-3 * np.abs(gap) + 1e-9
  scaled = (rows - rows.mean(axis=0)) / spread
  correlation = scaled.T @ scaled / len(rows)
  ridge = 1e-4 * np.eye(len(gap))
  return np.linalg.solve(correlation + ridge, gap / spread) / spread


def _sums_clipped(method) -> bool:
  """Whether a step is a noisy sum of each example's clipped gradient."""
  from tf_privrob import gradients
  from tf_privrob import methods

  return isinstance(method, methods.DPSGD) and type(
    getattr(method, "clipped_gradients", None)
  ) in (gradients.ClippedGradients, gradients.UnclippedGradients)


def _loss(method, worlds: Worlds):
  """Of the canary, under the weights as they are."""
  import tensorflow as tf

  logits = method.network(tf.constant(worlds.x[-1:]), training=False)
  labels = tf.constant(worlds.y[-1:].astype(np.int64))
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)[0]


class _Batches:
  """The batches of a run, as the method's sampler draws them.

  The rows of a step are drawn in NumPy and passed as a mask over all records,
  so that the graph has one shape. Fixed batches, for which no amplification is
  claimed, are the same in all runs, and the canary leads the first one.
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
    key = _key(0 if self.fixed else seed).child("sampling")
    rows = [self._sampler.indices(key, step) for step in range(self._steps)]
    if not self.fixed:
      masks = np.zeros([self._steps, count], np.float32)
      for mask, chosen in zip(masks, rows):
        mask[chosen] = 1
      masks[:, -1] *= present
      return masks
    rows = np.array(rows, np.int64)
    rows[0][rows[0] == count - 1] = rows[0][0]
    rows[0][0] = count - 1
    return rows

  def batch(self, rows, present):
    """One element of the input pipeline; `present` is a tensor."""
    import tensorflow as tf

    x, y = self._worlds.x, self._worlds.y.astype(np.int64)
    if not self.fixed:  # the mask says it all
      x, y = tf.constant(x), tf.constant(y)
      return x[tf.newaxis], y[tf.newaxis], rows[tf.newaxis]
    other_x, other_y = x.copy(), y.copy()
    other_x[-1], other_y[-1] = self._worlds.instead
    x = tf.gather(tf.where(present, x, other_x), rows)
    y = tf.gather(tf.where(present, y, other_y), rows)
    if self._paired is None:
      return x[tf.newaxis], y[tf.newaxis], tf.ones([1, *y.shape])
    if not self._paired:
      return x, y
    half = self._sampler.batch_size
    return x[:half], y[:half], x[half:], y[half:]


@contextlib.contextmanager
def _watched(method):
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


def _key(*seeds: int) -> randomness.Key:
  return randomness.Key.of(17).child(*seeds)


def _set_session(method, key) -> None:
  """Fresh randomness, of the steps and of what is drawn once before them."""
  import tensorflow as tf

  from tf_privrob import mechanisms

  def fold_in(key, number):
    return tf.random.experimental.stateless_fold_in(
      key, tf.constant(number, tf.int64)
    )

  state = method.run_state
  if hasattr(state, "drawn"):  # AdLM
    method.set_step(key, 0)
    state.input_noise.assign(method.input_noise(fold_in(key, 101)))
    draw = mechanisms.LaplaceMechanism(1.0, 1.0).sample(
      state.label_noise.shape, fold_in(key, 102)
    )
    state.label_noise.assign(method.label_scale * draw)
    return
  method.set_step(key, 0)
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
