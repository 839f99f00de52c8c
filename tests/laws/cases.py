"""Small instances of every private method, data for them, and canaries."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any
from typing import Callable

import numpy as np
import tensorflow as tf

from tests.laws import examples
from tests.laws import recording
from tests.papers.transdenoiser import transdenoiser_cases
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers

_layers = tf.keras.layers
NOISE_MULTIPLIER = 2.0
_BUDGET = {
  "dp_epsilon": 1e3,
  "dp_delta": 1e-3,
  "accountant": "rdp",
  "batch_size": examples.BATCH_SIZE,
  "epochs": 2.0,
  "seed": 0,
}
# So small a norm that every gradient is clipped: the law is then tight.
_SGD = {
  **_BUDGET,
  "noise_multiplier": NOISE_MULTIPLIER,
  "l2_clip_norm": 0.01,
  "optimizer": "sgd",
  "learning_rate": 5.0,
}
ALL = ("poisson", "shuffle", "full_batch")


# Networks.


def smooth():
  return models.mlp(
    examples.FLAT, examples.CLASSES, hidden=(5,), activation="tanh", seed=0
  )


def relu():
  return models.mlp(examples.FLAT, examples.CLASSES, hidden=(5,), seed=0)


def image():
  init = tf.keras.initializers.GlorotUniform
  return tf.keras.Sequential(
    [
      _layers.Input(examples.IMAGE),
      _layers.Conv2D(3, 3, 2, activation="relu", kernel_initializer=init(0)),
      _layers.Flatten(),
      _layers.Dense(4, "tanh", kernel_initializer=init(1)),
      _layers.Dense(examples.CLASSES, kernel_initializer=init(2)),
    ]
  )


def denoiser():
  return models.denoised_classifier(
    transdenoiser_cases.denoiser(), transdenoiser_cases.classifier()
  )


def undecided():
  """All weights zero: gradients of two labels are opposite."""
  layer = _layers.Dense(2, use_bias=False, kernel_initializer="zeros")
  return tf.keras.Sequential([_layers.Input(examples.FLAT), layer])


def linear(classes=examples.CLASSES):
  return models.linear(examples.FLAT, classes)


# Methods.


@dataclasses.dataclass(frozen=True)
class Case:
  """How to make a method.

  Attributes:
    kind: its class.
    network: makes one.
    settings: of its config.
    quiet: instead, settings with which an example draws nothing of its own, so
      that its place in the batch does not matter.
    objective: of a method that has one, or None.
    samplers: those that it allows.
    arguments: further ones of the method.
    ready: done to a quiet method before its steps are traced.
  """

  kind: type
  network: Callable[[], tf.keras.Model]
  settings: dict[str, Any]
  quiet: dict[str, Any] = dataclasses.field(default_factory=dict)
  objective: Any = None
  samplers: tuple[str, ...] = ALL
  arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
  ready: Callable[[Any], None] | None = None

  def method(self, sampler: str, quiet: bool = False, **changes):
    """Built, not yet prepared."""
    config = {
      "physical_batch_size": examples.PHYSICAL[sampler],
      **self.settings,
      **(self.quiet if quiet else {}),
      **changes,
    }
    names = {field.name for field in dataclasses.fields(self.kind.config_class)}
    if "sampler" in names:
      config["sampler"] = sampler
    if self.objective is not None:
      config["objective"] = self.objective
    found = self.kind.config_class()
    if hasattr(found, "changed"):
      found = found.changed(**config)
    else:
      found = dataclasses.replace(found, **config)
    return self.kind(self.network(), found, **self.arguments)

  def bench(
    self, sampler: str, quiet: bool = False, **changes
  ) -> recording.Bench:
    """The method, ready to run."""
    method = self.method(sampler, quiet, **changes)
    x, y = examples.arrays(method.network.input_shape[1:])
    ready = self.ready if quiet else None
    return recording.Bench(
      method, examples.ROWS, examples.VALUE_RANGE, x, y, ready
    )


def _without_random_start(method):
  method.attack = dataclasses.replace(method.attack, random_start=False)


def _dp_sgd():
  return {
    "DPSGD for Natural": Case(
      methods.DPSGD,
      image,
      {
        **_SGD,
        "augmentation": "noise",
        "augmentation_multiplicity": 2,
        "ema_decay": 0.5,
        "momentum": 0.9,
      },
      {"augmentation": "none", "augmentation_multiplicity": 1},
    ),
    "DPSGD for Smooth": Case(
      methods.DPSGD,
      smooth,
      {**_SGD, "augmentation_multiplicity": 2},
      {"training_stddev": 0.0},
      methods.Smooth(regularizer="consistency", attack_steps=1),
    ),
    "PrivatePixelDP": Case(
      papers.PrivatePixelDP,
      smooth,
      {**_SGD, "augmentation_multiplicity": 2},
      {"construction_size": 1e-9},
    ),
    "SecureSGD": Case(
      papers.SecureSGD,
      smooth,
      _SGD,
      arguments={"redistribution": np.ones(5)},
    ),
    "SoundSecureSGD": Case(
      papers.SoundSecureSGD,
      smooth,
      {**_SGD, "kind": "private"},
      {"hidden_noise": 1e-9},
    ),
    "SoundAdLM": Case(papers.SoundAdLM, relu, _SGD),
    "SoundDPAL": Case(
      papers.SoundDPAL,
      image,
      {
        **_SGD,
        "attack_steps": 2,
        "max_attack_eps": 1.0,
        "adversarial_weight": 10.0,
        "augmentation": "noise",
      },
      {"augmentation": "none"},
      ready=_without_random_start,
    ),
  }


def _denoisers():
  return {
    "SoundTransDenoiser": Case(
      papers.SoundTransDenoiser,
      denoiser,
      {**_SGD, "augmentation_multiplicity": 2},
      {"input_stddev": 1e-9},
    ),
    "TransDenoiser": Case(
      papers.TransDenoiser,
      denoiser,
      {
        **_BUDGET,
        "variant": "sepdp",
        "xi_up": NOISE_MULTIPLIER,
        "num_slices": 2,
        "l2_clip_norm": 0.01,
      },
      {"input_stddev": 1e-9},
    ),
  }


def _robust():
  loop = {"engine": "loop"}
  found = (
    (
      methods.Adversarial(
        attack_steps=2, adversarial_ratio=0.5, natural_share=0.3
      ),
      {},
      {"random_start": False},
    ),
    (methods.Trades(attack_steps=2), {}, {"start_stddev": 1e-30}),
    (methods.WRM(attack_steps=2, mean_over="example"), {}, {}),
    (methods.IBP(), {}, {}),
    (methods.DiffAI(), loop, {}),
    (methods.DualLoss(norm="l1_median", projections=3), loop, {}),
  )
  return {
    f"DPSGD for {type(objective).__name__}": Case(
      methods.DPSGD, relu, {**_SGD, **more}, quiet, objective
    )
    for objective, more, quiet in found
  }


BY_GRADIENTS = {**_dp_sgd(), **_denoisers(), **_robust()}
OPPOSITE = Case(methods.DPSGD, undecided, {**_SGD, "learning_rate": 1e-6})
_HALFSPACES = {
  **_BUDGET,
  "noise_multiplier": NOISE_MULTIPLIER,
  "margin": 0.5,
}
HALFSPACES = {
  f"{composition}, stop_risk={stop_risk}": Case(
    papers.Halfspaces,
    linear,
    {**_HALFSPACES, "composition": composition, "stop_risk": stop_risk},
    samplers=("poisson",),
  )
  for composition in (
    "independent_batches",
    "shared_batch",
    "paper_literal",
    "kesler",
  )
  for stop_risk in (None, 0.1)
}
AS_PRINTED = Case(
  papers.Halfspaces,
  linear,
  {
    **_HALFSPACES,
    "composition": "paper_literal",
    "stop_risk": 1e-6,
    "laplace_scale": 3.0,
  },
  samplers=("poisson",),
)
HALFSPACES["Algorithm 1 as printed"] = AS_PRINTED
PURE = {
  classes: Case(
    papers.PureHalfspaces,
    functools.partial(linear, classes),
    {"margin": 0.3, "net_size": 50, "seed": 0},
    samplers=("full_batch",),
  )
  for classes in (2, 3)
}
TABLE = frozenset(
  [
    *((name, kind) for name, c in BY_GRADIENTS.items() for kind in c.samplers),
    ("Halfspaces", "poisson"),
    ("PureHalfspaces", "full_batch"),
  ]
)
