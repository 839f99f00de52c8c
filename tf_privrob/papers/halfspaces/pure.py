"""Pure-DP halfspaces by the exponential mechanism on a public net."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import data
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob.methods import method
from tf_privrob.methods import plan as training_plan
from tf_privrob.papers.halfspaces import config as halfspace_config
from tf_privrob.papers.halfspaces import linear

_LEAST_SHARE = 1e-300  # no net is as large as that asks for
_ASSUMPTIONS = (
  privacy.Assumption(
    "net and projection are drawn from a public seed, and adding an example"
    " never lowers the number of errors of any vector of the net, nor raises it"
    " by more than 1",
    "tf_privrob.papers.halfspaces.pure",
  ),
  privacy.Assumption(
    "each choice is made of 106-bit uniform numbers, which leave its law within"
    " 2^-106 times the size of the net, in total variation",
    "tf_privrob.mechanisms.exponential",
  ),
)


def cap_share(dimension: int, cosine: float) -> float:
  """Share of the unit sphere with <v, w> >= cosine >= 0, for any unit w.

  I((d - 1) / 2, 1 / 2; 1 - cosine^2) / 2, the regularised incomplete beta
  function (Li 2011). On a line, d = 1, it is 1 / 2.
  """
  from scipy import special

  if dimension == 1:
    return 0.5
  return special.betainc((dimension - 1) / 2, 0.5, 1 - cosine**2) / 2


def wanted_net_size(dimension: int, cosine: float, success: float) -> int:
  """Random unit vectors of which one is within a cosine of a direction.

  For a unit vector w that does not depend on the net, each of N independent
  uniform vectors misses the cap around w with probability 1 - f, f its share of
  the sphere, and all of them with (1 - f)^N. So

    N = ceil(log(1 - success) / log(1 - f))

  is the least N with at least the given probability of a vector in the cap. It
  is about one direction, such as the w* of Theorem 5: to come within the cosine
  of all directions at once, a net must be larger.
  """
  share = max(cap_share(dimension, cosine), _LEAST_SHARE)
  return math.ceil(math.log1p(-success) / math.log1p(-share))


def most_dimensions(most: int, cosine: float, success: float) -> int:
  """The largest d whose wanted net has at most so many vectors; at least 1."""
  found = 1
  while wanted_net_size(found + 1, cosine, success) <= most:
    found += 1
  return found


def errors(
  features: tf.Tensor, one_hot: tf.Tensor, net: tf.Tensor, margin: float
) -> tf.Tensor:
  """Examples with y_k <w, x> <= gamma', for each class k and w of the net.

  Args:
    features: [B, d], of norm at most 1.
    one_hot: [B, K + 1]: classes, then 1 for a row that counts, else 0.
    net: [N, d], of norm 1.
    margin: gamma'.

  Returns:
    [K, N], whole numbers: sums of what each example counts on its own, if
    features and net are in float64 on the grid of `methods.linear`.
  """
  scores = tf.matmul(features, net, transpose_b=True)
  classes, mask = one_hot[:, :-1], one_hot[:, -1:]
  low = tf.cast(scores <= margin, scores.dtype)
  high = tf.cast(scores >= -margin, scores.dtype)
  return tf.matmul(classes, low, transpose_a=True) + tf.matmul(
    mask - classes, high, transpose_a=True
  )


@tf.keras.saving.register_keras_serializable("tf_privrob")
class PureHalfspaces(linear.LinearMethod):
  """Chooses each halfspace from a public net by its number of errors.

  Theorem 5 of Ghazi et al. (2021) on a finite set: among N public random unit
  vectors, w is drawn with probability proportional to exp(-dp_epsilon * its
  number of examples with y <w, x> <= gamma'), exactly, by Gumbel-max. The
  number is monotone in the data, so no factor 1/2 is needed. Two classes share
  one halfspace; K > 2 classes are K choices of dp_epsilon / K each.

  Guarantee: dp_epsilon-DP (dp_delta = 0) of all weights together,
  add-or-remove-one, up to what finite randomness leaves: N 2^-106 of dp_delta
  or so, see `mechanisms.ExponentialMechanism`. An example's scores are exact
  (`methods.linear`), so it counts or does not whoever else is there; one
  without a direction counts as an error of every vector.

  The net grows like (1 - net_cosine^2)^(-d / 2): a learner for about 10
  dimensions. With `projected_dimensions` a public random matrix R of k columns
  of norm 1 comes before: each row x becomes R^T x, scaled by itself as rows
  are, and the vector v that is chosen comes out as w = R v, so that <w, x> =
  <v, R^T x>. Products of numbers on the grid are exact (`methods.linear`), and
  the guarantee is the same; margins are those of the projected rows.

  Args: see `methods.linear.LinearMethod`.
  """

  config_class = halfspace_config.PureHalfspacesConfig

  @property
  def _choices(self) -> int:
    """Selections that share the budget."""
    return 1 if self.num_classes == 2 else self.num_classes

  @property
  def dimension(self) -> int:
    """Of the net: that of the inputs, or what they are projected to."""
    inputs = self._kernel.shape[0]
    found = self.config.projected_dimensions or inputs
    if found > inputs:
      raise ValueError(
        f"Expected projected_dimensions <= {inputs}, the dimensions of the"
        f" inputs, received {found}."
      )
    return found

  @property
  def net_size(self) -> int:
    """Vectors in the net; refused where it is too large."""
    config, dimension = self.config, self.dimension
    quality = (config.net_cosine, config.net_success)
    most = config.max_net_size
    size = config.net_size or wanted_net_size(dimension, *quality)
    if size > most:
      raise ValueError(
        f"Expected a net of at most max_net_size={most} vectors, but"
        f" d={dimension} dimensions need {size:.4g}. Set projected_dimensions="
        f"{most_dimensions(most, *quality)} or less, net_size (a coarse net"
        " finds no good halfspace), or use Halfspaces."
      )
    return size

  @property
  def net(self) -> tf.Tensor:
    """The public vectors, [N, dimension], of norm at most 1."""
    return self._net.vectors

  def features(self, images: tf.Tensor) -> tf.Tensor:
    """Rows of norm at most 1, projected where the config says so."""
    rows = super().features(images)
    if self._net.projection is None:
      return rows
    projected = tf.matmul(rows, self._net.projection)
    return linear.bounded_rows(projected, self.config.normalize)

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """One step on all examples."""
    size = self.net_size
    rows = self.config.physical_batch_size
    rows = rows or min(num_examples, max(1, 2**24 // size))
    sampler = data.FullBatchSampler(num_examples, data.whole_packets(rows))
    return training_plan.TrainingPlan(sampler, 0.0, 1, 1)

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Draws the net, which is public."""
    del plan, shape, value_range, num_classes
    self._kernel.assign(tf.zeros_like(self._kernel))
    self.optimizer.build([self._kernel])
    self.run_state = method.RunState()
    self._net = _Net(self)

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """Counts the errors of every vector and chooses."""
    images, labels, mask = batch
    classes, net = self.num_classes, self._net.vectors

    def add(total, chunk):
      rows, numbers, weight = chunk
      weight = tf.cast(weight[:, None], total.dtype)
      one_hot = tf.one_hot(numbers, classes, dtype=total.dtype) * weight
      joined = tf.concat([one_hot, weight], axis=1)
      found = errors(self.features(rows), joined, net, self.config.margin)
      return total + found

    start = tf.zeros([classes, net.shape[0]], net.dtype)
    total = tf.foldl(add, (images, labels, mask), start, parallel_iterations=1)
    mechanism = mechanisms.ExponentialMechanism(
      1.0, self.config.dp_epsilon / self._choices, monotone=True
    )
    # Two classes: the halfspace of class 1; class 0 has its mirror.
    scores = -total if self._choices > 1 else -total[1]
    found = self.outlet.select(scores, mechanism).map(self._descent)
    self.apply(found, [self._kernel])
    self.run_state.step.assign_add(1)
    return {"nonprivate/batch": tf.reduce_sum(mask)}

  def _descent(self, selected: list[tf.Tensor]) -> list[tf.Tensor]:
    """What takes the weights to the chosen vectors, at a rate of 1."""
    chosen = tf.gather(self._net.vectors, selected[0])
    if self._choices == 1:
      chosen = tf.stack([-chosen, chosen])
    if self._net.projection is not None:
      chosen = tf.matmul(chosen, self._net.projection, transpose_b=True)
    return [self._kernel - tf.cast(tf.transpose(chosen), self._kernel.dtype)]

  def _release(self, steps: int) -> privacy.Release:
    return privacy.Release(
      "halfspaces by the exponential mechanism",
      dp_epsilon=self.config.dp_epsilon / self._choices,
      count=self._choices * steps,
      description=f"one of {self.net_size} public vectors, by its errors",
    )

  def statement(self) -> privacy.PrivacyStatement:
    """Pure: dp_delta is 0."""
    record = self._run_record
    if not record.get("steps"):
      raise ValueError(
        "Expected a trained model: nothing was released yet. Call fit first."
      )
    release = self._release(record["steps"])
    budget = privacy.Budget(release.count * release.dp_epsilon, 0.0)
    facts = self.run_facts
    return privacy.PrivacyStatement(
      claimed=budget,
      proven=budget if facts.weights_known else None,
      sampler="full_batch",
      releases=(release.record(),),
      assumptions=(*_ASSUMPTIONS, *self.assumptions(), *facts.assumptions()),
      caveats=(*facts.first_caveats(), *facts.caveats()),
      condition=facts.condition,
      **facts.coverage(),
    )

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """All that the guarantee depends on."""
    return {
      "dp_epsilon": self.config.dp_epsilon,
      "margin": self.config.margin,
      "net_size": self.net_size,
      "net_seed": self.config.net_seed,
      "projected_dimensions": self.config.projected_dimensions,
      "neighbouring": "add_or_remove_one",
      "sampler": plan.sampler.describe(),
    }

  def spent_dp_epsilon(self, steps: int) -> float:
    """The proven figure after `steps` steps, at dp_delta 0."""
    return self.config.dp_epsilon * steps

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released."""
    self._run_record.update(
      steps=steps,
      sessions=sessions,
      num_examples=self.sampler.num_examples,
    )


class _Net:
  """Public vectors, on the grid; an object of its own, so Keras saves none."""

  def __init__(self, owner: PureHalfspaces):
    seed, dimension = owner.config.net_seed, owner.dimension
    net = np.random.default_rng(seed).normal(size=(owner.net_size, dimension))
    self.vectors = _public(net, axis=1)
    self.projection = None
    if owner.config.projected_dimensions is not None:
      inputs = owner.network.layers[-1].kernel.shape[0]
      matrix = np.random.default_rng([seed, 1]).normal(size=(inputs, dimension))
      self.projection = _public(matrix, axis=0)


def _public(vectors: np.ndarray, axis: int) -> tf.Tensor:
  """Vectors along an axis, of norm 1 before they are rounded to the grid."""
  vectors = vectors / np.linalg.norm(vectors, axis=axis, keepdims=True)
  return linear.on_grid(tf.constant(vectors, tf.float64))
