"""Measures the models of `experiments.dpal`: attacks, and radii.

DPAL's pipeline draws noise for every prediction: it is attacked through the
mean over draws (EOT) and judged by the majority of fresh ones. The others are
attacked as they are. Nothing here calls a claimed size proven.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from experiments.dpal import cells as dpal_cells
from tf_privrob import papers

# Formulas that DPAL's papers and code have for the size of an image.
COMPOSITIONS = {
  "paper": "paper: kappa + phi",
  "harmonic": "harmonic",
  "released_v0": "released code V0",
  "released_v1": "released code V1",
}
_L2_RADII = tuple(round(0.05 * i, 2) for i in range(61))
_LINF_RADII = tuple(round(0.005 * i, 3) for i in range(21))  # and the paper's
_BATCH = 100


def chosen_rows(dataset, count: int) -> np.ndarray:
  """Indices of so many test images, evenly spread."""
  count = min(count, dataset.num_test)
  return np.linspace(0, dataset.num_test - 1, count).round().astype(int)


def attack_cell(cell, scale, dataset, model) -> dict:
  """Accuracy under the four attacks of one size, on the deployed pipeline."""
  started = time.monotonic()
  rows = chosen_rows(dataset, scale.num_attacked)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  found = []
  for name in dpal_cells.ATTACKS:
    result = _attack(name, cell.attack_eps, cell, scale, dataset, model, x, y)
    found.append(
      {
        "name": name,
        "accuracy": result.accuracy,
        "interval": result.interval,
        "warnings": result.warnings,
        "seconds": round(result.seconds, 2),
      }
    )
  randomised = cell.method == "dpal"
  return {
    "attack_eps": cell.attack_eps,
    "norm": "linf",
    "count": len(x),
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws if randomised else None,
    "verdict_draws": scale.verdict_draws if randomised else None,
    "clean_accuracy": result.clean_accuracy,
    "attacks": found,
    "seconds": round(time.monotonic() - started, 2),
  }


def radii_cell(cell, scale, dataset, model, folder) -> dict:
  """Proven radii and, for DPAL, the claimed ones and what became of them."""
  started = time.monotonic()
  rows = chosen_rows(dataset, scale.num_radii)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  result = {
    "count": len(x),
    "proven": _proven(cell, scale, model, x, y, folder),
  }
  if cell.method == "dpal":
    result["claimed"] = _claimed(cell, scale, dataset, model, x, y)
  return {**result, "seconds": round(time.monotonic() - started, 2)}


def _attack(name, size, cell, scale, dataset, model, x, y):
  from tf_privrob import attacks

  attack = attacks.by_name(
    name,
    value_range=dataset.value_range,
    **attacks.accepted(name, attack_eps=size, steps=scale.attack_steps),
  )
  if cell.method == "dpal":
    target = attacks.eot(model.noisy_logits, scale.eot_draws)
    draws = scale.verdict_draws
  else:
    target, draws = model, 1
  return attacks.evaluate(
    attack, target, x, y, 0, _BATCH, draws, progress=False
  )


def _proven(cell, scale, model, x, y, folder) -> dict:
  """Curves in l2 and, through ||.||_2 <= sqrt(d) ||.||_inf, in l_inf."""
  from tf_privrob import certify

  draws = {
    "num_selection": scale.num_selection,
    "num_estimation": scale.num_estimation,
  }
  if cell.method == "dpal":
    certifier = model.proven_certifier("l2", **draws)
  else:
    certifier = dataclasses.replace(model.certifier(), **draws)
  rows = certify.run(
    certifier, model, x, y, csv_path=folder.file("certificates.csv")
  )
  in_linf = [
    dataclasses.replace(
      row, norm="linf", radius=row.radius / math.sqrt(x[0].size)
    )
    for row in rows
  ]
  return {
    "method": rows[0].method,
    "settings": certifier.settings(),
    "confidence": certifier.confidence,
    "abstained": sum(row.abstained for row in rows),
    "mean_l2_radius": certify.mean_certified_radius(rows),
    "largest_linf_radius": max(row.radius for row in in_linf),
    "l2": certify.certified_accuracy(rows, _L2_RADII),
    "linf": certify.certified_accuracy(
      in_linf, sorted({*_LINF_RADII, *dpal_cells.RADII})
    ),
  }


def _claimed(cell, scale, dataset, model, x, y) -> dict:
  """Sizes by four formulas from one set of draws, and attacks of each size.

  The bounds are on votes, as in the released code: of the paper's and the
  code's bounds they allow the larger claims.
  """
  verified = dataclasses.replace(
    model.certifier(), bound="clopper_pearson", num_draws=scale.num_draws
  )
  estimate = verified.estimate(model, x)
  correct = estimate.labels == y
  attacked = [
    _attack("pgd", size, cell, scale, dataset, model, x, y)
    for size in dpal_cells.RADII
  ]
  return {
    "num_draws": scale.num_draws,
    "bound": verified.bound,
    "psi": verified.psi,
    "accuracy": float(correct.mean()),
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws,
    "verdict_draws": scale.verdict_draws,
    "attacked": [
      {
        "attack_eps": size,
        "accuracy": result.accuracy,
        "interval": result.interval,
        "warnings": result.warnings,
      }
      for size, result in zip(dpal_cells.RADII, attacked)
    ],
    "curves": {
      name: [
        {
          "attack_eps": size,
          **count_fallen(
            correct & (sizes_by(name, model, estimate, size) >= size),
            result,
            x,
          ),
        }
        for size, result in zip(dpal_cells.RADII, attacked)
      ]
      for name in COMPOSITIONS
    },
  }


def sizes_by(composition: str, model, estimate, attack_eps: float):
  """The size of each image by one formula, each with its own Delta_r^h."""
  verified = model.certifier(attack_eps, composition)
  if composition.startswith("released"):
    kernel = next(w for w in model.network.weights if len(w.shape) > 1)
    positions = math.prod(model.hidden_noise_shape[:-1])
    verified = dataclasses.replace(
      verified,
      hidden_sensitivity=papers.released_hidden_sensitivity(
        kernel.numpy(), positions
      ),
    )
  return verified.radius(estimate.p1_lower, estimate.p2_upper)


def count_fallen(claimed: np.ndarray, result, x: np.ndarray) -> dict:
  """How many images of those claimed to be robust an attack misclassified.

  An image that fresh draws misclassify without an attack is none of its
  successes; `evaluate` returns those as they were.
  """
  moved = np.any(result.x_adv != x, axis=tuple(range(1, x.ndim)))
  fallen = claimed & moved & result.success
  return {
    "accuracy": float(claimed.mean()),
    "claimed": int(claimed.sum()),
    "fallen": int(fallen.sum()),
  }
