"""Settings by name for every objective, with the data sets they are for.

They are the settings of the code of Song, Shokri and Mittal (CCS 2019) where
the name begins with a data set of that paper; `mnist_...` and
`cifar10_trades_original` are those of the methods' own authors. What was
reached with those of `smooth` is in `docs/notebook.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Callable

from tf_privrob.methods.dp_sgd import DPSGDConfig
from tf_privrob.methods.objectives.adversarial import Adversarial
from tf_privrob.methods.objectives.diffai import DiffAI
from tf_privrob.methods.objectives.dual import DualLoss
from tf_privrob.methods.objectives.ibp import IBP
from tf_privrob.methods.objectives.ramp import Ramp
from tf_privrob.methods.objectives.smooth import Smooth
from tf_privrob.methods.objectives.trades import Trades
from tf_privrob.methods.objectives.wrm import WRM
from tf_privrob.methods.trainer import TrainingConfig

# Optimizer, rates and length of natural, PGD and WRM training; "sum" because
# the code sums the cross-entropy.
_YALE_B = TrainingConfig(
  learning_rate=1e-4,
  learning_rate_drops="10000:0.5,15000:0.1",
  batch_size=20,
  epochs=20001 * 20 / 1900,
  reduction="sum",
  weight_decay=2e-4,
  checkpoint_every=1000,
)
_FASHION_MNIST = dataclasses.replace(
  _YALE_B,
  learning_rate_drops="50000:0.1,65000:0.01",
  batch_size=100,
  epochs=80001 * 100 / 60000,
)
_CIFAR10 = TrainingConfig(
  optimizer="sgd",
  momentum=0.9,
  learning_rate=0.1,
  learning_rate_drops="40000:0.1,60000:0.01",
  batch_size=128,
  epochs=80001 * 128 / 50000,
  weight_decay=2e-4,
  augmentation="shift_flip",
  checkpoint_every=1000,
)
# Nothing of this was published: chosen here.
_UCI_HAR = TrainingConfig(batch_size=50, epochs=50.0, checkpoint_every=1000)


def natural() -> dict[str, TrainingConfig]:
  """The natural models beside the robust ones of CCS 2019."""
  return {
    "yale_b_natural": _YALE_B,
    "fashion_mnist_natural": _FASHION_MNIST,
    "cifar10_natural": _CIFAR10,
    "uci_har_natural": _UCI_HAR,
  }


def adversarial() -> dict[str, TrainingConfig]:
  """Those of CCS 2019; mnist_pgd is Madry et al.'s own."""
  yale_b = Adversarial(
    attack_eps=0.0314,
    attack_steps=10,
    step_factor=2.0,
    ramp=Ramp(length="1000"),
    clip_start=False,
  )
  fashion_mnist = Adversarial(
    attack_eps=0.1, attack_steps=8, step_size=0.02, clip_start=False
  )
  cifar10 = Adversarial(attack_eps=8 / 255, attack_steps=10, step_size=2 / 255)
  uci_har = Adversarial(attack_eps=0.05, attack_steps=10, step_size=0.0125)
  mnist = Adversarial(attack_eps=0.3, attack_steps=40, step_size=0.01)
  madry = TrainingConfig(
    learning_rate=1e-4,
    batch_size=50,
    epochs=100000 * 50 / 60000,
    reduction="sum",
    checkpoint_every=1000,
  )
  return {
    "yale_b_pgd": _with(_YALE_B, yale_b),
    "yale_b_pgd_da": _with(_YALE_B, _adapted(yale_b)),
    "fashion_mnist_pgd": _with(_FASHION_MNIST, fashion_mnist),
    "fashion_mnist_pgd_da": _with(_FASHION_MNIST, _adapted(fashion_mnist)),
    "cifar10_pgd": _with(_CIFAR10, cifar10),
    "uci_har_pgd": _with(_UCI_HAR, uci_har),
    "mnist_pgd": _with(madry, mnist),
  }


def trades() -> dict[str, TrainingConfig]:
  """Those of CCS 2019; cifar10_trades_original is Zhang et al.'s."""
  # Of PyTorch's optimizers, which decay biases too.
  adam = TrainingConfig(
    learning_rate=1e-4,
    weight_decay=5e-4,
    decay_all=True,
    checkpoint_every=1000,
  )
  cifar10 = dataclasses.replace(
    _CIFAR10,
    decay_all=True,
    learning_rate_drops="75e:0.1,90e:0.01,100e:0.001",
    augmentation="shift4_flip",
    epochs=100.0,
  )
  published = Trades(attack_steps=10, step_size=0.007)
  return {
    "yale_b_trades": _with(
      adam,
      Trades(
        attack_eps=0.0314, attack_steps=10, step_size=0.0078, detach_clean=True
      ),
      learning_rate_drops="50%:0.5,75%:0.1,90%:0.01",
      batch_size=20,
      epochs=150.0,
    ),
    "fashion_mnist_trades": _with(
      adam,
      Trades(attack_eps=0.1, attack_steps=8, step_size=0.02, detach_clean=True),
      learning_rate_drops="60%:0.1,85%:0.01",
      batch_size=100,
      epochs=100.0,
    ),
    "cifar10_trades": _with(
      cifar10,
      dataclasses.replace(published, attack_eps=0.0314, detach_clean=True),
    ),
    "cifar10_trades_original": _with(
      cifar10,
      dataclasses.replace(published, attack_eps=0.031, beta=6.0),
      epochs=76.0,
    ),
  }


def wrm() -> dict[str, TrainingConfig]:
  """Those of CCS 2019; mnist_wrm_l2 is Sinha et al.'s own."""
  sinha = WRM(norm="l2", attack_steps=15, step_scale=1.3, label_smoothing=0.1)
  return {
    "yale_b_wrm": _with(_YALE_B, WRM(attack_steps=10, step_scale=1.5)),
    "fashion_mnist_wrm": _with(
      _FASHION_MNIST, WRM(attack_steps=8, step_scale=1.0)
    ),
    "cifar10_wrm": _with(_CIFAR10, WRM(attack_steps=10, step_scale=12 / 255)),
    "mnist_wrm_l2": _with(
      TrainingConfig(
        learning_rate=1e-3, batch_size=256, epochs=25.0, checkpoint_every=1000
      ),
      sinha,
    ),
  }


def ibp() -> dict[str, TrainingConfig]:
  """Those of CCS 2019, and of Gowal et al. for MNIST."""
  return {
    "yale_b_ibp": _with(
      _YALE_B,
      IBP(attack_eps=8 / 255, ramp=Ramp(warmup="500", length="6500")),
      learning_rate_drops="10000:0.1,15000:0.01",
      reduction="mean",
    ),
    "fashion_mnist_ibp": _with(
      _FASHION_MNIST,
      IBP(attack_eps=0.1, ramp=Ramp(warmup="8000", length="30000")),
      reduction="mean",
      weight_decay=1e-4,
    ),
    "mnist_ibp": TrainingConfig(
      objective=IBP(attack_eps=0.33, ramp=Ramp(warmup="2000", length="10000")),
      learning_rate=1e-3,
      learning_rate_drops="15000:0.1,25000:0.01",
      batch_size=200,
      epochs=60001 * 200 / 60000,
      checkpoint_every=1000,
    ),
  }


def diffai() -> dict[str, TrainingConfig]:
  """Those of CCS 2019, whose code has another ramp than it is meant to have.

  The radius grows with a count of batches that is meant to go from 1/30 of it
  after 21 epochs to all of it after 50. In the released code batches of the
  evaluation before each epoch count too, 50 beside 95 for Yale and 100 beside
  600 for Fashion-MNIST: presets "released" have the ramp that follows, as one
  line, up to 50 and 100 counts.
  """
  common = TrainingConfig(
    learning_rate=1e-4,
    epochs=100.0,
    update_clip_norm=1.0,
    checkpoint_every=1000,
  )
  meant = Ramp(warmup="19e", start="21e", length="29e")
  found = {}
  for name, attack_eps, batches, evaluated, changes in (
    (
      "yale_b",
      0.0314,
      95,
      50,
      {"batch_size": 20, "learning_rate_drops": "70e:0.1,85e:0.01"},
    ),
    ("fashion_mnist", 0.1, 600, 100, {"batch_size": 100}),
  ):
    ramp = dataclasses.replace(meant, first_eps=attack_eps / 30)
    objective = DiffAI(attack_eps=attack_eps, ramp=ramp)
    found[f"{name}_diffai"] = _with(common, objective, **changes)
    counted = _counted_with_evaluation(objective, batches, evaluated)
    found[f"{name}_diffai_released"] = _with(common, counted, **changes)
  return found


def _counted_with_evaluation(
  objective: DiffAI, batches: int, evaluated: int
) -> DiffAI:
  """The ramp clip(count - 20 nb, nb, 30 nb) / (30 nb) after 19 epochs.

  Args:
    objective: with the ramp that was meant.
    batches: nb, batches of training an epoch.
    evaluated: batches that are counted before each epoch.
  """
  at_19 = 19 * (batches + evaluated) + evaluated - 20 * batches
  left = (30 * batches - at_19) / (batches + evaluated)
  ramp = dataclasses.replace(
    objective.ramp,
    first_eps=objective.attack_eps * at_19 / (30 * batches),
    start="19e",
    length=f"{left:.2f}e",
  )
  return dataclasses.replace(objective, ramp=ramp)


def dual() -> dict[str, TrainingConfig]:
  """Those of CCS 2019; Yale's radius is the code's, twice the paper's."""
  common = TrainingConfig(
    learning_rate=1e-4,
    weight_decay=5e-4,
    decay_all=True,
    update_clip_norm=1.0,
    checkpoint_every=1000,
  )
  return {
    "yale_b_dual": _with(
      common,
      DualLoss(
        attack_eps=0.06275,
        ramp=Ramp(first_eps=1e-4, length="80e"),
        norm="l1_median",
        projections=50,
        clip_to_range=False,
      ),
      learning_rate_drops="105e:0.5,130e:0.25,155e:0.125,180e:0.0625",
      batch_size=20,
      epochs=181.0,
    ),
    "fashion_mnist_dual": _with(
      common,
      DualLoss(
        attack_eps=0.1,
        ramp=Ramp(first_eps=0.003, length="20e"),
        norm="l1_median",
        projections=20,
      ),
      learning_rate_drops="35e:0.1,50e:0.01",
      batch_size=30,
      epochs=61.0,
    ),
  }


def smooth() -> dict[str, DPSGDConfig]:
  """Private ones; `scattering` is for the network scattering_linear."""
  common = DPSGDConfig(
    dp_delta=1e-6,
    l2_clip_norm=0.5,
    augmentation_multiplicity=2,
    ema_decay=0.95,
    objective=Smooth(attack_steps=1),
  )
  return {
    "mnist": dataclasses.replace(
      common, batch_size=2048, epochs=20, learning_rate=8.0, ema_decay=0.97
    ),
    # Short, and without an attack.
    "scattering": _with(
      common, Smooth(), batch_size=2048, epochs=5, learning_rate=8.0
    ),
    "mnist_5k": dataclasses.replace(
      common, batch_size=512, epochs=30, learning_rate=4.0
    ),
  }


def _with(config, objective, **changes):
  """The settings with an objective, and other changes."""
  return dataclasses.replace(config, objective=objective, **changes)


def _adapted(objective: Adversarial) -> Adversarial:
  """With domain adaptation; its weight was not published: that of ATDA."""
  return dataclasses.replace(objective, domain_adaptation_weight=1 / 3)


PRESETS: Mapping[str, Callable[[], dict[str, object]]] = {
  "adversarial": adversarial,
  "diffai": diffai,
  "dual": dual,
  "ibp": ibp,
  "natural": natural,
  "smooth": smooth,
  "trades": trades,
  "wrm": wrm,
}
