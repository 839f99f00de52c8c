"""A proven certificate from one layer of noise, Laplace or Gaussian."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from typing import Any

import numpy as np

from tf_privrob import models
from tf_privrob import validate
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier
from tf_privrob.certify.audit import targets as audit_targets
from tf_privrob.certify.noise_layer import noisy_scores
from tf_privrob.certify.noise_layer import pixeldp
from tf_privrob.certify.noise_layer import score_bounds
from tf_privrob.certify.norms import operator_norms
from tf_privrob.certify.smoothing import votes


def tight_epsilon(p1_lower, p2_upper):
  """l1 radius in units of the noise scale: (Q(p1) - Q(p2)) / 2, or 0.

  Q is the quantile function of the standard Laplace law: ln(2p) up to p = 1/2,
  -ln(2(1-p)) beyond.

  Proof. Let p(h) = E f(h + N) for a score f in [0, 1] and N of independent
  Lap(b). Moving the derivative to the density, d p / d h_j =
  E[f(h + N) sign(N_j)] / b. As f >= 0 this is at most p / b in size; as
  E sign(N_j) = 0 it is also E[(f - 1) sign(N_j)] / b, at most (1 - p) / b. And
  Q'(p) = 1 / min(p, 1 - p), so |d Q(p(h)) / d h_j| <= 1/b for every j: Q(p(h))
  moves by at most r / b when h moves by r in l1. The top class loses no more,
  another gains no more, so none overtakes while 2 r / b < Q(p1) - Q(p2). QED

  It cannot be improved: for f = 1[h_1 > 0] the derivative is 1/b exactly. With
  p2 = 1 - p1 it is the -ln(2 (1 - p1)) of Teng, Lee and Yuan (2019); it is
  never below ln(p1/p2)/2, and equals it for p1 <= 1/2.
  """
  p1, p2 = np.asarray(p1_lower, float), np.asarray(p2_upper, float)
  gap = (_laplace_quantile(p1) - _laplace_quantile(p2)) / 2
  return np.where(p1 > p2, gap, 0.0)[()]


# In units of the scale, for changes in the norm that the noise hides.
RULES = {
  "laplace": {"tight": tight_epsilon, "pure_dp": score_bounds.robust_epsilon},
  "gaussian": {
    "tight": pixeldp.gaussian_tight,
    "pixeldp": pixeldp.gaussian_search,
  },
}
_HIDDEN_NORM = {"laplace": "l1", "gaussian": "l2"}


@dataclasses.dataclass(frozen=True)
class SingleLayerCertificate(certifier.Certifier):
  """Certifies g(x) = argmax_k E f_k, f the scores under ONE noise layer.

  The model computes h = A(x) (A = identity at the input), adds fresh noise of
  scale b to every coordinate of h, and goes on in any way that looks at
  nothing else of x. For "clopper_pearson" f_k is 1 where k has the largest
  logit, otherwise it is the softmax. Let p1 <= E f_k and p2 >= E f_i for all
  i != k. A change of x by r in `norm` moves h by at most r ||A||_{p->q}: q = 1
  for Laplace noise, q = 2 for Gaussian. g keeps k while h moves by at most

  * Laplace, rule "pure_dp": b ln(p1/p2)/2 (Lecuyer et al. 2019; Lemma 1 and
    Eq. 4 of DPAL);
  * Laplace, rule "tight": b (Q(p1) - Q(p2))/2, see `tight_epsilon`; never
    smaller, up to twice as large;
  * Gaussian, rule "pixeldp": PixelDP's search over (eps, delta), see
    `pixeldp.gaussian_search`;
  * Gaussian, rule "tight": b (Phi^-1(p1) - Phi^-1(p2))/2, see
    `pixeldp.gaussian_tight`; never smaller.

  The radius is that length over ||A||_{p->q}, the norm of the TRAINED weights:
  what a construction assumes of it does not count. b is the scale that is
  drawn: DPAL's b/psi, not its b.

  Noise is added in float64 and the sum is rounded to a grid that does not
  depend on x, so that the bounds hold whatever bits the rest of the model looks
  at; h is computed in float64, with a bound on its error. p1 and p2 give way by
  what draws and h can be off: `grid` has the proof. All that is said is about
  exact h and real noise.

  The model is what it makes of a batch of one: one of another class than this
  library's is shown one row at a time (`alone`), before the noise too.

  Formal guarantee: for every model and input, with probability at least
  `confidence` over the draws, the row abstains or g returns its class
  everywhere within its radius. `num_selection` draws choose k; disjoint ones
  bound, with failure probability (1 - confidence)/2 on either side, which is
  enough for any number of classes (`score_bounds.top_two`). Noise fixed in
  training is part of the model. All of this is about the smoothed g, not about
  a single noisy pass, nor about the network without noise.

  Three things would void it and are refused: noise that does not fill the
  input (one draw copied to all channels leaves changes of zero sum uncovered),
  logits that depend on the other inputs of a batch (batch normalisation by
  batch statistics), and a model with randomness of its own. At the hidden layer
  the noise must fill h likewise: `OperatorNorms.output_shape` is its shape.

  Attributes:
    scale: b, the scale that is really drawn: of Lap(b), or the standard
      deviation.
    position: "input" or "hidden": where the noise is.
    norm: "l1", "l2" or "linf": the norm of the radius.
    operator_norm: Bound on ||A||_{norm->q} of the trained weights for
      "hidden", from `prefix_norms`; None at the input.
    rule: "tight", or what the papers use: "pure_dp" for Laplace noise,
      "pixeldp" for Gaussian.
    num_selection: Draws that choose the class.
    num_estimation: Draws that bound its score.
    confidence: Probability with which each certificate holds.
    bound: One of score_bounds.BOUNDS.
    batch_size: Noisy inputs a forward pass; None chooses by device.
    distribution: "laplace" or "gaussian".
    coordinate_scales: One factor per coordinate of h, in row-major order, that
      multiplies `scale`; `operator_norm` is then that of D^-1 A, D the
      diagonal matrix of these factors (`prefix_norms` with their stddev).
      None: all 1.
    weights: `models.fingerprint` of the model that `operator_norm` was computed
      for; a model with other weights is then refused. "": nobody looks.
  """

  randomised = True

  scale: float
  position: str = "input"
  norm: str = "linf"
  operator_norm: float | None = None
  rule: str = "tight"
  num_selection: int = 100
  num_estimation: int = 10_000
  confidence: float = 0.999
  bound: str = "clopper_pearson"
  batch_size: int | None = None
  distribution: str = "laplace"
  coordinate_scales: tuple[float, ...] | None = None
  weights: str = ""

  def __post_init__(self):
    validate.positive(scale=self.scale)
    validate.one_of(noisy_scores.POSITIONS, position=self.position)
    validate.one_of(certificate.NORMS, norm=self.norm)
    validate.one_of(RULES, distribution=self.distribution)
    validate.one_of(RULES[self.distribution], rule=self.rule)
    validate.one_of(score_bounds.BOUNDS, bound=self.bound)
    validate.positive_int(
      num_selection=self.num_selection, num_estimation=self.num_estimation
    )
    validate.open_probability(confidence=self.confidence)
    if self.bound == "empirical_bernstein" and self.num_estimation < 2:
      raise ValueError(f"Expected num_estimation={self.num_estimation} >= 2.")
    if self.batch_size is not None:
      validate.positive_int(batch_size=self.batch_size)
    self._check_norm()
    validate.text(weights=self.weights)
    if self.coordinate_scales is not None:
      values = self.coordinate_scales
      values = values.ravel() if isinstance(values, np.ndarray) else values
      # A coordinate without noise hides nothing.
      validate.numbers(validate.positive, coordinate_scales=values)
      object.__setattr__(self, "coordinate_scales", tuple(map(float, values)))
    self._check_reach()

  def _check_norm(self) -> None:
    if self.position == "input" and self.operator_norm is not None:
      raise ValueError(
        "Expected operator_norm=None at the input, where it follows from the"
        f" number of features, received {self.operator_norm!r}."
      )
    if self.position == "input" and self.coordinate_scales is not None:
      raise ValueError("Expected coordinate_scales=None at the input.")
    if self.position == "hidden":
      hidden = _HIDDEN_NORM[self.distribution]
      if self.operator_norm is None:
        raise ValueError(
          "Expected operator_norm for position='hidden': the norm from"
          f" {self.norm} to {hidden} of the trained layers before the noise,"
          " e.g. certify.linear_map(layer).norms()"
          f".bound({self.norm!r}, {hidden!r})."
        )
      validate.positive(operator_norm=self.operator_norm)

  def _check_reach(self) -> None:
    """Refuses so few draws that even unanimous ones certify nothing."""
    if self._largest_reach(self.num_estimation) > 0:
      return
    enough = next(n for n in itertools.count(2) if self._largest_reach(n) > 0)
    raise ValueError(
      f"Expected more draws: num_estimation={self.num_estimation} certify"
      f" nothing at confidence={self.confidence:g} with bound={self.bound!r},"
      f" even if all of them agree. Pass num_estimation={enough:,} or more, or"
      " a lower confidence."
    )

  def _largest_reach(self, num_draws: int) -> float:
    """What unanimous draws certify, in units of the scale."""
    first = np.array([1.0, 0.0])
    scores = score_bounds.Scores(
      num_draws, first, 0 * first, (num_draws * first).astype(int)
    )
    top = score_bounds.top_two(
      scores, self.bound, (1 - self.confidence) / 2, label=0
    )
    return float(self._rule(top.p1_lower, top.p2_upper))

  @property
  def _rule(self):
    return RULES[self.distribution][self.rule]

  @property
  def method(self) -> str:
    """The name in the rows."""
    return f"{self.distribution}_{self.position}_{self.rule}"

  def target(self, model, x, draws=None):
    """The expected scores of the model with fresh noise in its layer."""
    return audit_targets.noisy_inside(
      model,
      x,
      [self.noise_pass(model)],
      self.bound,
      self.batch_size,
      draws or self.num_estimation,
      self.num_selection,
    )

  def settings(self) -> dict[str, Any]:
    """All settings but `batch_size`, which changes no draw."""
    values = super().settings()
    del values["batch_size"]
    if self.coordinate_scales is not None:
      content = np.asarray(self.coordinate_scales, "<f8").tobytes()
      values["coordinate_scales"] = hashlib.sha256(content).hexdigest()
    return values

  def radius(self, p1_lower, p2_upper, num_features: int | None = None):
    """The proven radius for these bounds; 0 where p1 <= p2.

    Args:
      p1_lower: Lower bound of the class's expected score, float or array.
      p2_upper: Upper bound of all other classes'.
      num_features: d, needed at the input where ||I||_{norm->q} depends on it.
    """
    stretch = self.operator_norm
    if self.position == "input":
      hidden = _HIDDEN_NORM[self.distribution]
      if certificate.NORMS.index(self.norm) <= certificate.NORMS.index(hidden):
        num_features = 1  # it is 1 for every d
      validate.positive_int(num_features=num_features)
      identity = operator_norms.elementwise_norms((num_features,))
      stretch = identity.bound(self.norm, hidden)
    return self._rule(p1_lower, p2_upper) * self.scale / stretch

  def _stream(self, door, x, y, seed, indices):
    """Yields one proven row an input; the model is a `NoisyModel`."""
    logits_fn = door.model
    if self.weights and models.fingerprint(logits_fn) != self.weights:
      raise ValueError(
        "Expected the weights that operator_norm was computed for, received"
        " others. Ask the model for its certifier again."
      )
    x, num_classes = noisy_scores.check_model(logits_fn, x)
    labels = certifier.check_labels(y, num_classes, len(x))
    indices = certifier.check_indices(indices, len(x))
    if self.position == "input":
      _check_noise_fills(logits_fn, x)
    sampler = noisy_scores.NoisyScores(
      logits_fn,
      num_classes,
      [self.noise_pass(logits_fn)],
      self.batch_size,
      seed,
    )
    sampler.pass_gate(
      door,
      x,
      self.num_estimation,
      "They leave no certificate for a single input.",
    )
    stages = zip(
      sampler.stream(x, indices, votes.SELECTION, self.num_selection),
      sampler.stream(x, indices, votes.ESTIMATION, self.num_estimation),
    )
    for label, index, (first, second) in zip(labels, indices, stages):
      row = self._row(index, first, second, x[0].size)
      yield dataclasses.replace(row, label=label)

  def noise_pass(self, model: noisy_scores.NoisyModel) -> noisy_scores.Pass:
    """The noise of one draw: where, how much and of which law."""
    scale = self.scale
    if self.coordinate_scales is not None:
      shape = tuple(model.hidden_noise_shape)
      if len(self.coordinate_scales) != np.prod(shape, dtype=int):
        raise ValueError(
          f"Expected {np.prod(shape, dtype=int)} coordinate_scales, one for"
          f" each coordinate of the noise of shape {shape}, received"
          f" {len(self.coordinate_scales)}."
        )
      scale = scale * np.reshape(self.coordinate_scales, shape)
    return noisy_scores.Pass(self.position, scale, self.distribution)

  def _row(
    self,
    index: int,
    first: score_bounds.Scores,
    second: score_bounds.Scores,
    num_features: int,
  ) -> certificate.Certificate:
    candidate = first.top(self.bound)
    if second.slack >= 0.5:
      raise ValueError(
        f"Expected values before the noise whose rounding is known, received"
        f" input {index} with an error of probability {second.slack:.3g} beside"
        f" noise of scale {self.scale:g}. Raise the scale, or put the noise"
        " after fewer layers."
      )
    top = score_bounds.top_two(
      second, self.bound, (1 - self.confidence) / 2, candidate
    )
    slack = second.slack
    if self.bound != "clopper_pearson":  # of which votes take care themselves
      slack += second.rounding
    p1, p2 = top.p1_lower - slack, top.p2_upper + slack
    radius = float(self.radius(p1, p2, num_features))
    abstained = not p1 > p2
    return certificate.Certificate(
      index=index,
      label=None,
      prediction=certificate.ABSTAIN if abstained else candidate,
      radius=radius,
      norm=self.norm,
      abstained=abstained,
      confidence=self.confidence,
      kind="proven",
      method=self.method,
      seconds=first.seconds + second.seconds,
      num_draws=first.num_draws + second.num_draws,
    )


def _laplace_quantile(prob: np.ndarray) -> np.ndarray:
  with np.errstate(divide="ignore"):
    return np.where(
      prob <= 0.5,
      np.log(2 * np.minimum(prob, 0.5)),
      -np.log(2 * (1 - np.maximum(prob, 0.5))),
    )


def _check_noise_fills(model: noisy_scores.NoisyModel, x: np.ndarray) -> None:
  shape = tuple(model.input_noise_shape)
  if shape != x.shape[1:]:
    raise ValueError(
      f"Expected noise of the input's shape {x.shape[1:]}, received"
      f" input_noise_shape={shape}. Noise shared by several features does not"
      " cover changes that cancel in their sum, and certifies nothing."
    )
