"""Everything a run folder says, read once and without ever failing.

A part that is not there stays None ("not run"). A part that is there but
cannot be read stays None as well, and the reason goes to `problems`, which
the page shows at its top.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Callable

import numpy as np

from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.records import membership
from tf_privrob.report import certified
from tf_privrob.report import counted

NESTED = "run"  # experiments keep a model's run folder in <model>/run
_EXAMPLE_RANKS = {
  "clean": 4,
  "adversarial": 5,
  "attack_names": 1,
  "labels": 1,
  "clean_predictions": 1,
  "adversarial_predictions": 2,
}


@dataclasses.dataclass(frozen=True)
class Results:
  """The parts of a run; None or empty where a part was not run."""

  run_dir: str
  config: records.Config | None = None
  run: records.Run = records.Run()  # noqa: RUF009  (a frozen record)
  history: tuple[records.Epoch, ...] = ()
  privacy: statement_lib.PrivacyStatement | None = None
  clean: records.Accuracy | None = None
  attacks: tuple[records.AttackResult, ...] = ()
  smoothed: records.Radii | None = None
  examples: Mapping[str, np.ndarray] | None = None
  commands: tuple[str, ...] = ()
  problems: tuple[str, ...] = ()
  membership: records.Membership | None = None
  audits: tuple[records.Audit, ...] = ()
  certificate_audit: records.CertificateAudit | None = None

  @property
  def predictions(self) -> str | None:
    """The file whose predictions were judged, where there is no run at all."""
    judged = self.membership if self.config is None else None
    return judged and judged.predictions

  @property
  def title(self) -> str:
    """What was trained on what; the folder's name where that is unknown."""
    if self.predictions:
      return f"Predictions in {self.predictions}"
    if self.config is None:
      return f"Run {pathlib.Path(self.run_dir).name}"
    return f"{self.method} on {self.dataset}"

  @property
  def method(self) -> str:
    """The method's name as people write it."""
    name = (self.config and self.config.method) or "unknown method"
    return {"dp_sgd": "DP-SGD"}.get(name, name)

  @property
  def dataset(self) -> str:
    """The data set's name."""
    name = (self.config and self.config.dataset) or self.run.dataset.name
    return name or "unknown data set"

  @property
  def network(self) -> str:
    """The network's name."""
    return (self.config and self.config.network) or "unknown network"

  @property
  def attack_names(self) -> tuple[str, ...]:
    """Every attack once, in the order in which it was first run."""
    return tuple(dict.fromkeys(attack.name for attack in self.attacks))

  @property
  def radii_refuted(self) -> bool:
    """Whether attacks within the radii refuted them."""
    audit = self.certificate_audit
    return audit is not None and audit.violated


class _Reader:
  """Calls that may fail, with each failure written down."""

  def __init__(self):
    self.problems: list[str] = []
    self.run: Mapping[str, Any] = {}
    self.data: dict[str, str | None] = {}

  def attempt(self, what: str, read: Callable[[], Any]) -> Any:
    try:
      return read()
    except (
      AttributeError,
      KeyError,
      OSError,
      OverflowError,
      TypeError,
      ValueError,
      csv.Error,
    ) as error:
      self.problems.append(f"{what}: {error}")
      return None

  def record(self, what: str, payload: Any, kind: type) -> Any:
    """The record in `payload`; None where there is nothing in it."""
    if not payload:
      return None
    return self.attempt(what, lambda: kind.from_json(payload))

  def file(self, folder, name: str, parse: Callable[[Any], Any]) -> Any:
    """What `parse` makes of a JSON file; None if there is none."""

    def read() -> Any:
      payload = folder.read_json(name)
      if payload is None:
        return None
      if name != "audit.json":  # whose entries name the run
        self.require_own(payload.get("weights"))
        self.require_data(payload)
      return parse(payload)

    return self.attempt(name, read)

  def require_own(self, named: str | None, own: str = "weights") -> None:
    """Refuses a result of others than the run's weights, or of another run.

    Args:
      named: by the result; None: by an earlier version, which named nothing,
        and whose run.json did not either.
      own: the field of run.json that it must be.
    """
    expected = self.run.get(own)
    if expected is not None and named != expected:
      raise ValueError(
        f"expected a result for this run, received one for other {own}"
        f" ({str(named)[:8]}); it is not shown. Run that step again"
      )

  def require_data(self, result: Mapping[str, Any]) -> None:
    """Refuses a result on another data set, or on other test data.

    Args:
      result: with the name and the hash of its data, as far as it knows them.
    """
    for name, known in self.data.items():
      named = result.get(name)
      if None not in (named, known) and str(named) != known:
        raise ValueError(
          f"expected a result on this run's data ({name} {known}), received one"
          f" on others ({name} {named}); it is not shown. Run that step again"
        )

  def audit(self, entry: Any) -> records.Audit:
    """An entry of audit.json, if it is about this run."""
    audit = records.Audit.from_json(entry)
    self.require_own(audit.run_id, "run_id")
    return audit

  def each(self, what: str, entries: Any, parse: Callable[[Any], Any]) -> tuple:
    """The entries that can be read."""
    found = []
    if not isinstance(entries, (list, type(None))):
      self.problems.append(f"{what}: expected a list, received {entries!r}")
      entries = ()
    for index, entry in enumerate(entries or ()):
      item = self.attempt(
        f"{what} {index + 1}", lambda entry=entry: parse(entry)
      )
      if item is not None:
        found.append(item)
    return tuple(found)


def folder_of(path: run_folder.PathLike) -> run_folder.RunFolder:
  """The run folder at `path`, or the one inside an experiment's model.

  Raises:
    ValueError: if there is no such folder.
  """
  folder = run_folder.RunFolder(path)
  if not os.path.isdir(folder.path):
    raise ValueError(
      f"Expected a run folder, found none at {folder.path}. Train one first:"
      f" python -m tf_privrob train --run_dir={folder.path}"
    )
  if not folder.has("config.json") and folder.has(f"{NESTED}/config.json"):
    return run_folder.RunFolder(folder.path / NESTED)
  return folder


def read(folder: run_folder.RunFolder) -> Results:
  """Reads the whole run folder."""
  reader = _Reader()
  config = reader.attempt("config.json", lambda: folder.config)
  reader.run = reader.attempt("run.json", lambda: folder.run) or {}
  privacy = reader.attempt("privacy.json", lambda: counted.read(folder))
  # What config.json names is what the folder is about, also without a run.
  reader.data["dataset"] = (config or {}).get("dataset")
  measured = reader.file(folder, "metrics.json", dict) or {}
  reader.data["data"] = measured.get("data")
  history = reader.attempt("history.jsonl", lambda: folder.history)
  if measured.get("complete", True) is not True:
    reader.problems.append(
      "metrics.json: the evaluation was stopped, and what it had not come to is"
      " missing. Go on with python -m tf_privrob evaluate --resume"
    )
  # Folders of earlier versions call it "smoothed".
  entry = measured.get("certified") or measured.get("smoothed")
  radii = reader.attempt(
    "metrics.json, certified", lambda: certified.read(folder, entry)
  )
  proven = radii.proven if radii else not entry
  return Results(
    run_dir=str(folder.path),
    config=reader.record("config.json", config, records.Config),
    run=reader.record("run.json", reader.run, records.Run) or records.Run(),
    history=reader.each("history.jsonl, row", history, records.Epoch.from_json),
    privacy=privacy,
    clean=reader.record(
      "metrics.json, clean", measured.get("clean"), records.Accuracy
    ),
    attacks=reader.each(
      "metrics.json, attack",
      measured.get("attacks"),
      records.AttackResult.from_json,
    ),
    smoothed=radii,
    examples=reader.attempt("examples.npz", lambda: _examples(folder, reader)),
    commands=reader.each(
      "metrics.json, command", measured.get("commands"), str
    ),
    membership=reader.file(
      folder, membership.FILE, records.Membership.from_json
    ),
    audits=reader.each(
      "audit.json, audit",
      reader.file(folder, "audit.json", _audits),
      reader.audit,
    ),
    certificate_audit=_certificate_audit(folder, reader, proven),
    problems=tuple(reader.problems),
  )


def _certificate_audit(
  folder: run_folder.RunFolder, reader: _Reader, proven: bool
) -> records.CertificateAudit | None:
  """The attacks on the radii; what they were made on cannot be more proven."""
  found = reader.file(
    folder, "certificate_audit.json", records.CertificateAudit.from_json
  )
  if found and not proven:
    return dataclasses.replace(found, kind="claimed")
  return found


def _audits(payload: Mapping[str, Any]) -> list[Any]:
  """The entries of audit.json."""
  entries = payload.get("audits")
  if not isinstance(entries, list):
    raise ValueError(f"expected a list under audits, received {entries!r}")
  return entries


def _examples(
  folder: run_folder.RunFolder, reader: _Reader
) -> dict[str, np.ndarray] | None:
  """The example pictures, or None where the inputs are not pictures."""
  arrays = folder.examples
  if arrays is None:
    return None
  if "weights" in arrays:
    reader.require_own(str(arrays["weights"]))
  reader.require_data(arrays)
  missing = sorted(set(_EXAMPLE_RANKS) - set(arrays))
  if missing:
    raise ValueError(f"expected arrays {', '.join(missing)}, received none")
  if arrays["clean"].ndim == 2:
    return None  # rows of features: nothing to look at
  for name, rank in _EXAMPLE_RANKS.items():
    if arrays[name].ndim != rank:
      raise ValueError(
        f"expected {name} of rank {rank}, received shape {arrays[name].shape}"
      )
  count, attacks = len(arrays["clean"]), len(arrays["attack_names"])
  shapes = {
    "adversarial": (attacks, *arrays["clean"].shape),
    "labels": (count,),
    "clean_predictions": (count,),
    "adversarial_predictions": (attacks, count),
  }
  for name, shape in shapes.items():
    if arrays[name].shape != shape:
      raise ValueError(
        f"expected {name} of shape {shape}, received {arrays[name].shape}"
      )
  return arrays
