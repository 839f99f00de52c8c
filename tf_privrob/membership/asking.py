"""Asks a model once: benign, adversarial, targeted and worst-case outputs."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any
from typing import TYPE_CHECKING

import numpy as np

from tf_privrob import progress as progress_lib
from tf_privrob import validate
from tf_privrob.membership import outputs as outputs_lib

if TYPE_CHECKING:
  import tensorflow as tf

  from tf_privrob import attacks
  from tf_privrob import bounds

EVALUATION_STEPS = 20
_WIDE = 8  # examples at a time for zonotopes and duals
_NO_ATTACK = (
  "Expected attack_eps=... (or attack=...) for {}, received neither: it is the"
  " radius of the l_inf ball."
)


def evaluation_attack(
  attack_eps: float, value_range: tuple[float, float] = (0.0, 1.0)
) -> attacks.PGD:
  """The attack of Song et al. 2019, the same for every model.

  l_inf PGD of 20 steps of size 2.5 attack_eps / 20 from the example itself.
  """
  from tf_privrob import attacks

  return attacks.PGD(
    attack_eps,
    value_range=value_range,
    steps=EVALUATION_STEPS,
    step_size=(2.5 * attack_eps / EVALUATION_STEPS) or None,
    random_start=False,
  )


def worst_cases(model: tf.keras.Model) -> dict[str, Any]:
  """How the worst cases of I_V are bounded, for `Request`; {} if they are not.

  By the domain that the model was trained on, as `certifier()` does: over the
  same ball, cut to the value range where the training cut it (IBP and the dual
  of Fashion-MNIST, not DiffAI), and rounded outward, so that a bound is one of
  what the network computes (Eq. 20 of Song et al. 2019).
  """
  objective = getattr(model, "objective", None)
  domain = getattr(objective, "sound_domain", None)
  if domain is None:
    return {}
  return {
    "domain": dataclasses.replace(domain, arithmetic="outward"),
    "clip_to_range": objective.clip_to_range,
  }


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
  """What to ask a model, and a fingerprint of all of it.

  Called, it asks the model about its members and about non-members, in the
  graph; the same seed gives the same outputs. `cached_outputs` takes the
  request itself, and keeps what it gives in a run folder.

  Attributes:
    model: Keras classifier; a final softmax is taken off.
    members: Inputs [n, ...] and labels [n] that it was trained on.
    nonmembers: Inputs and labels that it was not; overlap is refused.
    attack: Makes the adversarial examples; None: `evaluation_attack`, if there
      is an attack_eps.
    domain: Domain of `tf_privrob.bounds`, for worst-case logits; None: none.
    clip_to_range: Whether the ball of worst cases is cut to the value range;
      see `worst_cases`.
    attack_eps: l_inf radius; None: the attack's own.
    value_range: Valid inputs.
    targeted: Also make adversarial examples for every other class: for each
      y' != y, descend the cross-entropy to y' (Eq. 19 of Song et al. 2019).
    batch_size: Examples at a time; None chooses by their size.
    seed: Seed of random starts and of randomised models.
    progress: Show a line.
  """

  model: tf.keras.Model
  members: tuple[np.ndarray, np.ndarray]
  nonmembers: tuple[np.ndarray, np.ndarray]
  attack: attacks.Attack | None = None
  domain: bounds.Domain | None = None
  clip_to_range: bool = True
  attack_eps: float | None = None
  value_range: tuple[float, float] = (0.0, 1.0)
  targeted: bool = False
  batch_size: int | None = None
  seed: int = 0
  progress: bool = True

  def __post_init__(self):
    validate.value_range(self.value_range)
    validate.boolean(clip_to_range=self.clip_to_range)
    if self.attack_eps is not None:
      validate.non_negative(attack_eps=self.attack_eps)
    if self.batch_size is not None:
      validate.positive_int(batch_size=self.batch_size)
    for name in ("members", "nonmembers"):
      x, y = (np.asarray(array) for array in getattr(self, name))
      validate.examples(self.value_range, **{f"{name}_x": x})
      labels = y.astype(np.int64) if y.dtype.kind in "iu" else y
      object.__setattr__(self, name, (x.astype(np.float32), labels))
    attack = self.attack
    if attack is None and self.attack_eps is not None:
      attack = evaluation_attack(self.attack_eps, self.value_range)
    if attack is None:
      if self.targeted:
        raise ValueError(_NO_ATTACK.format("targeted=True"))
      if self.domain is not None:
        raise ValueError(_NO_ATTACK.format("worst-case logits"))
    elif self.attack_eps is None:
      size = getattr(attack, "attack_eps", None)
      object.__setattr__(self, "attack_eps", size)
    elif getattr(attack, "attack_eps", self.attack_eps) != self.attack_eps:
      raise ValueError(
        f"Expected one radius, received attack_eps={self.attack_eps!r} and"
        f" {attack!r}. Pass only the attack."
      )
    object.__setattr__(self, "attack", attack)

  @property
  def about(self) -> dict[str, Any]:
    """The settings, for a JSON file."""
    return {
      "attack": None if self.attack is None else repr(self.attack),
      "attack_eps": self.attack_eps,
      "domain": None if self.domain is None else repr(self.domain),
      "clip_to_range": self.clip_to_range,
      "value_range": list(self.value_range),
      "targeted": self.targeted,
      "seed": self.seed,
    }

  @property
  def fingerprint(self) -> str:
    """A hash of the weights, the data and the settings."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(sorted(self.about.items())).encode())
    weights = self.model.get_weights()
    for array in (*weights, *self.members, *self.nonmembers):
      digest.update(f"{array.dtype}{array.shape}".encode())
      digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()

  def __call__(self) -> outputs_lib.Outputs:
    """Asks the model."""
    require_disjoint(self.members[0], self.nonmembers[0])
    asker = _Asker(self)
    found = [asker.ask(*part) for part in (self.members, self.nonmembers)]
    return outputs_lib.Outputs(
      self.members[1],
      self.nonmembers[1],
      **{kind: tuple(part[kind] for part in found) for kind in found[0]},
      about=self.about,
    )


def require_disjoint(members_x: np.ndarray, nonmembers_x: np.ndarray) -> None:
  """Refuses non-members that are members too, by a hash of each example.

  Args:
    members_x: [n, ...], floating point.
    nonmembers_x: [m, ...], in the same value range.

  Raises:
    ValueError: With how many and the first of their rows.
  """
  from tf_privrob.data import public

  shared = _shared(members_x, nonmembers_x)
  if shared:
    first = public.listed(shared, "member")
    raise ValueError(
      f"Expected non-members that are not members, but {len(shared)} of"
      f" {len(nonmembers_x)} are: non-member {first}. No attack can tell"
      " these apart; drop them by membership.distinct(members_x,"
      " nonmembers_x)."
    )


def distinct(members_x: np.ndarray, nonmembers_x: np.ndarray) -> np.ndarray:
  """Rows of the non-members that do not occur among the members."""
  shared = _shared(members_x, nonmembers_x)
  rows = [row for row, _ in shared]
  return np.setdiff1d(np.arange(len(nonmembers_x)), rows)


def _shared(members_x, nonmembers_x) -> list[tuple[int, int]]:
  from tf_privrob import data

  return data.shared_examples(members_x=members_x, nonmembers_x=nonmembers_x)


class _Asker:
  """Runs batches of one static shape through traced functions."""

  def __init__(self, request: Request):
    from tf_privrob import bounds
    from tf_privrob import data
    from tf_privrob import models
    from tf_privrob.attacks import graphs
    from tf_privrob.attacks import randomness
    from tf_privrob.models import graph as graph_lib

    self._request = request
    seed = randomness.as_seed(request.seed)
    self._seed = lambda number: randomness.fold(seed, number)
    network = models.as_logits(request.model)
    call = randomness.seeded(network)
    self._predict = graphs.Traced(lambda x, seed: call(x, seed))
    attack = request.attack
    self._attack = attack and attack.compile(network)
    self._targeted = None
    if request.targeted:
      self._targeted = dataclasses.replace(attack, targeted=True).compile(
        network
      )
    self._worst_case = None
    if request.domain is not None:
      bounded = network
      if hasattr(request.model, "bounded_network"):
        bounded = graph_lib.network_of(request.model)
      self._worst_case = graphs.Traced(
        lambda x, y: request.domain.worst_case_logits(
          bounded,
          x,
          y,
          request.attack_eps,
          request.value_range if request.clip_to_range else None,
        )
      )
    shape = request.members[0].shape[1:]
    self._size = request.batch_size or data.default_physical_batch_size(shape)
    narrow = isinstance(request.domain, bounds.Interval)
    self._bounded_at_once = self._size if narrow else min(_WIDE, self._size)

  def ask(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """All outputs that were asked for, by kind."""
    num_classes = self._logits(x[:1], self._seed(0)).shape[-1]
    validate.labels(num_classes, len(x), y=y)
    size = min(self._size, len(x))
    progress = progress_lib.Progress(len(x), "asking the model")
    found = []
    for start in range(0, len(x), size):
      # All batches are of one size, so that graphs are traced once.
      rows = np.minimum(np.arange(start, start + size), len(x) - 1)
      batch = self._batch(x[rows], y[rows], self._seed(start), num_classes)
      found.append({k: v[: len(x) - start] for k, v in batch.items()})
      if self._request.progress:
        progress.update(len(found[-1]["benign"]))
    return {
      kind: np.concatenate([batch[kind] for batch in found])
      for kind in found[0]
    }

  def _batch(self, x, y, seed, num_classes: int) -> dict[str, np.ndarray]:
    found = {"benign": self._logits(x, seed)}
    if self._attack is not None:
      found["adversarial"] = self._logits(self._attack(x, y, seed), seed)
    if self._worst_case is not None:
      found["worst_case"] = self._bounds(x, y)
    if self._targeted is not None:
      found["targeted"] = np.stack(
        [
          self._logits(self._targeted(x, place + (place >= y), seed), seed)
          for place in range(num_classes - 1)
        ],
        axis=1,
      )
    return found

  def _bounds(self, x, y) -> np.ndarray:
    """Worst-case logits, few examples at a time where each is many rows."""
    size, found = min(self._bounded_at_once, len(x)), []
    for start in range(0, len(x), size):
      rows = np.minimum(np.arange(start, start + size), len(x) - 1)
      worst = self._worst_case(x=x[rows], y=y[rows]).numpy()
      found.append(worst[: len(x) - start])
    return _rounded_up(np.concatenate(found))

  def _logits(self, x, seed) -> np.ndarray:
    return self._predict(x=x, seed=seed).numpy().astype(np.float32)


def _rounded_up(values: np.ndarray) -> np.ndarray:
  """The least float32 that is no smaller: a bound stays one."""
  found = values.astype(np.float32)
  return np.where(
    found < values, np.nextafter(found, np.float32(np.inf)), found
  )
