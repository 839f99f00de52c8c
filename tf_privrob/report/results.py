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

from tf_privrob import files
from tf_privrob import run_folder
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import audits as audits_lib
from tf_privrob.report import counted
from tf_privrob.report import leakage as leakage_lib
from tf_privrob.report import metrics as metrics_lib

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
  config: Mapping[str, Any]
  run: Mapping[str, Any]
  history: tuple[Mapping[str, Any], ...]
  privacy: statement_lib.PrivacyStatement | None
  clean: metrics_lib.Accuracy | None
  attacks: tuple[metrics_lib.AttackResult, ...]
  smoothed: metrics_lib.Smoothed | None
  examples: Mapping[str, np.ndarray] | None
  commands: tuple[str, ...]
  problems: tuple[str, ...]
  membership: leakage_lib.Membership | None = None
  audits: tuple[audits_lib.Audit, ...] = ()
  certificate_audit: audits_lib.CertificateAudit | None = None

  @property
  def title(self) -> str:
    """What was trained on what; the folder's name where that is unknown."""
    if not self.config:
      return f"Run {pathlib.Path(self.run_dir).name}"
    return f"{self.method} on {self.dataset}"

  @property
  def method(self) -> str:
    """The method's name as people write it."""
    name = str(self.config.get("method") or "unknown method")
    return {"dp_sgd": "DP-SGD"}.get(name, name)

  @property
  def dataset(self) -> str:
    """The data set's name."""
    name = self.config.get("dataset") or self.section("dataset").get("name")
    return str(name or "unknown data set")

  @property
  def network(self) -> str:
    """The network's name."""
    return str(self.config.get("network") or "unknown network")

  @property
  def attack_names(self) -> tuple[str, ...]:
    """Every attack once, in the order in which it was first run."""
    return tuple(dict.fromkeys(attack.name for attack in self.attacks))

  def section(self, name: str) -> Mapping[str, Any]:
    """A nested object of run.json, or an empty one."""
    value = self.run.get(name)
    return value if isinstance(value, Mapping) else {}


class _Reader:
  """Calls that may fail, with each failure written down."""

  def __init__(self):
    self.problems: list[str] = []
    self.run: Mapping[str, Any] = {}

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

  def file(self, folder, name: str, parse: Callable[[Any], Any]) -> Any:
    """What `parse` makes of a JSON file; None if there is none."""

    def read() -> Any:
      payload = folder.read_json(name)
      if payload is None:
        return None
      if name != "audit.json":  # whose entries name the run
        self.require_own(payload.get("weights"))
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

  def audit(self, entry: Mapping[str, Any]) -> audits_lib.Audit:
    """An entry of audit.json, if it is about this run."""
    if not isinstance(entry, Mapping):
      raise ValueError(f"expected an object, received {entry!r}")
    self.require_own(entry.get("run_id"), "run_id")
    return audits_lib.parse_audit(entry)

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
  run = reader.run = reader.attempt("run.json", lambda: folder.run) or {}
  privacy = reader.attempt("privacy.json", lambda: counted.read(folder))
  measured = reader.file(folder, "metrics.json", dict) or {}
  history = reader.attempt("history.jsonl", lambda: folder.history)
  examples = reader.attempt("examples.npz", lambda: _examples(folder, reader))
  clean = measured.get("clean") and reader.attempt(
    "metrics.json, clean",
    lambda: metrics_lib.parse_accuracy(measured["clean"]),
  )
  if measured.get("complete", True) is not True:
    reader.problems.append(
      "metrics.json: the evaluation was stopped, and what it had not come to is"
      " missing. Go on with python -m tf_privrob evaluate --resume"
    )
  # Folders of earlier versions call it "smoothed".
  radii = measured.get("certified") or measured.get("smoothed")
  kinds = reader.attempt("certificates.csv", lambda: _kinds(folder, radii))
  smoothed = radii and reader.attempt(
    "metrics.json, certified",
    lambda: metrics_lib.parse_smoothed(
      radii, ("unknown",) if kinds is None else kinds
    ),
  )
  membership = reader.file(folder, leakage_lib.FILE, leakage_lib.parse)
  entries = reader.file(folder, "audit.json", audits_lib.parse_audits)
  certificate_audit = reader.file(
    folder, "certificate_audit.json", audits_lib.parse_certificates
  )
  if certificate_audit and smoothed and smoothed.kind != "proven":
    certificate_audit = dataclasses.replace(certificate_audit, kind="claimed")
  return Results(
    run_dir=str(folder.path),
    config=config or {},
    run=run,
    history=tuple(history or ()),
    privacy=privacy,
    clean=clean or None,
    attacks=reader.each(
      "metrics.json, attack",
      measured.get("attacks"),
      metrics_lib.parse_attack,
    ),
    smoothed=smoothed or None,
    examples=examples,
    commands=reader.each(
      "metrics.json, command", measured.get("commands"), str
    ),
    membership=membership,
    audits=reader.each("audit.json, audit", entries, reader.audit),
    certificate_audit=certificate_audit,
    problems=tuple(reader.problems),
  )


def _kinds(folder: run_folder.RunFolder, radii: Any) -> set[str]:
  """The kinds ("proven", "claimed") of the rows of certificates.csv.

  Raises:
    ValueError: If the rows are of another model than the radii of
      metrics.json, or not as many.
  """
  text = files.read_text(folder.file("certificates.csv"))
  if text is None:
    return set()
  lines = text[: text.rfind("\n") + 1].splitlines()  # a crash may cut the last
  rows = list(csv.DictReader(lines))
  if isinstance(radii, Mapping) and "model" in radii:
    found = {row.get("model") for row in rows}
    if found != {radii["model"]} or len(rows) != radii.get("count"):
      raise ValueError(
        f"expected the {radii.get('count')} rows of metrics.json, of"
        f" model {radii['model']!r}, received {len(rows)} of"
        f" {sorted(map(str, found))}. Certify again"
      )
  return {row.get("kind") or "unknown" for row in rows}


def _examples(
  folder: run_folder.RunFolder, reader: _Reader
) -> dict[str, np.ndarray] | None:
  """The example pictures, or None where the inputs are not pictures."""
  arrays = folder.examples
  if arrays is None:
    return None
  if "weights" in arrays:
    reader.require_own(str(arrays["weights"]))
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
