"""A denoiser in front of a classifier that stays as it is."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import data
from tf_privrob import mechanisms
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob import validate
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import identity
from tf_privrob.methods import objective as objective_lib
from tf_privrob.methods.objectives import natural

PUBLIC_CLASSIFIER = privacy.Assumption(
  "the frozen classifier and the weights that the training starts from do not"
  " depend on the private data",
  "the caller",
)
DISJOINT_CLASSIFIER = privacy.Assumption(
  "the classifier's training data, declared public, share no example with the"
  " private ones (compared by hash)",
  "tf_privrob.data.require_disjoint",
)
NOT_PRIVATE = (
  "Trained without noise on the gradients: nothing is known to protect the"
  " training examples. The noise at the input belongs to each example and is"
  " gone with it."
)
Range = tuple[float, float]


class Denoising:
  """What TransDenoiser and its heirs share: h(g(x + noise)).

  A part of a method, which stands before the class of the training. g is the
  denoiser, the only part that is trained, h a classifier that is copied and
  frozen. Both are one network, which is what is saved.

  Args:
    network: the denoiser; or, without `classifier`, the network that
      `models.denoised_classifier` made of both.
    config: the settings.
    record: of an earlier training; set when a saved model is loaded.
    classifier: a Keras classifier or the path of one.
    classifier_range: the value range of the inputs it was trained on; data of
      another range are refused.
    public_data: the inputs that the classifier was trained on. `fit` refuses
      private data that have an example in common with them; a classifier from
      a file may tell by itself (`models.trained_on`).
    public_classifier: why its training data are not private, in words.
    **kwargs: Keras' own.
  """

  def __init__(
    self,
    network: tf.keras.Model,
    config: Any = None,
    record: dict[str, Any] | None = None,
    classifier: tf.keras.Model | str | os.PathLike | None = None,
    classifier_range: Range | None = None,
    public_data: np.ndarray | None = None,
    public_classifier: str | None = None,
    **kwargs,
  ):
    seen = None
    if classifier is not None:
      if not isinstance(classifier, tf.keras.Model):
        seen = models.trained_on(classifier)
      network = models.denoised_classifier(
        network, models.load_classifier(classifier)
      )
    super().__init__(network, config, record, **kwargs)
    self.denoiser = models.denoiser_of(network)
    self.classifier = models.classifier_of(network)
    if classifier_range is not None:
      validate.value_range(classifier_range)
      self._run_record["classifier_range"] = list(classifier_range)
    if public_classifier is not None:
      self._run_record["public_classifier"] = public_classifier
    self._public = _Public(public_data, seen)

  @property
  def objective(self) -> objective_lib.Objective:
    """None of others': the loss is this method's own."""
    return natural.NATURAL

  def check_value_range(self, value_range: Range) -> None:
    """Refuses data of another range than the classifier's."""
    expected = self._run_record.get("classifier_range")
    if expected is not None and tuple(expected) != tuple(value_range):
      raise ValueError(
        f"Expected inputs in {tuple(expected)}, the value range that the"
        f" classifier was trained on, received value_range={value_range}."
        " Rescale the data set (Dataset.rescaled), or train the classifier on"
        " this range."
      )

  def check_data(self, x, y, value_range) -> None:
    """Compares the private data with those declared public."""
    if self._public.data is not None:
      data.require_disjoint(self._public.data, x)
      self._run_record["public_data"] = "disjoint"
    if self._public.seen is not None and isinstance(
      self.config, dp_sgd.BudgetConfig
    ):
      data.require_unseen(self._public.seen, x, value_range)
      self._run_record["public_data"] = "disjoint"

  def given(self) -> dict[str, Any]:
    """What is said of the classifier's training data."""
    return {
      **super().given(),
      "public_classifier": self._run_record.get("public_classifier"),
      "public_data": identity.public_hash(self._public.data),
      "classifier_tells": self._public.seen is not None,
    }

  @property
  def drawn_part(self) -> tf.keras.Model:
    """The denoiser; the classifier is public and stays."""
    return self.denoiser

  def input_noise(self, shape, seed) -> tf.Tensor:
    """Fresh noise at the input."""
    return self.config.input_stddev * tf.random.stateless_normal(shape, seed)

  def assumptions(self) -> tuple[privacy.Assumption, ...]:
    """What the proof needs besides DP-SGD's premises."""
    found, record = [PUBLIC_CLASSIFIER], self._run_record
    if record.get("public_data") == "disjoint":
      found.append(DISJOINT_CLASSIFIER)
    if "public_classifier" in record:
      text = f"the classifier is declared public: {record['public_classifier']}"
      found.append(privacy.Assumption(text, "the caller"))
    return tuple(found)

  def noisy_logits(self, x: tf.Tensor, seed) -> tf.Tensor:
    """One draw of what is certified and deployed, for attacks with EOT."""
    x = tf.convert_to_tensor(x)
    noise = self.input_noise(tf.shape(x), mechanisms.stateless_seed(seed))
    return self.network(x + noise, training=False)

  def certifier(self, **settings: Any) -> certify.RandomizedSmoothing:
    """Smoothing with `input_stddev`; it holds whatever the weights are."""
    return certify.RandomizedSmoothing(self.config.input_stddev, **settings)


class _Public:
  """Arrays of the caller; an object of its own, so that Keras saves none."""

  def __init__(self, public_data, seen):
    self.data = None if public_data is None else np.asarray(public_data)
    self.seen = seen
