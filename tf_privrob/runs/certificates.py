"""Attacks inside the certificates of a run folder; no flags."""

from __future__ import annotations

import dataclasses
import datetime

import numpy as np

from tf_privrob.runs import evaluate as evaluation

RESULT = "certificate_audit.json"
ROWS = "certificate_audit.csv"
# By former name, in records of earlier versions, the certifiers of claims.
_FORMER = {
  "VerifiedInference": "ClaimedInference",
  "SecureSGDInference": "ClaimedSizes",
}
# What a user chooses; all else follows from the model.
_CHOSEN = ("num_selection", "num_estimation", "num_draws", "confidence")


def certifier_of(settings: dict, model):
  """The certifier that made a record, from its settings and the model.

  Raises:
    ValueError: if the model's own certifier would certify something else.
  """
  from tf_privrob import certify

  simple = {
    kind.__name__: kind
    for kind in (certify.RandomizedSmoothing, certify.LinearMargin)
  }
  name = _FORMER.get(settings["certifier"], settings["certifier"])
  settings = {**settings, "certifier": name}
  if name in simple:
    kind = simple[name]
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{key: settings[key] for key in settings if key in known})
  every = evaluation.own_certifiers(model)
  own = next((one for one in every if type(one).__name__ == name), None)
  if own is None:
    kinds = [type(one).__name__ for one in every] or ["NoneType"]
    raise ValueError(
      f"Expected a model whose own certifier is {name}, which made the"
      f" certificates, received {' and '.join(kinds)}. Audit it from Python:"
      " certify.audit_certificates(certifier, model, x, rows)."
    )
  fields = {field.name for field in dataclasses.fields(own)}
  names = _CHOSEN if own.kind == "proven" else (*_CHOSEN, "attack_eps")
  chosen = {key: settings[key] for key in names if key in fields}
  own = dataclasses.replace(own, **chosen)
  different = [
    f"{key}: {settings.get(key)!r} in the record, {value!r} now"
    for key, value in own.settings().items()
    if settings.get(key) != (list(value) if isinstance(value, tuple) else value)
  ]
  if different:
    raise ValueError(
      "Expected the settings that the certificates were made with, received"
      f" others ({'; '.join(different)}). Certify this model first."
    )
  return own


def _certified_inputs(settings: dict, num_inputs: int) -> np.ndarray:
  """The indices of the certified inputs; earlier versions tell their number."""
  found = settings.get("indices")
  if found is None and isinstance(settings.get("num_inputs"), int):
    found = evaluation.chosen_inputs(num_inputs, settings["num_inputs"])
  try:
    found = np.asarray(found, int)
    good = found.ndim == 1 and 0 <= found.min() and found.max() < num_inputs
  except (TypeError, ValueError):
    good = False
  if not good:
    raise ValueError(
      f"Expected certificates of inputs of the run's data set, which has"
      f" {num_inputs}, received others. Certify again."
    )
  return found


def audit_run(
  folder, model, dataset, *, command_line="", resume=True, **settings
):
  """Attacks the run's certificates, writes the result and returns it.

  Args:
    folder: run folder with certificates.csv and its record.
    model: the certified model.
    dataset: whose test part `runs.evaluate` certified.
    command_line: for the record.
    resume: go on with an audit that was stopped.
    **settings: of `certify.audit_certificates`.
  """
  from tf_privrob import certify
  from tf_privrob import models
  from tf_privrob import records

  path = folder.file("certificates.csv")
  if not path.exists():
    raise ValueError(
      f"Expected certificates at {path}, found none. Make them first: python -m"
      f" tf_privrob certify --run_dir={folder.path} --num_certified=500"
    )
  recorded = certify.read(path)
  x, y = dataset.x_test, dataset.y_test
  chosen = _certified_inputs(recorded.settings, len(x))
  certify.check_recorded(recorded, model, x[chosen], y[chosen])
  if "indices" not in recorded.settings:  # rows name places in `chosen`
    x = x[chosen]
  result = certify.audit_certificates(
    certifier_of(recorded.settings, model),
    model,
    x,
    recorded.rows,
    csv_path=folder.file(ROWS),
    resume=resume,
    **settings,
  )
  now = datetime.datetime.now(datetime.timezone.utc)
  record = records.CertificateAudit.from_json(
    {
      "created": now.isoformat(timespec="seconds"),
      "weights": models.fingerprint(model),
      **result.to_json(),
      "command": command_line,
    }
  )
  folder.write_json(RESULT, record.to_json())
  return result
