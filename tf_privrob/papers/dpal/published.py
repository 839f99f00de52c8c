"""DPAL / StoBatch (Phan et al. 2020), Algorithm 1, as published."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob import certify
from tf_privrob import data
from tf_privrob import layers
from tf_privrob import losses
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.methods import checks
from tf_privrob.methods import method
from tf_privrob.models import cuts as splitting
from tf_privrob.papers.dpal import autoencoder
from tf_privrob.papers.dpal import claimed_inference
from tf_privrob.papers.dpal import config as dpal_config
from tf_privrob.papers.dpal import fixed_batches
from tf_privrob.papers.dpal import functional
from tf_privrob.papers.dpal import sizes

_SIZE_STREAM, _ATTACK_STREAM, _AUGMENTATION_STREAM = 0, 1, 2
_CAVEATS = (
  "One noise draw is shared by all examples and all steps: differences between"
  " examples, and between steps, are not hidden at all (docs/soundness.md,"
  " Lemma 3).",
  "The label noise reaches the last kernel only; labels flow without noise into"
  " the gradients of all layers below (Lemma 6).",
  "Benign and adversarial batches may share examples over time, so parallel"
  " composition does not apply.",
)
_BATCH_CAVEAT = (
  "The network standardises by the batch: one example moves all others, and no"
  " sensitivity for one example holds."
)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class DPAL(fixed_batches.FixedBatches):
  """Trains on perturbed inputs, features and label coefficients.

  f(x) = g(a(x, theta_1), theta_2): the network's first layer becomes a
  `FunctionalMechanismAutoencoder`, trained on its Taylor loss (Eq. 8); the
  rest, g, is trained on the Taylor cross-entropy of benign and of ensemble
  adversarial examples (Eq. 9, 11). Three Laplace draws are made once and used
  in every step and at inference.

  Guarantee: none is proven. The paper claims (eps_1 + eps_2)-DP and radii
  kappa + phi; `privacy_statement()` and `certifier()` call them claimed. For
  guarantees that hold see `SoundDPAL`.

  Args:
    network: Keras classifier that begins with Conv2D or Dense and whose last
      hidden layer is bounded by 1, such as `models.dpal_mnist`; in the released
      code's variant `models.by_name("dpal_mnist_released", ...)`.
    config: The settings.
    record: Record of an earlier training; set when a saved model is loaded.
    **kwargs: Keras' own.
  """

  config_class = dpal_config.DPALConfig

  def __init__(
    self,
    network: tf.keras.Model,
    config: dpal_config.DPALConfig | None = None,
    record: dict[str, Any] | None = None,
    **kwargs,
  ):
    super().__init__(network, config, record, **kwargs)
    self._parts = splitting.split(network)
    self.noise = self._calibrated_noise()
    seeds = _noise_seeds(self.config.seed)
    released = self.config.variant == "released_code"
    self.autoencoder = autoencoder.FunctionalMechanismAutoencoder(
      self._parts.first,
      self.noise.input_scale,
      self.noise.hidden_scale,
      form=self.config.variant,
      input_clip=self.config.input_clip,
      copied_channels=self.config.copied_channels,
      seed=seeds[0],
    )
    self.label_noise = self.add_weight(
      "label_noise",
      self._parts.last.kernel.shape,
      initializer=lambda shape, dtype=None: mechanisms.LaplaceMechanism(
        self.noise.label_scale, 1.0
      ).sample(shape, seeds[1]),
      trainable=False,
    )
    # The released code crafts adversarial examples under another draw.
    self.crafting_noise = layers.LaplaceNoise(
      self.noise.input_scale if released else 0.0,
      seed=seeds[2],
      copied_channels=self.config.copied_channels,
    )
    self._standardizations = [
      layer
      for layer in network.submodules
      if isinstance(layer, layers.BatchStandardization)
    ]
    self._normalizations = [
      layer
      for layer in network.submodules
      if isinstance(layer, tf.keras.layers.BatchNormalization)
    ]
    self(tf.zeros([1, *checks.input_shape(network)]))
    self.crafting_noise.build(self._first_shape())

  def _first_shape(self) -> tuple[int | None, ...]:
    return tuple(self._parts.first.input_shape)

  def _calibrated_noise(self) -> functional.FunctionalNoise:
    """Scales of the three draws for batches of m (Algorithm 1, line 3)."""
    first, config = self._parts.first, self.config
    weight_norm = None
    if config.variant == "released_code":
      # Of an initialisation that is then thrown away, as in the code.
      kernel = tf.keras.initializers.GlorotUniform(seed=0)(first.kernel.shape)
      matrix = tf.reshape(kernel, [-1, kernel.shape[-1]])
      weight_norm = float(np.linalg.norm(matrix.numpy(), 2))
    return functional.FunctionalNoise(
      functional.reconstruction_sensitivity(
        first.input_shape[1:],
        first.output_shape[1:],
        first.kernel.shape,
        config.sensitivity,
      ),
      functional.label_sensitivity(self._parts.last.kernel.shape[0]),
      config.batch_size,
      config.dp_epsilon_features,
      config.dp_epsilon_labels,
      weight_norm,
    )

  # The network f.

  def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Logits under the fixed draws of training."""
    return self._logits(inputs, training=training)

  def _logits(self, x, training=None, crafting=False, **noise) -> tf.Tensor:
    parts = self._parts
    x = x if parts.before is None else parts.before(x)
    x = self.crafting_noise(x) if crafting else x
    hidden = parts.first.activation(self.autoencoder(x, **noise))
    return parts.rest(hidden, training=training)

  @property
  def noisy_parts(self) -> list[tf.keras.Model]:
    """What a pass with noise runs, beside autoencoder and activation."""
    parts = [self.network, self._parts.before, self._parts.rest]
    return [part for part in parts if part is not None]

  @property
  def input_noise_shape(self) -> tuple[int, ...]:
    """The shape of one example's noise at the input: that of the input."""
    return checks.input_shape(self.network)

  @property
  def hidden_noise_shape(self) -> tuple[int, ...]:
    """The shape of one example's noise at the first hidden layer."""
    return tuple(self._parts.first.output_shape[1:])

  def logits_with_noise(
    self,
    x: tf.Tensor,
    input_noise: tf.Tensor | None = None,
    hidden_noise: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """Logits with further noise on top of the fixed draws (appendix J)."""
    if input_noise is not None and self._parts.before is not None:
      input_noise = self._parts.before(input_noise)
    return self._logits(
      x, training=False, input_noise=input_noise, hidden_noise=hidden_noise
    )

  def hidden_values(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns h under the fixed draws; nothing is known of its error."""
    x = tf.convert_to_tensor(x)
    x = x if self._parts.before is None else self._parts.before(x)
    hidden = self.autoencoder(x).numpy().astype(np.float64)
    return hidden, np.full_like(hidden, np.inf)

  def logits_from_hidden(self, hidden: tf.Tensor) -> tf.Tensor:
    """Logits at inference from h with its fresh noise."""
    return self._parts.rest(
      self._parts.first.activation(hidden), training=False
    )

  def noisy_logits(self, x: tf.Tensor, seed) -> tf.Tensor:
    """One draw of verified inference (Eq. 14), for attacks with EOT.

    The log of the product of two softmax passes: fresh noise on x in one, on h
    in the other, psi times smaller than in training.
    """
    fold_in = randomness.fold_in
    seed = mechanisms.stateless_seed(seed)

    def draw(scale, shape, stream):
      psi = self.config.inference.psi
      mechanism = mechanisms.LaplaceMechanism(scale / psi, 1.0)
      return mechanism.sample(
        tf.concat([tf.shape(x)[:1], shape], 0), fold_in(seed, stream)
      )

    on_input = draw(self.noise.input_scale, self.input_noise_shape, 0)
    on_hidden = draw(self.noise.hidden_scale, self.hidden_noise_shape, 1)
    return tf.nn.log_softmax(
      self.logits_with_noise(x, input_noise=on_input)
    ) + tf.nn.log_softmax(self.logits_with_noise(x, hidden_noise=on_hidden))

  # Training.

  def make_optimizer(self, steps: int | None) -> tf.keras.optimizers.Optimizer:
    """The optimizer of the classifier."""
    if self.config.optimizer == "adam":
      return tf.keras.optimizers.Adam(self.config.learning_rate)
    return tf.keras.optimizers.SGD(self.config.learning_rate)

  def make_sampler(self, num_examples: int) -> data.FixedBatchSampler:
    """Pairs of batches of exactly m."""
    return data.FixedBatchSampler(
      num_examples, self.config.batch_size, self.config.batch_order
    )

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """Builds attacks, optimizers and counters."""
    self.run_state = method.RunState()
    self.feature_optimizer = tf.keras.optimizers.Adam(
      self.config.feature_learning_rate
    )
    self.feature_optimizer.build(self._parts.first.trainable_variables)
    self.optimizer.build(self._parts.rest.trainable_variables)
    paper = self.config.variant == "paper"
    self.training_attacks = [
      attacks.by_name(
        name,
        value_range=value_range,
        attack_eps=self.config.max_attack_eps,
        steps=self.config.attack_steps,
        step_factor=1.0,  # mu_t / T_mu, of PGD as well (Eq. 10)
        label_source="iterate" if paper else "model",  # y_{f,t}
      )
      for name in dpal_config.ATTACKS
    ]

  @property
  def optimized_variables(self) -> Sequence[tf.Variable]:
    """All behind the first layer, which has an optimizer of its own."""
    return self._parts.rest.trainable_variables

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """Lines 5-15 of Algorithm 1."""
    x, y, sources, adversarial_labels = batch
    checks.require_batch_size(x, self.config.batch_size)
    x, sources = (
      data.augment(
        images,
        self.config.augmentation,
        self.run_state.seed(_AUGMENTATION_STREAM, number),
      )
      for number, images in enumerate((x, sources))
    )
    size, x_adv = self.craft(sources)
    reconstruction = self.train_features(x, x_adv)
    result = self.train_classifier(x, y, x_adv, adversarial_labels)
    if self._normalizations:
      self._training_logits(x, x_adv)  # statistics of the weights as they are
    self.run_state.step.assign_add(1)
    return {
      "nonprivate/reconstruction": reconstruction,
      "nonprivate/attack_eps": size,
      **result,
    }

  def craft(self, sources: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """mu_t and adversarial examples, a third by each attack (Eq. 10)."""
    uniform = tf.random.stateless_uniform([], self.run_state.seed(_SIZE_STREAM))
    size = self.config.max_attack_eps * uniform
    parts = tf.split(sources, len(self.training_attacks))
    with self._attacked_network() as logits_fn:
      crafted = [
        attack(
          logits_fn, part, None, self.run_state.seed(_ATTACK_STREAM, i), size
        )
        for i, (attack, part) in enumerate(zip(self.training_attacks, parts))
      ]
    return size, tf.concat(crafted, axis=0)

  @contextlib.contextmanager
  def _attacked_network(self):
    """The network itself, or the released code's stand-in for it.

    The stand-in has no noise at h, another draw at x, and no standardisation.
    """
    if self.config.variant == "paper":
      yield self._logits
      return
    for layer in self._standardizations:
      layer.bypassed = True
    try:
      yield lambda x: self._logits(
        x, crafting=True, perturb_input=False, perturb_hidden=False
      )
    finally:
      for layer in self._standardizations:
        layer.bypassed = False

  @property
  def _noise_on_adversarial(self) -> bool:
    """Eq. 10 adds chi_1/m to adversarial examples; the code adds nothing."""
    return self.config.variant == "paper"

  def train_features(self, x, x_adv) -> tf.Tensor:
    """One step on the autoencoder's loss (Eq. 8) over both batches."""
    before = self._parts.before or tf.identity
    variables = self._parts.first.trainable_variables

    def loss(images, perturbed):
      x_bar, decoded = self.autoencoder.autoencode(before(images), perturbed)
      return losses.taylor_reconstruction(decoded, x_bar, self.config.variant)

    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(variables)
      total = tf.reduce_mean(loss(x, True)) + tf.reduce_mean(
        loss(x_adv, self._noise_on_adversarial)
      )
    update = self.outlet.without_noise(tape.gradient(total, variables))
    self.apply(update, variables, self.feature_optimizer)
    return total

  def train_classifier(self, x, y, x_adv, y_adv) -> dict[str, tf.Tensor]:
    """One step on the adversarial objective (Eq. 9) with label noise."""
    config, variables = self.config, self._parts.rest.trainable_variables
    weight = config.adversarial_weight
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(variables)
      logits, logits_adv = self._training_logits(x, x_adv)
      benign = losses.taylor_cross_entropy(logits, y, config.label_loss)
      adversarial = losses.taylor_cross_entropy(
        logits_adv, y_adv, config.label_loss
      )
      loss = tf.reduce_mean(benign) + weight * tf.reduce_mean(adversarial)
      loss /= 1 + weight
      if config.label_noise == "released_cifar10":
        loss /= logits.shape[-1]  # the code takes the mean over classes, too
      # The benign and the adversarial term carry the same draw: (1 + xi) of it,
      # divided by (1 + xi).
      total = loss + losses.label_noise_term(
        self.label_noise, self._parts.last.kernel, config.label_noise
      )
      total += config.weight_decay * tf.nn.l2_loss(self._penultimate_kernel())
      total = tf.add_n([total, *self.network.losses])
    update = self.outlet.rest_without_noise(tape.gradient(total, variables))
    self.apply(update, variables)
    return {
      "nonprivate/loss": loss,
      "nonprivate/accuracy": _accuracy(logits, y),
      "nonprivate/adversarial_accuracy": _accuracy(logits_adv, y_adv),
    }

  def _training_logits(self, x, x_adv) -> tuple[tf.Tensor, tf.Tensor]:
    """The logits of both batches, in one pass, or as in the code in two.

    Batch statistics, where the network has them, are then those of both
    batches, which are also what inference meets; the code has one set each.
    """
    if self.config.variant == "paper":
      logits = self._logits(tf.concat([x, x_adv], 0), training=True)
      return tuple(tf.split(logits, 2))
    return self._logits(x, training=True), self._logits(
      x_adv, training=True, perturb_input=self._noise_on_adversarial
    )

  def _penultimate_kernel(self) -> tf.Variable:
    """The last hidden layer's kernel, which the CIFAR-10 code regularises."""
    dense = [
      layer
      for layer in self._parts.rest.layers
      if isinstance(layer, tf.keras.layers.Dense)
    ]
    return (dense[-2] if len(dense) > 1 else dense[-1]).kernel

  # Guarantees and the run.

  def statement(self) -> privacy.PrivacyStatement:
    """Claimed eps_1 + eps_2; proven: none."""
    caveats = list(_CAVEATS)
    released = self.config.variant == "released_code"
    if self._standardizations or self._normalizations or released:
      caveats.append(_BATCH_CAVEAT)
    return privacy.PrivacyStatement(
      claimed=privacy.Budget(self.config.claimed_dp_epsilon, 0.0),
      proven=None,
      neighbouring="replace_one",
      sampler="fixed",
      caveats=tuple(caveats),
    )

  def certifier(
    self,
    attack_eps: float | None = None,
    composition: str | None = None,
    rows: str | None = None,
  ) -> claimed_inference.ClaimedInference:
    """Verified inference (Eq. 13-16): its radii are claimed, not proven.

    Args:
      attack_eps: mu, which the paper's sensitivity of x contains; None: a
        radius is the largest mu for which Algorithm 1 says isRobust.
      composition: Composition of kappa and phi; None: the variant's own.
      rows: What a row of theta_1 is, see `sizes.row_norm`; None: the config's.
    """
    released = self.config.variant == "released_code"
    composition = composition or ("released_v1" if released else "paper")
    inference = self.config.inference
    bound = "clopper_pearson" if released else "hoeffding"
    return claimed_inference.ClaimedInference(
      self.noise.input_scale,
      _positions(self.input_noise_shape),
      self._hidden_sensitivity(composition, rows or inference.rows),
      psi=inference.psi,
      num_draws=inference.num_draws,
      confidence=inference.confidence,
      bound=inference.bound or bound,
      composition=composition,
      attack_eps=attack_eps,
      inputs_together=bool(self._standardizations),
    )

  def _hidden_sensitivity(self, composition: str, rows: str) -> float:
    """Delta_r^h, of the paper or as the released formulas have it."""
    first, units = self._parts.first, math.prod(self.hidden_noise_shape)
    if self.config.sensitivity == "released_code":
      units = _positions(self.hidden_noise_shape)  # beta of one feature map
    if composition.startswith("released"):
      return sizes.released_hidden_sensitivity(first.kernel.numpy(), units)
    return sizes.paper_hidden_sensitivity(first, units, rows)

  def proven_certifier(self, norm: str = "linf", **settings):
    """What can be proven: one Laplace layer, at the input, as really drawn."""
    scale = self.noise.input_scale / self.config.inference.psi
    return certify.SingleLayerCertificate(scale, norm=norm, **settings)

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """What the claim depends on."""
    return {
      "variant": self.config.variant,
      "input_scale": self.noise.input_scale,
      "hidden_scale": self.noise.hidden_scale,
      "label_scale": self.noise.label_scale,
      "sampler": plan.sampler.describe(),
    }

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes steps and sessions."""
    self._run_record.update(steps=steps, sessions=sessions)

  def state_variables(self) -> list[tf.Variable]:
    """Weights, the three draws and both optimizers."""
    found = [
      *self.network.variables,
      *self.autoencoder.variables,
      *self.crafting_noise.variables,
      self.label_noise,
      *self.optimizer.variables,
      *self.feature_optimizer.variables,
    ]
    return list({id(variable): variable for variable in found}.values())


def _accuracy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
  predicted = tf.argmax(logits, axis=-1, output_type=labels.dtype)
  return tf.reduce_mean(tf.cast(predicted == labels, tf.float32))


def _positions(shape: Sequence[int]) -> int:
  """Pixels of an image or of a feature map; all values of a vector."""
  return math.prod(shape[:-1]) if len(shape) > 1 else shape[0]


def _noise_seeds(seed: int | None) -> list[int]:
  """Seeds of the draws: from the run's seed or the operating system."""
  key = randomness.Key.of(seed).child("fixed noise")
  return [key.child(number).integer(62) for number in range(3)]
