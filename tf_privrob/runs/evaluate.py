"""Attacks and certifies a model into a run folder; no flags."""

from __future__ import annotations

import numpy as np

DEFAULT_STDDEV = 0.25
_RADII = [round(0.05 * i, 2) for i in range(41)]
_SHOWN = 8  # pictures of adversarial examples
_GATE_BATCH = 200  # rows in which a network must not mix them


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
  """Certifies evenly spread test examples; the "certified" part of metrics."""
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
  proven = all(row.kind == "proven" for row in rows)
  if isinstance(certifier, certify.RandomizedSmoothing):
    reach = max(certifier.largest_radius, 0.05)
  radii = [radius for radius in _RADII if radius <= reach + 0.05]
  if proven:
    curve = certify.certified_accuracy(rows, radii)
  else:
    curve = certify.claimed_accuracy(rows, radii)
  return {
    "kind": "proven" if proven else "claimed",
    "smoothing_stddev": getattr(certifier, "smoothing_stddev", None),
    "norm": rows[0].norm,
    "method": rows[0].method,
    "num_selection": getattr(certifier, "num_selection", None),
    "num_estimation": getattr(
      certifier, "num_estimation", getattr(certifier, "num_draws", None)
    ),
    "confidence": rows[0].confidence,
    "count": len(rows),
    "abstained": sum(row.abstained for row in rows),
    "curve": curve,
    "mean_radius": certify.mean_certified_radius(rows) if proven else None,
    "seconds": round(sum(row.seconds for row in rows), 2),
  }


def choose_certifier(
  model, stddev: float | None, claimed: bool = False, **settings
):
  """Smoothing with the noise asked for; without, the method's own certificate.

  Args:
    model: Keras classifier, or a method, whose `certifier()` counts if what it
      gives is proven.
    stddev: of the noise at the input, or None.
    claimed: take the sizes that the method's authors claim and nobody proved.
    **settings: num_selection, num_estimation, confidence.

  Raises:
    ValueError: if `claimed` sizes are asked of a method that claims none.
  """
  from tf_privrob import certify

  own = getattr(model, "certifier", None)
  if claimed:
    return _claimed_certifier(own() if own is not None else None, stddev)
  own = own() if stddev is None and own is not None else None
  if own is not None and own.kind == "proven":
    return own.with_draws(**settings)
  stddev = DEFAULT_STDDEV if stddev is None else stddev
  return certify.RandomizedSmoothing(stddev, **settings)


def _claimed_certifier(own, stddev: float | None):
  """As the method sets it: draws and confidence are part of the claim."""
  if stddev is not None:
    raise ValueError(
      "Expected claimed sizes or smoothing_stddev, received both: claims are"
      " about the method's own noise."
    )
  if own is None or own.kind != "claimed":
    raise ValueError(
      "Expected a method that claims sizes without a proof (dpal, secure_sgd),"
      f" received one whose own certificate is {type(own).__name__}. Leave"
      " --claimed out."
    )
  return own


def evaluate(
  folder,
  model,
  dataset,
  attacks,
  certifier,
  *,
  num_attacked=500,
  num_certified,
  steps=40,
  seed=0,
  resume=False,
  command_line="",
) -> dict:
  """Attacks, certifies and writes metrics.json after each result.

  Without attacks, results of earlier ones on the same weights stay.
  """
  from tf_privrob import binomial
  from tf_privrob import certify
  from tf_privrob import models
  from tf_privrob import validate
  from tf_privrob.certify import certifier as certifier_lib
  from tf_privrob.certify import gate
  from tf_privrob.methods import checks

  validate.positive_int(num_attacked=num_attacked, steps=steps)
  for _, _, size in attacks:
    validate.positive(attack_eps=size)
  if num_certified and isinstance(certifier, certify.RandomizedSmoothing):
    gate.check_rows(  # before the attacks, which take long
      certifier_lib.as_logits_fn(model),
      [certifier.noisy_batch(dataset.x_test[:8], _GATE_BATCH)],
      "They leave no certificate for a single input: pass --num_certified=0.",
    )
  weights = models.fingerprint(model)
  before = (folder.metrics if resume or not attacks else None) or {}
  if before.get("weights", weights) != weights:
    before = {}
  checks.num_classes(model, dataset.input_shape)
  predictions = np.argmax(model.predict(dataset.x_test, 500, verbose=0), 1)
  correct = int((predictions == dataset.y_test).sum())
  metrics = {
    "weights": weights,
    "clean": {
      "accuracy": correct / len(predictions),
      "count": len(predictions),
      "interval": binomial.interval(correct, len(predictions)),
    },
    "attacks": list(before.get("attacks", [])),
    "certified": before.get("certified", before.get("smoothed")),
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
    metrics["certified"] = certify_rows(
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
  from tf_privrob import models

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
    weights=np.array(models.fingerprint(model)),
  )
