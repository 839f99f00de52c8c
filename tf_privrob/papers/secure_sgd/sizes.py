"""The robustness size that the released SecureSGD code claims."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_privrob import binomial
from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier
from tf_privrob.certify.audit import targets as audit_targets
from tf_privrob.certify.noise_layer import noisy_scores
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.smoothing import votes

FORMS = {"paper": "secure_sgd_paper", "released_code": "secure_sgd_released"}
DELTAS = np.arange(1, 300) / 1000  # .001, ..., .299, as in the code
_MULTIPLIER_DP_DELTA = 0.05


def classic_factor(dp_delta):
  """g(dp_delta) = sqrt(2 ln(1.25 / dp_delta)) of the classic Gaussian bound."""
  return np.sqrt(2 * np.log(1.25 / np.asarray(dp_delta, float)))[()]


def robust_budget(p1_lower, p2_upper, dp_delta):
  """The largest eps_r with p1 >= e^(2 eps_r) p2 + (1 + e^eps_r) dp_delta.

  Eq. 4 of DPAL, Lecuyer et al. (2019), Prop. 2. The right-hand side grows with
  u = e^eps_r, and p2 u^2 + dp_delta u + dp_delta = p1 has one positive root,
  so that no search is needed; the code bisects to 0.001. 0 where none is
  allowed. Takes and returns arrays or floats.
  """
  p1, p2, lost = np.broadcast_arrays(
    *(np.asarray(value, float) for value in (p1_lower, p2_upper, dp_delta))
  )
  room = np.maximum(p1 - lost, 0.0)
  root = lost + np.sqrt(lost**2 + 4 * p2 * room)
  return np.log(np.maximum(2 * room / root, 1.0))[()]


def size_multiplier(attack_norm_bound: float, dp_epsilon: float) -> float:
  """dp_mult = A g(.05) / dp_epsilon, which the code divides a size by."""
  validate.positive(attack_norm_bound=attack_norm_bound, dp_epsilon=dp_epsilon)
  return float(
    attack_norm_bound * classic_factor(_MULTIPLIER_DP_DELTA) / dp_epsilon
  )


def claimed_size(
  p1_lower,
  p2_upper,
  form: str = "released_code",
  *,
  attack_norm_bound: float = 0.2,
  dp_epsilon: float = 4.0,
  dp_delta: float = 1e-5,
  attack_eps: float | None = None,
):
  """The size for these bounds; no proof supports it for what the code did.

    max over delta of  mu (eps_r(delta) / dp_epsilon) g(dp_delta) / g(delta)

  with eps_r(delta) <= dp_epsilon from `robust_budget`, delta in .001 to .299.

  The formula is PixelDP's. It is right for noise of standard deviation
  mu g(dp_delta) / dp_epsilon behind a layer of l2 norm 1, although PixelDP
  stops at eps_r = 1, where the classic bound ends: Eq. 4 with delta >= .001
  allows no eps_r above ln(999), and up to there the exact dp_delta stays below
  0.75 of what the classic formula says (docs/soundness.md).

  It is wrong here: the noise that is drawn is another (a quarter of the
  training noise, of another calibration), the trained layer's norm is left out,
  "released_code" divides by dp_mult, which makes it 7.9 times larger, and
  compares an l2 size with an l_inf attack.

  Args:
    p1_lower: lower bound of the top class's probability, float or array.
    p2_upper: upper bound of the runner-up's.
    form: "released_code" divides by `size_multiplier`, "paper" does not.
    attack_norm_bound: A.
    dp_epsilon: of the noise at the hidden layer.
    dp_delta: with it: 1e-5 in the MNIST code, .05 in the CIFAR-10 code.
    attack_eps: mu, the attack that the size is compared with; None: A.

  Returns:
    Sizes >= 0 of the shape of p1_lower.
  """
  validate.one_of(FORMS, form=form)
  validate.positive(attack_norm_bound=attack_norm_bound, dp_epsilon=dp_epsilon)
  validate.open_probability(dp_delta=dp_delta)
  attack_eps = attack_norm_bound if attack_eps is None else attack_eps
  validate.positive(attack_eps=attack_eps)
  p1, p2 = np.broadcast_arrays(
    np.asarray(p1_lower, float)[..., None],
    np.asarray(p2_upper, float)[..., None],
  )
  budgets = np.minimum(robust_budget(p1, p2, DELTAS), dp_epsilon)
  best = (budgets / classic_factor(DELTAS)).max(axis=-1)
  size = attack_eps * best * classic_factor(dp_delta) / dp_epsilon
  if form == "released_code":
    size = size / size_multiplier(attack_norm_bound, dp_epsilon)
  return np.where(p1[..., 0] > p2[..., 0], size, 0.0)[()]


def inference_stddev(
  attack_norm_bound: float,
  stddev: float,
  heterogeneous_stddev: np.ndarray,
) -> np.ndarray:
  """Of A (noise_E' + noise_H') / 4, the fresh noise of one vote.

  Args:
    attack_norm_bound: A.
    stddev: of noise_E.
    heterogeneous_stddev: of noise_H, one a coordinate.
  """
  validate.positive(attack_norm_bound=attack_norm_bound, stddev=stddev)
  spread = np.asarray(heterogeneous_stddev, np.float64)
  return attack_norm_bound / 4 * np.sqrt(stddev**2 + spread**2)


@dataclasses.dataclass(frozen=True)
class ClaimedSizes(certifier.Certifier):
  """SecureSGD's certified inference; every row is `claimed`.

  One vote is the class under the noise fixed in training plus a fresh A
  (noise_E' + noise_H') / 4 at h. From `num_draws` votes come Clopper-Pearson
  bounds at alpha = (1 - confidence) / K each, then `claimed_size`. Unlike in
  the code every vote comes from fresh noise, and no two inputs share a draw.

  Not a guarantee: see `claimed_size`. The proven counterpart for the same noise
  is the model's `proven_certifier()`. A row never abstains; its radius is 0
  where p1 <= p2. The norm is "linf" for the released code, which compares the
  size with l_inf attacks, and "l2" for the paper.

  Attributes:
    form: "released_code" or "paper".
    attack_norm_bound: A.
    dp_epsilon: of the noise at h.
    dp_delta: in the formula of the size.
    attack_eps: mu; None: A.
    num_draws: n.
    confidence: each row states it, none keeps it.
    batch_size: noisy inputs a forward pass; None chooses by device.
  """

  kind = "claimed"
  randomised = True

  form: str = "released_code"
  attack_norm_bound: float = 0.2
  dp_epsilon: float = 4.0
  dp_delta: float = 1e-5
  attack_eps: float | None = None
  num_draws: int = 2000
  confidence: float = 0.95
  batch_size: int | None = None

  def __post_init__(self):
    self.radius(0.9, 0.1)  # refuses bad settings
    validate.positive_int(num_draws=self.num_draws)
    validate.open_probability(confidence=self.confidence)
    if self.batch_size is not None:
      validate.positive_int(batch_size=self.batch_size)

  @property
  def method(self) -> str:
    """The name in the rows."""
    return FORMS[self.form]

  @property
  def norm(self) -> str:
    """The norm that the size is compared in."""
    return "linf" if self.form == "released_code" else "l2"

  def target(self, model, x, draws=None):
    """The votes of the model with the noise of its first layer."""
    scale = model.fresh_hidden_stddev
    return audit_targets.noisy_inside(
      model,
      x,
      [noisy_scores.Pass("hidden", scale, "gaussian")],
      "clopper_pearson",
      self.batch_size,
      num_estimation=draws or self.num_draws,
    )

  def settings(self) -> dict[str, Any]:
    """All settings but `batch_size`, which changes no draw."""
    values = super().settings()
    del values["batch_size"]
    return values

  def radius(self, p1_lower, p2_upper):
    """`claimed_size` with these settings."""
    return claimed_size(
      p1_lower,
      p2_upper,
      self.form,
      attack_norm_bound=self.attack_norm_bound,
      dp_epsilon=self.dp_epsilon,
      dp_delta=self.dp_delta,
      attack_eps=self.attack_eps,
    )

  def largest_radius(self, num_classes: int) -> float:
    """The size of an input whose votes all name one class."""
    failure_prob = (1 - self.confidence) / num_classes
    lower = binomial.lower(self.num_draws, self.num_draws, failure_prob)
    upper = binomial.upper(0, self.num_draws, failure_prob)
    return float(self.radius(lower, upper))

  def _stream(self, door, x, y, seed, indices):
    """Yields one claimed row an input; the model is a `SecureSGD`."""
    logits_fn = door.model
    x, num_classes = noisy_scores.check_model(logits_fn, x)
    if not hasattr(logits_fn, "fresh_hidden_stddev"):
      raise ValueError(
        "Expected a model with fresh_hidden_stddev, the noise of one vote, such"
        f" as methods.SecureSGD, received {type(logits_fn).__name__}."
      )
    labels = certifier.check_labels(y, num_classes, len(x))
    indices = certifier.check_indices(indices, len(x))
    sampler = noisy_scores.NoisyScores(
      logits_fn,
      num_classes,
      [noisy_scores.Pass("hidden", logits_fn.fresh_hidden_stddev, "gaussian")],
      self.batch_size,
      seed,
    )
    sampler.pass_gate(
      door, x, self.num_draws, "They leave no claim for a single input."
    )
    draws = sampler.stream(x, indices, votes.ESTIMATION, self.num_draws)
    failure_prob = (1 - self.confidence) / num_classes
    for label, index, scores in zip(labels, indices, draws):
      top = score_bounds.top_two(scores, "clopper_pearson", failure_prob)
      yield certificate.Certificate(
        index=index,
        label=label,
        prediction=top.label,
        radius=float(self.radius(top.p1_lower, top.p2_upper)),
        norm=self.norm,
        abstained=False,
        confidence=self.confidence,
        kind="claimed",
        method=self.method,
        seconds=scores.seconds,
        num_draws=self.num_draws,
      )
