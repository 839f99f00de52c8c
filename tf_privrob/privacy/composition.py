"""The engine under `accounting`: events in, one accountant's figure out."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Callable
from typing import TYPE_CHECKING

import numpy as np

from tf_privrob.privacy import loss_distribution
from tf_privrob.privacy import renyi

if TYPE_CHECKING:
  import dp_accounting

FINE = 0.1  # Grid over spread of one use's loss: 0.06% of the figure.
COARSE = 0.25  # 0.4% of the figure, ten times faster: for searches.

_INTERVAL = 1e-4  # The discretisation of dp_accounting and of TF Privacy.

# The library's profile of a sampled use is within a few 2^-52, which are added
# (`loss_distribution`): where the loss is no larger it says nothing.
_FINEST = 1e-9  # The finest grid. A wider one is looser, and still above.
_LARGEST_LOSS = 700.0  # whose exponential double precision can hold
_LEAST_SPREAD = 1e-12  # Of one use's loss: 0.03% of its profile is rounding.

# (event that is no composition, count), for every different event.
Leaves = tuple


def merge(events: Iterable[tuple[dp_accounting.DpEvent, int]]) -> Leaves:
  """Takes compositions apart and adds up the counts of equal events."""
  counts: dict = {}
  for composite, times in events:
    for event, count in _walk(composite, times):
      before = counts.get(repr(event), (event, 0))[1]
      counts[repr(event)] = (event, before + count)
  return tuple(counts.values())


def _walk(event: dp_accounting.DpEvent, count: int) -> Iterable[tuple]:
  """Yields (part, count) and makes one Gaussian of those on one sample."""
  import dp_accounting as dp

  if isinstance(event, dp.SelfComposedDpEvent):
    if event.count:
      yield from _walk(event.event, count * event.count)
  elif isinstance(event, dp.ComposedDpEvent):
    for part in event.events:
      yield from _walk(part, count)
  elif isinstance(event, dp.PoissonSampledDpEvent):
    prob = event.sampling_probability
    parts = list(_walk(event.event, 1))
    if prob == 1:
      yield from _walk(event.event, count)
    elif prob > 0 and parts:
      if all(isinstance(part, dp.GaussianDpEvent) for part, _ in parts):
        stddev = _joint_noise((p.noise_multiplier, c) for p, c in parts)
        event = dp.PoissonSampledDpEvent(prob, dp.GaussianDpEvent(stddev))
      yield event, count
  elif not isinstance(event, dp.NoOpDpEvent):
    yield event, count


def _joint_noise(parts: Iterable[tuple[float, int]]) -> float:
  """The noise multiplier of Gaussian releases together: precisions add."""
  parts = list(parts)
  if len(parts) == 1 and parts[0][1] == 1:
    return parts[0][0]
  if any(noise == 0 for noise, _ in parts):
    return 0.0
  return sum(count / noise**2 for noise, count in parts) ** -0.5


def pure_dp_epsilon(event: dp_accounting.DpEvent) -> float | None:
  """The parameter of a pure event, None for any other."""
  import dp_accounting as dp

  prob = 1.0
  if isinstance(event, dp.PoissonSampledDpEvent):
    prob, event = event.sampling_probability, event.event
  if not isinstance(event, dp.LaplaceDpEvent):
    return None
  if event.noise_multiplier == 0:
    return math.inf
  single = 1 / event.noise_multiplier
  # Amplification of pure DP by sampling: log(1 + q (exp(x) - 1)).
  return math.log1p(prob * math.expm1(single)) if single < 700 else single


def supports(
  event: dp_accounting.DpEvent, accountant: str, neighbouring: str
) -> bool:
  """Whether this accountant, or the analytic route, has a bound for it."""
  import dp_accounting

  if accountant == "rdp":
    known = _make_rdp(neighbouring).supports(event)
  else:
    without = isinstance(
      event, dp_accounting.NonPrivateDpEvent
    )  # its bound: inf
    known = without or _has_distribution(event, neighbouring)
  return known or pure_dp_epsilon(event) is not None


def _has_distribution(event: dp_accounting.DpEvent, neighbouring: str) -> bool:
  """Whether the loss of one use is known here.

  The library is not asked, whose accountant reads an event under replace-one in
  two ways. Up to 0.4.4 the noise is relative to the sensitivity under this
  relation, as it is here. From 0.5.0 on it is relative to that under
  add-or-remove-one, which a PLD doubles for Gaussians, and RDP does not;
  sampled Gaussians are known to it and, from 0.5.1 on, truncated samples. Their
  losses are not those of `one_use`.
  """
  import dp_accounting as dp

  if isinstance(event, dp.PoissonSampledDpEvent):
    sampled = isinstance(event.event, (dp.GaussianDpEvent, dp.LaplaceDpEvent))
    return sampled and neighbouring == "add_or_remove_one"
  return isinstance(event, (dp.GaussianDpEvent, dp.LaplaceDpEvent))


def compose(
  leaves: Leaves,
  dp_delta: float,
  accountant: str,
  neighbouring: str,
  accuracy: float = FINE,
) -> float:
  """The accountant's figure; `inf` where it has none."""
  if dp_delta == 0 or any(noiseless(event) for event, _ in leaves):
    return math.inf
  arguments = (leaves, accountant, neighbouring, accuracy)
  if not hashable(leaves):
    return _composed.__wrapped__(*arguments)(dp_delta)
  return _figure(dp_delta, *arguments)


def hashable(leaves: Leaves) -> bool:
  """Whether no event has a list in it."""
  try:
    hash(leaves)
  except TypeError:
    return False
  return True


@functools.lru_cache(maxsize=4096)
def _figure(dp_delta: float, *arguments) -> float:
  return _composed(*arguments)(dp_delta)


@functools.lru_cache(maxsize=4)
def _composed(
  leaves: Leaves, accountant: str, neighbouring: str, accuracy: float
) -> Callable[[float], float]:
  """The figure as a function of dp_delta, everything composed once."""
  if accountant == "rdp":
    return _composed_rdp(leaves, neighbouring)
  pld = distribution(leaves, neighbouring, accuracy)
  return pld.dp_epsilon if pld else lambda dp_delta: math.inf


def distribution(
  leaves: Leaves,
  neighbouring: str,
  accuracy: float = FINE,
  pure: Iterable[tuple[float, int]] = (),
) -> loss_distribution.LossDistribution | None:
  """All of it as one pessimistic privacy-loss distribution, if one is known.

  Args:
    leaves: What `merge` returns.
    neighbouring: The relation of the sensitivities behind the events.
    accuracy: The grid over the spread of one use's loss.
    pure: (dp_epsilon, count) of mechanisms that no event describes. Randomised
      response dominates each (Kairouz, Oh and Viswanath 2015).
  """
  if not hashable(leaves):  # A distribution is known for none of these events.
    return None
  return _distribution(leaves, neighbouring, accuracy, tuple(pure))


@functools.lru_cache(maxsize=4)  # A distribution can hold 40 megabytes.
def _distribution(leaves, neighbouring, accuracy, pure):
  from dp_accounting.pld import privacy_loss_distribution

  if not all(_has_distribution(event, neighbouring) for event, _ in leaves):
    return None
  if any(_spread(event) < _LEAST_SPREAD for event, _ in leaves):
    return None
  if any(_largest_loss(*leaf) > _LARGEST_LOSS for leaf in leaves):
    return None
  interval = _interval(leaves, neighbouring, accuracy)
  # Less can be lost than one cell of the grid, which the library refuses.
  if any(-math.log1p(-q) <= interval for q in _sampled(leaves)):
    return None
  try:
    parts = [_one_use(event, count, interval) for event, count in leaves]
  except ValueError:  # The library refuses ends that rounding put a bit off.
    return None
  for dp_epsilon, count in pure:
    parts.append((_randomized_response(dp_epsilon, interval), count))
  nothing = (privacy_loss_distribution.identity(interval), 1)
  return loss_distribution.compose(parts or [nothing])


def _sampled(leaves: Leaves) -> list[float]:
  """The probabilities of taking part in the events that are sampled."""
  found = [getattr(event, "sampling_probability", 1.0) for event, _ in leaves]
  return [prob for prob in found if prob < 1]


def _one_use(event: dp_accounting.DpEvent, count: int, interval: float):
  """An event's distribution, and its uses: Gaussians are one together."""
  import dp_accounting as dp
  from dp_accounting.pld import privacy_loss_distribution as library

  from tf_privrob.privacy import one_use

  inner, prob, noise = event, 1.0, _noise(event)
  if isinstance(event, dp.PoissonSampledDpEvent):
    inner, prob = event.event, event.sampling_probability
  elif isinstance(event, dp.GaussianDpEvent):
    noise, count = noise / math.sqrt(count), 1
  if not isinstance(inner, dp.LaplaceDpEvent):
    return one_use.gaussian(noise, prob, interval), count
  one = library.from_laplace_mechanism(
    noise, sampling_prob=prob, value_discretization_interval=interval
  )
  return one, count


def _randomized_response(dp_epsilon: float, interval: float):
  from dp_accounting.pld import common
  from dp_accounting.pld import privacy_loss_distribution

  return privacy_loss_distribution.from_privacy_parameters(
    common.DifferentialPrivacyParameters(dp_epsilon, 0.0), interval
  )


def _composed_rdp(
  leaves: Leaves, neighbouring: str, orders: tuple[float, ...] | None = None
) -> Callable[[float], float]:
  """Renyi accounting, with curves of our own for Laplace and sampled Gaussian.

  Those of dp_accounting are looser (0.4.3) for the one, and no upper bound for
  the other: see `renyi`.
  """
  import dp_accounting as dp

  rdp = _make_rdp(neighbouring, orders)
  orders = tuple(float(order) for order in rdp.orders)
  ours = np.zeros(len(orders))
  for event, count in leaves:
    if isinstance(event, dp.LaplaceDpEvent):
      ours += count * renyi.laplace(1 / event.noise_multiplier, rdp.orders)
    elif not rdp.supports(event):
      return lambda dp_delta: math.inf
    elif isinstance(event, dp.PoissonSampledDpEvent):
      prob, noise = event.sampling_probability, event.event.noise_multiplier
      ours += count * renyi.sampled_gaussian(prob, noise, orders)
    else:
      rdp.compose(event, count)
  total = rdp.rdp + ours
  # Nothing is known where the library's own rounding left no divergence.
  total = np.where(total >= 0, total, math.inf)
  return lambda dp_delta: float(
    dp.rdp.compute_epsilon(rdp.orders, total, dp_delta)[0]
  )


def _make_rdp(
  neighbouring: str, orders: tuple[float, ...] | None = None
) -> dp_accounting.rdp.RdpAccountant:
  import dp_accounting

  relation = dp_accounting.NeighboringRelation[neighbouring.upper()]
  return dp_accounting.rdp.RdpAccountant(orders, relation)


def _interval(leaves: Leaves, neighbouring: str, accuracy: float) -> float:
  """The grid of the privacy loss: fine enough to be tight, coarse enough.

  A grid h adds about 0.06 (h / s)^2 of the figure, with s the standard
  deviation of one use's loss, q sqrt(exp(1 / noise^2) - 1) for a sampled
  Gaussian: measured, and the reason why the library's 1e-4 gives 0.166 for a
  run that costs 0.103 (noise 30, q 0.001, 10^6 steps). So h is at most
  `accuracy` * s. It grows with a large figure, whose grid would be long, and
  does not cut one use's loss into more than 10^5 cells, but where the least
  that a sampled use can gain would be less than one: then into 10^6.
  """
  wanted, largest = 0.1, 0.0
  if accuracy <= FINE:
    rough = _composed_rdp(leaves, neighbouring, (1.5, 2, 4, 8, 16, 32))(1e-5)
    wanted = _INTERVAL * (max(1.0, rough / 20) if rough < math.inf else 1.0)
  for event, count in leaves:
    noise = _noise(event)
    if noise is None:
      continue
    largest = max(largest, _largest_loss(event, count))
    if pure_dp_epsilon(event) is not None:
      continue
    spread = _spread(event)
    if getattr(event, "sampling_probability", 1.0) == 1:
      spread = math.sqrt(count) / noise  # One Gaussian is made of them.
    wanted = min(wanted, accuracy * spread)
  interval = max(wanted, largest / 1e5, _FINEST)
  finer = min((-math.log1p(-q) for q in _sampled(leaves)), default=math.inf) / 2
  if interval >= 2 * finer and largest <= 1e6 * finer:
    interval = max(finer, _FINEST)
  return interval


def _largest_loss(event: dp_accounting.DpEvent, count: int) -> float:
  """Of one use, about; of unsampled Gaussians, which are one, of all.

  A Gaussian's is taken ten standard deviations out, where it is cut.
  """
  prob, noise = getattr(event, "sampling_probability", 1.0), _noise(event)
  if noise is None:
    return 0.0
  if not noise:
    return math.inf
  if pure_dp_epsilon(event) is not None:
    loss = 1 / noise
  else:
    noise /= math.sqrt(count) if prob == 1 else 1.0
    loss = 10 / noise + 0.5 / noise / noise
  if prob == 1 or loss > _LARGEST_LOSS:
    return loss + math.log(prob)
  return math.log1p(prob * math.expm1(loss))


def _spread(event: dp_accounting.DpEvent) -> float:
  """The standard deviation of one use's loss, about; `inf` without a noise."""
  noise = _noise(event)
  if not noise:
    return math.inf
  prob = getattr(event, "sampling_probability", 1.0)
  precision = 1 / noise * (1 / noise)
  return prob * math.sqrt(math.expm1(min(precision, 60.0)))


def noiseless(event: dp_accounting.DpEvent) -> bool:
  """Whether it adds no noise at all."""
  return _noise(event) == 0


def _noise(event: dp_accounting.DpEvent) -> float | None:
  """The noise multiplier of a plain or sampled event, if it has one."""
  inner = getattr(event, "event", None)
  return getattr(
    event, "noise_multiplier", getattr(inner, "noise_multiplier", None)
  )
