"""What settings of trainings have in common, and how they are written down.

Settings are frozen dataclasses, which may hold others: an objective, a ramp.
Flags and JSON are made of them; a file names an objective by a word of
`registry.OBJECTIVES`, or by the name that a program registered its class under.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import Optional  # flags read these annotations on Python 3.9

from tf_privrob import data
from tf_privrob import randomness
from tf_privrob import validate
from tf_privrob.methods import objective as objective_lib

OPTIMIZERS = ("adam", "sgd")
SCHEDULES = ("constant", "cosine")
SAMPLERS = ("poisson", "shuffle", "full_batch")


@dataclasses.dataclass(frozen=True)
class SGDConfig:
  """What trainings by stochastic gradients share, private or not.

  Attributes:
    batch_size: expected size of a logical batch; sampling_prob = it / n.
    epochs: passes over the data, on average.
    sampler: "poisson", "shuffle" or "full_batch".
    optimizer: "sgd" or "adam"; `compile(optimizer=...)` takes any other.
    learning_rate: at the first step.
    learning_rate_schedule: "constant" or "cosine" (to zero at the last step).
    momentum: of SGD.
    ema_decay: 0 keeps the last weights; else the trained weights are their
      exponential moving average.
    augmentation: kind of random copies of an example.
    augmentation_multiplicity: K copies, averaged into one gradient.
    augmentation_stddev: of the "noise" augmentation.
    physical_batch_size: rows in memory at a time, rounded up to a multiple of
      16 (`data.whole_packets`). None: by device.
    jit_compile: XLA for the gradients. None: on a GPU only.
    checkpoint_every: steps between checkpoints.
    seed: None, for a model that is released: noise, sampling and initial
      weights come from the operating system and are stored nowhere. A number
      is for an experiment that is repeated: the guarantee then holds only
      against those who neither know nor guess it.
  """

  batch_size: int = 256
  epochs: float = 15.0
  sampler: str = "poisson"
  optimizer: str = "sgd"
  learning_rate: float = 0.25
  learning_rate_schedule: str = "constant"
  momentum: float = 0.0
  ema_decay: float = 0.0
  augmentation: str = "none"
  augmentation_multiplicity: int = 1
  augmentation_stddev: float = 0.25
  physical_batch_size: Optional[int] = None
  jit_compile: Optional[bool] = None
  checkpoint_every: int = 1
  seed: Optional[int] = None

  def __post_init__(self):
    randomness.check_seed(self.seed)
    validate.positive(epochs=self.epochs, learning_rate=self.learning_rate)
    validate.positive_int(
      batch_size=self.batch_size,
      augmentation_multiplicity=self.augmentation_multiplicity,
      checkpoint_every=self.checkpoint_every,
    )
    if self.physical_batch_size is not None:
      validate.positive_int(physical_batch_size=self.physical_batch_size)
    validate.non_negative(
      augmentation_stddev=self.augmentation_stddev,
      momentum=self.momentum,
      ema_decay=self.ema_decay,
    )
    if max(self.momentum, self.ema_decay) >= 1:
      raise ValueError(
        f"Expected momentum={self.momentum!r} and ema_decay={self.ema_decay!r}"
        " below 1."
      )
    validate.one_of(SAMPLERS, sampler=self.sampler)
    validate.one_of(OPTIMIZERS, optimizer=self.optimizer)
    validate.one_of(
      SCHEDULES, learning_rate_schedule=self.learning_rate_schedule
    )
    validate.one_of(data.AUGMENTATIONS, augmentation=self.augmentation)
    if self.jit_compile is not None:
      validate.boolean(jit_compile=self.jit_compile)

  def scaled(self, factor: float) -> SGDConfig:
    """The same run, `factor` times as long: epochs and all moments."""
    validate.positive(factor=factor)
    changes = {"epochs": self.epochs * factor}
    if isinstance(getattr(self, "objective", None), objective_lib.Objective):
      changes["objective"] = self.objective.scaled(factor)
    return dataclasses.replace(self, **changes)

  def changed(self, **changes: Any) -> SGDConfig:
    """The settings with others; those inside of settings by their own name.

    >>> config.changed(epochs=3, attack_steps=5)  # doctest: +SKIP
    """
    found = _changed(self, changes)
    return dataclasses.replace(found, **changes)  # refuses what is left


def _changed(config: Any, changes: dict[str, Any]) -> Any:
  """Takes what it knows from the changes, and settings inside of it do."""
  names = [field.name for field in dataclasses.fields(config)]
  found = {name: changes.pop(name) for name in names if name in changes}
  for name in names:
    inner = found.get(name, getattr(config, name))
    if dataclasses.is_dataclass(inner):
      found[name] = _changed(inner, changes)
  return dataclasses.replace(config, **found)


def described(config: Any) -> dict[str, Any]:
  """Settings as JSON values, of which `restored` makes them again."""
  from tf_privrob.methods import registry  # it imports all objectives

  found = {}
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if dataclasses.is_dataclass(value):
      name = {}
      if isinstance(value, objective_lib.Objective):
        name = {"name": registry.objective_name(type(value))}
      value = {**name, **described(value)}
    found[field.name] = value
  return found


def restored(kind: type, values: dict[str, Any]) -> Any:
  """Settings from what `described` wrote; a file may hold anything else.

  Raises:
    ValueError: names a setting or an objective that is not known.
  """
  values = dict(values)
  fields = {field.name: field for field in dataclasses.fields(kind)}
  unknown = sorted(set(values) - set(fields))
  if unknown:
    raise ValueError(
      f"Expected settings of {kind.__name__}, received {unknown[0]!r}, which it"
      " does not have: another version wrote this file. Train the model again,"
      " or load it with that version."
    )
  for name, value in values.items():
    if isinstance(value, dict):
      values[name] = _nested(kind, fields[name], dict(value))
  return kind(**values)


def _nested(kind: type, field: dataclasses.Field, value: dict[str, Any]) -> Any:
  """Settings inside of settings; an objective is found by its name."""
  from tf_privrob.methods import registry

  default = field.default
  if not dataclasses.is_dataclass(default):
    raise ValueError(
      f"Expected one value for {field.name} of {kind.__name__}, received"
      " several. Restore the file."
    )
  found = type(default)
  if isinstance(default, objective_lib.Objective):
    found = registry.objective(value.pop("name", None))
  return restored(found, value)
