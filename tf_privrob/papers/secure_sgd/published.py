"""SecureSGD (Phan et al. 2019), as published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import data
from tf_privrob import mechanisms
from tf_privrob import privacy
from tf_privrob import randomness
from tf_privrob.mechanisms import heterogeneous
from tf_privrob.methods import checks
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import hidden_noise
from tf_privrob.methods import identity
from tf_privrob.methods import plan as training_plan
from tf_privrob.papers.secure_sgd import config as secure_sgd_config
from tf_privrob.papers.secure_sgd import released as secure_sgd_released
from tf_privrob.papers.secure_sgd import sizes as secure_sgd

_UNIT = mechanisms.GaussianMechanism(1.0, 1.0)
_REDISTRIBUTION_CAVEAT = (
  "The redistribution vector is computed from raw training data, after a"
  " throw-away training on them; nothing accounts for it."
)
_RELEASED_CAVEATS = (
  "The mean gradient of a batch is clipped, not each example's: one example can"
  " move it by two clip norms, and the noise is that of one clip norm over the"
  " batch size.",
  "Biases are not clipped: nothing bounds what one example does to them.",
  "Every tensor is clipped to the full norm and is a release of its own; the"
  " accountant counts one for all.",
  "Batches are shuffled epochs; the accountant assumes independent sampling.",
)
_HISTORY_CAVEAT = (
  "The gradient noise is that of the {history} code, which takes a variance for"
  " a standard deviation: {stddev:.3g}, where the accountant assumes"
  " {needed:.3g} on a mean gradient."
)


@tf.keras.saving.register_keras_serializable("tf_privrob")
class SecureSGD(hidden_noise.HiddenNoise, dp_sgd.DPSGD):
  """Trains under one draw of noise at h, with a noisy gradient.

  With h the first hidden layer before its activation, A the attack bound and
  (e, d) = (robust_dp_epsilon, robust_dp_delta), all three of the settings'
  `robustness`, every example of every step and every prediction sees

    h + A (noise_E + noise_H) / 2,   noise_E ~ N(0, s_E^2),
    noise_H ~ N(0, s_H^2 r)  (released code: standard deviation s_H r),

  with s_E and s_H from `mechanisms.extended_stddev` for the sensitivities 1 and
  Delta_HGM. Both are drawn once. r is |mean sign(dL/dh)| over raw training data
  after a throw-away training, or a public vector that is given.

  Guarantee: in the variant "paper" with a public r, that of DP-SGD: the draw at
  h does not depend on the data. Otherwise none is proven; see the caveats of
  `privacy_statement()`. `certifier()` has the code's sizes, claimed; what can
  be proven of the same noise is `proven_certifier()`. For guarantees by design
  see `SoundSecureSGD`.

  Args:
    network: Keras classifier that begins with Conv2D or Dense, such as
      `models.secure_sgd_mnist`. Only its trainable layers are trained.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    redistribution: a public r of the shape of h, instead of one from the data;
      its sum is the settings' `total`.
    **kwargs: Keras' own.
  """

  config_class = secure_sgd_config.SecureSGDConfig

  def __init__(
    self,
    network: tf.keras.Model,
    config: secure_sgd_config.SecureSGDConfig | None = None,
    record: dict[str, Any] | None = None,
    redistribution: np.ndarray | None = None,
    **kwargs,
  ):
    super().__init__(network, config, record, **kwargs)
    shape = self.hidden_noise_shape
    total = self.config.redistribution.total
    self._given = _Given(redistribution, total, shape)
    self.redistribution = self.add_weight(
      "redistribution", shape, initializer="ones", trainable=False
    )
    self.fixed_noise = self.add_weight(
      "fixed_noise", [1, *shape], initializer="zeros", trainable=False
    )

  # The network under its draw.

  def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Logits under the draw of training."""
    if not hasattr(self, "fixed_noise"):  # while the base class builds
      return super().call(inputs, training=training)
    training = bool(training)
    hidden = self._place.before(tf.convert_to_tensor(inputs), training)
    return self._place.after(hidden + self.fixed_noise, training)

  def logits_with_noise(
    self,
    x: tf.Tensor,
    input_noise: tf.Tensor | None = None,
    hidden_noise: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """Logits at inference, with further noise on top of the fixed draw."""
    fixed = tf.convert_to_tensor(self.fixed_noise)
    total = fixed if hidden_noise is None else fixed + hidden_noise
    return super().logits_with_noise(x, input_noise, total)

  def hidden_values(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns h under the draw of training, and a bound on its error."""
    hidden, error = super().hidden_values(x)
    hidden = hidden + self.fixed_noise.numpy()
    return hidden, error + 2.0**-52 * np.abs(hidden)

  # The noise at h.

  def given(self) -> dict[str, Any]:
    """A public r."""
    return {"redistribution": identity.public_hash(self._given.redistribution)}

  def begin(self, x, y, value_range) -> None:
    """Measures r and Delta_HGM, then makes the draw at h."""
    given = self._given.redistribution
    if given is not None:
      spread, kernel = given, hidden_noise.first_kernel(self._place).numpy()
      sensitivity = heterogeneous.claimed_sensitivity(kernel, spread)
    else:
      found, _ = self.outlet.once(
        "redistribution",
        lambda key: secure_sgd_released.measure(
          self.network, self.config, x, y, key
        ),
      )
      spread = found[:-1].reshape(self.hidden_noise_shape)
      sensitivity = float(found[-1])
    config = self.config
    robustness = config.robustness
    budget = robustness.robust_dp_epsilon, robustness.robust_dp_delta
    self._run_record["redistribution"] = self._given.kind
    self._run_record["stddevs"] = [
      config.hidden_stddev(mechanisms.extended_stddev(size, *budget))
      for size in (1.0, sensitivity)
    ]
    self.redistribution.assign(spread)
    key = randomness.Key.of(config.seed).child("fixed noise at h")
    self.fixed_noise.assign(self.draw(key.stateless_seed(), 2.0))

  @property
  def _stddevs(self) -> tuple[float, tf.Tensor]:
    """Of noise_E, and of noise_H at every hidden unit."""
    if "stddevs" not in self._run_record:
      raise ValueError("Expected a trained model. Call fit first.")
    first, second = self._run_record["stddevs"]
    spread = tf.convert_to_tensor(self.redistribution)
    if self.config.variant == "paper":
      spread = tf.sqrt(spread)
    return first, second * spread

  def draw(self, seed, divisor: float, count: int = 1) -> tf.Tensor:
    """`count` draws of A (noise_E + noise_H) / divisor: 2 fixed, 4 fresh."""
    fold_in = randomness.fold_in
    seed = mechanisms.stateless_seed(seed)
    noises = [
      stddev
      * _UNIT.sample([count, *self.hidden_noise_shape], fold_in(seed, number))
      for number, stddev in enumerate(self._stddevs)
    ]
    bound = self.config.robustness.attack_norm_bound
    return bound / divisor * tf.add_n(noises)

  # Training.

  @property
  def _released(self) -> bool:
    return self.config.variant == "released_code"

  @classmethod
  def has_fixed_batches(cls, config) -> bool:
    """As the released code has them; the paper samples."""
    return config.variant == "released_code"

  def plan(self, num_examples: int, input_shape: Sequence[int] | None = None):
    """Poisson batches ("paper") or shuffled ones, while the budget lasts."""
    if not self._released:
      return super().plan(num_examples, input_shape)
    config = self.config
    sampler = data.ShuffleSampler(
      num_examples, config.batch_size, config.batch_size, drop_last=True
    )
    limit = privacy.max_steps(
      config.dp_epsilon,
      config.dp_delta,
      config.noise_multiplier,
      config.batch_size / num_examples,
      "rdp",
    )
    wanted = max(1, round(config.epochs * num_examples / config.batch_size))
    if limit < 1:
      raise ValueError(
        f"Expected a budget for at least one step, but dp_epsilon="
        f"{config.dp_epsilon} with noise_multiplier={config.noise_multiplier}"
        " allows none even by the code's accountant. Raise either."
      )
    return training_plan.FixedPlan(
      sampler, min(wanted, limit), sampler.steps_per_epoch
    )

  def prepare(self, plan, shape, value_range, num_classes) -> None:
    """DP-SGD's, or no more than counters."""
    if not self._released:
      super().prepare(plan, shape, value_range, num_classes)
      return
    self.settle_context(plan, value_range)

  def training_logits(self, images: tf.Tensor, seed) -> tf.Tensor:
    """Logits under the one draw, the same for every example and step."""
    del seed
    return self(images, training=True)

  def train_step(self, batch) -> dict[str, tf.Tensor]:
    """One step; the released code's clips and noises a mean gradient."""
    if not self._released:
      return super().train_step(batch)
    images, labels = (part[0] for part in batch[:2])  # one chunk a batch
    checks.require_batch_size(images, self.config.batch_size)
    variables = self.network.trainable_variables
    with tf.GradientTape() as tape:
      losses, metrics = self.example_losses((images, labels), seed=None)
      loss = tf.reduce_mean(losses)
    clipped = secure_sgd_released.clip(
      tape.gradient(loss, variables), self.config.l2_clip_norm
    )
    # Nothing bounds what one example does to the biases.
    noisy = self.outlet.gaussian(clipped, self.config.gradient_stddev, math.inf)
    self.apply(noisy, variables)
    self.run_state.step.assign_add(1)
    return {
      "nonprivate/loss": loss,
      "nonprivate/accuracy": tf.reduce_mean(
        tf.cast(metrics["correct"], tf.float32)
      ),
    }

  # Guarantees and the run.

  @property
  def _public(self) -> bool:
    """Whether r was given and the step is DP-SGD's."""
    kind = self._run_record.get("redistribution", self._given.kind)
    return kind == "public" and not self._released

  def statement(self) -> privacy.PrivacyStatement:
    """Claimed by the moments accountant; proven where DP-SGD's proof holds."""
    config, record = self.config, self._run_record
    caveats = []
    if record.get("redistribution", self._given.kind) != "public":
      caveats.append(_REDISTRIBUTION_CAVEAT)
    if not self._released:
      found = super().statement()
      if self._public:
        return found
      return found.replace(
        proven=None, gaussian_mu=None, caveats=(*caveats, *found.caveats)
      )
    claimed = config.dp_epsilon
    if record.get("steps"):
      release = privacy.poisson_sgd(
        config.noise_multiplier, record["sampling_prob"], record["steps"]
      )
      claimed = privacy.dp_epsilon([release], config.dp_delta, "rdp")
    caveats += _RELEASED_CAVEATS
    if config.noise_history != "2021":
      needed = config.noise_multiplier * config.l2_clip_norm / config.batch_size
      caveats.append(
        _HISTORY_CAVEAT.format(
          history=config.noise_history,
          stddev=config.gradient_stddev,
          needed=needed,
        )
      )
    return privacy.PrivacyStatement(
      claimed=privacy.Budget(claimed, config.dp_delta),
      proven=None,
      sampler="shuffle",
      caveats=tuple(caveats),
    )

  def certifier(
    self, attack_eps: float | None = None
  ) -> secure_sgd.ClaimedSizes:
    """The code's sizes: claimed, not proven.

    Args:
      attack_eps: mu, the attack that sizes are compared with; None: A.
    """
    robustness = self.config.robustness
    return secure_sgd.ClaimedSizes(
      form=self.config.variant,
      attack_norm_bound=robustness.attack_norm_bound,
      dp_epsilon=robustness.robust_dp_epsilon,
      dp_delta=robustness.claimed_dp_delta,
      attack_eps=attack_eps,
      num_draws=robustness.num_draws,
    )

  def proven_certifier(
    self, norm: str = "l2", **settings
  ) -> certify.SingleLayerCertificate:
    """What can be proven of the same votes: the noise as really drawn."""
    return self.gaussian_certificate(self.fresh_hidden_stddev, norm, **settings)

  @property
  def fresh_hidden_stddev(self) -> np.ndarray:
    """Of the fresh noise of one vote, at every hidden unit."""
    first, second = self._stddevs
    return secure_sgd.inference_stddev(
      self.config.robustness.attack_norm_bound, first, second.numpy()
    )

  def noisy_logits(self, x: tf.Tensor, seed) -> tf.Tensor:
    """Logits of one vote an example, for attacks with EOT."""
    x = tf.convert_to_tensor(x)
    noise = tf.random.stateless_normal(
      [tf.shape(x)[0], *self.hidden_noise_shape],
      mechanisms.stateless_seed(seed),
    )
    first, second = self._stddevs
    bound = self.config.robustness.attack_norm_bound
    stddev = bound / 4 * tf.sqrt(first**2 + second**2)
    return self.logits_with_noise(x, hidden_noise=stddev * noise)

  def ledger_parameters(self, plan) -> dict[str, Any]:
    """What guarantee and claim depend on."""
    config = self.config
    found = {
      "variant": config.variant,
      "redistribution": self._run_record["redistribution"],
      "noise_multiplier": config.noise_multiplier,
      "l2_clip_norm": config.l2_clip_norm,
      "dp_delta": config.dp_delta,
      "sampler": plan.sampler.describe(),
    }
    if self._released:
      return {**found, "gradient_stddev": config.gradient_stddev}
    return {**found, **super().ledger_parameters(plan)}

  def spent_dp_epsilon(self, steps: int) -> float | None:
    """DP-SGD's figure where it is proven; else none is known."""
    return super().spent_dp_epsilon(steps) if self._public else None

  def count_steps(self, steps: int, sessions: int) -> None:
    """Notes what was released so far."""
    super().count_steps(steps, sessions)
    self._run_record["noise_multiplier"] = self.config.noise_multiplier

  def state_variables(self) -> list[tf.Variable]:
    """Adds r and the draw at h."""
    return [*super().state_variables(), self.redistribution, self.fixed_noise]


class _Given:
  """A redistribution vector from the caller; Keras must not track it."""

  def __init__(self, redistribution, total: float | None, shape):
    self.redistribution = None
    if redistribution is not None:
      found = heterogeneous.check_redistribution(redistribution, total)
      if found.shape != tuple(shape):
        raise ValueError(
          f"Expected redistribution of shape {tuple(shape)}, that of the first"
          f" hidden layer, received {found.shape}."
        )
      self.redistribution = found

  @property
  def kind(self) -> str:
    """Where r comes from."""
    return "raw_data" if self.redistribution is None else "public"
