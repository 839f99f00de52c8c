"""Training on verified bounds: IBP, DiffAI and the dual of Wong and Kolter."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_privrob import bounds
from tf_privrob import certify
from tf_privrob import gradients
from tf_privrob.methods.objectives import robust
from tf_privrob.methods.objectives import verified_config

_PROJECTION_STREAM = 2  # of the step's seed


class VerifiedTraining(robust.AttackedTraining):
  """Trains on upper bounds v_j of z_j - z_y over an l_inf ball.

  The loss of an example (CCS 2019, Eq. 13) is

    alpha CE(f(x), y) + (1 - alpha) L_rob(v, y), alpha = 1 in the warm-up,

  with v of `bounds`, at the radius of the step. A subclass gives L_rob. Bounds
  are of the network in inference mode, in float32; the training metric
  `nonprivate/verified_accuracy` is by them, at the radius of the step.

  Guarantee: privacy none, or with private=True that of DP-SGD: both terms see
  the example itself, and are one clipped gradient. Robustness: `certifier()`
  proves radii of the trained network; it computes them anew, outward rounded,
  and holds whatever the training did.

  Args:
    network: functional or sequential Keras classifier that returns logits,
      with layers that `bounds` knows.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  config_class = verified_config.VerifiedConfig

  def __init__(self, network, config=None, record=None, **kwargs):
    super().__init__(network, config, record, **kwargs)
    self.config.sound_domain.check(network)

  def _make_gradients(self, jit_compile: bool) -> gradients.ClippedGradients:
    """Bounds use weights outside their layers: examples one by one."""
    if not self._private:
      return super()._make_gradients(jit_compile)
    return gradients.ClippedGradients(
      self._example_losses,
      self.network,
      self.config.l2_clip_norm,
      self.config.engine or "vectorized",
      jit_compile,
      most_rows=self.sampler.most_rows,
    )

  def _row_losses(self, rows, labels, chosen, seed):
    del chosen, seed
    worst = self._domain().worst_case_logits(
      self.network,
      rows,
      labels,
      self.attack_radius(),
      self._value_range if self.config.clip_to_range else None,
    )
    share = self._alpha()
    total = (1 - share) * self._robust_loss(worst, labels)
    clean = self.network(rows, training=True)
    total += share * robust.cross_entropy(labels, clean)
    metrics = {"correct": robust.correct(labels, clean)}
    if self.config.training_domain.is_bound:
      others = worst - tf.one_hot(labels, worst.shape[1], on_value=1.0)
      metrics["verified"] = tf.reduce_all(others < 0, axis=1)
    return total, metrics

  def _domain(self) -> bounds.Domain:
    """The domain of this step."""
    return self.config.training_domain

  def _alpha(self) -> tf.Tensor:
    return self._natural_share(self.config.natural_weight)

  def _robust_loss(self, worst: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """CE(v, y): at least the cross-entropy of every input in the ball."""
    return robust.cross_entropy(labels, worst)

  def certifier(self, **settings: Any) -> certify.VerifiedBound:
    """Proves radii up to the config's attack_eps, with the same bounds.

    Args:
      **settings: of `certify.VerifiedBound`: attack_eps, domain, largest, ...
    """
    value_range = None
    if self.config.clip_to_range and "value_range" in self._run_record:
      value_range = tuple(self._run_record["value_range"])
    return certify.VerifiedBound(
      **{
        "attack_eps": self.config.attack_eps,
        "domain": self.config.sound_domain,
        "value_range": value_range,
        **settings,
      }
    )


@tf.keras.saving.register_keras_serializable("tf_privrob")
class IBP(VerifiedTraining):
  """Interval bound propagation (Gowal et al. 2018).

  The loss of an example is kappa CE(f(x), y) + (1 - kappa) CE(v, y), v of
  `bounds.Interval` with the last layer elided; kappa falls from 1 to
  `natural_share` over the ramp on which the radius grows. Guarantees as in
  `VerifiedTraining`.
  """

  config_class = verified_config.IBPConfig

  def _alpha(self):
    return self._natural_share(
      self.config.natural_weight, self.config.ramp_natural_share
    )


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DiffAI(VerifiedTraining):
  """Abstract interpretation (Mirman, Gehr and Vechev 2018).

  The loss of an example is (sw CE(f(x), y) + tw L_rob) / (sw + tw) with

    L_rob = softplus(max(max_{j != y} v_j, -margin_floor)),

  CCS 2019's Eq. 14 with the floor that the code has: it fills the slot of y
  with a margin of +1, so that L_rob is never below softplus(-1) = 0.313 and has
  no gradient once every margin -v_j exceeds 1. v is of the Box domain, or of
  hybrid zonotopes. Guarantees as in `VerifiedTraining`.
  """

  config_class = verified_config.DiffAIConfig

  def _robust_loss(self, worst, labels):
    own = tf.one_hot(labels, worst.shape[1], on_value=True, off_value=False)
    floor = tf.fill(tf.shape(worst), -self.config.margin_floor)
    return tf.nn.softplus(tf.reduce_max(tf.where(own, floor, worst), axis=1))


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DualTraining(VerifiedTraining):
  """Training on the dual bound (Wong and Kolter 2018; Wong et al. 2018).

  The loss of an example is CE(v, y), v of `bounds.Dual`; with norm="l1_median"
  the bounds inside the network are estimates from random projections, drawn
  anew at each step. Then nothing is verified while training; `certifier()`
  takes the exact dual. Other guarantees as in `VerifiedTraining`.
  """

  config_class = verified_config.DualConfig

  def _domain(self):
    # The seed is the step's, not the example's: public, and shared by all.
    seed = self._state.seed(_PROJECTION_STREAM)
    return dataclasses.replace(self.config.training_domain, seed=seed)
