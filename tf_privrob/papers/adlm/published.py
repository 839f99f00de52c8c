"""AdLM, the Adaptive Laplace Mechanism (Phan et al. 2017), as published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import losses
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import checks
from tf_privrob.methods import method
from tf_privrob.methods import relevance
from tf_privrob.models import cuts as splitting
from tf_privrob.papers.adlm import config as adlm_config
from tf_privrob.papers.dpal import fixed_batches
from tf_privrob.papers.dpal import functional

_STEP_STREAM, _INPUT_STREAM, _LABEL_STREAM = 0, 1, 2
_RELEVANCE_BATCH = 128
_UNIT = mechanisms.LaplaceMechanism(1.0, 1.0)
_NOISE_CAVEAT = (
  " Min-max scaling before the noise, and an average over fewer examples than"
  " the noise is calibrated for, void its budget (relevance.paper_noise_scale)."
)
_RELEVANCE_CAVEATS = {
  "trained_copy": (
    "The relevance map comes from a network that was trained on the same data"
    " without privacy." + _NOISE_CAVEAT
  ),
  "given_network": (
    "The relevance map comes from a network that was given; if private data"
    " trained it, nothing accounts for that." + _NOISE_CAVEAT
  ),
  "given_map": (
    "The relevance map was given, and no noise was added to it; if private data"
    " made it, nothing accounts for that."
  ),
}
_CAVEATS = (
  "One draw of input noise is shared by all examples of a batch: differences"
  " between examples are not hidden at all.",
  "The label noise reaches the last kernel only; labels flow without noise into"
  " the gradients of all layers below.",
)
_ONCE_CAVEAT = (
  "The noise is drawn once and used in every step: differences between the"
  " batches of two steps are not hidden at all."
)


class _AdLMState(method.RunState):
  """Adds the draws of a run, which checkpoints keep.

  Attributes:
    factors: beta_j, of the shape of one input.
    input_noise: The draw that `noise="once"` uses in every step.
    label_noise: chi / m on the coefficients of the last kernel.
    drawn: 1 once the draws were made.
  """

  def __init__(self, factors: np.ndarray, kernel_shape: Sequence[int]):
    super().__init__()
    self.factors = tf.Variable(factors, dtype=tf.float32, trainable=False)
    self.input_noise = tf.Variable(
      tf.zeros(self.factors.shape), trainable=False
    )
    self.label_noise = tf.Variable(tf.zeros(kernel_shape), trainable=False)
    self.drawn = tf.Variable(0, dtype=tf.int64, trainable=False)

  def variables(self) -> list[tf.Variable]:
    """All that a checkpoint must hold."""
    return [self.factors, self.input_noise, self.label_noise, self.drawn]


class RelevanceSource:
  """What the caller gave; an object of its own, so that Keras saves none."""

  def __init__(self, network: tf.keras.Model | None, map_: np.ndarray | None):
    if network is not None and map_ is not None:
      raise ValueError(
        "Expected relevance_network or relevance_map, received both."
      )
    self.network = network
    self.map = map_

  @property
  def kind(self) -> str:
    """Which of the caveats applies."""
    if self.map is not None:
      return "given_map"
    return "trained_copy" if self.network is None else "given_network"


@tf.keras.saving.register_keras_serializable("tf_privrob")
class AdLM(fixed_batches.FixedBatches):
  """Trains on inputs with more noise where they matter less.

  With d features, relevances R_j, m the batch size and Delta the sensitivity of
  the first layer, every step minimises the Taylor cross-entropy of

    x_bar_ij = x_ij + Lap(Delta / (beta_j dp_epsilon_features)) / m,
    beta_j = d R_j / sum R,

  where one draw serves the whole batch, plus noise on the label coefficients,
  - sum chi W / m with chi ~ Lap(K (|h| + |h|^2 / 4) / dp_epsilon_labels). There
  is no noise at inference.

  Guarantee: none is proven. The paper claims DP with the sum of the three
  budgets; `privacy_statement()` says why that does not follow. For a guarantee
  that holds see `SoundAdLM`.

  Args:
    network: Keras classifier that begins with Conv2D or Dense and whose last
      hidden layer is bounded by 1, such as `models.dpal_mnist`.
    config: The settings.
    record: Record of an earlier training; set when a saved model is loaded.
    relevance_network: Trained classifier for the relevance map. None: a copy
      of `network`, trained on the same data without privacy.
    relevance_map: Instead, a map of the shape of one input; no noise is added.
    **kwargs: Keras' own.
  """

  config_class = adlm_config.AdLMConfig

  def __init__(
    self,
    network: tf.keras.Model,
    config: adlm_config.AdLMConfig | None = None,
    record: dict[str, Any] | None = None,
    relevance_network: tf.keras.Model | None = None,
    relevance_map: np.ndarray | None = None,
    **kwargs,
  ):
    super().__init__(network, config, record, **kwargs)
    self._parts = splitting.split(network)
    self._source = RelevanceSource(relevance_network, relevance_map)
    self(tf.zeros([1, *checks.input_shape(network)]))

  # Scales.

  @property
  def input_sensitivity(self) -> float:
    """Delta of the first layer: given, or from its geometry."""
    if self.config.input_sensitivity is not None:
      return self.config.input_sensitivity
    first = self._parts.first
    return functional.adlm_input_sensitivity(
      _feature_map(self.network, first), first.kernel.shape
    )

  @property
  def input_scale(self) -> float:
    """The scale of the noise on a feature of average relevance (beta = 1)."""
    return self.input_sensitivity / (
      self.config.dp_epsilon_features * self.config.batch_size
    )

  @property
  def label_scale(self) -> float:
    """The scale of the noise on a coefficient of the last kernel."""
    sensitivity = functional.adlm_label_sensitivity(
      *self._parts.last.kernel.shape
    )
    return sensitivity / (
      self.config.dp_epsilon_labels * self.config.batch_size
    )

  # The relevance map.

  def check_data(self, x, y, value_range) -> None:
    """Refuses a map or a relevance network that does not fit."""
    if self._source.map is not None:
      require_map(np.asarray(self._source.map, np.float64), x.shape[1:])
    else:
      relevance.LayerwiseRelevance(self._source.network or self.network)

  def given(self) -> dict[str, Any]:
    """Where relevance comes from; what was given may depend on the data."""
    return {"relevance": self._source.kind}

  def begin(self, x, y, value_range) -> None:
    """Computes the relevance map, or reads that of a resumed run."""
    found, _ = self.outlet.once(
      "relevance",
      lambda key: self._relevance_map(x, y, key),
      {"dp_epsilon_relevance": self.config.dp_epsilon_relevance},
    )
    self.run_state.factors.assign(relevance.budget_factors(found))

  def _relevance_map(self, x, y, key: randomness.Key) -> np.ndarray:
    """The map that was given, or AdLM's noisy one."""
    if self._source.map is not None:
      return np.asarray(self._source.map, np.float64)
    config, rng = self.config, np.random.default_rng(key.integer())
    network = self._source.network
    if network is None:
      network = _trained_copy(self.network, x, y, config.relevance_steps, rng)
    rows = rng.permutation(len(x))[: config.relevance_examples]
    return relevance.paper_relevance(
      network,
      x[rows],
      None,  # the code explains the predicted class
      len(x),
      config.dp_epsilon_relevance,
      key.child("noise"),
      config.relevance_form,
      config.relevance_stabiliser,
    )

  # Training.

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """Adam, as in the released code."""
    return tf.keras.optimizers.Adam(self.config.learning_rate)

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Makes room for the draws; they are made when the session begins."""
    self.optimizer.build(self.network.trainable_variables)
    self.run_state = _AdLMState(np.ones(shape), self._parts.last.kernel.shape)

  def begin_session(self) -> None:
    """The first session makes the draws that are made once."""
    state = self.run_state
    if not int(state.drawn):
      state.input_noise.assign(self.input_noise(state.seed(_INPUT_STREAM)))
      noise = _UNIT.sample(state.label_noise.shape, state.seed(_LABEL_STREAM))
      state.label_noise.assign(self.label_scale * noise)
      state.drawn.assign(1)

  def input_noise(self, seed: tf.Tensor) -> tf.Tensor:
    """Lap(Delta / (beta_j dp_epsilon_features)) / m, for a whole batch."""
    factors = self.run_state.factors
    return self.input_scale / factors * _UNIT.sample(factors.shape, seed)

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """One step of Adam on the perturbed objective."""
    x, y = batch
    checks.require_batch_size(x, self.config.batch_size)
    state, clip = self.run_state, self.config.input_clip
    noise = state.input_noise
    if self.config.noise == "per_step":
      noise = self.input_noise(state.seed(_STEP_STREAM))
    x_bar = tf.clip_by_value(x + noise, -clip, clip)
    variables = self.network.trainable_variables
    with tf.GradientTape() as tape:
      logits = self.network(x_bar, training=True)
      loss = tf.reduce_mean(losses.taylor_cross_entropy(logits, y))
      total = loss + losses.label_noise_term(
        state.label_noise, self._parts.last.kernel, self.config.label_noise
      )
      total = tf.add_n([total, *self.network.losses])
    update = self.outlet.without_noise(tape.gradient(total, variables))
    self.apply(update, variables)
    state.step.assign_add(1)
    predicted = tf.argmax(logits, axis=-1, output_type=y.dtype)
    return {
      "nonprivate/loss": loss,
      "nonprivate/accuracy": tf.reduce_mean(
        tf.cast(predicted == y, tf.float32)
      ),
    }

  # Guarantees and the run.

  def statement(self) -> privacy.PrivacyStatement:
    """Claimed: the sum of the three budgets; proven: none."""
    config = self.config
    source = self._run_record.get("relevance", self._source.kind)
    last = _ONCE_CAVEAT
    if config.noise == "per_step":
      steps = self._run_record.get("steps", config.steps)
      composed = config.claimed_dp_epsilon + (
        (steps - 1) * config.dp_epsilon_features
      )
      last = (
        "Input noise is drawn anew in every step and averages out: by the"
        f" paper's own argument {steps} steps compose to dp_epsilon="
        f"{privacy.rounded_up(composed)}."
      )
    return privacy.PrivacyStatement(
      claimed=privacy.Budget(config.claimed_dp_epsilon, 0.0),
      proven=None,
      neighbouring="replace_one",
      sampler="fixed",
      caveats=(_RELEVANCE_CAVEATS[source], *_CAVEATS, last),
    )

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """What the claim depends on."""
    return {
      "variant": self.config.variant,
      "noise": self.config.noise,
      "dp_epsilon_relevance": self.config.dp_epsilon_relevance,
      "input_scale": self.input_scale,
      "label_scale": self.label_scale,
      "sampler": plan.sampler.describe(),
    }

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes steps, sessions and where the relevance map came from."""
    self._run_record.update(
      steps=steps, sessions=sessions, relevance=self._source.kind
    )

  def state_variables(self) -> list[tf.Variable]:
    """Weights, draws and optimizer."""
    return [*super().state_variables(), *self.run_state.variables()]


def require_map(found: np.ndarray, shape: Sequence[int]) -> None:
  """Refuses a map that is not of the shape of one input."""
  if found.shape != tuple(shape) or not np.isfinite(found).all():
    raise ValueError(
      f"Expected a finite relevance map of shape {tuple(shape)}, that of one"
      f" input, received shape {found.shape}."
    )


def _trained_copy(network, x, y, steps, rng) -> tf.keras.Model:
  """A copy of the network, trained by Adam on the data as they are."""
  copy = tf.keras.models.clone_model(network)
  copy.set_weights(network.get_weights())
  optimizer = tf.keras.optimizers.Adam(1e-3)

  @tf.function
  def step(images, labels):
    with tf.GradientTape() as tape:
      logits = copy(images, training=False)
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      )
    gradients = tape.gradient(loss, copy.trainable_variables)
    optimizer.apply_gradients(zip(gradients, copy.trainable_variables))

  size = min(_RELEVANCE_BATCH, len(x))
  for _ in range(steps):
    rows = rng.choice(len(x), size, replace=False)
    step(tf.constant(x[rows], tf.float32), tf.constant(y[rows], tf.int64))
  return copy


def _feature_map(network: tf.keras.Model, first) -> tuple[int, ...]:
  """The feature map that AdLM's constants count: at half resolution.

  The output of the first layer; after the pooling that follows it, if it is a
  convolution of stride 1, as in AdLM's own MNIST network.
  """
  shape = tuple(first.output_shape[1:])
  if math.prod(getattr(first, "strides", (0,))) != 1:
    return shape
  for layer in network.layers[network.layers.index(first) + 1 :]:
    if layer.weights:
      return shape
    if "Pooling" in type(layer).__name__:
      return tuple(layer.output_shape[1:])
  return shape
