"""Self-checks: signs that an attack, not the model, is what failed.

After "On Evaluating Adversarial Robustness" (Carlini et al. 2019) and the
checks of AutoAttack (Croce and Hein 2020). Every check returns a list of
warnings, empty if all is well, and each warning ends with its anchor in
docs/attacks.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_privrob.attacks import base
from tf_privrob.attacks import ensembles
from tf_privrob.attacks import gradient
from tf_privrob.attacks import norms
from tf_privrob.attacks import objectives
from tf_privrob.attacks import randomness
from tf_privrob.attacks import verdict

_TINY = 1e-30  # Gradients below are lost to float32 subnormals.
_SHARE = 0.05  # Share of examples from which on gradients are reported.
_SLACK = 0.01  # Share of examples by which an attack may fall behind.
_UNBOUNDED_STEPS = 40


def _warning(text: str, anchor: str) -> list[str]:
  return [f"{text} See docs/attacks.md#{anchor}."]


def is_randomised(logits_fn: Callable, x: Any, seed: Any) -> bool:
  """Whether two draws of the model (not of its average) on `x` differ."""
  model = randomness.seeded(randomness.without_eot(logits_fn))
  x, seed = tf.convert_to_tensor(x), randomness.as_seed(seed)
  first = np.asarray(model(x, randomness.fold(seed, 0)))
  second = np.asarray(model(x, randomness.fold(seed, 1)))
  # Parallel sums may round differently from call to call; noise is larger.
  scale = np.abs(first).max()
  return bool(np.abs(first - second).max() > 1e-4 * scale + 1e-12)


def randomised_output(logits_fn: Callable, x: Any, seed: Any) -> list[str]:
  """Finds a randomised model that is attacked without averaging."""
  if isinstance(logits_fn, randomness.EOT):
    return []
  if not is_randomised(logits_fn, x, seed):
    return []
  return _warning(
    "The model's output is random, and every step of the attack follows the"
    " gradient of a single draw. Wrap it: attacks.eot(logits_fn, draws).",
    "randomised-output",
  )


def probabilities(logits_fn: Callable, x: Any, seed: Any) -> list[str]:
  """Finds a model that returns probabilities where logits are expected."""
  model = randomness.seeded(randomness.without_eot(logits_fn))
  output = np.asarray(model(tf.convert_to_tensor(x), randomness.as_seed(seed)))
  sums = output.astype(np.float64).sum(axis=-1)
  if output.min() < 0 or np.abs(sums - 1).max() > 1e-3:
    return []
  return _warning(
    "The model returns probabilities (non-negative, summing to 1), not logits:"
    " a second softmax flattens every loss and its gradient. Remove the last"
    " softmax or pass lambda x: tf.math.log(model(x) + 1e-20).",
    "probabilities-instead-of-logits",
  )


def _gradient_sizes(logits_fn, x, y, seed, loss) -> np.ndarray:
  model = randomness.seeded(logits_fn)
  x = tf.convert_to_tensor(x)
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(x)
    logits = model(x, randomness.as_seed(seed))
    value = objectives.value(loss, logits, tf.cast(y, tf.int32), False)
  grad = tape.gradient(
    value, x, unconnected_gradients=tf.UnconnectedGradients.ZERO
  )
  return np.abs(grad).reshape(len(grad), -1).max(axis=1)


def gradients(logits_fn: Callable, x: Any, y: Any, seed: Any) -> list[str]:
  """Finds inputs without a gradient, and tells saturation from masking."""
  lost = _gradient_sizes(logits_fn, x, y, seed, "cross_entropy") < _TINY
  masked = _gradient_sizes(logits_fn, x, y, seed, "margin") < _TINY
  found = []
  if masked.mean() > _SHARE:
    found += _warning(
      f"The input gradient is zero for {masked.mean():.0%} of the examples:"
      " attacks by gradient cannot move there, and their failure says nothing"
      " about robustness.",
      "zero-gradients",
    )
  saturated = lost & ~masked
  if saturated.mean() > _SHARE:
    found += _warning(
      f"The softmax is saturated for {saturated.mean():.0%} of the examples:"
      " cross-entropy has no gradient there, the margin has. Use"
      " loss='margin' or loss='dlr'.",
      "saturated-softmax",
    )
  return found


def quick(logits_fn: Callable, x: Any, y: Any, seed: Any) -> list[str]:
  """The checks that cost a few passes over one batch; `evaluate` runs them."""
  return [
    *probabilities(logits_fn, x, seed),
    *randomised_output(logits_fn, x, seed),
    *gradients(logits_fn, x, y, seed),
  ]


def _accuracy(attack, logits_fn, x, y, seed, draws) -> float:
  x_adv = attack.compile(logits_fn)(x, y, seed)
  correct = verdict.judge(logits_fn, draws)
  hits = correct(x_adv, tf.cast(y, tf.int32), randomness.as_seed(seed))
  # A targeted attack is judged by the share of targets that it misses.
  return float(np.mean(~hits.numpy() if attack.targeted else hits))


def weaker_than_single_step(
  attack, logits_fn, x, y, seed, verdict_draws: int = 1
) -> list[str]:
  """Finds an iterative attack that falls behind FGSM of the same radius."""
  single = gradient.FGSM(
    **{
      field.name: getattr(attack, field.name)
      for field in dataclasses.fields(gradient.FGSM)
    }
  )
  iterated = _accuracy(attack, logits_fn, x, y, seed, verdict_draws)
  once = _accuracy(single, logits_fn, x, y, seed, verdict_draws)
  if iterated <= once + _SLACK:
    return []
  return _warning(
    f"{attack!r} leaves {iterated:.1%} of the examples standing, the single"
    f" step of FGSM only {once:.1%}: the iterations go astray.",
    "iterative-weaker-than-single-step",
  )


def unbounded_fails(
  attack, logits_fn, x, y, seed, verdict_draws: int = 1
) -> list[str]:
  """Finds a model that stands although any valid input is allowed."""
  x = np.asarray(x)
  radius = norms.whole_range(attack.norm, x.shape[1:], attack.value_range)
  whole = gradient.PGD(
    attack_eps=radius,
    norm=attack.norm,
    value_range=attack.value_range,
    loss=attack.loss,
    steps=max(attack.steps, _UNBOUNDED_STEPS),
    keep_best=True,
  )
  model = randomness.seeded(logits_fn)
  seed = randomness.as_seed(seed)
  chance = 1 / model(tf.convert_to_tensor(x[:1]), seed).shape[-1]
  left = _accuracy(whole, logits_fn, x, y, seed, verdict_draws)
  if left <= chance:
    return []
  return _warning(
    f"With attack_eps={radius:g}, which allows every valid input, {left:.1%} of"
    f" the examples still stand (chance: {chance:.1%}): the attack is blind to"
    " what it could reach.",
    "unbounded-attack-fails",
  )


def more_steps_help_defender(
  attack, logits_fn, x, y, seed, verdict_draws: int = 1
) -> list[str]:
  """Finds an attack that gets weaker when its steps are doubled."""
  size = attack.step_size or attack.step_factor * attack.attack_eps / (
    attack.steps
  )
  if size == 0:
    return []
  few = dataclasses.replace(attack, step_size=size)
  many = dataclasses.replace(few, steps=2 * attack.steps)
  before = _accuracy(few, logits_fn, x, y, seed, verdict_draws)
  after = _accuracy(many, logits_fn, x, y, seed, verdict_draws)
  if after <= before + _SLACK:
    return []
  return _warning(
    f"Doubling the steps of {attack!r} lets {after:.1%} of the examples stand"
    f" instead of {before:.1%}: the step is too long or the loss misleads. Use"
    " a smaller step_size or keep_best=True.",
    "more-steps-help-the-defender",
  )


def _gradient_attacks(attack):
  if isinstance(attack, ensembles.Ensemble):
    for member in attack.attacks:
      yield from _gradient_attacks(member)
  elif isinstance(attack, base.GradientAttack):
    yield attack


def full(
  attack: base.Attack,
  logits_fn: Callable,
  x: Any,
  y: Any,
  seed: Any,
  verdict_draws: int = 1,
) -> list[str]:
  """All checks on one batch; about five runs of the attack.

  Args:
    attack: An untargeted gradient attack, or an ensemble of some; members that
      are not gradient attacks are passed over.
    logits_fn: The attacked model, as for `evaluate`.
    x: Some tens to hundreds of clean inputs.
    y: True labels.
    seed: An int or a shape-[2] int tensor.
    verdict_draws: Forward passes per verdict for a randomised model.

  Returns:
    The warnings, without repetitions.
  """
  base.check_inputs(attack, randomness.without_eot(logits_fn), x, y)
  if attack.targeted:
    raise ValueError(
      "Expected an untargeted attack: the checks compare accuracies. Check"
      " dataclasses.replace(attack, targeted=False)."
    )
  found = quick(logits_fn, x, y, seed)
  for member in _gradient_attacks(attack):
    arguments = (member, logits_fn, x, y, seed, verdict_draws)
    found += unbounded_fails(*arguments)
    if member.steps > 1:
      found += weaker_than_single_step(*arguments)
      found += more_steps_help_defender(*arguments)
  return list(dict.fromkeys(found))
