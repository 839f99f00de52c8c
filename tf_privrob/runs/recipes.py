"""What a preset brings besides settings: data set, value range and network."""

from __future__ import annotations

import dataclasses

_NETWORK = "tutorial_cnn_tanh"
_DATASET = "mnist_5k"
# By the beginning of a preset's name; the longer one first.
_DATASETS = (
  *("mnist_5k", "mnist", "fashion_mnist", "cifar10"),
  *("yale_b", "uci_har", "usps"),
)
# By data set, the network of the robust trainers, and what each makes of it.
_ROBUST = {
  "yale_b": "yale_cnn",
  "fashion_mnist": "fashion_mnist_cnn",
  "cifar10": "wide_resnet",
  "uci_har": "har_mlp",
}
_STYLES = {
  "wide_resnet": {"wrm": "_relu", "trades": "_trades"},
  "har_mlp": {},
}
_CNN_STYLES = {name: f"_{name}" for name in ("trades", "dual", "diffai", "ibp")}
_TRAINERS = ("adversarial", "diffai", "dual", "ibp", "natural", "trades", "wrm")


@dataclasses.dataclass(frozen=True)
class Recipe:
  """What a training uses unless it is told otherwise.

  Attributes:
    network: Name of a network or of a denoiser.
    dataset: Name of a data set.
    value_range: Of the inputs, as in --value_range; None: that of the data set.
  """

  network: str = _NETWORK
  dataset: str = _DATASET
  value_range: str | None = None


def recipe(method: str, preset: str | None) -> Recipe:
  """The recipe of a preset that the method has; the defaults without one."""
  paper = method in ("dpal", "adlm")
  value_range = "-1,1" if paper else None
  if preset is None:
    return Recipe(value_range=value_range)
  if method == "sgd":
    from tf_privrob.methods import registry

    method = registry.shortest_name(method, registry.preset(method, preset))
  dataset = next((d for d in _DATASETS if preset.startswith(d)), None)
  network = _network(method, preset, dataset) or _NETWORK
  return Recipe(network, dataset or _DATASET, value_range)


def _network(method: str, preset: str, dataset: str | None) -> str | None:
  """The network that a preset was made for, if it is not the usual one."""
  if method in _TRAINERS:
    if dataset == "mnist" and method == "ibp":
      return "ibp_small"
    plain = _ROBUST.get(dataset)
    return plain and plain + _STYLES.get(plain, _CNN_STYLES).get(method, "")
  if method == "transdenoiser" or "denoiser" in preset:
    return "smooth_denoiser"
  if method == "halfspaces":
    return "linear"
  if "sound" in preset or "private" in preset:
    return None
  if method == "dpal":
    family = "cifar10" if dataset == "cifar10" else "mnist"
    if preset.endswith(("released", "stobatch")):
      return f"dpal_{family}_released"
    form = {"cifar10_paper": "3x3_", "cifar10_narrow": "narrow_"}
    return f"dpal_{family}_{form.get(preset, '')}bn"
  return {
    ("dp_sgd", "tutorial"): "tutorial_cnn",
    ("dp_smooth", "scattering"): "scattering_linear",
    ("pixeldp", preset): "pixeldp_mnist",
    ("secure_sgd", preset): "secure_sgd_mnist",
  }.get((method, preset))
