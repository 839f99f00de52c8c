"""The privacy statement of a DP-SGD run, whatever its sampler was."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_privrob import validate
from tf_privrob.privacy import accounting
from tf_privrob.privacy import statement

_ASSUMPTIONS = (
  statement.Assumption(
    "each example's gradient, over all its loss terms, is clipped as one",
    "tf_privrob.gradients",
  ),
  statement.Assumption(
    "the number of steps, of examples and the divisor are public constants",
    "tf_privrob.methods",
  ),
  statement.Assumption(
    "no step is taken unpaid and no noise seed is used twice, also on resume",
    "tf_privrob.privacy.ledger",
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
  "The weights of all steps may be published; metrics computed on training data"
  " (loss, accuracy, gradient norms) are not private.",
  "Proofs are over real numbers; noise is drawn in floating point by a"
  " generator that is not cryptographic.",
)


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
) -> statement.PrivacyStatement:
  """States what DP-SGD guarantees for what was really run.

  "poisson" and "full_batch" are proven by the accountant. With "shuffle" the
  Poisson figure does not apply: it becomes the claimed one, and proven is the
  figure without amplification (`accounting.shuffled_sgd`).

  Args:
    noise_multiplier: standard deviation over `l2_clip_norm`; 0 proves nothing.
    sampling_prob: of one example in one step (batch over n when shuffled).
    steps: noisy steps taken, as the ledger counts them; 0 before the first.
    dp_delta: at which dp_epsilon is stated.
    sampler: "poisson", "shuffle" or "full_batch".
    neighbouring: "add_or_remove_one", or "replace_one": then the sensitivity
      doubles, and Poisson figures come from group privacy.
    num_examples: to warn of a dp_delta that says little.
    epochs: with "shuffle", how often one example was used at most; counted
      from whole batches if not given.
    accountant: the headline, "pld" or "rdp".
    claimed: replaces the figure that DP-SGD's own theorem would claim.
    extra_releases: other outputs of the same model, composed into all figures.
    extra_caveats: shown before the general ones.
  """
  validate.non_negative(noise_multiplier=noise_multiplier)
  validate.probability(sampling_prob=sampling_prob)
  validate.one_of(_SAMPLING, sampler=sampler)
  validate.one_of(accounting.NEIGHBOURING, neighbouring=neighbouring)
  validate.one_of(accounting.ACCOUNTANTS, accountant=accountant)
  validate.dp_delta(dp_delta, num_examples)
  if steps:
    validate.positive_int(steps=steps)
  if sampler == "full_batch":
    sampling_prob = 1.0
  caveats = list(extra_caveats)
  if num_examples and dp_delta >= 1 / num_examples:
    caveats.append(
      f"dp_delta={dp_delta:g} is not below 1/n={1 / num_examples:.3g}: the"
      " guarantee allows publishing an example."
    )
  extra = list(extra_releases)
  if noise_multiplier == 0 and steps:
    caveats.append("noise_multiplier is 0: nothing is private.")
    sampled = [accounting.poisson_sgd(0.0, sampling_prob, steps), *extra]
    found = accounting.Figures(math.inf, math.inf, "none", "none")
  else:
    sampled, poisson = _poisson_figures(
      noise_multiplier, sampling_prob, steps, dp_delta, neighbouring, extra
    )
    found = poisson
    if claimed is None:
      claimed = _budget(poisson.of(accountant), dp_delta)
    if sampler == "shuffle" and steps:
      epochs = epochs or _epochs(sampling_prob, steps)
      sampled, found, text = _shuffled(
        noise_multiplier, epochs, dp_delta, neighbouring, extra, accountant
      )
      caveats.insert(0, text)
  headline = found.of(accountant)
  if not math.isfinite(headline) and math.isfinite(min(found.rdp, found.pld)):
    headline = min(found.rdp, found.pld)
    caveats.append(
      f"{accountant} has no finite figure here; the other is used."
    )
  return statement.PrivacyStatement(
    claimed=claimed,
    proven=_budget(headline, dp_delta),
    neighbouring=neighbouring,
    sampler=sampler,
    accountant={
      "name": accountant,
      **accounting.library(),
      "rdp": found.rdp,
      "pld": found.pld,
      "rdp_route": found.rdp_route,
      "pld_route": found.pld_route,
    },
    releases=tuple(release.record() for release in sampled),
    assumptions=(
      statement.Assumption(_SAMPLING[sampler], "tf_privrob.data"),
      *_ASSUMPTIONS,
    ),
    caveats=(*caveats, *_CAVEATS),
  )


def _budget(dp_epsilon: float, dp_delta: float) -> statement.Budget | None:
  if not math.isfinite(dp_epsilon):
    return None
  return statement.Budget(dp_epsilon, dp_delta)


def _epochs(sampling_prob: float, steps: int) -> int:
  """Uses of one example at most, when incomplete batches may be dropped."""
  steps_per_epoch = max(1, math.floor(1 / sampling_prob + 1e-9))
  return math.ceil(steps / steps_per_epoch)


def _poisson_figures(
  noise_multiplier, sampling_prob, steps, dp_delta, neighbouring, extra
) -> tuple[list[accounting.Release], accounting.Figures]:
  """Releases and figures under Poisson sampling, or with the full batch."""
  releases = list(extra)
  doubled = neighbouring == "replace_one" and sampling_prob == 1
  if steps:
    noise = noise_multiplier / 2 if doubled else noise_multiplier
    releases.insert(0, accounting.poisson_sgd(noise, sampling_prob, steps))
  if neighbouring == "add_or_remove_one" or doubled or not steps:
    return releases, accounting.figures(releases, dp_delta, neighbouring)
  rdp, pld = (
    accounting.group_dp_epsilon(releases, dp_delta, 2, accountant)
    for accountant in ("rdp", "pld")
  )
  return releases, accounting.Figures(
    rdp, pld, "rdp, group privacy", "pld, group privacy"
  )


def _shuffled(
  noise_multiplier, epochs, dp_delta, neighbouring, extra, accountant
) -> tuple[list[accounting.Release], accounting.Figures, str]:
  """Releases, figures and the caveat of shuffled batches."""

  def figures(relation):
    release = accounting.shuffled_sgd(noise_multiplier, epochs, relation)
    return [release, *extra], accounting.figures([release, *extra], dp_delta)

  releases, found = figures(neighbouring)
  zero_out = figures("zero_out")[1].of(accountant)
  return (
    releases,
    found,
    (
      "Batches were shuffled, not Poisson sampled: the Poisson figure does not"
      " apply (audits found more leakage than it allows) and is shown as"
      " claimed only. Proven is the figure without amplification, each example"
      f" used at most {epochs} times. For the weaker zero-out relation, where"
      " an example is replaced by one without gradient, it is"
      f" dp_epsilon={zero_out:.4g}."
    ),
  )
