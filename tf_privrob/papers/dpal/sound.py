"""The sound heir of DPAL: private moments, then adversarial DP-SGD."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import layers
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.methods import checks
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import plan as training_plan
from tf_privrob.models import cuts as splitting
from tf_privrob.papers.dpal import moments as moments_lib

_SIZE_STREAM = 2  # of the step's seed
_ATTACK_STREAM, _COPIES_STREAM = 1, 2  # of the rows' seed


@dataclasses.dataclass(frozen=True)
class Moments:
  """Settings of the patch moments of `SoundDPAL`, and of the filters.

  Attributes:
    mechanism: "gaussian", or "laplace" for a release that is pure DP.
    dp_epsilon: of the release of the moments on its own.
    clip: bound on one image's part of the moments.
    features: "pca", or "taylor", which minimises DPAL's own objective.
    whitening_floor: how far weak directions are scaled up; 1 hardly at all.
  """

  mechanism: str = "gaussian"
  dp_epsilon: float = 0.1
  clip: float = 3.0
  features: str = "pca"
  whitening_floor: float = 0.1

  def __post_init__(self):
    validate.one_of(moments_lib.MECHANISMS, mechanism=self.mechanism)
    validate.one_of(("pca", "taylor"), features=self.features)
    validate.positive(
      dp_epsilon=self.dp_epsilon,
      clip=self.clip,
      whitening_floor=self.whitening_floor,
    )


MOMENTS = Moments()


@dataclasses.dataclass(frozen=True)
class SoundDPALConfig(dp_sgd.BudgetConfig):
  """Settings of `SoundDPAL`; the budget covers moments and gradients.

  Attributes:
    moments: what the first layer is made of.
    adversarial_weight: xi of Eq. 9; 0 trains without adversarial examples.
    attack_steps: PGD steps of a training example.
    max_attack_eps: the attack's size is uniform below it, one draw per step.
  """

  moments: Moments = MOMENTS
  adversarial_weight: float = 1.0
  attack_steps: int = 2
  max_attack_eps: float = 0.3

  def __post_init__(self):
    super().__post_init__()
    validate.instance(Moments, moments=self.moments)
    validate.non_negative(
      adversarial_weight=self.adversarial_weight,
      max_attack_eps=self.max_attack_eps,
    )
    validate.positive_int(attack_steps=self.attack_steps)

  @property
  def variant(self) -> str:
    """Of DPAL."""
    return "sound"

  @classmethod
  def presets(cls) -> dict[str, SoundDPALConfig]:
    """Settings by name; `docs/notebook.md` has what they reached."""
    common = {
      "learning_rate": 4.0,
      "l2_clip_norm": 0.5,
      "ema_decay": 0.95,
      "augmentation": "noise",
      "augmentation_stddev": 0.5,
    }
    return {
      "mnist_sound": cls(batch_size=2048, epochs=20, **common),
      "mnist_5k_sound": cls(
        batch_size=512, epochs=20, **{**common, "learning_rate": 2.0}
      ),
    }


@tf.keras.saving.register_keras_serializable("tf_privrob")
class SoundDPAL(dp_sgd.DPSGD):
  """DPAL's idea with guarantees that hold.

  1. The autoencoder: the first layer's filters are the exact minimiser of
     DPAL's first-order objective over orthogonal filters, or the principal
     directions, computed from patch moments that are released ONCE with
     calibrated noise (`papers.PatchMoments`). The layer is then frozen:
     what follows from the released moments costs nothing.
  2. The classifier: DP-SGD on the rest. The loss of an example is

       (L(x + noise) + xi L(x_adv + noise)) / (1 + xi),

     with x_adv made by PGD from the example itself and the current weights.
     Both terms are one loss, hence one clipped gradient: adversarial training
     adds nothing to the cost.

  Guarantee: (dp_epsilon, dp_delta)-DP of the weights, add-or-remove-one, by
  composition of the moments with all steps. There is no batch normalisation.
  Certificates: smoothing (`certify.RandomizedSmoothing`) of the released model;
  noise in training only helps their size, they hold for any weights.

  Args:
    network: Keras classifier that begins with Conv2D or Dense and has no batch
      normalisation.
    config: The settings.
    record: Record of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  config_class = SoundDPALConfig

  def __init__(
    self,
    network: tf.keras.Model,
    config: SoundDPALConfig | None = None,
    record: dict[str, Any] | None = None,
    **kwargs,
  ):
    first = splitting.first_layer(network)
    _refuse_batch_statistics(network)
    first.trainable = False
    if not network.trainable_variables:
      raise ValueError(
        f"Expected a network with trainable layers besides the first, which is"
        f" set from moments, received {network.name!r} with none."
      )
    super().__init__(network, config, record, **kwargs)
    self._first = first
    self._own_layers = (first,)

  def check_data(self, x, y, value_range) -> None:
    """Refuses images that are smaller than a patch."""
    self.moment_query(value_range).check(x)

  def begin(self, x, y, value_range) -> None:
    """Releases the moments and sets the first layer from them."""
    settings, kernel = self.config.moments, self._first.kernel
    query = self.moment_query(value_range)
    moments, releases = self.outlet.once(
      "moments", lambda key: query.release(x, key), self._moment_settings()
    )
    self._run_record["moments"] = {
      "noise_multiplier": query.noise.noise_multiplier,
      "releases": releases,
    }
    filters = moments_lib.filters_from_moments(
      moments,
      kernel.shape[-1],
      value_range,
      settings.features,
      settings.whitening_floor,
      paired=self._first.activation is tf.keras.activations.relu,
    )
    kernel.assign(filters.kernel.reshape(kernel.shape))
    if self._first.use_bias:
      self._first.bias.assign(filters.bias)

  def moment_query(self, value_range=(0.0, 1.0)) -> moments_lib.PatchMoments:
    """The release of the moments; its cost does not depend on the range."""
    settings, kernel = self.config.moments, self._first.kernel
    convolution = len(kernel.shape) == 4
    return moments_lib.PatchMoments(
      tuple(kernel.shape[:2]) if convolution else None,
      tuple(self._first.strides) if convolution else (1, 1),
      tuple(value_range),
      settings.clip,
      settings.mechanism,
      settings.dp_epsilon,
      self.config.dp_delta,
    )

  def _moment_settings(self) -> dict[str, Any]:
    """What the cost of one release depends on."""
    return {
      "mechanism": self.config.moments.mechanism,
      "clip": self.config.moments.clip,
      "noise_multiplier": self.moment_query().noise.noise_multiplier,
    }

  def _moment_release(self) -> privacy.Release:
    """The release, as often as it was begun; once if it is still to come."""
    record = self._run_record.get("moments")
    if record is None:
      record = {**self._moment_settings(), "releases": 1}
    name = "patch moments"
    description = "sum of clipped second moments of patches, plus noise"
    if self.config.moments.mechanism == "laplace":
      return privacy.Release(
        name,
        dp_epsilon=1 / record["noise_multiplier"],
        count=record["releases"],
        description=description,
      )
    event = mechanisms.GaussianMechanism(1.0, record["noise_multiplier"])
    return privacy.Release(
      name, event.event(), count=record["releases"], description=description
    )

  def plan(
    self, num_examples: int, input_shape: Sequence[int] | None = None
  ) -> training_plan.TrainingPlan:
    """Calibrates the gradients' noise to what the moments have left over."""
    shape = tuple(input_shape or checks.input_shape(self.network))
    extra = (self._moment_release(),)
    return training_plan.make(self.config, num_examples, shape, extra)

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Builds the attack, then what DP-SGD needs."""
    self.attack = attacks.PGD(
      self.config.max_attack_eps,
      value_range=tuple(value_range),
      steps=self.config.attack_steps,
    )
    super().prepare(plan, shape, value_range, num_classes)

  def example_losses(self, batch, seed):
    """Clean and adversarial cross-entropy of each example, over K copies."""
    images, labels = batch
    config = self.config
    fold_in = randomness.fold_in
    terms, weights = [images], [1.0]
    if config.adversarial_weight:
      # One size a step: of the step's seed, whoever shares a chunk.
      size = config.max_attack_eps * tf.random.stateless_uniform(
        [], self.run_state.seed(_SIZE_STREAM)
      )
      terms.append(
        self.attack(
          self.network, images, labels, fold_in(seed, _ATTACK_STREAM), size
        )
      )
      weights.append(config.adversarial_weight)
    copies = config.augmentation_multiplicity
    count, rows = images.shape[0], len(terms) * copies
    # All rows of an example are neighbours, as `gradients` requires.
    inputs = tf.repeat(tf.stack(terms, axis=1), copies, axis=1)
    inputs = data.augment(
      tf.reshape(inputs, [count * rows, *images.shape[1:]]),
      config.augmentation,
      fold_in(seed, _COPIES_STREAM),
      config.augmentation_stddev,
    )
    logits = self.network(inputs, training=True)
    values = tf.nn.sparse_softmax_cross_entropy_with_logits(
      tf.repeat(labels, rows), logits
    )
    correct = tf.argmax(logits, 1, output_type=labels.dtype) == tf.repeat(
      labels, rows
    )
    shares = tf.repeat(tf.constant(weights) / sum(weights) / copies, copies)
    return (
      tf.linalg.matvec(tf.reshape(values, [count, rows]), shares),
      {"correct": tf.reshape(correct, [count, rows])[:, 0]},
    )

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """Adds the moments."""
    return {
      **super().ledger_parameters(plan),
      "moments": {**self._moment_settings(), **self._run_record["moments"]},
    }

  def certifier(self) -> certify.RandomizedSmoothing | None:
    """Smoothing with the noise of training; None if trained without noise."""
    if self.config.augmentation != "noise":
      return None
    return certify.RandomizedSmoothing(self.config.augmentation_stddev)

  def extra_releases(self) -> list[privacy.Release]:
    """The moments."""
    return [self._moment_release()]


def _refuse_batch_statistics(network: tf.keras.Model) -> None:
  for layer in network.submodules:
    if isinstance(layer, layers.BatchStandardization):
      raise ValueError(
        f"Expected per-example layers, received BatchStandardization"
        f" {layer.name!r}, which ties the examples of a batch together. Use the"
        " network without it, such as models.dpal_mnist."
      )
