"""Certifies a data set into a file that outlives a crash."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence

import numpy as np

from tf_privrob import models
from tf_privrob import progress as progress_lib
from tf_privrob.certify import certificate
from tf_privrob.certify import certifier as certifier_lib
from tf_privrob.certify import record


def run(
  certifier: certifier_lib.Certifier,
  logits_fn: certifier_lib.LogitsFn,
  x: np.ndarray,
  y: np.ndarray | None = None,
  csv_path: str | os.PathLike[str] | None = None,
  resume: bool = True,
  seed: int | Sequence[int] | None = None,
  radii: Sequence[float] | None = None,
  progress: bool = True,
  model_id: str = "",
  indices: Sequence[int] | None = None,
) -> list[certificate.Certificate]:
  """Certifies every input; each row is on file as soon as it is known.

  After kill -9, Ctrl-C or a crash the same call goes on where it stopped and
  ends with the same rows as an uninterrupted one (but for `seconds`), because
  a row depends on its own input, index and draws only. The file is bound to the
  model by the hash of its class, configuration and weights, and each row to the
  file by a stamp of settings, inputs and model. It keeps the key of its draws
  where they came from the operating system.

  Args:
    certifier: How to certify.
    logits_fn: A Keras model or a function from a batch to logits.
    x: Inputs, with a batch axis.
    y: True classes; without them no accuracy can be computed.
    csv_path: Where the rows go, or None to keep them in memory only.
    resume: Go on with an existing file, which is refused if other settings,
      another seed, other data or another model made it; False replaces it.
    seed: None draws from the operating system; an int or two ints draw the same
      in every file, and put a condition beside the rows: `Certifier.stream`.
    radii: Radii of interest; the certifier may stop early on inputs where
      more work changes nothing at these radii. None leaves it as it is.
    progress: Whether to show rate, ETA and the accuracy so far.
    model_id: A name for a function, or for a model with layers of your own, of
      which nothing else tells whether it is still the same; without it such a
      file can be neither resumed nor audited. The name must change whenever the
      code does.
    indices: The positions of the inputs in their data set, which the rows then
      name; 0, 1, ... by default.

  Returns:
    One certificate per input, by index.
  """
  if radii is not None:
    certifier = certifier.for_radii(radii)
  certifier_lib.check_inputs(logits_fn, x)
  x = np.asarray(x)
  order = certifier_lib.check_indices(indices, len(x))
  places = {index: row for row, index in enumerate(order)}  # of x, by index
  book, done = None, {}
  if csv_path is not None:
    settings = {
      **certifier.settings(),
      "seed": None if seed is None else np.atleast_1d(seed).tolist(),
      "num_inputs": len(x),
      "inputs_sha256": digest(x, y),
    }
    if indices is not None:
      settings["indices"] = list(places)
    model = models.model_hash(logits_fn, model_id)
    book = record.Record(csv_path, settings, model)
    found = book.open(resume)
    record.check_stamps(found, model, csv_path)
    record.check_origin(found, book.stamp, csv_path)
    certifier_lib.check_statement(certifier, found, csv_path)
    if seed is None:
      seed = book.key
    done = {row.index: row for row in found}
    if len(done) < len(found) or not set(done) <= set(places):
      raise ValueError(
        f"Expected one row for each of {len(x)} inputs in {csv_path}, received"
        " a row twice or of no input. Pass resume=False to certify again."
      )
  summary = _Summary()
  for row in done.values():
    summary.add(row)
  try:
    todo = [index for index in places if index not in done]
    line = progress_lib.Progress(len(x), "certify", done=len(done))
    if todo:
      rows = [places[index] for index in todo]
      labels = None if y is None else np.asarray(y)[rows]
      for row in certifier.stream(
        logits_fn, x[rows], labels, seed, todo, model_id
      ):
        if book is not None:
          record.check_stamps([row], model, csv_path)
          row = dataclasses.replace(row, stamp=book.stamp)
          book.append(row)
        done[row.index] = row
        summary.add(row)
        if progress:
          line.update(note=str(summary))
  finally:
    if book is not None:
      book.close()
  return [done[index] for index in sorted(done)]


def check_recorded(
  recorded: record.Recorded,
  logits_fn: certifier_lib.LogitsFn,
  x: np.ndarray,
  y: np.ndarray | None,
  model_id: str = "",
) -> None:
  """Refuses other data or another model than the certified ones."""
  certifier_lib.check_inputs(logits_fn, x)
  x = np.asarray(x)
  if recorded.settings["inputs_sha256"] != digest(x, y):
    raise ValueError(
      "Expected the inputs and labels that were certified, received others"
      " (their hash differs). Certify these first, or load the data set of the"
      " run."
    )
  recorded.check_model(models.model_hash(logits_fn, model_id))


class _Summary:
  """Running totals for the progress line."""

  def __init__(self):
    self._rows = self._right = self._abstained = 0
    self._radius = 0.0
    self._proven = self._labelled = True

  def add(self, row: certificate.Certificate) -> None:
    self._rows += 1
    self._abstained += row.abstained
    self._labelled &= row.label is not None
    self._proven &= row.kind == "proven"
    if row.correct:
      self._right += 1
      self._radius += row.radius

  def __str__(self) -> str:
    parts = [f"abstained {self._abstained / self._rows:.0%}"]
    if self._labelled:
      parts.insert(0, f"correct {self._right / self._rows:.1%}")
      word = "certified" if self._proven else "claimed"
      parts.append(f"mean {word} radius {self._radius / self._rows:.3g}")
    return ", ".join(parts)


def digest(x: np.ndarray, y: np.ndarray | None) -> str:
  """A hash of the values and shapes of inputs and labels."""
  found = hashlib.sha256(repr(x.shape).encode())
  found.update(np.asarray(x, np.float64).tobytes())
  if y is not None:
    found.update(np.asarray(y, np.int64).tobytes())
  return found.hexdigest()
