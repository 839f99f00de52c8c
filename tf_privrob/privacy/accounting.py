"""What a run costs: RDP and PLD figures of everything it released.

Every figure is an upper bound, on the ground of `dp_accounting`, the library
that TF Privacy calls: Renyi accounting (Mironov 2017; Mironov, Talwar and Zhang
2019) and pessimistic privacy-loss distributions (Koskela et al. 2020; "connect
the dots", Doroshenko et al. 2022). PLD is the headline; RDP stands beside it
because the two share no code. Pure terms can also be added analytically, which
is exact at dp_delta = 0 where a discretised PLD knows no finite figure: every
valid route is computed, the cheapest one is given, and its name with it.

Rounding. The divergence of a sampled Gaussian step is our own, with all its
errors added (`renyi`): the library's is below the truth for small losses. So is
its composition of PLDs for many steps at a small dp_delta: ours takes what
rounding can have changed from dp_delta (`loss_distribution`), about 7e-17 a
step in extended precision and 1e-13 without. So a PLD has no figure (`inf`) for
10^6 steps at a dp_delta of 7e-11 or less, nor where one step's loss spreads
less than 1e-12, about the sampling probability over the noise multiplier; RDP
has one there.

`dp_accounting` is imported on first use.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING
from typing import Union

from tf_privrob import validate
from tf_privrob.privacy import composition

if TYPE_CHECKING:
  import dp_accounting

ACCOUNTANTS = ("pld", "rdp")
NEIGHBOURING = ("add_or_remove_one", "replace_one")

_SMALLEST_LOG_DELTA = math.log(1e-14)  # Below, a cut PLD has no finite figure.


@dataclasses.dataclass(frozen=True)
class Release:
  """One kind of output that depended on the data, and how often it was made.

  Attributes:
    name: What was released, e.g. "noisy gradients".
    event: What an accountant composes; its noise multiplier is relative to the
      sensitivity under the neighbouring relation of the statement.
    dp_epsilon: Instead of `event`, the parameter of any pure mechanism that no
      event describes (functional, exponential, ...).
    count: Number of uses.
    description: For the reader of the statement.
  """

  name: str
  event: dp_accounting.DpEvent | None = None
  dp_epsilon: float | None = None
  count: int = 1
  description: str = ""

  def __post_init__(self):
    validate.positive_int(count=self.count)
    validate.text(name=self.name, description=self.description)
    if (self.event is None) == (self.dp_epsilon is None):
      raise ValueError(
        f"Expected an event or a pure dp_epsilon in release {self.name!r},"
        f" received event={self.event!r} and dp_epsilon={self.dp_epsilon!r}."
      )
    if self.dp_epsilon is not None:
      validate.non_negative(dp_epsilon=self.dp_epsilon)

  def record(self) -> dict:
    """A JSON form: name, description, count and parameters."""
    if self.event is None:
      parameters = {"pure_dp_epsilon": self.dp_epsilon}
    else:
      parameters = _parameters(self.event)
    return {
      "name": self.name,
      "description": self.description,
      "count": self.count,
      "parameters": parameters,
    }


Releases = Union["Release", "dp_accounting.DpEvent", Sequence]


@dataclasses.dataclass(frozen=True)
class Figures:
  """The dp_epsilon by each accountant, and the route that gave it.

  `inf` means that this accountant knows no finite bound. A route is "pld" or
  "rdp" (all composed by the accountant), "analytic" (all pure terms, added), or
  "pld + analytic" (pure terms added to the accountant's figure for the rest).
  """

  rdp: float
  pld: float
  rdp_route: str
  pld_route: str

  def of(self, accountant: str) -> float:
    """The figure of this accountant."""
    validate.one_of(ACCOUNTANTS, accountant=accountant)
    return self.pld if accountant == "pld" else self.rdp


def poisson_sgd(
  noise_multiplier: float,
  sampling_prob: float,
  steps: int,
  name: str = "noisy clipped gradients",
) -> Release:
  """`steps` noisy sums of clipped gradients over Poisson samples.

  Args:
    noise_multiplier: Standard deviation over `l2_clip_norm`, >= 0.
    sampling_prob: Probability of each example in each step; 1 is full batch.
    steps: Number of releases, >= 1.
    name: What the statement calls it.
  """
  import dp_accounting

  validate.non_negative(noise_multiplier=noise_multiplier)
  validate.probability(sampling_prob=sampling_prob)
  event = dp_accounting.GaussianDpEvent(float(noise_multiplier))
  how = "full batch"
  if sampling_prob < 1:
    event = dp_accounting.PoissonSampledDpEvent(float(sampling_prob), event)
    how = "Poisson sample"
  return Release(
    name,
    event,
    count=steps,
    description=f"sum over a {how}, clipped per example, plus Gaussian noise",
  )


def shuffled_sgd(
  noise_multiplier: float,
  epochs: int,
  neighbouring: str = "add_or_remove_one",
  name: str = "noisy clipped gradients",
  drop_last: bool = False,
) -> Release:
  """DP-SGD over the batches of `data.ShuffleSampler`, without amplification.

  Each epoch deals a fresh uniform permutation into S batches: place j belongs
  to batch min(j // b, S - 1). S, b, the divisor and the number of steps are
  public constants, the same for both neighbours. An epoch then costs as much as
  one Gaussian release whose shift, in units of `l2_clip_norm`, is at most

  * sqrt(5) for add-or-remove-one (proof below),
  * 2 for replace-one: one batch loses x and gains x'.
  * 1 for the weaker zero-out relation, where x is replaced by an example
    without gradient. This is TF Privacy's "each example occurring once per
    epoch"; it is not add-or-remove-one when batches have a fixed size.

  Proof for D of n examples and D' = D without x; C is the clip norm.

  1. Coupling. Let an order of D have x at place p and z at the last place
     n - 1. Its image is the order of D' that has z at place p and ends at place
     n - 2 (for p = n - 1 just x is cut off). An order of D' is the image of
     exactly n orders of D: with x at place p, and who was there at the end,
     for p = 0, ..., n - 2; and with x at the end. So the map is n-to-one onto,
     and the image of a uniform order is uniform: what D' deals.
  2. Shifts. Places keep their batches, since S and b are the same. The batch of
     place p has z for x: its sum moves by at most 2 C. The batch of place n - 1
     loses z: at most C. If they are one batch it has lost x only: at most C.
     All others are the same, given the same weights.
  3. Given the order, the noisy sums of an epoch are an adaptive composition of
     Gaussian mechanisms, with shifts of at most 2 C and C at two known steps
     and none elsewhere. It costs no more than one Gaussian release with shift
     sqrt(4 + 1) C (Dong, Roth and Su 2022, Corollary 3.3). A part of an epoch
     is no more.
  4. D's output is the mean over orders of what step 3 compares, and so is that
     of D', over their images. Hockey-stick divergences are jointly convex, so
     the mean is no further apart than the worst order. Epochs have permutations
     of their own and compose.

  The proof needs that nobody sits out and that S is the same. A sampler that
  drops an incomplete last batch has, where b divides n, one step fewer for D':
  all later batches belong to other epochs, and sqrt(5) is false.

  Args:
    noise_multiplier: Standard deviation over `l2_clip_norm`, > 0.
    epochs: How often one example is used at most.
    neighbouring: "add_or_remove_one", "replace_one" or "zero_out".
    name: What the statement calls it.
    drop_last: Whether the sampler left out incomplete batches.

  Raises:
    ValueError: For add-or-remove-one with drop_last, which has no bound.
  """
  import dp_accounting

  shifts = {"add_or_remove_one": 5**0.5, "replace_one": 2.0, "zero_out": 1.0}
  validate.positive(noise_multiplier=noise_multiplier)
  validate.one_of(shifts, neighbouring=neighbouring)
  if drop_last and neighbouring == "add_or_remove_one":
    raise ValueError(
      "Expected drop_last=False for add_or_remove_one, received True: without"
      " the last batch a neighbour has another number of steps, and no bound is"
      " known. Keep the last batch, or use Poisson sampling."
    )
  event = dp_accounting.GaussianDpEvent(noise_multiplier / shifts[neighbouring])
  return Release(
    name,
    event,
    count=epochs,
    description=(
      "one epoch of shuffled batches, without amplification; largest shift"
      f" {shifts[neighbouring]:.3f} clip norms ({neighbouring})"
    ),
  )


def figures(
  releases: Releases,
  dp_delta: float,
  neighbouring: str = "add_or_remove_one",
) -> Figures:
  """RDP and PLD side by side, for all the releases of one model together.

  Args:
    releases: a `Release`, a `DpEvent`, or a sequence of either.
    dp_delta: The dp_delta, in [0, 1); 0 is finite for pure mechanisms only.
    neighbouring: The relation of the sensitivities behind the events. Poisson
      amplification is known here for "add_or_remove_one"; for "replace_one" see
      `group_dp_epsilon`.

  Returns:
    Both figures with their routes; `inf` where an accountant has no bound, also
    because a loss or dp_delta is too small for its precision (see above).
  """
  leaves, pure = _flatten(releases, dp_delta, neighbouring)
  found = {
    accountant: _cheapest(leaves, pure, dp_delta, accountant, neighbouring)
    for accountant in ACCOUNTANTS
  }
  return Figures(
    rdp=found["rdp"][0],
    pld=found["pld"][0],
    rdp_route=found["rdp"][1],
    pld_route=found["pld"][1],
  )


def dp_epsilon(
  releases: Releases,
  dp_delta: float,
  accountant: str = "pld",
  neighbouring: str = "add_or_remove_one",
  accuracy: float = composition.FINE,
) -> float:
  """The figure of one accountant; see `figures`.

  Args:
    releases: a `Release`, a `DpEvent`, or a sequence of either.
    dp_delta: The dp_delta, in [0, 1).
    accountant: "pld" or "rdp".
    neighbouring: The neighbouring relation, as in `figures`.
    accuracy: The grid of a PLD over the spread of one use's loss. A larger one
      is faster and still an upper bound: for searches.

  Raises:
    ValueError: Where this accountant does not know an event.
  """
  validate.one_of(ACCOUNTANTS, accountant=accountant)
  leaves, pure = _flatten(releases, dp_delta, neighbouring)
  for event, _ in leaves:
    if not composition.supports(event, accountant, neighbouring):
      raise ValueError(
        f"Accountant {accountant!r} has no bound for {event!r} under"
        f" {neighbouring!r}. Choose the other of {', '.join(ACCOUNTANTS)}, or"
        " group_dp_epsilon for replace_one with Poisson sampling."
      )
  found = _cheapest(leaves, pure, dp_delta, accountant, neighbouring, accuracy)
  return found[0]


def group_dp_epsilon(
  releases: Releases,
  dp_delta: float,
  group_size: int = 2,
  accountant: str = "pld",
) -> float:
  """The cost for a group of examples, by group privacy.

  A mechanism that is (x, d)-DP for one example is (k x, d') -DP for k of them
  with d' = d (exp(k x) - 1) / (exp(x) - 1) (Vadhan 2017, Lemma 2.2). With k = 2
  it covers replace-one, which removes an example and adds another.

  Args:
    releases: What was released, as in `figures`; it is accounted under
      add-or-remove-one.
    dp_delta: The dp_delta of the group guarantee.
    group_size: Number of examples that may differ.
    accountant: "pld" or "rdp".

  Returns:
    k x for the largest d found whose d' is at most dp_delta; `inf` if none is.
  """
  validate.positive_int(group_size=group_size)
  validate.open_probability(dp_delta=dp_delta)

  def group_log_delta(log_delta: float) -> float:
    single = dp_epsilon(releases, math.exp(log_delta), accountant)
    if group_size * single > 700:  # exp would overflow.
      return math.inf
    if single == 0:
      return log_delta + math.log(group_size)
    growth = math.expm1(group_size * single) / math.expm1(single)
    return log_delta + math.log(growth)

  target = math.log(dp_delta)
  good = bad = target
  excess = group_log_delta(good) - target
  while excess > 0:
    bad, good = good, good - max(1.0, excess)
    if good < _SMALLEST_LOG_DELTA:
      return math.inf
    excess = group_log_delta(good) - target
  while bad - good > 1e-3:
    middle = (good + bad) / 2
    if group_log_delta(middle) <= target:
      good = middle
    else:
      bad = middle
  return group_size * dp_epsilon(releases, math.exp(good), accountant)


def library() -> dict[str, str]:
  """Name and version of the accounting library."""
  return {
    "library": "dp_accounting",
    "version": metadata.version("dp-accounting"),
  }


def split(
  releases: Releases, neighbouring: str
) -> tuple[composition.Leaves, list[tuple[float, int]]]:
  """(event, count) without compositions, and (dp_epsilon, count) of the pure.

  Args:
    releases: a `Release`, a `DpEvent`, or a sequence of either.
    neighbouring: One of `NEIGHBOURING`.
  """
  validate.one_of(NEIGHBOURING, neighbouring=neighbouring)
  if not isinstance(releases, (list, tuple)):
    releases = [releases]
  events, pure = [], []
  for release in releases:
    if not isinstance(release, Release):
      release = Release("event", release)
    if release.event is None:
      pure.append((release.dp_epsilon, release.count))
    else:
      events.append((release.event, release.count))
  return composition.merge(events), pure


def _flatten(
  releases: Releases, dp_delta: float, neighbouring: str
) -> tuple[composition.Leaves, float]:
  """The events, and the sum of the pure terms."""
  if dp_delta != 0:
    validate.open_probability(dp_delta=dp_delta)
  leaves, pure = split(releases, neighbouring)
  return leaves, math.fsum(count * term for term, count in pure)


def _cheapest(
  leaves: composition.Leaves,
  pure: float,
  dp_delta: float,
  accountant: str,
  neighbouring: str,
  accuracy: float = composition.FINE,
) -> tuple[float, str]:
  """The lowest of the valid routes, with its name."""

  def compose(leaves):
    return composition.compose(
      leaves, dp_delta, accountant, neighbouring, accuracy
    )

  terms = [(leaf, composition.pure_dp_epsilon(leaf[0])) for leaf in leaves]
  rest = tuple(leaf for leaf, term in terms if term is None)
  pure_all = pure + sum(
    count * term for (_, count), term in terms if term is not None
  )
  mixed = f"{accountant} + analytic"
  routes = []
  if not rest:
    routes.append((pure_all, "analytic"))
  elif len(rest) < len(leaves):
    routes.append((compose(rest) + pure_all, mixed))
  if rest or (leaves and dp_delta > 0):
    routes.append((compose(leaves) + pure, mixed if pure else accountant))
  return min(routes)


def _parameters(event: dp_accounting.DpEvent) -> dict:
  """Fields of an event, nested events flattened, for a statement."""
  import attr

  result = {"event": type(event).__name__}
  for name, value in attr.asdict(event, recurse=False).items():
    if attr.has(type(value)):
      inner = _parameters(value)
      result["event"] += f"({inner.pop('event')})"
      result.update(inner)
    else:
      result[name] = value if isinstance(value, (int, float)) else repr(value)
  return result
