"""DP Batch Perceptron (Ghazi et al. 2021): private halfspaces with a margin."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob.methods import checks
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import method
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import plan as training_plan
from tf_privrob.papers.halfspaces import config as halfspace_config
from tf_privrob.papers.halfspaces import linear
from tf_privrob.papers.halfspaces import stopping

_STOP = 0.3  # line 9
_ASSUMPTIONS = (
  privacy.Assumption(
    "each example adds one vector of norm at most 1 to a halfspace, and at most"
    " one to its number of violations",
    "tf_privrob.papers.halfspaces.linear",
  ),
  privacy.Assumption(
    "the number of steps, of examples and of classes are public constants",
    "tf_privrob.methods",
  ),
)
_RELEASE = {
  "name": "noisy sums of examples",
  "description": (
    "sum over the violations in a Poisson sample, each of norm at most 1, plus"
    " Gaussian noise"
  ),
}
_LITERAL = (
  "The claim is for one halfspace. All {classes} are published, each example"
  " takes part in all of them, and the paper does not compose them: proven is"
  " the figure of all {steps} releases."
)
_AS_PRINTED = (
  "The claim counts the noisy numbers of violations and the noisy sums as if"
  " each had a Poisson sample of its own, as accountants do; both are of one"
  " sample, and proven is what that costs."
)
_FAILED = "Algorithm 1 returned FAIL for {count} of {classes} halfspaces."


def one_versus_rest(
  features: tf.Tensor,
  signs: tf.Tensor,
  weights: tf.Tensor,
  margin: tf.Tensor | float,
) -> tuple[tf.Tensor, tf.Tensor]:
  """The update of K halfspaces on one batch (lines 5 to 7 and 11).

  u_k = sum y_k x over the examples with y_k <w_k, x> <= gamma' |w_k|.

  Args:
    features: [..., B, d], of norm at most 1.
    signs: [..., B, K], y_k = 1 or -1; 0 leaves a row out.
    weights: [..., d, K].
    margin: gamma', a number or of a shape that broadcasts with [..., 1, 1].

  Returns:
    u [..., d, K] and the number of violations [..., K]. One example changes a
    column of u by at most 1, in norm, and the number by at most 1; exactly so
    for features on the grid of `methods.linear`, in float64.
  """
  scores = tf.matmul(features, _directions(weights, -2))
  violated = tf.cast(signs * scores <= margin, signs.dtype)
  added = signs * violated
  update = tf.matmul(features, added, transpose_a=True)
  return update, tf.reduce_sum(tf.abs(added), axis=-2)


def _directions(weights: tf.Tensor, axis) -> tf.Tensor:
  """The weights over their norms, on the grid: scores are then exact."""
  norms = tf.norm(weights, axis=axis, keepdims=True)
  return linear.on_grid(tf.math.divide_no_nan(weights, norms))


def kesler(
  features: tf.Tensor,
  labels: tf.Tensor,
  weights: tf.Tensor,
  margin: tf.Tensor | float,
) -> tuple[tf.Tensor, tf.Tensor]:
  """The update of one multiclass perceptron on one batch.

  Kesler's construction: with j the best class other than y, the example is the
  vector z with x at y and -x at j, of norm sqrt(2) |x|, and is violated where
  z / sqrt(2) is within the margin:

    <W, z> = <w_y - w_j, x> <= sqrt(2) gamma' |W|_F.

  Args:
    features: [..., B, d], of norm at most 1.
    labels: [..., B, K], one-hot; a row of zeros is left out.
    weights: [..., d, K].
    margin: gamma', a number or of a shape that broadcasts with [..., 1].

  Returns:
    The sum of z over the violations, [..., d, K], which one example changes by
    at most sqrt(2), and their number [..., 1]; exactly so as above.
  """
  scores = tf.matmul(features, _directions(weights, [-2, -1]))
  classes = scores.shape[-1]
  others = tf.where(labels > 0, scores.dtype.min, scores)
  rival = tf.one_hot(tf.argmax(others, axis=-1), classes, dtype=scores.dtype)
  present = tf.reduce_sum(labels, axis=-1)
  gap = tf.reduce_sum((labels - rival) * scores, axis=-1)
  violated = present * tf.cast(gap <= margin * math.sqrt(2), scores.dtype)
  added = (labels - rival) * violated[..., tf.newaxis]
  update = tf.matmul(features, added, transpose_a=True)
  return update, tf.reduce_sum(violated, axis=-1, keepdims=True)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class Halfspaces(linear.LinearMethod):
  """Learns a linear classifier by noisy sums of examples within a margin.

  Algorithm 1 of the paper for each class against the rest: on a Poisson batch,

    w <- w + sum of y x over the examples with y <w, x> <= gamma' |w|
           + N(0, sigma^2 I),

  from w = 0. Neighbours that differ by one added or removed example differ by
  at most 1 in the sum. With `stop_risk` the number of violations is released
  beside it, as one more coordinate of the same Gaussian release: the
  sensitivity becomes sqrt(1 + count_weight^2), and a halfspace whose noisy
  number is below 0.3 stop_risk p n stays as it is. When the run ends depends on
  the data then, and a figure of the steps that were taken would too; proven is
  that of all planned steps, however few were taken.

  With `laplace_scale` it is Algorithm 1 as printed: the number has Laplace
  noise, a halfspace that stops comes out with norm 1 (line 10), and one that
  never does is FAIL and comes out as zero. Claimed is then the budget of one
  class, by an accountant's list of both releases; proven is what `stopping`
  bounds for all classes, both releases of one sample, and all planned steps.

  Guarantee: (dp_epsilon, dp_delta)-DP of all weights together, after every
  step, add-or-remove-one; see `composition` for how K classes share it. Under
  "paper_literal" the budget is the claim for one class, and the proven figure,
  of all classes, is larger. Choosing gamma', the batch size and the other
  settings by results on private data is not charged.

  Robustness: `certifier()` gives the exact margin of each input.

  Args: see `methods.linear.LinearMethod`.
  """

  config_class = halfspace_config.HalfspacesConfig

  @property
  def _by_class(self) -> bool:
    """Whether a step is of one class only."""
    return self.config.composition in ("independent_batches", "paper_literal")

  @property
  def _as_printed(self) -> bool:
    """Whether the number of violations has Laplace noise of its own."""
    return self.config.laplace_scale is not None

  @property
  def _count_weight(self) -> float:
    """Of the number of violations, where it is released."""
    return 1.0 if self._as_printed else self.config.count_weight

  @property
  def sensitivity(self) -> float:
    """Largest l_2 change of one release: the sum, and the weighted count."""
    columns, counts = {
      "shared_batch": (self.num_classes, self.num_classes),
      "kesler": (2, 1),
    }.get(self.config.composition, (1, 1))
    if self.config.stop_risk is None or self._as_printed:
      return math.sqrt(columns)
    return math.sqrt(columns + counts * self.config.count_weight**2)

  # Before the first step.

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """K T steps where each class has its own, else T."""
    config = self.config
    shape = tuple(input_shape or checks.input_shape(self.network))
    names = {f.name for f in dataclasses.fields(dp_sgd.BudgetConfig)}
    settings = {
      name: value
      for name, value in dataclasses.asdict(config).items()
      if name in names
    }
    factor = self.num_classes if self._by_class else 1
    steps = round(config.epochs * num_examples / config.batch_size)
    literal = config.composition == "paper_literal"
    releases = max(1, steps) * (1 if literal else factor)
    settings["epochs"] = releases * config.batch_size / num_examples
    prob = config.batch_size / num_examples
    extra = (self._numbers(prob, releases),) if self._as_printed else ()
    found = training_plan.make(
      dp_sgd.BudgetConfig(**settings), num_examples, shape, extra
    )
    if literal:
      steps = factor * found.steps
      limit = None if found.limit is None else steps
      return dataclasses.replace(found, steps=steps, limit=limit)
    return dataclasses.replace(found, steps=found.steps // factor * factor)

  def _numbers(self, prob: float, steps: int) -> privacy.Release:
    """The noisy numbers of violations of one class, line 8, by themselves."""
    import dp_accounting

    event = dp_accounting.LaplaceDpEvent(self.config.laplace_scale)
    if prob < 1:
      event = dp_accounting.PoissonSampledDpEvent(prob, event)
    return privacy.Release(
      "noisy numbers of violations",
      event,
      count=steps,
      description="violations in the same Poisson sample, plus Laplace noise",
    )

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Starts at w = 0."""
    del plan, shape, value_range, num_classes
    self._kernel.assign(tf.zeros_like(self._kernel))
    self.optimizer.build([self._kernel])
    self.run_state = method.RunState()
    self._stopped = _Stopped(self.num_classes)
    self._raw = None

  # A step.

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """One release: sum over the violations of a batch, noise, update."""
    images, labels, mask = batch
    kind = tf.TensorSpec([images.shape[1], self._kernel.shape[0]], tf.float64)
    # Chunk by chunk, whose size is known.
    features = tf.map_fn(self.features, images, fn_output_signature=kind)
    features = tf.reshape(features, [-1, self._kernel.shape[0]])
    labels, mask = tf.reshape(labels, [-1]), tf.reshape(mask, [-1, 1])
    mask = tf.cast(mask, features.dtype)
    one_hot = mask * tf.one_hot(labels, self.num_classes, dtype=mask.dtype)
    update, count = self._update(features, one_hot, mask)
    self.apply(self._noisy(update, count).map(self._descent), [self._kernel])
    self.run_state.step.assign_add(1)
    return {"nonprivate/batch": tf.reduce_sum(mask)}

  def _chosen(self) -> tf.Tensor:
    """1 for the classes of this step, [K]."""
    if not self._by_class:
      return tf.ones([self.num_classes], tf.float64)
    step = tf.math.floormod(self.run_state.step, self.num_classes)
    return tf.one_hot(step, self.num_classes, dtype=tf.float64)

  def _update(self, features, one_hot, mask):
    """The sum over violations [d, K], and their number [K] or [1]."""
    margin = self.config.margin
    weights = tf.cast(self._kernel, features.dtype)
    if self.config.composition == "kesler":
      return kesler(features, one_hot, weights, margin)
    signs = (2 * one_hot - mask) * self._chosen()
    return one_versus_rest(features, signs, weights, margin)

  def _noisy(self, update, count) -> outlet_lib.Released:
    """One release of the sum and, if it is asked for, of the count."""
    counts = []
    if self.config.stop_risk is not None:
      counts.append(self._count_weight * count)
    multiplier, sensitivity = (
      self.settled_plan.noise_multiplier,
      self.sensitivity,
    )
    if multiplier == 0:
      return self.outlet.without_noise([update, *counts])
    if self._as_printed:
      laplace = mechanisms.LaplaceMechanism(1.0, 1 / self.config.laplace_scale)
      return self.outlet.gaussian_and_laplace(
        update, multiplier, counts[0], laplace
      )
    return self.outlet.gaussian(
      [update, *counts], multiplier * sensitivity, sensitivity
    )

  def _descent(self, noisy: list[tf.Tensor]) -> list[tf.Tensor]:
    """What the optimizer takes off the weights of the classes that go on."""
    count = noisy[1] / self._count_weight if noisy[1:] else None
    update = tf.where(self._active(count), noisy[0], tf.zeros_like(noisy[0]))
    return [-tf.cast(update, self._kernel.dtype)]

  def _active(self, count: tf.Tensor | None) -> tf.Tensor:
    """Classes of this step that go on; those that do not are noted, [K]."""
    chosen = self._chosen() > 0
    if self.config.stop_risk is None:
      return chosen
    expected = self.sampler.expected_batch_size
    done = count < _STOP * self.config.stop_risk * expected
    stopped = self._stopped.flags
    stopped.assign(tf.logical_or(stopped, tf.logical_and(done, chosen)))
    return tf.logical_and(chosen, tf.logical_not(stopped))

  # Guarantees and the run.

  def statement(self) -> privacy.PrivacyStatement:
    """Claimed, proven and audited privacy of all weights together."""
    config, record = self.config, self._run_record
    if not record.get("steps"):
      raise ValueError(
        "Expected a trained model: nothing was released yet. Call fit first."
      )
    steps = record.get("steps_accounted")
    if steps is None:  # of a model that an earlier version saved
      steps = max(record["steps"], self.plan(record["num_examples"]).steps)
    claimed, caveats = self._claim(steps)
    found = privacy.PrivacyStatement.for_dp_sgd(
      facts=self.run_facts,
      noise_multiplier=record["noise_multiplier"],
      sampling_prob=record["sampling_prob"],
      steps=steps,
      dp_delta=config.dp_delta,
      num_examples=record["num_examples"],
      accountant="pld" if claimed else config.accountant,
      claimed=claimed,
      extra_caveats=caveats,
    )
    sampling, facts = found.assumptions[:1], self.run_facts.assumptions()
    found = found.replace(
      releases=tuple({**row, **_RELEASE} for row in found.releases),
      assumptions=(*sampling, *_ASSUMPTIONS, *self.assumptions(), *facts),
    )
    if self._as_printed and record["noise_multiplier"]:
      return self._of_one_sample(found, steps)
    return found

  def _claim(self, steps: int) -> tuple[privacy.Budget | None, list[str]]:
    """The paper's budget, of one class, and what is to be said of it."""
    config, record = self.config, self._run_record
    if config.composition != "paper_literal" or not record["noise_multiplier"]:
      return None, []
    prob, own = record["sampling_prob"], math.ceil(steps / self.num_classes)
    releases = [privacy.poisson_sgd(record["noise_multiplier"], prob, own)]
    caveats = [_LITERAL.format(classes=self.num_classes, steps=steps)]
    if self._as_printed:
      releases.append(self._numbers(prob, own))
      caveats.append(_AS_PRINTED)
      failed = record.get("stopped", []).count(False)
      if failed:
        caveats.append(_FAILED.format(count=failed, classes=self.num_classes))
    dp_epsilon = privacy.dp_epsilon(
      releases, config.dp_delta, config.accountant
    )
    return privacy.Budget(dp_epsilon, config.dp_delta), caveats

  def _of_one_sample(
    self, found: privacy.PrivacyStatement, steps: int
  ) -> privacy.PrivacyStatement:
    """With the figure of sums and numbers of the same samples."""
    record, proven = self._run_record, None
    dp_epsilon = self._printed_dp_epsilon(
      record["noise_multiplier"], record["sampling_prob"], steps
    )
    if found.proven is not None and math.isfinite(dp_epsilon):
      proven = privacy.Budget(dp_epsilon, self.config.dp_delta)
    figures = {
      "rdp": math.inf,
      "rdp_route": "none",
      "pld": dp_epsilon,
      "pld_route": "pld, sum and number of one sample",
    }
    numbers = self._numbers(record["sampling_prob"], steps)
    return found.replace(
      proven=proven,
      accountant={**found.accountant, **figures},
      releases=(*found.releases, numbers.record()),
      gaussian_mu=None,
    )

  def _printed_dp_epsilon(self, noise: float, prob: float, steps: int) -> float:
    """What `steps` steps of Algorithm 1 as printed cost."""
    scale, dp_delta = self.config.laplace_scale, self.config.dp_delta
    return stopping.dp_epsilon(noise, scale, prob, steps, dp_delta)

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """All that the guarantee depends on."""
    config = self.config
    return {
      "noise_multiplier": plan.noise_multiplier,
      "sensitivity": self.sensitivity,
      "composition": config.composition,
      "margin": config.margin,
      "stop_risk": config.stop_risk,
      "laplace_scale": config.laplace_scale,
      "normalize": config.normalize,
      "dp_delta": config.dp_delta,
      "neighbouring": "add_or_remove_one",
      "sampler": plan.sampler.describe(),
    }

  def spent_dp_epsilon(self, steps: int) -> float:
    """The proven figure after `steps` steps, at the config's dp_delta.

    From the first on all planned ones, where the data may stop it.
    """
    stops = self.config.stop_risk is not None and steps > 0
    steps = max(steps, self.settled_plan.steps) if stops else steps
    noise, sampler = (
      self.settled_plan.noise_multiplier,
      self.settled_plan.sampler,
    )
    if stops and self._as_printed and noise:
      return self._printed_dp_epsilon(noise, sampler.sampling_prob, steps)
    return training_plan.dp_epsilon(self.config, self.settled_plan, steps)

  def set_step(self, seed, step) -> None:
    """Begins a step; before the first one nothing has stopped."""
    super().set_step(seed, step)
    flags = self._stopped.flags
    flags.assign(tf.logical_and(flags, tf.cast(step, tf.int64) > 0))

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released so far; ends when all halfspaces are done."""
    self._run_record.update(
      training_plan.record(self.settled_plan, steps, sessions),
      steps_planned=self.planned_steps,
    )
    if self.config.stop_risk is not None:
      stopped = self._stopped.flags.numpy()
      self._run_record["stopped"] = stopped.tolist()
      self.stop_training = bool(stopped.all())

  def state_variables(self) -> list[tf.Variable]:
    """Adds which halfspaces are done."""
    return [*super().state_variables(), self._stopped.flags]

  @property
  def raw_weights(self) -> tf.Tensor:
    """The weights as they are trained, before they are scaled to come out."""
    return tf.identity(self._kernel if self._raw is None else self._raw)

  def swap_average(self) -> None:
    """Exchanges the weights and what comes out: the longest has norm 1.

    Their common scale changes no prediction and no margin, but as they are
    trained a softmax of the logits is saturated, which blinds attacks. Of
    Algorithm 1 as printed come out unit vectors, and zero for FAIL.
    """
    if self._raw is None:
      self._raw = tf.identity(self._kernel)
      norms = tf.norm(self._kernel, axis=0)
      if not (self.config.unit_weights or self._as_printed):
        norms = tf.reduce_max(norms)
      found = tf.math.divide_no_nan(self._raw, norms)
      if self._as_printed:
        found *= tf.cast(self._stopped.flags, found.dtype)
      self._kernel.assign(found)
    else:
      self._kernel.assign(self._raw)
      self._raw = None


class _Stopped:
  """Which halfspaces are done; an object of its own, so Keras saves none."""

  def __init__(self, classes: int):
    self.flags = tf.Variable(tf.zeros([classes], tf.bool), trainable=False)
