"""Accuracy under attack, with a verdict that one noisy forward cannot buy."""

from __future__ import annotations

import dataclasses
import time
from typing import Any
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob import binomial
from tf_privrob import progress as progress_lib
from tf_privrob import validate
from tf_privrob.attacks import base
from tf_privrob.attacks import checks
from tf_privrob.attacks import randomness
from tf_privrob.attacks import verdict

# Numbers folded into the seed; each batch folds in its own number too.
_CHECKS, _CLEAN, _ATTACK, _ADVERSARIAL = range(4)


@dataclasses.dataclass(frozen=True, eq=False)
class AttackResult:
  """What an attack did to a model.

  Attributes:
    accuracy: Share of examples that are classified correctly both clean and
      under attack (the clean input is always within the attacker's reach).
    clean_accuracy: Share of examples that are classified correctly clean.
    success: [n] bool; untargeted: the example is misclassified, clean or under
      attack; targeted: the model says the target under attack.
    x_adv: [n, ...] adversarial examples; where the clean input is misclassified
      already, an untargeted attack leaves it as it is.
    count: Number of examples.
    interval: 95 % Clopper-Pearson interval of the accuracy over the choice of
      test examples. A stronger attack may still go below it.
    warnings: Findings of the self-checks, each with its anchor in
      docs/attacks.md; empty if none.
    seconds: Wall time.
  """

  accuracy: float
  clean_accuracy: float
  success: np.ndarray
  x_adv: np.ndarray
  count: int
  interval: tuple[float, float]
  warnings: list[str]
  seconds: float

  def __str__(self) -> str:
    low, high = self.interval
    return (
      f"accuracy {self.accuracy:.4f} [{low:.4f}, {high:.4f}] under attack,"
      f" {self.clean_accuracy:.4f} clean, {self.count} examples,"
      f" {len(self.warnings)} warnings, {self.seconds:.1f} s"
    )


def evaluate(
  attack: base.Attack,
  logits_fn: Callable,
  x: np.ndarray,
  y: np.ndarray,
  seed: Any,
  batch_size: int = 128,
  verdict_draws: int = 1,
  progress: bool = True,
  targets: np.ndarray | None = None,
) -> AttackResult:
  """Attacks a data set in batches and judges the outcome.

  Batches have one static shape (the last one is padded), so nothing is traced
  twice. A randomised model is judged by the majority of `verdict_draws` single
  draws, of the model itself and not of its `eot` average; a tie goes to the
  attacker.

  Args:
    attack: Any attack of this room.
    logits_fn: Keras model or callable, see `Attack.__call__`; wrap a randomised
      one in `eot`.
    x: Clean inputs in the attack's value range.
    y: True labels, sparse.
    seed: An int or a shape-[2] int tensor.
    batch_size: Examples per batch, at most.
    verdict_draws: Forward passes per verdict; at least 2 if randomised.
    progress: Whether to show a progress line.
    targets: Labels to reach, for a targeted attack.

  Returns:
    An `AttackResult`.

  Raises:
    ValueError: On bad inputs, before any work, and for a randomised model that
      would be judged by a single draw.
  """
  started = time.monotonic()
  x, y = np.asarray(x), np.asarray(y)
  validate.positive_int(batch_size=batch_size, verdict_draws=verdict_draws)
  model = randomness.without_eot(logits_fn)
  base.check_inputs(attack, model, x, y)
  aims = _aims(attack, model, x, y, targets)
  seed = randomness.as_seed(seed)
  size = min(batch_size, len(x))
  check_seed = randomness.fold(seed, _CHECKS)
  _refuse_single_draw(logits_fn, x[:size], check_seed, verdict_draws)
  warnings = checks.quick(logits_fn, x[:size], y[:size], check_seed)

  run = attack.compile(logits_fn)
  correct = verdict.judge(logits_fn, verdict_draws)
  line = progress_lib.Progress(len(x), f"{attack!r}") if progress else None
  rows = []
  for number, begin in enumerate(range(0, len(x), size)):
    batch = [_padded(a[begin : begin + size], size) for a in (x, y, aims)]
    kept = min(size, len(x) - begin)
    outcome = _one_batch(
      attack, run, correct, batch, randomness.fold(seed, number)
    )
    rows.append([part[:kept] for part in outcome])
    if line:
      line.update(kept)
  x_adv, clean, robust, success = map(np.concatenate, zip(*rows))
  return AttackResult(
    accuracy=float(robust.mean()),
    clean_accuracy=float(clean.mean()),
    success=success,
    x_adv=x_adv,
    count=len(x),
    interval=binomial.interval(int(robust.sum()), len(x)),
    warnings=warnings,
    seconds=time.monotonic() - started,
  )


def _one_batch(attack, run, correct, batch, seed):
  """Returns x_adv, clean and robust correctness, and success of one batch."""
  x, y, aims = map(tf.convert_to_tensor, batch)
  clean = correct(x, y, randomness.fold(seed, _CLEAN)).numpy()
  x_adv = run(x, aims, randomness.fold(seed, _ATTACK)).numpy()
  if not attack.targeted:
    wide = clean.reshape([-1] + [1] * (x_adv.ndim - 1))
    x_adv = np.where(wide, x_adv, batch[0])
  last_seed = randomness.fold(seed, _ADVERSARIAL)
  robust = clean & correct(tf.constant(x_adv), y, last_seed).numpy()
  success = ~robust
  if attack.targeted:
    success = correct(tf.constant(x_adv), aims, last_seed).numpy()
  return x_adv, clean, robust, success


def _aims(attack, model, x, y, targets) -> np.ndarray:
  """The labels that the attack is given: the truth, or the targets."""
  if attack.targeted != (targets is not None):
    raise ValueError(
      f"Expected targets exactly for a targeted attack, received"
      f" targeted={attack.targeted} and"
      f" targets={'None' if targets is None else 'labels'}."
    )
  if targets is None:
    return y
  targets = np.asarray(targets)
  base.check_inputs(attack, model, x, targets)
  if (targets == y).any():
    first = int(np.flatnonzero(targets == y)[0])
    raise ValueError(
      f"Expected targets that differ from y, received the true label as target"
      f" of example {first}. Take e.g. (y + 1) % num_classes."
    )
  return targets


def _refuse_single_draw(logits_fn, x, seed, verdict_draws) -> None:
  if verdict_draws == 1 and checks.is_randomised(logits_fn, x, seed):
    raise ValueError(
      "Expected verdict_draws >= 2 for a randomised model (two forward passes"
      " on the same input differ), received verdict_draws=1. One noisy forward"
      " proves nothing: pass e.g. verdict_draws=100."
    )


def _padded(array: np.ndarray, size: int) -> np.ndarray:
  missing = [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)
  return np.pad(array, missing, mode="edge")
