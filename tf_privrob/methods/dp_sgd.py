"""DP-SGD (Abadi et al. 2016) as a Keras model around any Keras network."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import Optional  # flags read these annotations on Python 3.9

import numpy as np
import tensorflow as tf

from tf_privrob import gradients
from tf_privrob import privacy
from tf_privrob import validate
from tf_privrob.methods import checks
from tf_privrob.methods import method
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.methods import plan as training_plan
from tf_privrob.methods import settings
from tf_privrob.methods import updates
from tf_privrob.methods.objectives import natural

_COPIES_STREAM = 1
_CHECKED_EXAMPLES, _CHECKED_ROWS = 3, 16


@dataclasses.dataclass(frozen=True)
class BudgetConfig(settings.SGDConfig):
  """Settings of DP-SGD, whatever its loss.

  Attributes:
    dp_epsilon: the budget of the whole run.
    dp_delta: with it; well below 1 / n.
    noise_multiplier: noise standard deviation over `l2_clip_norm`. None: the
      least that keeps all steps within the budget. If set, training stops
      before the step that would exceed the budget. 0 trains without privacy.
    l2_clip_norm: bound on each example's gradient, over all variables.
    sampler: "poisson" is what the headline figure is proven for; "shuffle" is
      accounted without amplification.
    engine: how per-example gradients are computed. None: the fastest.
    accountant: "pld" or "rdp", for calibration and the proven figure.
  """

  dp_epsilon: float = 3.0
  dp_delta: float = 1e-5
  noise_multiplier: Optional[float] = None
  l2_clip_norm: float = 1.0
  engine: Optional[str] = None
  accountant: str = "pld"

  def __post_init__(self):
    super().__post_init__()
    validate.positive(
      dp_epsilon=self.dp_epsilon, l2_clip_norm=self.l2_clip_norm
    )
    validate.open_probability(dp_delta=self.dp_delta)
    if self.noise_multiplier is not None:
      validate.non_negative(noise_multiplier=self.noise_multiplier)
    validate.one_of(("pld", "rdp"), accountant=self.accountant)
    if self.engine is not None:
      validate.one_of(gradients.ENGINES, engine=self.engine)

  @classmethod
  def presets(cls) -> dict[str, BudgetConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    return {
      "mnist_5k": cls(
        batch_size=512,
        epochs=40,
        learning_rate=2.0,
        l2_clip_norm=0.5,
        ema_decay=0.95,
      ),
      "mnist": cls(
        batch_size=2048,
        epochs=40,
        learning_rate=4.0,
        l2_clip_norm=0.5,
        ema_decay=0.95,
      ),
      "tutorial": cls(
        noise_multiplier=1.3,
        batch_size=250,
        epochs=15,
        learning_rate=0.25,
        l2_clip_norm=1.5,
      ),
    }


@dataclasses.dataclass(frozen=True)
class DPSGDConfig(BudgetConfig):
  """Settings of `DPSGD`.

  Attributes:
    objective: what a step minimises; its settings are a part of these.
  """

  objective: objective_lib.Objective = natural.NATURAL

  def __post_init__(self):
    super().__post_init__()
    objective_lib.require(self.objective, self.augmentation)
    if self.objective.mixes:
      raise ValueError(
        "Expected an objective that keeps the examples of a batch apart, so"
        " that each can be clipped on its own, received"
        f" {self.objective.mixes}."
      )
    if self.engine == "ghost" and self.objective.engine is not None:
      raise ValueError(
        "Expected engine=None, 'vectorized' or 'loop', received 'ghost':"
        f" {type(self.objective).__name__} uses weights outside their layers,"
        " where it cannot see them."
      )


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DPSGD(updates.ByObjective, method.Method):
  """Trains a network by noisy sums of clipped per-example gradients.

  One step (Abadi et al. 2016, Algorithm 1), on a Poisson sample B of the data:

    w <- optimizer(w, (sum_{i in B} min(1, C / |g_i|) g_i + N(0, z^2 C^2)) / b)

  with C = `l2_clip_norm`, z = `noise_multiplier` and the expected batch size b,
  a public constant.

  Guarantee: (dp_epsilon, dp_delta)-DP of the weights after every step, for
  neighbours that differ by one added or removed example; the figure of
  `privacy_statement()` accounts all planned steps, also of a training that was
  ended early. Training metrics called `nonprivate/...` are not covered.

  Args:
    network: any Keras classifier that returns logits, without batch
      normalisation.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    objective: in place of the one in the settings.
    **kwargs: Keras' own.

  Attributes:
    clipped_gradients: what clips and sums the gradients of a batch, with its
      sensitivity, which `prepare` makes.
  """

  config_class = DPSGDConfig
  clipped_gradients: gradients.ClippedGradients

  def refuse(self, network: tf.keras.Model) -> None:
    """Refuses layers that tie the examples of a batch together."""
    super().refuse(network)
    gradients.refuse_batch_normalization(network)
    _refuse_embeddings(network)

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """SGD or Adam with the config's schedule."""
    rate = updates.learning_rate(self.config, steps)
    return updates.optimizer_of(self.config, rate)

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Sampler, noise and steps."""
    shape = tuple(input_shape or checks.input_shape(self.network))
    return training_plan.make(self.config, num_examples, shape)

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Builds what `train_step` uses and checks that examples stand alone."""
    self.settle_context(plan, value_range)
    self.clipped_gradients = self._make_gradients(updates.compiles(self.config))
    rng = np.random.default_rng(0)
    images = rng.uniform(*value_range, (_CHECKED_EXAMPLES, *shape))
    labels = rng.integers(0, num_classes, _CHECKED_EXAMPLES)
    self.clipped_gradients.check(
      (tf.constant(images, tf.float32), tf.constant(labels, tf.int64)),
      sizes=(_CHECKED_ROWS,),
      rows=plan.sampler.physical_batch_size,
    )
    if self.planted is not None:
      self.clipped_gradients = self.planted.join(self.clipped_gradients)

  def _make_gradients(self, jit_compile: bool) -> gradients.ClippedGradients:
    """What sums the gradients of a batch."""
    return gradients.ClippedGradients(
      self.example_losses,
      self.network,
      self.config.l2_clip_norm,
      self.config.engine or self.objective.engine,
      jit_compile,
      most_rows=self.sampler.most_rows,
    )

  def may_end(self) -> str | None:
    """An operation in the pass of a batch; `prepare` has looked for it."""
    made = getattr(self, "clipped_gradients", None)
    return made and made.may_end

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """One logical step: clipped sum over all chunks, noise once, update."""
    images, labels, mask = batch
    state, plan = self.run_state, self.settled_plan
    total = self.clipped_gradients.over_chunks(
      (images, labels), mask, state.seed(_COPIES_STREAM)
    )
    variables = self.network.trainable_variables
    regularization = updates.regularization_gradients(self.network, variables)
    size = plan.sampler.expected_batch_size
    update = self._noisy_sum(total).map(
      lambda noisy: [
        tf.cast(g / size, r.dtype) + r for g, r in zip(noisy, regularization)
      ]
    )
    if self.planted is not None:
      self.clipped_gradients.note(
        state.step, update.tensors, size, regularization
      )
    self.apply(update, variables)
    self.after_update()
    state.step.assign_add(1)
    updates.average(state, variables, self.config.ema_decay)
    return self._step_metrics(total)

  def nonprivate_sum(self, images, labels, mask) -> list[tf.Tensor]:
    """The exact clipped sum of a logical batch: for audits and tests."""
    seed = self.run_state.seed(_COPIES_STREAM)
    return self.clipped_gradients.over_chunks(
      (images, labels), mask, seed
    ).gradients

  def _noisy_sum(self, total: gradients.ClippedSum) -> outlet_lib.Released:
    """The clipped sum of a logical batch with the noise of one step."""
    if self.settled_plan.noise_multiplier == 0:
      return self.outlet.without_noise(total.gradients)
    sensitivity = self.clipped_gradients.sensitivity("add_or_remove_one")
    stddev = self.settled_plan.noise_multiplier * sensitivity
    return self.outlet.gaussian(total.gradients, stddev, sensitivity)

  def _step_metrics(self, total: gradients.ClippedSum) -> dict[str, tf.Tensor]:
    """What a step shows of the private data, without any noise."""
    return updates.step_metrics(total)

  def statement(self) -> privacy.PrivacyStatement:
    """What the accountant says of the steps that the outlet counted."""
    record = self._run_record
    if not record.get("steps"):
      raise ValueError(
        "Expected a trained model: nothing was released yet. Call fit first."
      )
    return privacy.PrivacyStatement.for_dp_sgd(
      facts=self.run_facts,
      noise_multiplier=record["noise_multiplier"],
      sampling_prob=record["sampling_prob"],
      steps=record.get("steps_accounted", record["steps"]),
      dp_delta=self.accounted_dp_delta,
      sampler=record["sampler"],
      num_examples=record["num_examples"],
      epochs=record["participations"],
      accountant=self.config.accountant,
      extra_releases=self.extra_releases(),
    )

  @property
  def accounted_dp_delta(self) -> float:
    """At which the accountant states dp_epsilon."""
    return self.config.dp_delta

  def extra_releases(self) -> list[privacy.Release]:
    """What a subclass releases besides the gradients."""
    return []

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """All that the guarantee depends on."""
    return {
      "noise_multiplier": plan.noise_multiplier,
      "l2_clip_norm": self.config.l2_clip_norm,
      "dp_delta": self.config.dp_delta,
      "neighbouring": "add_or_remove_one",
      "sampler": plan.sampler.describe(),
    }

  def spent_dp_epsilon(self, steps: int) -> float:
    """The proven figure after `steps` steps, at the config's dp_delta."""
    return training_plan.dp_epsilon(self.config, self.settled_plan, steps)

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released so far, for the statement."""
    self._run_record.update(
      training_plan.record(self.settled_plan, steps, sessions)
    )


def _refuse_embeddings(network: tf.keras.Model) -> None:
  """Raises where a look-up would end the training for one example."""
  for layer in network.submodules:
    if isinstance(layer, tf.keras.layers.Embedding):
      raise ValueError(
        f"Expected no Embedding, received {layer.name!r}: its look-up raises"
        " where an index is outside of the vocabulary, so that one example"
        " decides whether the training ends. Use one-hot inputs and Dense."
      )
