"""The report's figures for TensorBoard, with the settings of the run.

Scalars go to `<run>/tb/report`, beside those of training, and the settings to
TensorBoard's HParams plugin, so that `tensorboard --logdir=runs` lists a sweep
with settings and figures. Claimed figures are not written: a scalar stands
alone. What was computed on the private training data without noise goes to
`<run>/nonprivate/tb/report`.
"""

from __future__ import annotations

import pathlib
from typing import Any

from tf_privrob import files
from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.privacy import run_facts
from tf_privrob.report import formats
from tf_privrob.report import headlines
from tf_privrob.report import results as results_lib
from tf_privrob.report import views

FOLDER = "tb/report"
_SECRET = "seed"  # whoever knows it can subtract the noise


def figures(results: results_lib.Results) -> dict[str, float]:
  """Every scalar by its name."""
  found: dict[str, float | None] = {}
  if results.clean is not None:
    found["report/clean_accuracy"] = results.clean.accuracy
  worst = headlines.headline_attack(results.attacks)
  if worst is not None:
    found["report/attacked_accuracy"] = worst.accuracy
  for attack in results.attacks:
    size = f"{attack.norm}_{attack.attack_eps:g}"
    found[f"attacked/{attack.name}_{size}"] = attack.accuracy
  smoothed = results.smoothed
  if smoothed is not None and smoothed.proven:
    point = headlines.headline_radius(smoothed)
    words = ["", *smoothed.condition.split()]  # where a number stands alone
    beside = "_".join(words)
    found[f"report/certified_accuracy{beside}"] = point.accuracy
    for point in smoothed.curve:
      name = f"certified/{smoothed.norm}_{point.radius:g}{beside}"
      found[name] = point.accuracy
  statement = results.privacy
  if statement is not None:
    if statement.proven is not None:
      name = run_facts.scalar_of_proven(statement.condition)
      found[name] = statement.proven.dp_epsilon
    found["privacy/dp_epsilon_audited"] = statement.audited
  audit = results.certificate_audit
  if audit is not None:
    found["report/radius_violations"] = audit.violations
  found.update(_nonprivate(results))
  return {
    name: float(value) for name, value in found.items() if value is not None
  }


def _nonprivate(results: results_lib.Results) -> dict[str, float | None]:
  """Of the private training data: membership and training statistics."""
  found: dict[str, float | None] = {}
  membership = results.membership
  if membership is not None:
    best = membership.headline
    found["nonprivate/membership_advantage"] = best.advantage
    found["nonprivate/membership_auc"] = best.auc
    for item in membership.strategies:
      name = "_".join(filter(None, (item.strategy, item.score)))
      found[f"nonprivate/membership/{name}"] = item.advantage
  if results.history:
    last = results.history[-1]
    for name in last.figures:
      if name.startswith(run_folder.NONPRIVATE):
        found[name] = last.number(name)
  return found


def settings(results: results_lib.Results) -> dict[str, Any]:
  """The settings as HParams takes them: flat, numbers, truths and text.

  A budget that was asked for is a setting, not a guarantee; beside it stands
  what is claimed, proven and audited, in one text.
  """
  config = results.config or records.Config()
  found = {
    "method": config.method,
    "dataset": config.dataset,
    "network": config.network,
  }
  for fact in views.flat(config.config or {}, "config."):
    if fact.name != f"config.{_SECRET}":
      found[fact.name] = fact.exact
  if results.privacy is not None:
    found["privacy"] = formats.privacy_figures(results.privacy)
  return {
    str(name): item
    for name, item in found.items()
    if isinstance(item, (bool, int, float, str))
  }


def write(folder: run_folder.RunFolder, results: results_lib.Results) -> None:
  """Replaces what an earlier report wrote for TensorBoard.

  Raises:
    ValueError: if the folder cannot be written.
  """
  import tensorflow as tf
  from tensorboard.plugins.hparams import api as hparams

  step = results.run.steps or 0
  found, chosen = figures(results), settings(results)
  for part in ("", run_folder.NONPRIVATE):
    target = folder.file(part + FOLDER)
    for old in target.glob("events.out.tfevents.*"):
      files.remove(old)
    scalars = {
      name: value
      for name, value in found.items()
      if name.startswith(run_folder.NONPRIVATE) == bool(part)
    }
    if not scalars and part:
      continue
    files.make_folder(target)
    try:
      writer = tf.summary.create_file_writer(str(target))
    except tf.errors.OpError as error:
      raise files.DiskError(
        f"Expected to write {target}, but TensorFlow cannot"
        f" ({type(error).__name__}). Give this user the right to, or pass"
        " --tensorboard=false."
      ) from error
    with writer.as_default(step=step):
      if chosen and not part:
        name = pathlib.Path(results.run_dir).resolve()
        hparams.hparams(chosen, trial_id="/".join(name.parts[-2:]))
      for name, value in scalars.items():
        tf.summary.scalar(name, value)
    writer.close()
