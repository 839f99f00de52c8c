"""A sound heir of AdLM: relevance under DP, then DP-SGD on scaled inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import mechanisms
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import checks
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import identity
from tf_privrob.methods import plan as training_plan
from tf_privrob.methods import relevance
from tf_privrob.papers.adlm import config as adlm_config
from tf_privrob.papers.adlm import published as adlm

_PUBLIC_WEIGHTS = privacy.Assumption(
  "the weights that relevance and training start from do not depend on the"
  " private data, or their cost was given as relevance_budget",
  "the caller",
)
_FREE = privacy.Budget(0.0, 0.0)
_PUBLIC_MAP = privacy.Assumption(
  "the relevance map that was given does not depend on the private data",
  "the caller",
)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class FeatureScaling(tf.keras.layers.Layer):
  """Multiplies every input feature by its own fixed factor.

  With factors in [0, 1] it is 1-Lipschitz in every norm and keeps inputs within
  [-1, 1]. The factors are saved with the weights; they start as ones.
  """

  row_wise = True  # for `gradients`
  weights_from_config = True  # for `models.redraw`: a run sets its own

  def build(self, input_shape):
    """One factor per feature."""
    self.factors = self.add_weight(
      "factors", input_shape[1:], initializer="ones", trainable=False
    )
    super().build(input_shape)

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """The scaled inputs."""
    return inputs * self.factors

  def compute_output_shape(self, input_shape):
    """Shape of the inputs."""
    return input_shape


@tf.keras.saving.register_keras_serializable("tf_privrob")
class SoundAdLM(dp_sgd.DPSGD):
  """DP-SGD behind a layer that turns irrelevant features down.

  AdLM puts more noise on features that matter less. Here they are scaled down
  instead, once and for all, before the first layer:

    x_j -> max(floor, r_j^power) x_j,   r = relevance, min-max scaled to [0, 1].

  That is a pre-conditioner: the gradient of a weight that reads feature j is
  scaled alike, so less of an example's clipped gradient is spent on irrelevant
  features, and DP-SGD's noise on their weights does less to the output.

  The relevance map is the mean of each example's |relevance| under the
  untrained network (or a `relevance_network`), clipped per example and noised
  once (`relevance.private_relevance`), or a public map at no cost.

  Guarantee: (dp_epsilon, dp_delta)-DP of map and weights together, for
  neighbours that differ by one added or removed example: the composition of one
  Laplace or Gaussian release and the steps of DP-SGD.

  Args:
    network: Keras classifier as for `DPSGD`; without `relevance_network` or
      `relevance_map` one that `relevance.LayerwiseRelevance` knows.
    config: The settings.
    record: Record of an earlier training; set when a saved model is loaded.
    relevance_network: Public weights to compute relevance with; None: those
      that the training starts from.
    relevance_map: A public map, of the shape of one input, such as
      `relevance.mean_relevance` of public data. Nothing is then released.
    relevance_budget: What the weights of the relevance network cost, if
      private data trained them; added to the statement by basic composition.
    **kwargs: Keras' own.
  """

  config_class = adlm_config.SoundAdLMConfig

  def __init__(
    self,
    network: tf.keras.Model,
    config: adlm_config.SoundAdLMConfig | None = None,
    record: dict[str, Any] | None = None,
    relevance_network: tf.keras.Model | None = None,
    relevance_map: np.ndarray | None = None,
    relevance_budget: privacy.Budget | None = None,
    **kwargs,
  ):
    super().__init__(_scaled(network), config, record, **kwargs)
    self._source = adlm.RelevanceSource(relevance_network, relevance_map)
    if relevance_map is not None:
      self._run_record["relevance_releases"] = 0
    if relevance_budget is not None:
      cost = relevance_budget
      self._run_record["relevance_budget"] = [cost.dp_epsilon, cost.dp_delta]
    if self._cost.dp_delta >= self.config.dp_delta:
      raise ValueError(
        f"Expected relevance_budget with a dp_delta below that of the run,"
        f" {self.config.dp_delta:g}, received {self._cost}."
      )

  @property
  def _cost(self) -> privacy.Budget:
    """What the relevance network cost before."""
    return privacy.Budget(*self._run_record.get("relevance_budget", (0.0, 0.0)))

  @property
  def scaling(self) -> FeatureScaling:
    """The first layer."""
    return self.network.layers[0]

  @property
  def mechanism(self) -> mechanisms.Mechanism:
    """Releases the relevance map; its sensitivity is the clipping norm."""
    settings = self.config.relevance
    norm, dp_epsilon = settings.clip_norm, settings.dp_epsilon
    if settings.mechanism == "laplace":
      return mechanisms.LaplaceMechanism(norm, dp_epsilon)
    return mechanisms.GaussianMechanism.analytic(
      norm, dp_epsilon, self.accounted_dp_delta
    )

  def extra_releases(self) -> list[privacy.Release]:
    """The relevance map, and the network behind it if it was not free."""
    count, found = self._run_record.get("relevance_releases", 1), []
    if count:
      found.append(relevance.release(self.mechanism, count))
    if self._cost.dp_epsilon:
      found.append(
        privacy.Release(
          "relevance network",
          dp_epsilon=self._cost.dp_epsilon,
          description=f"trained before, {self._cost}",
        )
      )
    return found

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Noise and steps for what the relevance map leaves of the budget."""
    shape = tuple(input_shape or checks.input_shape(self.network))
    return training_plan.make(
      self._accounted, num_examples, shape, tuple(self.extra_releases())
    )

  @property
  def accounted_dp_delta(self) -> float:
    """What the relevance network left."""
    return self.config.dp_delta - self._cost.dp_delta

  @property
  def _accounted(self) -> adlm_config.SoundAdLMConfig:
    """The settings with the dp_delta that the relevance network left."""
    return dataclasses.replace(self.config, dp_delta=self.accounted_dp_delta)

  def spent_dp_epsilon(self, steps: int) -> float:
    """The proven figure after `steps` steps, at the config's dp_delta."""
    return training_plan.dp_epsilon(self._accounted, self.settled_plan, steps)

  def check_data(self, x, y, value_range) -> None:
    """Refuses a map or a relevance network that does not fit."""
    if self._source.map is not None:
      adlm.require_map(np.asarray(self._source.map, np.float64), x.shape[1:])
    else:
      relevance.LayerwiseRelevance(self._relevance_network)

  def given(self) -> dict[str, Any]:
    """Where relevance comes from, and what that cost before."""
    network = self._source.network
    return {
      "relevance_map": identity.public_hash(self._source.map),
      "relevance_network": network and models.fingerprint(network),
      "relevance_budget": self._run_record.get("relevance_budget"),
    }

  @property
  def _relevance_network(self) -> tf.keras.Model:
    """Whose weights relevance is computed with."""
    return self._source.network or self.network.layers[1]

  def begin(self, x, y, value_range) -> None:
    """Releases the relevance map, or reads that of a resumed run."""
    found = self._source.map
    if found is None:
      found, releases = self.outlet.once(
        "relevance",
        lambda key: self._release(x, key),
        relevance.release(self.mechanism).record()["parameters"],
      )
      self._run_record["relevance_releases"] = releases
    found = np.asarray(found, np.float64)
    factors = relevance.normalise(found, "linear")
    settings = self.config.relevance
    self.scaling.factors.assign(
      np.maximum(factors**settings.power, settings.floor)
    )

  def _release(self, x: np.ndarray, key: randomness.Key) -> np.ndarray:
    """The noisy map of the training data."""
    return relevance.private_relevance(
      self._relevance_network,
      x,
      None,
      self.mechanism,
      key,
      self.config.relevance.stabiliser,
    )

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """Adds what was released besides the gradients."""
    return {
      **super().ledger_parameters(plan),
      "extra": [release.record() for release in self.extra_releases()],
    }

  def statement(self) -> privacy.PrivacyStatement:
    """Map and training composed; DP-SGD's statement otherwise."""
    found = super().statement()
    private = self._run_record["relevance_releases"]
    assumed = _PUBLIC_WEIGHTS if private else _PUBLIC_MAP
    return found.replace(
      claimed=self._at_full_delta(found.claimed),
      proven=self._at_full_delta(found.proven),
      gaussian_mu=found.gaussian_mu if self._cost == _FREE else None,
      assumptions=(*found.assumptions, assumed),
    )

  def _at_full_delta(
    self, budget: privacy.Budget | None
  ) -> privacy.Budget | None:
    """Adds the dp_delta of the relevance network (basic composition)."""
    if budget is None:
      return None
    return privacy.Budget(budget.dp_epsilon, self.config.dp_delta)


def _scaled(network: tf.keras.Model) -> tf.keras.Model:
  """The network behind a `FeatureScaling`; itself if it is behind one."""
  layers = getattr(network, "layers", None)
  if layers and isinstance(layers[0], FeatureScaling):
    return network
  shape = checks.input_shape(network)
  if shape is None:
    raise ValueError(
      "Expected a network with a known input shape, received"
      f" {network.name!r}. Give it an Input layer."
    )
  return tf.keras.Sequential(
    [tf.keras.layers.Input(shape), FeatureScaling(), network],
    name=f"scaled_{network.name}",
  )
