"""What `experiments.audits` runs: small trainings, one for each claim.

Every case is the method's own training step on a few records, in the worst
case that its claim allows: the canary takes part in every step, and the
adversary knows all other records.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import Callable

import numpy as np

from experiments.grid import engine as grid
from experiments.transdenoiser import audit as transdenoiser_audit
from tf_privrob import papers
from tf_privrob.runs.audit import steps as audit_steps

DP_DELTA = 1e-5
_SIZE = 125  # SecureSGD's batch


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is done.

  Attributes:
    runs: judged runs of each world.
    pilots: runs of each world that settle the test.
  """

  runs: int
  pilots: int


SCALES = {"test": Scale(1_500, 750), "full": Scale(40_000, 8_000)}


@dataclasses.dataclass(frozen=True)
class Cell(grid.Cell):
  """One case.

  Attributes:
    part: its name in CASES.
  """

  part: str

  @property
  def model(self) -> str:
    """The sub-folder."""
    return "audits"

  @property
  def training(self) -> Cell:
    """Nothing must be done before."""
    return self


def cells() -> list[Cell]:
  """All of them."""
  return [Cell(name) for name in CASES]


@dataclasses.dataclass(frozen=True)
class Case:
  """An audited setting.

  Attributes:
    label: in tables.
    canary: what the record does, in words.
    scope: what was run, and what the figures are for.
    make: gives the runs.
    share: of the scale's runs; some show all with fewer, one needs more.
    gaussian: whether what was run is a fixed sum with Gaussian noise, so that
      `privacy.gaussian_lower_bound` applies.
  """

  label: str
  canary: str
  scope: str
  make: Callable[[], Any]
  share: float = 1.0
  gaussian: bool = False


def _eight():
  """Seven small records and a large one, the canary."""
  x = np.random.default_rng(0).uniform(0, 0.3, (8, 6)).astype(np.float32)
  x[-1] = 1.0
  return x, np.arange(8) % 3


def dp_sgd(dp_epsilon: float, steps: int = 2) -> audit_steps.Runs:
  """DP-SGD on full batches, a canary whose gradient is clipped."""
  from tf_privrob import methods
  from tf_privrob import models

  config = methods.DPSGDConfig(
    dp_epsilon=dp_epsilon,
    dp_delta=DP_DELTA,
    sampler="full_batch",
    epochs=steps,
    l2_clip_norm=0.1,
    learning_rate=1.0,
    physical_batch_size=8,
  )
  method = methods.DPSGD(models.mlp((6,), 3, hidden=(), seed=0), config)
  return audit_steps.Runs(method, audit_steps.Worlds(*_eight()), steps)


def _narrow_network():
  """A classifier with fewer last hidden units than classes.

  Under the Taylor cross-entropy the update of the last bias is 1/2 - mean y +
  mean z / 4 with z = W^T h + b: a direction v with W v = 0 carries no noise of
  inputs or hidden units at all, and label noise reaches the kernel only.
  """
  import tensorflow as tf

  from tf_privrob import layers

  init = tf.keras.initializers.GlorotUniform
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input((2,)),
      tf.keras.layers.Dense(3, "relu", kernel_initializer=init(0)),
      tf.keras.layers.Dense(2, kernel_initializer=init(1)),
      layers.BoundedActivation(1.0),
      tf.keras.layers.Dense(3, kernel_initializer=init(2)),
    ]
  )


def _relabelled(method) -> audit_steps.Runs:
  """One step on 600 records in [-1, 1]; the canary has another label."""
  rng = np.random.default_rng(0)
  x = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
  y = rng.integers(0, 3, 600)
  worlds = audit_steps.Worlds(x, y, (x[-1], (y[-1] + 1) % 3))
  return audit_steps.Runs(
    method, worlds, value_range=(-1.0, 1.0), references=160
  )


def dpal() -> audit_steps.Runs:
  """DPAL as published, where its noise does not reach the last bias."""
  config = papers.DPALConfig(
    dp_epsilon_features=0.1,
    dp_epsilon_labels=0.1,
    batch_size=300,
    attack_steps=1,
    optimizer="sgd",
    learning_rate=1.0,
  )
  return _relabelled(papers.DPAL(_narrow_network(), config))


def adlm() -> audit_steps.Runs:
  """AdLM as published, on the same records; its relevance map is given."""
  config = papers.AdLMConfig(
    dp_epsilon_relevance=0.1,
    dp_epsilon_features=0.1,
    dp_epsilon_labels=0.1,
    batch_size=300,
    learning_rate=1.0,
  )
  network = _narrow_network()
  return _relabelled(
    papers.AdLM(network, config, relevance_map=np.ones(2, np.float32))
  )


def sound_heir(kind: str, **more: Any) -> audit_steps.Runs:
  """SoundDPAL or SoundAdLM at 1; what they release before is not attacked."""
  from tf_privrob import models

  method_class = getattr(papers, kind)
  config = method_class.config_class(
    dp_epsilon=1.0,
    dp_delta=DP_DELTA,
    sampler="full_batch",
    epochs=2,
    l2_clip_norm=0.1,
    learning_rate=1.0,
    physical_batch_size=8,
    **more,
  )
  method = method_class(models.mlp((6,), 3, hidden=(4,), seed=0), config)
  return audit_steps.Runs(method, audit_steps.Worlds(*_eight()), 2)


def halfspaces(composition: str) -> audit_steps.Runs:
  """Ten halfspaces on full batches; the canary has a coordinate of its own."""
  import tensorflow as tf

  rng = np.random.default_rng(0)
  others = np.pad(rng.normal(size=(12, 3)), ((0, 0), (1, 0)))
  x = np.concatenate([others, [[1.0, 0.0, 0.0, 0.0]]]).astype(np.float32)
  y = np.append(np.arange(12) % 10, 3)
  config = papers.HalfspacesConfig(
    dp_epsilon=1.0,
    dp_delta=DP_DELTA,
    composition=composition,
    batch_size=len(x),
    epochs=1.0,
    margin=0.1,
  )
  network = tf.keras.Sequential(
    [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(10, use_bias=False)]
  )
  method = papers.Halfspaces(network, config)
  return audit_steps.Runs(method, audit_steps.Worlds(x, y), 10, (-10.0, 10.0))


def stopping_halfspaces(kind=papers.Halfspaces) -> audit_steps.Runs:
  """Two halfspaces that stop early, or later where the canary is there.

  The others lie on one line and are no violations after the first step; the
  canary has a coordinate of its own and stays one. A run that has stopped
  leaves its weights as they are, which the adversary sees.
  """
  import tensorflow as tf

  x = np.zeros((41, 3), np.float32)
  y = np.arange(41) % 2
  x[:, 1] = 1 - 2 * y
  x[-1] = [1, 0, 0]
  config = papers.HalfspacesConfig(
    dp_epsilon=3.0,
    dp_delta=DP_DELTA,
    batch_size=len(x),
    epochs=6.0,
    margin=0.6,
    stop_risk=0.05,
    count_weight=1.0,
  )
  network = tf.keras.Sequential(
    [tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2, use_bias=False)]
  )
  worlds = audit_steps.Worlds(x, y)
  return audit_steps.Runs(kind(network, config), worlds, 12, (-10.0, 10.0))


def _cancelling():
  """Records whose gradients cancel in pairs at equal logits, and a canary."""
  import tensorflow as tf

  rng = np.random.default_rng(0)
  x = np.repeat(rng.random((_SIZE // 2 + 1, 4)), 2, axis=0)[:_SIZE]
  dense, glorot = tf.keras.layers.Dense, tf.keras.initializers.GlorotUniform
  network = tf.keras.Sequential(
    [
      tf.keras.layers.Input((4,)),
      dense(3, "relu", True, glorot(0), bias_initializer="ones"),
      dense(2, kernel_initializer="zeros"),
    ]
  )
  return x.astype(np.float32), np.arange(_SIZE) % 2, network


def secure_sgd() -> audit_steps.Runs:
  """SecureSGD's released code: a mean gradient is clipped."""
  from tf_privrob import methods

  x, y, network = _cancelling()
  config = methods.preset("secure_sgd", "mnist_released").changed(
    total=None, dp_epsilon=10.0, epochs=1
  )
  method = papers.SecureSGD(network, config, redistribution=np.ones(3))
  worlds = audit_steps.Worlds(x, y, (x[-1], 1 - y[-1]))
  return audit_steps.Runs(method, worlds)


def sound_secure_sgd() -> audit_steps.Runs:
  """Its heir on the same records, at dp_epsilon 1 for the step."""
  x, y, network = _cancelling()
  config = papers.SoundSecureSGDConfig(
    sampler="full_batch",
    physical_batch_size=_SIZE,
    dp_epsilon=1.0,
    dp_delta=DP_DELTA,
    epochs=1,
    l2_clip_norm=0.1,
  )
  method = papers.SoundSecureSGD(network, config)
  return audit_steps.Runs(method, audit_steps.Worlds(x, y))


def _transdenoiser(name: str) -> audit_steps.Runs:
  method, records = transdenoiser_audit.CASES[name]()
  worlds = audit_steps.Worlds(records, np.zeros(len(records), np.int64))
  return audit_steps.Runs(method, worlds, references=100)


_STEPS = "two full-batch steps"
CASES = {
  **{
    f"dp_sgd-{dp_epsilon:g}": Case(
      f"DP-SGD at dp_epsilon {dp_epsilon:g}",
      "a record whose gradient is clipped",
      _STEPS,
      lambda dp_epsilon=dp_epsilon: dp_sgd(dp_epsilon),
      gaussian=True,
    )
    for dp_epsilon in (1.0, 3.0, 8.0)
  },
  "dpal-paper": Case(
    "DPAL as published",
    "a record with another label",
    "one step",
    dpal,
    share=0.2,
  ),
  "secure_sgd-released": Case(
    "SecureSGD, released code",
    "a record with another label",
    "one step, sampling probability 1, a group of two",
    secure_sgd,
    share=0.2,
  ),
  "secure_sgd-sound": Case(
    "SoundSecureSGD",
    "a record that no other cancels",
    "one full-batch step",
    sound_secure_sgd,
  ),
  "transdenoiser-paper": Case(
    "TransDenoiser, a draw for each group",
    "a record whose remainder is negative",
    "one full-batch step",
    lambda: _transdenoiser("group"),
    share=0.2,
  ),
  "transdenoiser-sound": Case(
    "SoundTransDenoiser",
    "a record that lifts the paper's S_min",
    "one full-batch step",
    lambda: _transdenoiser("sound"),
    share=0.1,
  ),
  "halfspaces-paper": Case(
    "Ten halfspaces, noise for one",
    "a record with a coordinate of its own",
    "one full-batch step of each class",
    lambda: halfspaces("paper_literal"),
    share=2.0,
    gaussian=True,
  ),
  "halfspaces-sound": Case(
    "Ten halfspaces, noise for ten",
    "a record with a coordinate of its own",
    "one full-batch step of each class",
    lambda: halfspaces("independent_batches"),
    gaussian=True,
  ),
  # Later ones stand below: a case's place settles its seeds.
  "adlm-paper": Case(
    "AdLM as published",
    "a record with another label",
    "one step, relevance map given",
    adlm,
    share=0.2,
  ),
  "dpal-sound": Case(
    "SoundDPAL",
    "a record whose gradient is clipped",
    f"{_STEPS}, moments released before",
    lambda: sound_heir("SoundDPAL", attack_steps=1),
  ),
  "adlm-sound": Case(
    "SoundAdLM",
    "a record whose gradient is clipped",
    f"{_STEPS}, relevance map released before",
    lambda: sound_heir("SoundAdLM"),
  ),
  "transdenoiser-branch": Case(
    "TransDenoiser, one draw a batch",
    "a record that lifts S_min over xi_low",
    "one full-batch step",
    lambda: _transdenoiser("branch"),
    share=0.1,
  ),
  "halfspaces-stopped": Case(
    "Two halfspaces that stop early",
    "a record that keeps them from stopping",
    "six full-batch steps of each class at most, fewer taken",
    stopping_halfspaces,
    share=0.5,
  ),
}
