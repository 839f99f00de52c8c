"""Trains, certifies and attacks the models of `experiments.smoothing`."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from experiments.grid import sheets
from experiments.grid import work
from experiments.smoothing import cells as smoothing_cells

PUBLISHED = sheets.published(__file__)
_STEP = 0.05  # of the certified curve
_RULES_RADII = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7)
_INSIDE = 0.999  # attacks stay off the rim, where rounding decides
_BATCH = 50


def load_dataset(name: str, data_dir: str | None, holdout: int = 0):
  """The data; with `holdout`, the last training images stand in for the test.

  Settings are chosen on those, so that the test images decide nothing.
  """
  from tf_privrob import data
  from tf_privrob import validate

  validate.one_of(smoothing_cells.DATASETS, dataset=name)
  dataset = data.load(name, data_dir)
  if not holdout:
    return dataset
  if holdout >= dataset.num_train:
    raise ValueError(
      f"Expected more than the {holdout:,} training images that are held out,"
      f" received {dataset.num_train:,} in {name}. Use dataset=mnist."
    )
  return dataclasses.replace(
    dataset,
    x_train=dataset.x_train[:-holdout],
    y_train=dataset.y_train[:-holdout],
    x_test=dataset.x_train[-holdout:],
    y_test=dataset.y_train[-holdout:],
    split=f"{dataset.split} The last {holdout:,} training images serve as test"
    " images here.",
  )


def _rows(cell, scale, dataset) -> np.ndarray:
  count = scale.recipes[cell.recipe].num_images or scale.num_images
  return work.chosen_rows(dataset, count)


def train_cell(cell, scale, dataset, folder) -> dict:
  """Trains, or goes on with a training that was killed; the result."""
  recipe = scale.recipes[cell.recipe]
  model, found = work.train(
    lambda config: work.build(recipe.method, recipe.network, dataset, config),
    smoothing_cells.settings(cell, scale, dataset.num_train),
    dataset,
    recipe.network,
    folder,
  )
  return {"label": recipe.label, **found, "clean": work.clean(model, dataset)}


def certificates(cell, scale, dataset, model, folder) -> list:
  """Certificates of a "certify" cell, from its file as far as they are there.

  Every row is proven, in l_2, at confidence 99.9 %.
  """
  from tf_privrob import certify

  if scale.recipes[cell.recipe].certificate == "own":
    certifier = model.certifier(norm="l2", num_estimation=cell.draws)
  else:
    certifier = certify.RandomizedSmoothing(
      cell.stddev, num_estimation=cell.draws
    )
  rows = _rows(cell, scale, dataset)
  return certify.run(
    certifier,
    model,
    dataset.x_test[rows],
    dataset.y_test[rows],
    csv_path=folder.file(f"{cell.part}.csv"),
    seed=work.DRAWS,
  )


def certify_cell(cell, scale, dataset, model, folder) -> dict:
  """The certified curve and the average certified radius."""
  from tf_privrob import certify

  found = certificates(cell, scale, dataset, model, folder)
  largest = max(row.radius for row in found)
  marks = published_accuracy(dataset.name, cell.stddev)
  radii = np.arange(0, largest + _STEP, _STEP).round(2)
  edge = math.floor(1000 * largest) / 1000  # where unanimous votes end
  radii = sorted({*radii.tolist(), edge, *marks})
  return {
    "stddev": cell.stddev,
    "draws": cell.draws,
    "count": len(found),
    "abstained": sum(row.abstained for row in found),
    "confidence": found[0].confidence,
    "certificate": found[0].method,
    "mean_radius": certify.mean_certified_radius(found),
    "standard_error": standard_error(found),
    "curve": certify.certified_accuracy(found, radii),
    "num_draws": sum(row.num_draws for row in found),
    "certify_seconds": round(sum(row.seconds for row in found), 2),
  }


def published_accuracy(dataset: str, stddev: float) -> dict[float, float]:
  """Published certified accuracies by radius, {} if there are none."""
  row = sheets.by_value(PUBLISHED, dataset, "noise").get(stddev)
  figures = row.figures if row else {}
  return {float(k): v for k, v in figures.items() if k != "mean_radius"}


def standard_error(found) -> float:
  """Of the average certified radius, over the choice of test images."""
  values = [row.radius if row.correct else 0.0 for row in found]
  return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def attack_cell(cell, scale, dataset, model, folder) -> dict:
  """EOT-PGD inside each image's own proven radius: how many classes change.

  A proof that holds lets no class change, but for the failure probability of
  each certificate. The verdict is the majority of fresh draws.
  """
  draws = min(smoothing_cells.draws_of(scale, cell.recipe))
  wanted = dataclasses.replace(cell, part=f"certify-{cell.stddev:g}-{draws}")
  found = certificates(wanted, scale, dataset, model, folder)
  found = [row for row in found if row.correct and row.radius > 0]
  found = found[: scale.num_attacked]
  rows = _rows(cell, scale, dataset)
  x = dataset.x_test[rows[[row.index for row in found]]]
  own = scale.recipes[cell.recipe].certificate == "own"
  fallen = attack_inside(
    model.noisy_logits if own else smoothed(model, cell.stddev),
    x,
    np.array([row.prediction for row in found]),
    np.array([row.radius for row in found]),
    scale,
  )
  return {
    "stddev": cell.stddev,
    "draws": draws,
    "attacked": len(found),
    "fallen": int(fallen.sum()),
    "expected_at_most": len(found) * (1 - found[0].confidence) if found else 0,
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws,
    "verdict_draws": scale.verdict_draws,
  }


def claimed_cell(cell, scale, dataset, model, folder) -> dict:
  """SecureSGD's claimed l_inf sizes beside proven ones, attacked from inside.

  Both are about the same model and images. Attacks stay in the value range.
  """
  del folder
  rows = _rows(cell, scale, dataset)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  proven = model.proven_certifier("linf", num_estimation=min(scale.draws))
  result = {"count": len(x)}
  for kind, certifier in (("claimed", model.certifier()), ("proven", proven)):
    found = [
      row for row in certifier.certify(model, x, y, work.DRAWS) if row.correct
    ]
    found = [row for row in found if row.radius > 0][: scale.num_attacked]
    fallen = attack_inside(
      model.noisy_logits,
      x[[row.index for row in found]],
      np.array([row.prediction for row in found]),
      np.array([row.radius for row in found]),
      scale,
      "linf",
      dataset.value_range,
    )
    result[kind] = {
      "attacked": len(found),
      "fallen": int(fallen.sum()),
      "median_size": float(np.median([r.radius for r in found] or [0.0])),
    }
  return {
    **result,
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws,
    "verdict_draws": scale.verdict_draws,
  }


def rules_cell(cell, scale, dataset, model, folder) -> dict:
  """PixelDP's certified curve by its own bound and by the tight one, in l_2.

  Both are proven, from the same draws, and use the norm of the trained layers.
  """
  from tf_privrob import certify

  rows = _rows(cell, scale, dataset)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  draws = min(smoothing_cells.draws_of(scale, cell.recipe))
  result = {"count": len(x), "draws": draws, "rules": {}}
  for rule in ("pixeldp", "tight"):
    certifier = model.certifier(norm="l2", rule=rule, num_estimation=draws)
    path = folder.file(f"rules-{rule}.csv")
    found = certify.run(certifier, model, x, y, csv_path=path, seed=work.DRAWS)
    result["rules"][rule] = {
      "mean_radius": certify.mean_certified_radius(found),
      "largest_radius": max(row.radius for row in found),
      "curve": certify.certified_accuracy(found, _RULES_RADII),
    }
  result["operator_norm"] = certifier.operator_norm
  result["noise_scale"] = certifier.scale
  return result


def smoothed(model, stddev: float):
  """One noisy pass, as a function of (x, seed)."""
  import tensorflow as tf

  def noisy_logits(x, seed):
    noise = tf.random.stateless_normal(tf.shape(x), seed)
    return model(x + stddev * noise, training=False)

  return noisy_logits


def attack_inside(
  noisy_logits, x, labels, radii, scale, norm="l2", value_range=work.NO_BOX
) -> np.ndarray:
  """Whether the majority class of each image leaves its label.

  Args:
    noisy_logits: function of (x, seed): one draw.
    x: images.
    labels: the classes whose radii they are.
    radii: an attack stays inside the image's own one.
    scale: steps and draws.
    norm: of the radii.
    value_range: the attack stays in it.
  """
  import tensorflow as tf

  from tf_privrob import attacks
  from tf_privrob.attacks import verdict

  if not len(x):
    return np.zeros(0, bool)
  # The margin of log-probabilities does not fade where the model is sure.
  attack = attacks.PGD(
    0.0, norm, value_range, loss="margin", steps=scale.attack_steps
  )
  target = attacks.eot(noisy_logits, scale.eot_draws)
  craft = tf.function(
    lambda x, y, seed, sizes: attack(target, x, y, seed, sizes)
  )
  judge = verdict.judge(noisy_logits, scale.verdict_draws)
  stays = []
  for start in range(0, len(x), _BATCH):
    part = slice(start, start + _BATCH)
    sizes = _INSIDE * radii[part].reshape(-1, *[1] * (x.ndim - 1))
    moved = craft(
      tf.constant(x[part]),
      tf.constant(labels[part], tf.int32),
      tf.constant([0, start]),
      tf.constant(sizes, tf.float32),
    )
    stays.append(judge(moved, labels[part], tf.constant([1, start])))
  return ~np.concatenate(stays)
