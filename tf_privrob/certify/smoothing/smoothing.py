"""Randomised smoothing: certificates in l2 for any classifier."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np
from scipy import special

from tf_privrob import binomial
from tf_privrob import validate
from tf_privrob.certify import alone
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier
from tf_privrob.certify import gate
from tf_privrob.certify.audit import targets as audit_targets
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import sequential
from tf_privrob.certify.smoothing import votes

METHOD = "randomised_smoothing"
_GROUP_DRAWS = 32_768  # inputs are grouped up to about this many draws
_MOST_IN_GROUP = 64


@dataclasses.dataclass(frozen=True)
class RandomizedSmoothing(certifier.Certifier):
  """Certifies g(x) = argmax_c P(f(Q(x + N(0, smoothing_stddev^2 I))) = c).

  Cohen, Rosenfeld and Kolter (2019), their CERTIFY: `num_selection` draws
  choose the candidate class c; `num_estimation` further, disjoint draws give
  the Clopper-Pearson lower bound p_A on its probability at failure
  probability 1 - confidence, less the slack of `grid`. If p_A <= 1/2 it
  abstains; otherwise it returns c with radius smoothing_stddev * Phi^-1(p_A),
  by their Theorem 1 with the runner-up bounded by 1 - p_A.

  Q rounds to a grid of at least 512 cells in a standard deviation, which does
  not depend on x. So the theorem holds for f(Q(.)) with real noise, and f may
  read every bit of what it is given: `grid` has the proof, and how far the
  draws can be from real noise (about 1e-7 for 784 features, the slack).

  Formal guarantee: for every input and every classifier f, with probability
  at least `confidence` over the draws, either the row abstains or g returns
  the stated class everywhere within the stated l2 radius. It is a statement
  about g, not about f, and about one input at a time; f is what the model makes
  of a batch of one (`alone`). Draws of different
  inputs are independent, so the rows' failures are too. Nothing is assumed of
  f but that it is a function that was chosen before the draws: one that draws
  noise of its own is refused.

  Early stop: with `radii` (of interest), an input is abandoned after selection
  when none of them seems in reach, and estimation ends at one of three early
  looks when no radius of interest is left undecided. The confidence stays
  exactly as stated: `sequential.Plan` has the argument. A row says so in
  `stopped`; its radius may be smaller than the full run's, so curves are to
  be read at `radii` only.

  Attributes:
    smoothing_stddev: Standard deviation of the noise, in units of the input.
    num_selection: Draws that choose the class.
    num_estimation: Draws that bound its probability.
    confidence: Probability with which each certificate holds.
    num_classes: None reads it off the logits.
    batch_size: Noisy inputs a forward pass, rounded up to a multiple of 25;
      None chooses by device. It never changes the noise.
    radii: Radii of interest; empty: no early stop.
  """

  randomised = True
  norm: ClassVar[str] = "l2"
  method: ClassVar[str] = METHOD

  smoothing_stddev: float
  num_selection: int = 100
  num_estimation: int = 10_000
  confidence: float = 0.999
  num_classes: int | None = None
  batch_size: int | None = None
  radii: tuple[float, ...] = ()

  def __post_init__(self):
    validate.positive(smoothing_stddev=self.smoothing_stddev)
    validate.positive_int(
      num_selection=self.num_selection, num_estimation=self.num_estimation
    )
    validate.open_probability(confidence=self.confidence)
    if self.num_classes is not None:
      validate.positive_int(num_classes=self.num_classes)
    if self.batch_size is not None:
      validate.positive_int(batch_size=self.batch_size)
    object.__setattr__(self, "radii", sequential.check_radii(self.radii))
    self._check_reach()

  @property
  def largest_radius(self) -> float:
    """The radius of a unanimous vote: no input can have a larger one."""
    return max(0.0, self._plan().largest_radius)

  def for_radii(self, radii: Sequence[float]) -> RandomizedSmoothing:
    """The same certifier with the early stop for these radii."""
    return dataclasses.replace(self, radii=tuple(radii))

  def target(self, model, x, draws=None):
    """The smoothed classifier g."""
    return audit_targets.smoothed(
      model,
      x,
      self.smoothing_stddev,
      self.num_selection,
      draws or self.num_estimation,
    )

  def settings(self) -> dict[str, Any]:
    """All settings but two that change no certificate."""
    values = super().settings()
    del values["batch_size"], values["num_classes"]
    return {**values, "radii": list(self.radii)}

  def _stream(self, door, x, y, seed, indices):
    """Yields one certificate per input, in order; see `Certifier.stream`."""
    x, counter = self._prepare(door, x, seed)
    labels = certifier.check_labels(y, counter.num_classes, len(x))
    indices = certifier.check_indices(indices, len(x))
    size = counter.group
    for start in range(0, len(x), size):
      stop = start + size
      rows = self._certify_group(counter, x[start:stop], indices[start:stop])
      for label, row in zip(labels[start:stop], rows):
        yield dataclasses.replace(row, label=label)

  def predict(self, logits_fn, x, seed=None, indices=None) -> np.ndarray:
    """The smoothed classifier's class for each input, or ABSTAIN.

    Their PREDICT: of `num_estimation` draws the two most frequent classes are
    compared by a two-sided exact binomial test at level 1 - confidence. With
    probability at least `confidence` the answer is ABSTAIN, or a class whose
    probability is less than two slacks (`grid`) below that of g(x).
    """
    x, counter = self._prepare(gate.Gate(logits_fn), x, seed)
    indices = certifier.check_indices(indices, len(x))
    classes = []
    for start in range(0, len(x), counter.group):
      images = x[start : start + counter.group]
      tallies = counter.count(
        images,
        indices[start : start + counter.group],
        range(len(images)),
        votes.PREDICTION,
        0,
        self.num_estimation,
      )
      classes += [self._vote(tally) for tally in tallies]
    return np.array(classes, np.int64)

  def _vote(self, tally: votes.Tally) -> int:
    second, first = np.argsort(tally.counts, kind="stable")[-2:]
    most, rest = tally.counts[first], tally.counts[second] + tally.undecided
    p_value = binomial.two_sided_p_value(most, rest)
    decided = most > rest and p_value <= 1 - self.confidence
    return int(first) if decided else certificate.ABSTAIN

  def _certify_group(
    self, counter: votes.NoisyVotes, images: np.ndarray, indices: list[int]
  ) -> Iterator[certificate.Certificate]:
    states = [
      _State(index, self._plan(counter.noise.slack(image)))
      for index, image in zip(indices, images)
    ]
    everyone = range(len(images))
    for tally in counter.count(
      images, indices, everyone, votes.SELECTION, 0, self.num_selection
    ):
      state = states[tally.row]
      state.add(tally.seconds, self.num_selection)
      state.candidate = int(np.argmax(tally.counts))
      chosen = int(tally.counts[state.candidate])
      if state.plan.hopeless(chosen, self.num_selection):
        state.verdict = sequential.Verdict(-math.inf, "abandoned")
    emitted = first = 0
    for look in self._plan().looks:
      rows = [row for row in everyone if states[row].verdict is None]
      for tally in counter.count(
        images, indices, rows, votes.ESTIMATION, first, look.draws
      ):
        state = states[tally.row]
        state.add(tally.seconds, look.draws - first)
        state.hits += int(tally.counts[state.candidate])
        state.verdict = state.plan.verdict(state.hits, look)
        while emitted < len(states) and states[emitted].verdict is not None:
          yield self._row(states[emitted])
          emitted += 1
      first = look.draws
    for state in states[emitted:]:  # everyone was abandoned at selection
      yield self._row(state)

  def _row(self, state: _State) -> certificate.Certificate:
    abstained = not state.verdict.radius > 0
    return certificate.Certificate(
      index=state.index,
      label=None,
      prediction=certificate.ABSTAIN if abstained else state.candidate,
      radius=0.0 if abstained else state.verdict.radius,
      norm=self.norm,
      abstained=abstained,
      confidence=self.confidence,
      kind="proven",
      method=self.method,
      seconds=state.seconds,
      num_draws=state.draws,
      stopped=state.verdict.stopped,
    )

  def _plan(self, slack: float = 0.0) -> sequential.Plan:
    return sequential.Plan(
      self.smoothing_stddev,
      self.num_estimation,
      1 - self.confidence,
      self.radii,
      votes.BLOCK,
      slack,
    )

  def _prepare(self, door: gate.Gate, x, seed):
    x = certifier.check_inputs(door.model, x)
    logits_fn = alone.as_logits_fn(door.model)
    num_classes = certifier.num_classes_of(logits_fn, x, self.num_classes)
    batch_size = self.batch_size or votes.default_batch_size()
    logits_fn = door.rows(logits_fn, [self.noisy_batch(x, batch_size)])
    group = min(
      max(1, _GROUP_DRAWS // self.num_estimation), _MOST_IN_GROUP, len(x)
    )
    return x, votes.NoisyVotes(
      logits_fn,
      grid.GridNoise("gaussian", self.smoothing_stddev, x.shape[1:]),
      num_classes,
      batch_size,
      group,
      seed,
    )

  def noisy_batch(self, x: np.ndarray, batch_size: int) -> np.ndarray:
    """Noisy inputs for the gate, as many as a forward pass has."""
    rows = votes.BLOCK * math.ceil(batch_size / votes.BLOCK)
    noise = np.random.default_rng(0).standard_normal((rows, *x.shape[1:]))
    whole = x[np.arange(rows) % len(x)] + self.smoothing_stddev * noise
    return whole.astype(np.float32)

  def _check_reach(self) -> None:
    """Refuses draws that can certify nothing; warns if nothing of interest."""
    plan = self._plan()
    wanted = self.radii[0] if self.radii else 0.0
    if plan.largest_radius > 0 and plan.largest_radius >= wanted:
      return
    enough = binomial.trials_for(
      float(special.log_ndtr(wanted / self.smoothing_stddev)),
      plan.looks[-1].failure_prob,
    )
    target = f"radius {wanted:g}" if wanted else "any radius"
    message = (
      f"num_estimation={self.num_estimation} can certify a radius of at most"
      f" {self.largest_radius:.3g} at confidence={self.confidence:g}, even if"
      f" every vote agrees. For {target} raise num_estimation to at least"
      f" {enough:,}, or lower confidence."
    )
    if plan.largest_radius <= 0:
      raise ValueError(message)
    warnings.warn(message, UserWarning, stacklevel=4)


@dataclasses.dataclass
class _State:
  """What is known of one input while its group is worked on."""

  index: int
  plan: sequential.Plan
  candidate: int = certificate.ABSTAIN
  hits: int = 0
  draws: int = 0
  seconds: float = 0.0
  verdict: sequential.Verdict | None = None

  def add(self, seconds: float, draws: int) -> None:
    self.seconds += seconds
    self.draws += draws
