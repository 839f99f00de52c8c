"""Attacks and certifies the model of a run folder.

python -m experiments.evaluate --run_dir=runs/first \
  --attacks=fgsm:linf,pgd:linf,pgd:l2 --linf_eps=0.05,0.1,0.2 --l2_eps=0.5,1

Results are written as they come; --resume keeps the ones that are there. Any
Keras classifier can be evaluated: --model=my.keras --dataset=mnist.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys

import numpy as np
from absl import flags

from experiments import command

_DEFAULT_STDDEV = 0.25
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder to evaluate.")
_MODEL = flags.DEFINE_string(
  "model", None, "A Keras file; default: model.keras of the run folder."
)
_DATASET = flags.DEFINE_string(
  "dataset", None, "Data set; default: the one of the run."
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder with <name>.npz; default $TF_PRIVROB_DATA."
)
_ATTACKS = flags.DEFINE_list(
  "attacks",
  ["fgsm:linf", "mim:linf", "pgd:linf", "pgd:l2"],
  "Attacks as name:norm.",
)
_LINF = flags.DEFINE_list(
  "linf_eps", ["0.02", "0.05", "0.1", "0.2"], "Sizes of l_inf attacks."
)
_L2 = flags.DEFINE_list("l2_eps", ["0.25", "0.5", "1", "2"], "Of l_2 attacks.")
_L1 = flags.DEFINE_list("l1_eps", ["2", "5", "10"], "Sizes of l_1 attacks.")
_STEPS = flags.DEFINE_integer("steps", 40, "Steps of iterative attacks.")
_ATTACKED = flags.DEFINE_integer("num_attacked", 500, "Test examples attacked.")
_STDDEV = flags.DEFINE_float(
  "smoothing_stddev",
  None,
  "Noise of the smoothed classifier. Default: the method's own certificate, or"
  f" {_DEFAULT_STDDEV} if it has none.",
)
_SELECTION = flags.DEFINE_integer(
  "num_selection", 100, "Draws to pick a class."
)
_ESTIMATION = flags.DEFINE_integer(
  "num_estimation", 10_000, "Draws to bound its probability."
)
_CONFIDENCE = flags.DEFINE_float("confidence", 0.999, "Of each certificate.")
_CERTIFIED = flags.DEFINE_integer(
  "num_certified", 200, "Test examples certified, evenly spread; 0: none."
)
_SEED = flags.DEFINE_integer("seed", 0, "Of attacks and smoothing noise.")
_RESUME = flags.DEFINE_bool("resume", False, "Keep results that are there.")

_RADII = [round(0.05 * i, 2) for i in range(41)]
_SHOWN = 8  # pictures of adversarial examples


def attack_rows(model, dataset, attacks, count, steps, seed, done=()):
  """Yields (row of metrics.json, result) for each attack and size.

  Args:
    model: Keras classifier that returns logits.
    dataset: whose test part is attacked.
    attacks: triples (name, norm, attack_eps).
    count: number of test examples, the first ones.
    steps: of iterative attacks.
    seed: of random starts.
    done: rows that need not be run again.
  """
  from tf_privrob import attacks as attacks_lib

  x, y = dataset.x_test[:count], dataset.y_test[:count]
  known = {(r["name"], r["norm"], r["attack_eps"], r["count"]) for r in done}
  for name, norm, size in attacks:
    if (name, norm, size, len(x)) in known:
      continue
    attack = attacks_lib.by_name(
      name,
      value_range=dataset.value_range,
      **attacks_lib.accepted(name, attack_eps=size, norm=norm, steps=steps),
    )
    result = attacks_lib.evaluate(attack, model, x, y, seed)
    row = {
      "name": name,
      "norm": norm,
      "attack_eps": size,
      "steps": getattr(attack, "steps", None),
      "restarts": getattr(attack, "restarts", 1),
      "accuracy": result.accuracy,
      "count": result.count,
      "interval": list(result.interval),
      "warnings": result.warnings,
      "seconds": round(result.seconds, 2),
    }
    yield row, result


def certify_rows(model, dataset, certifier, count, seed, csv_path, resume):
  """Certifies evenly spread test examples; the "smoothed" part of metrics."""
  from tf_privrob import certify

  chosen = np.linspace(0, len(dataset.x_test) - 1, count).round().astype(int)
  rows = certify.run(
    certifier,
    model,
    dataset.x_test[chosen],
    dataset.y_test[chosen],
    csv_path=csv_path,
    resume=resume,
    seed=seed,
  )
  reach = max(*(row.radius for row in rows), 0.05)
  if isinstance(certifier, certify.RandomizedSmoothing):
    reach = max(certifier.largest_radius, 0.05)
  radii = [radius for radius in _RADII if radius <= reach + 0.05]
  return {
    "smoothing_stddev": getattr(certifier, "smoothing_stddev", None),
    "norm": rows[0].norm,
    "method": rows[0].method,
    "num_selection": certifier.num_selection,
    "num_estimation": certifier.num_estimation,
    "confidence": certifier.confidence,
    "count": len(rows),
    "abstained": sum(row.abstained for row in rows),
    "curve": certify.certified_accuracy(rows, radii),
    "mean_radius": certify.mean_certified_radius(rows),
    "seconds": round(sum(row.seconds for row in rows), 2),
  }


def choose_certifier(model, stddev: float | None, **settings):
  """Smoothing with the noise asked for; without, the method's own certificate.

  Args:
    model: Keras classifier, or a method, whose `certifier()` counts if what it
      gives is proven.
    stddev: of the noise at the input, or None.
    **settings: num_selection, num_estimation, confidence.
  """
  from tf_privrob import certify

  own = getattr(model, "certifier", None)
  own = own() if stddev is None and own is not None else None
  proven = (certify.RandomizedSmoothing, certify.SingleLayerCertificate)
  if isinstance(own, proven):
    return dataclasses.replace(own, **settings)
  stddev = _DEFAULT_STDDEV if stddev is None else stddev
  return certify.RandomizedSmoothing(stddev, **settings)


def parse_attacks() -> list[tuple[str, str, float]]:
  """The flags as triples (name, norm, attack_eps)."""
  from tf_privrob import attacks
  from tf_privrob import validate

  sizes = {"linf": _LINF.value, "l2": _L2.value, "l1": _L1.value}
  triples = []
  for attack in _ATTACKS.value:
    name, _, norm = attack.partition(":")
    norm = norm or "linf"
    validate.one_of(attacks.NAMES, attack=name)
    validate.one_of(sizes, norm=norm)
    triples += [(name, norm, float(size)) for size in sizes[norm]]
  return triples


def evaluate(
  folder,
  model,
  dataset,
  attacks,
  certifier,
  *,
  num_attacked,
  num_certified,
  steps=40,
  seed=0,
  resume=False,
  command_line="",
) -> dict:
  """Attacks, certifies and writes metrics.json after each result."""
  from tf_privrob import binomial
  from tf_privrob import validate

  validate.positive_int(num_attacked=num_attacked)
  before = (folder.metrics if resume else None) or {}
  predictions = np.argmax(model.predict(dataset.x_test, 500, verbose=0), 1)
  correct = int((predictions == dataset.y_test).sum())
  metrics = {
    "clean": {
      "accuracy": correct / len(predictions),
      "count": len(predictions),
      "interval": binomial.interval(correct, len(predictions)),
    },
    "attacks": list(before.get("attacks", [])),
    "smoothed": before.get("smoothed"),
    "commands": sorted({*before.get("commands", []), command_line} - {""}),
  }
  folder.write_json("metrics.json", metrics)
  pictures = {}
  for row, result in attack_rows(
    model, dataset, attacks, num_attacked, steps, seed, metrics["attacks"]
  ):
    metrics["attacks"].append(row)
    folder.write_json("metrics.json", metrics)
    pictures[f"{row['name']} {row['norm']} {row['attack_eps']:g}"] = result
  if pictures:
    save_pictures(folder, model, dataset, predictions, pictures)
  if num_certified:
    validate.positive_int(num_certified=num_certified)
    metrics["smoothed"] = certify_rows(
      model,
      dataset,
      certifier,
      min(num_certified, len(dataset.x_test)),
      seed,
      folder.file("certificates.csv"),
      resume,
    )
    folder.write_json("metrics.json", metrics)
  return metrics


def save_pictures(folder, model, dataset, predictions, results) -> None:
  """Adversarial examples of each attack at its middle size."""
  if len(dataset.input_shape) != 3:
    return
  by_attack = {}
  for name in results:
    by_attack.setdefault(name.rsplit(" ", 1)[0], []).append(name)
  names = [sizes[len(sizes) // 2] for sizes in by_attack.values()]
  count = min(len(result.x_adv) for result in results.values())
  chosen = np.flatnonzero(predictions[:count] == dataset.y_test[:count])
  chosen = chosen[:_SHOWN]
  adversarial = np.stack([results[name].x_adv[chosen] for name in names])
  flat = adversarial.reshape(-1, *dataset.input_shape)
  after = np.argmax(model.predict(flat, 500, verbose=0), 1)
  np.savez_compressed(
    folder.file("examples.npz"),
    clean=dataset.x_test[chosen],
    adversarial=adversarial,
    attack_names=np.array(names),
    labels=dataset.y_test[chosen],
    clean_predictions=predictions[chosen],
    adversarial_predictions=after.reshape(len(names), -1),
  )


def main() -> None:
  """Evaluates as the flags say."""
  import tensorflow as tf

  import tf_privrob.methods  # noqa: F401  (Keras must know what it loads)
  from tf_privrob import data
  from tf_privrob import models
  from tf_privrob import run_folder

  if not _RUN_DIR.value:
    raise ValueError("Expected --run_dir, the folder of the run.")
  folder = run_folder.RunFolder(_RUN_DIR.value)
  path = _MODEL.value or folder.file("model.keras")
  if not _MODEL.value and not folder.has("model.keras"):
    raise ValueError(
      f"Expected a trained model at {path}, found none. Train one first:"
      f" python -m experiments.train --run_dir={_RUN_DIR.value}, or go on with"
      " a killed run by --resume."
    )
  described = folder.config or {}
  name = _DATASET.value or described.get("dataset")
  if not name:
    raise ValueError("Expected --dataset for a model without a run folder.")
  value_range = described.get("flags", {}).get("value_range")
  value_range = value_range and data.parse_range(value_range)
  dataset = data.load(name, _DATA_DIR.value, value_range)
  model = models.as_logits(tf.keras.models.load_model(path, compile=False))
  if _MODEL.value and not described:
    folder.write_json(
      "config.json",
      {"method": "imported model", "dataset": name, "network": _MODEL.value},
    )
  certifier = choose_certifier(
    model,
    _STDDEV.value,
    num_selection=_SELECTION.value,
    num_estimation=_ESTIMATION.value,
    confidence=_CONFIDENCE.value,
  )
  metrics = evaluate(
    folder,
    model,
    dataset,
    parse_attacks(),
    certifier,
    num_attacked=_ATTACKED.value,
    num_certified=_CERTIFIED.value,
    steps=_STEPS.value,
    seed=_SEED.value,
    resume=_RESUME.value,
    command_line=f"python -m experiments.evaluate {shlex.join(sys.argv[1:])}",
  )
  print(f"Clean accuracy {metrics['clean']['accuracy']:.4f}")
  for row in metrics["attacks"]:
    print(
      f"{row['name']:5s} {row['norm']:5s} size {row['attack_eps']:<5g} accuracy"
      f" {row['accuracy']:.4f}"
    )
  print(f"Next: python -m experiments.report --run_dir={_RUN_DIR.value}")


if __name__ == "__main__":
  command.run(main)
