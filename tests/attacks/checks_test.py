"""Each check catches a deliberately broken model and spares a healthy one."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob.attacks import checks

_ATTACK = attacks.PGD(0.1, steps=10)


def _masked(network):
  """Gradients that are connected, but zero."""

  @tf.custom_gradient
  def wall(x):
    return tf.identity(x), tf.zeros_like

  return lambda x: network(wall(x))


def _noisy(network, stddev=0.3):
  def logits(x, seed):
    noise = tf.random.stateless_normal(tf.shape(x), seed, stddev=stddev)
    return network(x + noise)

  return logits


def _sawtooth(inputs):
  """A step of 0.1 from 0.5 leaves the class, the next one comes back."""
  wave = tf.cos((inputs - 0.5) * np.pi / 0.1)
  # The value is the wave's, the gradient always points the same way.
  z = tf.stop_gradient(wave - inputs) + inputs
  return tf.concat([z, -z], axis=1)


def _anchored(warnings, anchor):
  return len(warnings) == 1 and warnings[0].endswith(
    f"See docs/attacks.md#{anchor}."
  )


@pytest.mark.parametrize(
  ("norm", "radius"),
  [
    ("linf", 0.1),
    pytest.param("l2", 0.8, marks=pytest.mark.slow),
    pytest.param("l1", 2.0, marks=pytest.mark.slow),
  ],
)
def test_healthy_model_is_silent(network, batch, norm, radius):
  attack = attacks.PGD(radius, norm, steps=8)
  assert checks.full(attack, network, *batch, seed=0) == []


def test_healthy_randomised_model_with_eot_is_silent(network, batch):
  x, y = batch[0][:32], batch[1][:32]
  wrapped = attacks.eot(_noisy(network), 4)
  assert checks.quick(wrapped, x, y, 0) == []
  assert (
    checks.unbounded_fails(
      attacks.BIM(0.1, steps=4), wrapped, x, y, 0, verdict_draws=9
    )
    == []
  )


def test_zero_gradients(network, batch):
  found = checks.gradients(_masked(network), *batch, seed=0)
  assert _anchored(found, "zero-gradients")
  assert "100%" in found[0]

  def unconnected(x):
    return network(tf.round(x))

  assert _anchored(
    checks.gradients(unconnected, *batch, seed=0), "zero-gradients"
  )


def test_zero_gradients_of_a_part(network, batch):
  def partly(x):
    dead = tf.range(tf.shape(x)[0])[:, None] % 4 == 0
    return network(tf.where(dead, tf.stop_gradient(x), x))

  found = checks.gradients(partly, *batch, seed=0)
  assert _anchored(found, "zero-gradients")
  assert "25%" in found[0]


def test_saturated_softmax(network, batch):
  def loud(x):
    return 1e4 * network(x)

  found = checks.gradients(loud, *batch, seed=0)
  assert _anchored(found, "saturated-softmax")
  # The advice helps: the margin succeeds where cross-entropy cannot move.
  x, y = batch
  stands = {
    loss: np.mean(
      np.argmax(network(attacks.BIM(0.1, loss=loss)(loud, x, y, 0)), 1) == y
    )
    for loss in ("cross_entropy", "margin", "dlr")
  }
  assert stands["margin"] < stands["cross_entropy"] - 0.3
  assert stands["dlr"] < stands["cross_entropy"] - 0.3


def test_probabilities(network, batch):
  found = checks.probabilities(lambda x: tf.nn.softmax(network(x)), batch[0], 0)
  assert _anchored(found, "probabilities-instead-of-logits")
  assert checks.probabilities(network, batch[0], 0) == []


def test_randomised_output(network, batch):
  model = _noisy(network)
  found = checks.randomised_output(model, batch[0], 0)
  assert _anchored(found, "randomised-output")
  assert checks.randomised_output(attacks.eot(model, 3), batch[0], 0) == []

  def stateful(x):
    return network(x + tf.random.normal(tf.shape(x), stddev=0.3))

  assert _anchored(
    checks.randomised_output(stateful, batch[0], 0), "randomised-output"
  )
  assert not checks.is_randomised(network, batch[0], 0)


def test_iterative_weaker_than_single_step(network, batch):
  astray = attacks.BIM(0.3, steps=2, step_size=1e-4)
  found = checks.weaker_than_single_step(astray, network, *batch, seed=0)
  assert _anchored(found, "iterative-weaker-than-single-step")
  healthy = attacks.BIM(0.3, steps=10)
  assert checks.weaker_than_single_step(healthy, network, *batch, seed=0) == []


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_unbounded_attack_fails(network, batch, norm):
  attack = attacks.PGD(0.1, norm)
  found = checks.unbounded_fails(attack, _masked(network), *batch, seed=0)
  assert _anchored(found, "unbounded-attack-fails")
  assert checks.unbounded_fails(attack, network, *batch, seed=0) == []


def test_more_steps_help_the_defender(network, batch):
  x, y = np.full((8, 1), 0.5, np.float32), np.zeros(8, np.int64)
  attack = attacks.BIM(0.4, steps=1, step_size=0.1, loss="margin")
  found = checks.more_steps_help_defender(attack, _sawtooth, x, y, 0)
  assert _anchored(found, "more-steps-help-the-defender")
  kept = attacks.BIM(0.4, steps=1, step_size=0.1, keep_best=True)
  assert checks.more_steps_help_defender(kept, _sawtooth, x, y, 0) == []
  assert checks.more_steps_help_defender(_ATTACK, network, *batch, seed=0) == []


def test_full_collects_and_does_not_repeat(network, batch):
  both = attacks.ensemble([_ATTACK, attacks.FGSM(0.1), _ATTACK])
  found = checks.full(both, _masked(network), *batch, seed=0)
  anchors = [warning.rsplit("#", 1)[1] for warning in found]
  assert anchors == ["zero-gradients.", "unbounded-attack-fails."]


def test_full_refuses_targeted(network, batch):
  with pytest.raises(ValueError, match="Expected an untargeted attack"):
    checks.full(attacks.PGD(0.1, targeted=True), network, *batch, seed=0)


def test_every_anchor_is_documented():
  import pathlib
  import re

  root = pathlib.Path(__file__).parents[2]
  page = (root / "docs" / "attacks.md").read_text(encoding="utf-8")
  titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
  anchors = {title.lower().replace(" ", "-") for title in titles}
  source = (root / "tf_privrob" / "attacks" / "checks.py").read_text()
  used = set(re.findall(r'^    "([a-z-]+)",$', source, re.MULTILINE))
  used |= set(re.findall(r'^      "([a-z-]+)",$', source, re.MULTILINE))
  assert len(used) == 7
  assert used <= anchors
