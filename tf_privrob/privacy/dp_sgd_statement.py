"""The privacy statement of a DP-SGD run, whatever its sampler was."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tf_privrob import validate
from tf_privrob.privacy import accounting
from tf_privrob.privacy import gaussian_dp
from tf_privrob.privacy import rounding
from tf_privrob.privacy import run_facts
from tf_privrob.privacy import statement
from tf_privrob.privacy import tf_privacy

_ASSUMPTIONS = (
  statement.Assumption(
    "each example's gradient, over all its loss terms, is clipped as one",
    "tf_privrob.gradients",
  ),
  statement.Assumption(
    "the number of steps, of examples and the divisor are public constants",
    "tf_privrob.methods",
  ),
)
_SAMPLING = {
  "poisson": "each step draws each example independently with sampling_prob",
  "shuffle": "each epoch's batches are a fresh, data-independent permutation",
  "full_batch": "each step sums over every example",
}
_CAVEATS = (
  "Hyper-parameter search is not charged: the figures hold for one training"
  " run with settings chosen without the private data.",
  "Metrics computed on training data (loss, accuracy, gradient norms) are not"
  " private.",
  "Proofs are over real numbers; noise is drawn in floating point.",
)
_NOISELESS = "noise_multiplier is 0: nothing is private."
_SHUFFLED = (
  "Batches were shuffled, not Poisson sampled: the Poisson figure does not"
  " apply (audits found more leakage than it allows) and is shown as claimed"
  " only. Proven is the figure without amplification, each example used at most"
  " {epochs} times. For the weaker zero-out relation, where an example is"
  " replaced by one without gradient, it is dp_epsilon={zero_out}."
)
_DROPPED = (
  "Incomplete batches were left out of shuffled epochs, so that one example"
  " more or fewer can change the number of steps: no bound is known, and the"
  " Poisson figure is shown as claimed only."
)
_PUBLIC = (
  "the size of the noise, clip norm, divisor and all other settings",
  "the classes of the labels",
  "the declared range of the values",
  "the network's architecture",
  "the rows that fit was given to validate with, if any: their metrics have no"
  " noise",
)
_UNKNOWN = accounting.Figures(math.inf, math.inf, "none", "none")


def for_dp_sgd(
  noise_multiplier: float,
  sampling_prob: float,
  steps: int,
  dp_delta: float,
  sampler: str = "poisson",
  neighbouring: str = "add_or_remove_one",
  num_examples: int | None = None,
  epochs: int | None = None,
  accountant: str = "pld",
  claimed: statement.Budget | None = None,
  extra_releases: Sequence[accounting.Release] = (),
  extra_caveats: Sequence[str] = (),
  first_caveats: Sequence[str] = (),
  facts: run_facts.RunFacts | None = None,
  drop_last: bool = False,
  unprotected: Sequence[str] = (),
) -> statement.PrivacyStatement:
  """States what DP-SGD guarantees for what was really run.

  "poisson" and "full_batch" are proven by the accountant. With "shuffle" the
  Poisson figure does not apply: it becomes the claimed one, and proven is the
  figure without amplification (`accounting.shuffled_sgd`).

  Args:
    noise_multiplier: Standard deviation over `l2_clip_norm`; 0 proves nothing.
    sampling_prob: Sampling probability of one example in one step (batch over n
      when shuffled).
    steps: Noisy steps taken, as they were counted; 0 before the first.
    dp_delta: The dp_delta at which dp_epsilon is stated.
    sampler: "poisson", "shuffle" or "full_batch".
    neighbouring: "add_or_remove_one", or "replace_one": then the sensitivity
      doubles, and Poisson figures come from group privacy.
    num_examples: Number of examples, to warn of a dp_delta that says little.
    epochs: With "shuffle", how often one example was used at most; if it is
      not given, counted for the shortest epoch that there can be.
    accountant: The headline, "pld" or "rdp".
    claimed: Replaces the figure that DP-SGD's own theorem would claim.
    extra_releases: Other outputs of the same model, composed into all figures.
    extra_caveats: Shown before the general ones.
    first_caveats: Shown before all others but those of `facts`.
    facts: How the training was run; without them the initial weights are
      unknown and nothing is proven.
    drop_last: Whether shuffling left out incomplete batches; then nothing is
      proven for adding or removing one.
    unprotected: What else is taken to be public.
  """
  validate.non_negative(noise_multiplier=noise_multiplier)
  validate.probability(sampling_prob=sampling_prob)
  validate.one_of(_SAMPLING, sampler=sampler)
  validate.one_of(accounting.NEIGHBOURING, neighbouring=neighbouring)
  validate.one_of(accounting.ACCOUNTANTS, accountant=accountant)
  validate.dp_delta(dp_delta, num_examples)
  if steps:
    validate.positive_int(steps=steps)
  run = _Run(
    noise_multiplier,
    1.0 if sampler == "full_batch" else sampling_prob,
    steps,
    dp_delta,
    neighbouring,
    tuple(extra_releases),
  )
  if noise_multiplier == 0 and steps:
    releases, found, caveats, rdp_library = run.with_library(
      *run.without_noise()
    )
  else:
    releases, found, caveats, rdp_library = run.with_library(*run.poisson())
    claimed = claimed or _budget(found.of(accountant), dp_delta)
    if sampler == "shuffle" and steps:
      releases, found, caveats, rdp_library = run.with_library(
        *run.shuffled(epochs, accountant, drop_last)
      )
  headline = found.of(accountant)
  if not math.isfinite(headline) and math.isfinite(min(found.rdp, found.pld)):
    headline = min(found.rdp, found.pld)
    caveats.append(
      f"{accountant} has no finite figure here; the other is used."
    )
  facts = facts or run_facts.RunFacts()
  proven = _budget(headline, dp_delta) if facts.weights_known else None
  return statement.PrivacyStatement(
    claimed=claimed,
    proven=proven,
    neighbouring=neighbouring,
    sampler=sampler,
    accountant={
      "name": accountant,
      **accounting.library(),
      **dataclasses.asdict(found),
      "rdp_library": rdp_library,
    },
    releases=tuple(release.record() for release in releases),
    assumptions=(
      statement.Assumption(_SAMPLING[sampler], "tf_privrob.data"),
      *_ASSUMPTIONS,
      *facts.assumptions(),
    ),
    caveats=(
      *facts.first_caveats(),
      *first_caveats,
      *caveats,
      *extra_caveats,
      *_weak_delta(dp_delta, num_examples),
      *facts.caveats(),
      *_CAVEATS,
    ),
    condition=facts.condition,
    gaussian_mu=(proven and gaussian_dp.gaussian_mu(releases, neighbouring)),
    unprotected=(
      *_public_numbers(run, num_examples),
      *_PUBLIC,
      *unprotected,
    ),
    **facts.coverage(),
  )


def _budget(dp_epsilon: float, dp_delta: float) -> statement.Budget | None:
  if not math.isfinite(dp_epsilon):
    return None
  return statement.Budget(dp_epsilon, dp_delta)


def _weak_delta(dp_delta: float, num_examples: int | None) -> tuple[str, ...]:
  """The caveat of a dp_delta that allows to publish somebody."""
  if not num_examples or dp_delta < 1 / num_examples:
    return ()
  return (
    f"dp_delta={rounding.up(dp_delta)} is not below 1/n={1 / num_examples:.3g}:"
    " the guarantee allows publishing an example.",
  )


def _public_numbers(run: _Run, num_examples: int | None) -> tuple[str, str]:
  n = f", n = {num_examples:,}" if num_examples else ""
  return (
    f"the number of examples{n}",
    f"the sampling rate, {run.sampling_prob:.6g}, and the number of steps,"
    f" {run.steps:,}",
  )


@dataclasses.dataclass(frozen=True)
class _Run:
  """What was released; each way to account it gives figures and caveats."""

  noise_multiplier: float
  sampling_prob: float
  steps: int
  dp_delta: float
  neighbouring: str
  extra: tuple[accounting.Release, ...]

  def with_library(self, releases, found, caveats):
    """The same with TF Privacy's part, and whose library the RDP one is by."""
    found, library, said = tf_privacy.beside(found, releases, self.dp_delta)
    return releases, found, [*caveats, *said], library

  def without_noise(self):
    """No figure."""
    sampled = accounting.poisson_sgd(0.0, self.sampling_prob, self.steps)
    return [sampled, *self.extra], _UNKNOWN, [_NOISELESS]

  def poisson(self):
    """Poisson sampling, or the full batch."""
    releases = list(self.extra)
    replaced = self.neighbouring == "replace_one"
    doubled = replaced and self.sampling_prob == 1
    if self.steps:
      noise = self.noise_multiplier / (2 if doubled else 1)
      releases.insert(
        0, accounting.poisson_sgd(noise, self.sampling_prob, self.steps)
      )
    if not replaced or doubled or not self.steps:
      found = accounting.figures(releases, self.dp_delta, self.neighbouring)
      return releases, found, []
    rdp, pld = (
      accounting.group_dp_epsilon(releases, self.dp_delta, 2, accountant)
      for accountant in ("rdp", "pld")
    )
    found = accounting.Figures(
      rdp, pld, "rdp, group privacy", "pld, group privacy"
    )
    return releases, found, []

  def shuffled(self, epochs: int | None, accountant: str, drop_last: bool):
    """Shuffled batches, without amplification."""
    epochs = epochs or self._epochs()
    if drop_last and self.neighbouring == "add_or_remove_one":
      sampled = dataclasses.replace(
        accounting.poisson_sgd(self.noise_multiplier, 1.0, self.steps),
        description="sum over a shuffled batch, clipped, plus Gaussian noise",
      )
      return [sampled, *self.extra], _UNKNOWN, [_DROPPED]
    releases, found = self._shuffled(epochs, self.neighbouring, drop_last)
    zero_out = self._shuffled(epochs, "zero_out", drop_last)[1].of(accountant)
    caveat = _SHUFFLED.format(epochs=epochs, zero_out=rounding.up(zero_out))
    return releases, found, [caveat]

  def _shuffled(self, epochs: int, relation: str, drop_last: bool):
    release = accounting.shuffled_sgd(
      self.noise_multiplier, epochs, relation, drop_last=drop_last
    )
    releases = [release, *self.extra]
    return releases, accounting.figures(releases, self.dp_delta)

  def _epochs(self) -> int:
    """Uses of one example at most: an epoch has 1/q steps, rounded down."""
    steps_per_epoch = max(1, math.floor(1 / self.sampling_prob + 1e-9))
    return math.ceil(self.steps / steps_per_epoch)
