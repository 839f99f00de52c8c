"""How many examples a private and robust halfspace needs, as d grows.

Table 1 of Ghazi et al. (2021): robust or private learning alone needs about
1 / gamma^2 examples, both together sqrt(d) / gamma (approximate DP, Theorems 3
and 6) or d (pure DP, Theorems 2 and 5). Measured here as the smallest n with
robust risk at 0.9 gamma of at most 0.1, always beside a learner that differs in
one thing: the same algorithm without noise ("free"), the same private algorithm
judged without perturbations ("clean"), and a private learner behind a random
projection, which is not robust ("control").

Finite d adds a term of its own: <w, x> fluctuates by about 1 / sqrt(d), so
that the same angle between w and w* is more robust in more dimensions. It
makes n itself grow more slowly than sqrt(d), and the n of the learner without
noise fall, until d is far above 1 / gamma^2; `halfspaces_ideal` has the formula
for a simpler learner, which stands beside the measurements.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from experiments.halfspaces import instances as halfspaces_instances
from experiments.halfspaces import pure as halfspaces_pure
from experiments.halfspaces import search as halfspaces_search
from tf_privrob import papers

INSTANCES = {
  "easy": halfspaces_instances.Easy,
  "blocks": functools.partial(halfspaces_instances.Blocks, block_margin=0.8),
}
ROBUST, TRAINED = 0.9, 0.95  # times gamma: judged at, trained for (gamma')
_LARGEST = 2**27  # numbers of a data set


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is measured.

  Attributes:
    dimensions: values of d, for each instance.
    learners: which ones, for each instance; see `Learner`.
    gammas: the margin of each instance, and of the packing. The larger it is,
      the sooner d is far above 1 / gamma^2; there are (0.8 / gamma)^2 blocks.
    dp_epsilon: of the Gaussian learners.
    dp_delta: of the Gaussian learners.
    seeds: independent data sets and runs for each point.
    factor: of the grid of n, at most 1.19.
    num_fresh: examples that a risk is measured on.
    first: smallest n.
    cap: largest n, unless d makes the data too large.
    pure_dimensions: values of d of the pure learner.
    pure_dp_epsilons: budgets of the pure learner.
    pure_seeds: as `seeds`.
    pure_factor: as `factor`.
  """

  dimensions: dict[str, tuple[int, ...]]
  learners: dict[str, tuple[str, ...]]
  gammas: dict[str, float] = dataclasses.field(
    default_factory=lambda: {"easy": 0.4, "blocks": 0.4, "packing": 0.25}
  )
  dp_epsilon: float = 0.5
  dp_delta: float = 1e-6
  seeds: int = 10
  factor: float = 1.19
  num_fresh: int = 1000
  first: int = 8
  cap: int = 2**16
  pure_dimensions: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
  pure_dp_epsilons: tuple[float, ...] = (0.1, 0.4)
  pure_seeds: int = 30
  pure_factor: float = 1.08

  def parts(self) -> list[str]:
    """Names of the cells: instance-learner, and "pure"."""
    return [
      f"{instance}-{learner}"
      for instance, learners in self.learners.items()
      for learner in learners
    ] + ["pure"]


SCALES = {
  "smoke": Scale(
    dimensions={"easy": (256, 1024, 4096)},
    learners={"easy": ("dp", "free")},
    pure_dimensions=(2, 3, 4, 5, 6),
    pure_seeds=20,
  ),
  "small": Scale(
    dimensions={
      "easy": (256, 512, 1024, 2048, 4096),
      "blocks": (256, 1024, 4096),
    },
    learners={
      "easy": ("dp", "free", "clean", "control"),
      "blocks": ("dp", "free"),
    },
    pure_seeds=40,
  ),
  "full": Scale(
    dimensions={
      "easy": (256, 512, 1024, 2048, 4096, 8192),
      "blocks": (256, 512, 1024, 2048, 4096, 8192),
    },
    learners={
      "easy": ("dp", "free", "clean", "control"),
      "blocks": ("dp", "free"),
    },
    seeds=12,
    factor=1.09,
    pure_dimensions=(2, 3, 4, 5, 6, 7, 8, 9, 10),
    pure_seeds=60,
    pure_factor=1.04,
  ),
}


@dataclasses.dataclass(frozen=True)
class Schedule:
  """The public settings of a run: functions of gamma and the budget alone.

  T = 4 / gamma^2 steps on Poisson samples of rate p = gamma, gamma' = 0.95
  gamma (section 3.2); sigma is what the PLD accountant asks for. A batch of
  floor(p n) examples in expectation has a rate of at most p, so that sigma
  covers every n.
  """

  gamma: float
  dp_epsilon: float
  dp_delta: float

  @property
  def steps(self) -> int:
    """T."""
    return math.ceil(4 / self.gamma**2)

  @property
  def sampling_prob(self) -> float:
    """Rate p."""
    return self.gamma

  @functools.cached_property
  def stddev(self) -> float:
    """Sigma; one example changes a sum by at most 1."""
    from tf_privrob import privacy

    return privacy.calibrate_noise_multiplier(
      self.dp_epsilon, self.dp_delta, self.sampling_prob, self.steps
    )

  def proven(self) -> float:
    """The dp_epsilon of all steps, accounted again."""
    from tf_privrob import privacy

    release = privacy.poisson_sgd(self.stddev, self.sampling_prob, self.steps)
    return privacy.dp_epsilon(release, self.dp_delta)

  def train(
    self, signed: np.ndarray, stddev: float, margin: float, seed: int
  ) -> np.ndarray:
    """The weights of Algorithm 1 after T steps, without its stopping test.

    Args:
      signed: y x of each example, [n, d]: all that the algorithm looks at, so
        that one class with label 0 is one halfspace.
      stddev: sigma, or 0.
      margin: gamma'.
      seed: of batches and noise.
    """
    count, dimension = signed.shape
    batch = math.floor(self.sampling_prob * count)
    if batch < 1:
      raise ValueError(
        f"Expected at least {math.ceil(1 / self.sampling_prob)} examples, of"
        f" which a batch has one on average, received {count}."
      )
    trials = papers.Trials(
      num_classes=1,
      batch_size=batch,
      margins=(margin,),
      stddevs=(stddev,),
      trials=1,
      epochs=self.steps * batch / count,
      seed=int(np.random.SeedSequence([seed, dimension]).generate_state(1)[0]),
    )
    return trials.train(signed, np.zeros(count, np.int64))[0, 0, 0, :, 0]


@dataclasses.dataclass(frozen=True)
class Learner:
  """A learner and how it is judged.

  Attributes:
    label: for tables and figures.
    private: with noise, or without.
    radius: it is judged at, over gamma.
    projected: whether it learns behind a random projection.
  """

  label: str
  private: bool
  radius: float
  projected: bool = False


LEARNERS = {
  "dp": Learner("DP Batch Perceptron, robust", True, ROBUST),
  "free": Learner("without noise, robust", False, ROBUST),
  "clean": Learner("DP Batch Perceptron, clean error only", True, 0.0),
  "control": Learner("DP after projection, clean error only", True, 0.0, True),
}


class Study:
  """One learner on one instance: the risks of a run, by n and seed."""

  def __init__(
    self, learner: Learner, instance, schedule: Schedule, fresh=1000
  ):
    self._learner, self._instance = learner, instance
    self._schedule, self._fresh = schedule, fresh
    self.risks: dict[tuple[int, int], dict[str, float]] = {}

  def risk(self, n: int, seed: int) -> float:
    """Of a training on n examples, as the learner is judged."""
    if (n, seed) not in self.risks:
      self.risks[n, seed] = self._run(n, seed)
    return self.risks[n, seed]["judged"]

  def _run(self, n: int, seed: int) -> dict[str, float]:
    features, labels = self._instance.draw(n, seed)
    features *= labels[:, None]
    weights = self._weights(features, seed)
    stream = halfspaces_instances.FRESH
    fresh = self._instance.draw(self._fresh, seed, stream)
    radii = {"judged": self._learner.radius, "robust": ROBUST, "clean": 0.0}
    return {
      name: halfspaces_instances.robust_risk(
        weights, *fresh, radius * self._instance.gamma
      )
      for name, radius in radii.items()
    }

  def _weights(self, signed: np.ndarray, seed: int) -> np.ndarray:
    stddev = self._schedule.stddev if self._learner.private else 0.0
    if not self._learner.projected:
      margin = TRAINED * self._schedule.gamma
      return self._schedule.train(signed, stddev, margin, seed)
    matrix = projection(signed.shape[1], self._schedule.gamma, seed)
    low = signed @ matrix
    low /= np.maximum(np.linalg.norm(low, axis=1, keepdims=True), 1e-12)
    # Projected margins spread around gamma: half of it is asked for.
    found = self._schedule.train(low, stddev, self._schedule.gamma / 2, seed)
    return matrix @ found


def projection(dimension: int, gamma: float, seed: int) -> np.ndarray:
  """A public random matrix to k = 10 / gamma^2 dimensions, [d, k].

  Johnson-Lindenstrauss: inner products of unit vectors change by about
  1 / sqrt(k), a third of gamma. Rows are then brought to norm 1, each by
  itself, so that the sensitivity stays 1.
  """
  size = math.ceil(10 / gamma**2)
  rng = np.random.default_rng([seed, 7])
  matrix = rng.standard_normal((dimension, size), np.float32)
  return matrix / math.sqrt(size)


def rates_cell(part: str, scale: Scale) -> dict:
  """One of `scale.parts()` as a result of an experiment.

  Returns:
    What `halfspaces_rates_page` reads: "instance", "learner", "label", the
    settings, and "points" by d.
  """
  if part not in scale.parts():
    raise ValueError(
      f"Expected a part among {', '.join(scale.parts())}, received {part!r}."
    )
  if part == "pure":
    return halfspaces_pure.measure(scale)
  return gaussian(*part.split("-"), scale)


def gaussian(instance_name: str, name: str, scale: Scale) -> dict:
  """The smallest n of one learner, for each d; its seeds are public."""
  from tf_privrob.privacy import run_facts

  learner, gamma = LEARNERS[name], scale.gammas[instance_name]
  schedule = Schedule(gamma, scale.dp_epsilon, scale.dp_delta)
  points, start = [], None
  for dimension in scale.dimensions[instance_name]:
    instance = INSTANCES[instance_name](dimension, gamma)
    study = Study(learner, instance, schedule, scale.num_fresh)
    cap = min(scale.cap, _LARGEST // dimension)
    grid = halfspaces_search.sizes(scale.first, cap, scale.factor)
    found = halfspaces_search.smallest_n(
      study.risk, range(scale.seeds), grid, start=start
    )
    start = found.n
    points.append(_point(dimension, found, study, schedule, learner))
  return {
    "instance": instance_name,
    "learner": name,
    "label": learner.label,
    "gamma": gamma,
    "radius": learner.radius * gamma,
    "steps": schedule.steps,
    "sampling_prob": schedule.sampling_prob,
    "stddev": schedule.stddev if learner.private else 0.0,
    "proven": {
      "dp_epsilon": schedule.proven(),
      "dp_delta": scale.dp_delta,
    }
    if learner.private
    else None,
    "condition": run_facts.CONDITION if learner.private else "",
    "points": points,
  }


def _point(dimension, found, study: Study, schedule, learner: Learner) -> dict:
  """One search as JSON, with both risks at each seed's own smallest n.

  "noise_share" is sigma sqrt(T d) / (p T sqrt(n)): how long the sum of the
  noise is, over that of n independent unit vectors with the weight p T. Far
  above 1, privacy decides how many examples are needed.
  """
  own = [
    study.risks[high, seed]
    for seed, (_, high) in enumerate(found.brackets)
    if high is not None
  ]
  noise = schedule.stddev * math.sqrt(dimension / schedule.steps)
  share = None
  if learner.private and not learner.projected and found.n:
    share = noise / (schedule.sampling_prob * math.sqrt(found.n))
  return {
    "x": dimension,
    **dataclasses.asdict(found),
    "censored": found.censored,
    "robust_risk": _median([risks["robust"] for risks in own]),
    "clean_risk": _median([risks["clean"] for risks in own]),
    "noise_share": share,
  }


def _median(values: Sequence[float]) -> float | None:
  return float(np.median(values)) if len(values) else None
