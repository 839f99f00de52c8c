"""SPSA, an attack without gradients, run by cleverhans."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_privrob import compat
from tf_privrob import validate
from tf_privrob.attacks import base
from tf_privrob.attacks import graphs
from tf_privrob.attacks import randomness


@dataclasses.dataclass(frozen=True, repr=False)
class SPSA(base.Attack):
  """Adam on gradients estimated from random differences (Uesato et al. 2018).

  Sees only logits, so it is not stopped by masked gradients; l_inf. Optimiser,
  loss and projection are those of `cleverhans.tf2.attacks.spsa`, put together
  here for two reasons: under Keras 2.15, cleverhans' Adam drops its learning
  rate and runs at 0.001 whatever was asked, and its draws are unseeded. The
  images of a batch are attacked one after another in one graph that has a seed
  of its own, so the same seed gives the same result and no global state is
  touched. An image stops as soon as it succeeds.

  Attributes:
    attack_eps: Radius in l_inf.
    value_range: Valid inputs.
    targeted: `y` holds the labels to reach.
    steps: Number of Adam steps.
    learning_rate: Learning rate of Adam.
    delta: Half the distance of the differences.
    samples: Forward passes per step; even.
  """

  attack_eps: float
  value_range: tuple[float, float] = (0.0, 1.0)
  targeted: bool = False
  steps: int = 100
  learning_rate: float = 0.01
  delta: float = 0.01
  samples: int = 128

  name = "spsa"
  norm = "linf"
  in_graph = False

  def __post_init__(self):
    validate.non_negative(attack_eps=self.attack_eps)
    validate.value_range(self.value_range)
    validate.boolean(targeted=self.targeted)
    validate.positive_int(steps=self.steps, samples=self.samples)
    validate.positive(learning_rate=self.learning_rate, delta=self.delta)
    if self.samples % 2:
      raise ValueError(
        f"Expected samples={self.samples} to be even: differences are mirrored."
      )

  def __call__(self, logits_fn, x, y, seed, attack_eps=None):
    """Runs the attack eagerly; see `Attack.__call__`."""
    x, y = base.eager_arrays(self, logits_fn, x, y)
    radius = self.attack_eps if attack_eps is None else float(attack_eps)
    seed = randomness.as_seed(seed)
    model = randomness.seeded(logits_fn)
    optimize = self._optimizer(lambda images: model(images, seed), radius)
    graph_seed = int(
      tf.random.stateless_uniform([], seed, 0, 2**31 - 1, tf.int32)
    )

    def run(images, labels):
      # The seed of this function's own graph, for cleverhans' stateful draws.
      tf.compat.v1.get_default_graph().seed = graph_seed
      return tf.map_fn(
        lambda pair: optimize(pair[0][None], pair[1][None])[0],
        (images, labels),
        fn_output_signature=tf.float32,
        parallel_iterations=1,
      )

    x_adv = graphs.Traced(run)(
      images=tf.constant(x, tf.float32), labels=tf.constant(y, tf.int64)
    )
    return tf.cast(x_adv, x.dtype)

  def _optimizer(self, model, radius):
    """Returns cleverhans' projected optimisation of one image."""
    spsa = compat.optional("cleverhans.tf2.attacks.spsa")
    low, high = self.value_range
    adam = spsa.SPSAAdam(
      lr=None, delta=self.delta, num_samples=self.samples, num_iters=1
    )
    adam.learning_rate = self.learning_rate
    sign = 1.0 if self.targeted else -1.0

    def loss(images, label):
      logits = model(images)
      return sign * spsa.margin_logit_loss(logits, label, logits.shape[-1])

    def optimize(image, label):
      return spsa.projected_optimization(
        loss,
        image,
        label,
        radius,
        self.steps,
        adam,
        clip_min=low,
        clip_max=high,
        early_stop_loss_threshold=0.0,
      )

    return optimize
