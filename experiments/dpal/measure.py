"""Measures the models of `experiments.dpal`.

Pipelines that draw noise for every prediction are attacked through the mean
over draws (EOT) and judged by the majority of fresh ones. The others are
attacked as they are, but where their radii are those of a smoothed classifier,
and are read at attacked images: then this is attacked. Nothing here calls a
claimed size proven.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Callable
from typing import NamedTuple

import numpy as np

from experiments.dpal import cells as dpal_cells
from experiments.grid import work
from tf_privrob import binomial


class Formula(NamedTuple):
  """What DPAL's paper or code have for the size of an image.

  Attributes:
    label: On the page.
    composition: Of kappa and phi, see `papers.claimed_radius`.
    rows: What a row of theta_1 is, see `DPAL.certifier`.
  """

  label: str
  composition: str
  rows: str = "kernel"


FORMULAS = {
  "paper": Formula("paper: kappa + phi", "paper"),
  "paper_matrix": Formula("paper, rows of the matrix", "paper", "matrix"),
  "harmonic": Formula("harmonic", "harmonic"),
  "released_v0": Formula("released code V0", "released_v0"),
  "released_v1": Formula("released code V1", "released_v1"),
}
# The paper's bounds on means, and the released code's on votes.
BOUNDS = {"hoeffding": "Hoeffding", "clopper_pearson": "Clopper-Pearson"}
_PUBLISHED_CONFIDENCE = 0.95  # of PixelDP and DPAL
_L2_RADII = tuple(round(0.05 * i, 2) for i in range(61))
_LINF_RADII = tuple(round(0.005 * i, 3) for i in range(21))  # and the paper's
_BATCH = 100


def chosen_rows(dataset, count: int) -> np.ndarray:
  """Indices of so many test images, evenly spread."""
  count = min(count, dataset.num_test)
  return np.linspace(0, dataset.num_test - 1, count).round().astype(int)


def linf_cell(cell, scale, dataset, model, folder) -> dict:
  """Accuracy under the four attacks of one size, on the deployed pipeline."""
  del folder
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
  randomised = cell.method in dpal_cells.NOISY
  return {
    "attack_eps": cell.attack_eps,
    "norm": "linf",
    "count": len(x),
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws if randomised else None,
    "verdict_draws": scale.verdict_draws if randomised else None,
    "clean_accuracy": result.clean_accuracy,
    "attacks": found,
  }


def radii_cell(cell, scale, dataset, model, folder) -> dict:
  """Proven radii and, for DPAL, the claimed ones and what became of them."""
  rows = chosen_rows(dataset, scale.num_radii)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  result = {
    "count": len(x),
    "proven": _proven(cell, scale, model, x, y, folder),
  }
  if cell.method in ("dpal", "secure_sgd"):
    result["claimed"] = _claimed(cell, scale, dataset, model, x, y)
  return result


def attacked_cell(cell, scale, dataset, model, folder) -> dict:
  """Sizes at images that one attack has changed (Figures 3, 8 and 9).

  An image counts at a size mu if an attack of this size leaves it right, and
  the size of the changed image is still mu or more: claimed, by every formula
  and both bounds, or proven, by what PixelDP or smoothing prove from as many
  draws at as much confidence as the paper takes.
  """
  del folder
  rows = chosen_rows(dataset, scale.num_attacked)
  x, y = dataset.x_test[rows], dataset.y_test[rows]
  certifier = None
  if cell.method not in ("dpal", "secure_sgd"):
    certifier = _as_published(cell, scale, model)
  points = []
  for size in dpal_cells.RADII:
    result = _attack(
      cell.attack, size, cell, scale, dataset, model, x, y, certifier
    )
    point = {
      "attack_eps": size,
      "accuracy": result.accuracy,
      "interval": result.interval,
      "warnings": result.warnings,
    }
    if certifier is None:
      claims = _claims(cell, scale, model, result.x_adv, y)
      point["claimed"] = {
        bound: {
          name: work.share(sizes(size) >= size) for name, sizes in found.items()
        }
        for bound, found in claims.items()
      }
    else:
      found = _in_linf(certifier.certify(model, result.x_adv, y, work.DRAWS), x)
      robust = [row.correct and row.radius >= size for row in found]
      point["proven"] = work.share(np.array(robust))
    points.append(point)
  return {
    "attack": cell.attack,
    "count": len(x),
    "attack_steps": scale.attack_steps,
    "eot_draws": scale.eot_draws,
    "verdict_draws": scale.verdict_draws,
    "num_draws": scale.num_draws,
    "confidence": _PUBLISHED_CONFIDENCE,
    "certifier": certifier and certifier.settings(),
    "reach": certifier and _largest(certifier, x[0].size),
    "points": points,
  }


def _as_published(cell, scale, model):
  """What PixelDP's paper, or smoothing, prove from so many draws."""
  draws = {
    "num_selection": scale.num_selection,
    "num_estimation": scale.num_draws,
    "confidence": _PUBLISHED_CONFIDENCE,
  }
  if cell.method in dpal_cells.NO_BUDGET:
    return model.certifier(_norm(cell), rule="pixeldp", **draws)
  return dataclasses.replace(model.certifier(), **draws)


def _largest(certifier, num_features: int) -> float:
  """The l_inf radius of an input whose draws all agree."""
  if not hasattr(certifier, "radius"):  # smoothing at the input, in l_2
    return certifier.largest_radius / math.sqrt(num_features)
  draws, failure_prob = (
    certifier.num_estimation,
    (1 - certifier.confidence) / 2,
  )
  radius = certifier.radius(
    binomial.lower(draws, draws, failure_prob),
    binomial.upper(0, draws, failure_prob),
    num_features,
  )
  root = 1 if certifier.norm == "linf" else math.sqrt(num_features)
  return float(radius) / root


def _norm(cell) -> str:
  """The norm that a method's radii are computed in."""
  return "linf" if cell.method.endswith("_linf") else "l2"


def _in_linf(rows, x) -> list:
  """Radii in l_inf: ||.||_2 <= sqrt(d) ||.||_inf."""
  root = math.sqrt(x[0].size)
  return [
    dataclasses.replace(
      row,
      norm="linf",
      radius=row.radius / (1 if row.norm == "linf" else root),
    )
    for row in rows
  ]


def _attack(name, size, cell, scale, dataset, model, x, y, certifier=None):
  """An attack on what is deployed, or on what the certifier is about."""
  from tf_privrob import attacks

  attack = attacks.by_name(
    name,
    value_range=dataset.value_range,
    **attacks.accepted(name, attack_eps=size, steps=scale.attack_steps),
  )
  one_draw = getattr(model, "noisy_logits", None)
  if one_draw is None and certifier is not None:
    one_draw = certifier.target(model, x[:1]).logits
  target, draws = model, 1
  if one_draw is not None:
    target = attacks.eot(one_draw, scale.eot_draws)
    draws = scale.verdict_draws
  return attacks.evaluate(
    attack, target, x, y, 0, _BATCH, draws, progress=False
  )


def _proven(cell, scale, model, x, y, folder) -> dict:
  """Curves in l_inf and l_2, of which either bounds the other."""
  from tf_privrob import certify

  draws = {
    "num_selection": scale.num_selection,
    "num_estimation": scale.num_estimation,
  }
  if cell.method in ("dpal", "secure_sgd"):
    certifier = model.proven_certifier("l2", **draws)
  elif cell.method in dpal_cells.NO_BUDGET:
    certifier = model.certifier(_norm(cell), **draws)
  else:
    certifier = dataclasses.replace(model.certifier(), **draws)
  rows = certify.run(
    certifier,
    model,
    x,
    y,
    csv_path=folder.file("certificates.csv"),
    seed=work.DRAWS,
  )
  in_linf = _in_linf(rows, x)
  # A ball in l_inf holds that of l_2 with its radius.
  in_l2 = [dataclasses.replace(row, norm="l2") for row in rows]
  return {
    "method": rows[0].method,
    "settings": certifier.settings(),
    "confidence": certifier.confidence,
    "abstained": sum(row.abstained for row in rows),
    "mean_l2_radius": certify.mean_certified_radius(in_l2),
    "largest_linf_radius": max(row.radius for row in in_linf),
    "l2": certify.certified_accuracy(in_l2, _L2_RADII),
    "linf": certify.certified_accuracy(
      in_linf, sorted({*_LINF_RADII, *dpal_cells.RADII})
    ),
  }


def _claimed(cell, scale, dataset, model, x, y) -> dict:
  """Claimed sizes, and attacks of each size."""
  claims = _claims(cell, scale, model, x, y)
  attacked = [
    _attack("pgd", size, cell, scale, dataset, model, x, y)
    for size in dpal_cells.RADII
  ]
  return {
    "num_draws": scale.num_draws,
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
      bound: {
        name: [
          {
            "attack_eps": size,
            "reach": reach(cell, scale, model, name, bound, size),
            **count_fallen(sizes(size) >= size, result, x),
          }
          for size, result in zip(dpal_cells.RADII, attacked)
        ]
        for name, sizes in found.items()
      }
      for bound, found in claims.items()
    },
  }


def _claims(cell, scale, model, x, y) -> dict[str, dict[str, Callable]]:
  """Sizes for a mu, by bound and formula, from one set of draws; -1: wrong.

  DPAL's by five formulas. SecureSGD's as its released code has them, which is
  a multiple of mu.
  """
  if cell.method == "dpal":
    verified = dataclasses.replace(model.certifier(), num_draws=scale.num_draws)
    estimates = verified.estimates(model, x, work.DRAWS, bounds=tuple(BOUNDS))
    return {
      bound: {
        name: functools.partial(sizes_by, name, model, estimate, y)
        for name in FORMULAS
      }
      for bound, estimate in estimates.items()
    }
  verified = dataclasses.replace(
    model.certifier(attack_eps=1.0), num_draws=scale.num_draws
  )
  rows = verified.certify(model, x, y, work.DRAWS)
  at_one = np.array([row.radius if row.correct else -1.0 for row in rows])
  return {"clopper_pearson": {"released": lambda mu: mu * at_one}}


def sizes_by(name: str, model, estimate, y, attack_eps: float):
  """The size of each image by one formula; -1 where its class is wrong."""
  formula = FORMULAS[name]
  verified = model.certifier(attack_eps, formula.composition, formula.rows)
  sizes = verified.radius(estimate.p1_lower, estimate.p2_upper)
  return np.where(estimate.labels == y, sizes, -1.0)


def reach(cell, scale, model, name: str, bound: str, attack_eps: float):
  """The size that so many draws claim if all of them agree."""
  if cell.method == "dpal":
    formula = FORMULAS[name]
    verified = model.certifier(attack_eps, formula.composition, formula.rows)
    verified = dataclasses.replace(verified, bound=bound)
  else:
    verified = model.certifier(attack_eps=attack_eps)
  verified = dataclasses.replace(verified, num_draws=scale.num_draws)
  return verified.largest_radius(model.network.output_shape[-1])


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
