"""What a training minimises: a loss of each example, and what it needs.

An objective is a frozen dataclass whose fields are its settings. `DPSGD` and
`Trainer` hold one in their settings and hand it the examples of a chunk; it
keeps nothing itself. What it may know of a run besides its own settings is in
`Context`.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import Callable

import tensorflow as tf

from tf_privrob import data
from tf_privrob import randomness
from tf_privrob import validate

_AUGMENTATION_STREAM, _ROWS_STREAM = 0, 1
_Losses = tuple[tf.Tensor, dict[str, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Copies:
  """How examples are copied: settings of the training.

  Attributes:
    kind: of augmentation.
    count: K, copies of an example.
    stddev: of the "noise" augmentation.
  """

  kind: str = "none"
  count: int = 1
  stddev: float = 0.25

  def of(self, images: tf.Tensor, seed) -> tf.Tensor:
    """K rows for each image, those of an image together."""
    repeated = tf.repeat(images, self.count, axis=0)
    return data.augment(repeated, self.kind, seed, self.stddev)

  def average(self, values: tf.Tensor) -> tf.Tensor:
    """From a value for each row to one for each image."""
    return tf.reduce_mean(tf.reshape(values, [-1, self.count]), axis=1)


@dataclasses.dataclass(frozen=True)
class Context:
  """What a loss may know of the training that it is part of.

  Nothing here depends on an example: what an example adds is a function of the
  example, the weights, its own seed and the step.

  Attributes:
    network: that is trained.
    copies: how examples are copied.
    value_range: of the inputs.
    steps: of the whole run.
    epochs: of the whole run.
    step: the number of the present step, a variable.
    step_seed: the seed of the present step, folded with the numbers of a
      stream: public draws that all examples share.
    logits: of rows, in training, with a seed for what a method draws inside
      the network.
  """

  network: tf.keras.Model
  copies: Copies
  value_range: tuple[float, float]
  steps: int
  epochs: float
  step: tf.Variable
  step_seed: Callable[..., tf.Tensor]
  logits: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

  def over_copies(self, row_losses, images, labels, seed) -> _Losses:
    """Losses of examples from those of their copies.

    Args:
      row_losses: from rows, their labels and a seed to losses and metrics.
      images: [B, ...].
      labels: [B].
      seed: of these examples.
    """
    fold_in, count = randomness.fold_in, self.copies.count
    rows = self.copies.of(images, fold_in(seed, _AUGMENTATION_STREAM))
    losses, metrics = row_losses(
      rows, tf.repeat(labels, count), fold_in(seed, _ROWS_STREAM)
    )
    return (
      self.copies.average(losses),
      {name: metric[::count] for name, metric in metrics.items()},
    )


class Objective:
  """Base of all objectives; a subclass is a frozen dataclass.

  It gives `row_losses`, or `example_losses` where copies of an example are not
  simply averaged. All terms of an example are one loss, so that `DPSGD` clips
  them as one gradient. A class of one's own is found again in model files if it
  is registered by `tf.keras.saving.register_keras_serializable`.
  """

  # What `DPSGD` takes if its settings name no engine. A loss that uses weights
  # outside of their layers needs "vectorized" or "loop".
  engine: str | None = None

  @property
  def mixes(self) -> str:
    """The setting by which examples of a batch see each other, and its remedy.

    Empty where none do. `DPSGD` refuses all others, and `Trainer` never cuts
    their batches into chunks.
    """
    return ""

  def check(self, network: tf.keras.Model) -> None:
    """Refuses networks that the loss is not made for."""

  def check_value_range(self, value_range: tuple[float, float]) -> None:
    """What it requires of the declared range of the inputs."""

  def check_copies(self, augmentation: str) -> None:
    """Refuses kinds of copies that the loss is not made for."""

  def example_losses(
    self, context: Context, images: tf.Tensor, labels: tf.Tensor, seed
  ) -> _Losses:
    """The loss of each example [B], averaged over its copies, and metrics."""

    def row_losses(rows, row_labels, row_seed):
      return self.row_losses(context, rows, row_labels, row_seed)

    return context.over_copies(row_losses, images, labels, seed)

  def row_losses(
    self, context: Context, rows: tf.Tensor, labels: tf.Tensor, seed
  ) -> _Losses:
    """A loss for each row, and metrics: "correct", "robust_correct", ..."""
    raise NotImplementedError

  def certifier(self, model, **settings: Any) -> Any:
    """The certificate that a model trained for it has of its own, if any."""
    del model, settings

  def get_config(self) -> dict[str, Any]:
    """Its settings, which Keras asks for where it registers a class."""
    return dataclasses.asdict(self)

  def scaled(self, factor: float) -> Objective:
    """For a run that is `factor` times as long: its moments come later."""
    del factor
    return self


def require(objective: Any, augmentation: str) -> None:
  """Refuses what is no objective, or one that does not take these copies."""
  validate.instance(Objective, objective=objective)
  objective.check_copies(augmentation)


def require_shifts(augmentation: str) -> None:
  """Refuses copies that leave the value range."""
  if augmentation == "noise":
    raise ValueError(
      "Expected augmentation='none' or shifts, received 'noise', which leaves"
      " the value range that attacks and bounds stay in."
    )


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """-log softmax(logits)[label], one value a row (CCS 2019, Eq. 3)."""
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Whether the largest logit is that of the label."""
  return tf.argmax(logits, axis=1, output_type=labels.dtype) == labels
