"""What was trained and how it went: config.json, run.json, history.jsonl."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tf_privrob.records.schema import as_number
from tf_privrob.records.schema import Count
from tf_privrob.records.schema import Interval
from tf_privrob.records.schema import OPTIONAL
from tf_privrob.records.schema import Record
from tf_privrob.records.schema import Size


@dataclasses.dataclass(frozen=True)
class Config(Record):
  """What is trained: config.json.

  Attributes:
    method: Its name, with the variant in brackets.
    dataset: Its name; None for arrays.
    network: Its name or file.
    config: The settings, without the seed.
    flags: What else the command was given.
  """

  method: Optional[str] = None
  dataset: Optional[str] = None
  network: Optional[str] = None
  config: Optional[Mapping[str, Any]] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )
  flags: Optional[Mapping[str, Any]] = dataclasses.field(
    default=None, metadata=OPTIONAL
  )


@dataclasses.dataclass(frozen=True)
class Data(Record):
  """What run.json says of the data; arrays have neither name nor source."""

  name: Optional[str] = None
  source: Optional[str] = None
  split: Optional[str] = None
  num_train: Optional[Count] = None
  num_test: Optional[Count] = None
  num_classes: Optional[Count] = None
  value_range: Optional[Interval] = None


@dataclasses.dataclass(frozen=True)
class Run(Record):
  """When, where, how long and with which versions it was trained: run.json."""

  created: Optional[str] = None
  train_seconds: Optional[Size] = None
  sessions: Optional[Count] = None
  steps: Optional[Count] = None
  run_id: Optional[str] = None
  weights: Optional[str] = None
  parameters: Optional[Count] = None
  versions: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  device: Optional[str] = None
  dataset: Data = Data()


@dataclasses.dataclass(frozen=True)
class Epoch(Record):
  """A row of the history: figures by their names, some under nonprivate/."""

  epoch: float
  figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def to_json(self) -> dict[str, Any]:
    """The figures stand beside the epoch."""
    return {"epoch": self.epoch, **self.figures}

  @classmethod
  def from_json(cls, payload: Any, name: str = "") -> Epoch:
    """Inverts `to_json`; see `Record.from_json`."""
    if isinstance(payload, Mapping):
      figures = {k: v for k, v in payload.items() if k != "epoch"}
      payload = {"epoch": payload.get("epoch"), "figures": figures}
    return super().from_json(payload, name)

  def number(self, name: str) -> float | None:
    """One figure, if it is a finite number."""
    return as_number(self.figures.get(name))
