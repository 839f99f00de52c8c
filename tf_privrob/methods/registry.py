"""Methods by name: each with its settings, one class of them a variant."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.methods import method

# By name: where settings and method live. The first settings are the default.
_HOMES = {
  "adlm": (
    ("papers.adlm.config.AdLMConfig", "papers.adlm.published.AdLM"),
    ("papers.adlm.config.SoundAdLMConfig", "papers.adlm.sound.SoundAdLM"),
  ),
  "adversarial": (
    (
      "methods.objectives.adversarial_config.AdversarialConfig",
      "methods.objectives.adversarial.AdversarialTraining",
    ),
  ),
  "diffai": (
    (
      "methods.objectives.verified_config.DiffAIConfig",
      "methods.objectives.verified.DiffAI",
    ),
  ),
  "dp_sgd": (("methods.config.DPSGDConfig", "methods.dp_sgd.DPSGD"),),
  "dp_smooth": (
    ("methods.dp_smooth.DPSmoothConfig", "methods.dp_smooth.DPSmooth"),
  ),
  "dpal": (
    ("papers.dpal.config.DPALConfig", "papers.dpal.published.DPAL"),
    ("papers.dpal.sound.SoundDPALConfig", "papers.dpal.sound.SoundDPAL"),
  ),
  "dual": (
    (
      "methods.objectives.verified_config.DualConfig",
      "methods.objectives.verified.DualTraining",
    ),
  ),
  "halfspaces": (
    (
      "papers.halfspaces.config.HalfspacesConfig",
      "papers.halfspaces.perceptron.Halfspaces",
    ),
    (
      "papers.halfspaces.config.PureHalfspacesConfig",
      "papers.halfspaces.pure.PureHalfspaces",
    ),
  ),
  "ibp": (
    (
      "methods.objectives.verified_config.IBPConfig",
      "methods.objectives.verified.IBP",
    ),
  ),
  "natural": (
    (
      "methods.objectives.robust_config.NaturalConfig",
      "methods.objectives.robust.NaturalTraining",
    ),
  ),
  "pixeldp": (
    ("papers.pixeldp.config.PixelDPConfig", "papers.pixeldp.method.PixelDP"),
  ),
  "secure_sgd": (
    (
      "papers.secure_sgd.config.SecureSGDConfig",
      "papers.secure_sgd.published.SecureSGD",
    ),
    (
      "papers.secure_sgd.config.SoundSecureSGDConfig",
      "papers.secure_sgd.sound.SoundSecureSGD",
    ),
  ),
  "trades": (
    (
      "methods.objectives.adversarial_config.TradesConfig",
      "methods.objectives.trades.Trades",
    ),
  ),
  "transdenoiser": (
    (
      "papers.transdenoiser.config.TransDenoiserConfig",
      "papers.transdenoiser.published.TransDenoiser",
    ),
    (
      "papers.transdenoiser.config.SoundTransDenoiserConfig",
      "papers.transdenoiser.sound.SoundTransDenoiser",
    ),
  ),
  "wrm": (
    (
      "methods.objectives.adversarial_config.WRMConfig",
      "methods.objectives.wrm.DistributionalTraining",
    ),
  ),
}
NAMES = tuple(sorted(_HOMES))


@functools.cache
def classes(name: str) -> dict[type, type[method.Method]]:
  """By class of settings, the class of the method."""
  validate.one_of(NAMES, method=name)
  return {_found(config): _found(kind) for config, kind in _HOMES[name]}


def _found(path: str) -> type:
  module, name = path.rsplit(".", 1)
  return getattr(importlib.import_module(f"tf_privrob.{module}"), name)


def build(
  name: str, network: tf.keras.Model, settings: Any, **kwargs
) -> method.Method:
  """The method around a network; the class follows from the settings.

  Args:
    name: of the method.
    network: any Keras classifier that returns logits.
    settings: of the method.
    **kwargs: further arguments of its class, such as `public_weights`.
  """
  return class_of(name, settings)(network, settings, **kwargs)


def class_of(name: str, settings: Any) -> type[method.Method]:
  """The class of a method that has these settings."""
  found = classes(name).get(type(settings))
  if found is None:
    expected = " or ".join(kind.__name__ for kind in classes(name))
    raise ValueError(
      f"Expected {expected} for method {name!r}, received"
      f" {type(settings).__name__}."
    )
  return found


def name_of(kind: type) -> str | None:
  """The name of a method by its class; None for a class of someone else."""
  path = f"{kind.__module__}.{kind.__qualname__}"
  for name, homes in _HOMES.items():
    if any(path == f"tf_privrob.{home}" for _, home in homes):
      return name
  return None


def preset_of(name: str, settings: Any) -> str | None:
  """A preset by which the command line comes to settings of this class.

  None: it comes to them without one.
  """
  if type(settings) is next(iter(classes(name))):
    return None
  return next(iter(type(settings).presets()))


def preset(name: str, preset_name: str | None) -> Any:
  """Settings of a method by name; the defaults without one."""
  kinds = list(classes(name))
  if preset_name is None:
    return kinds[0]()
  found = {}
  for kind in kinds:
    found.update(kind.presets())
  validate.one_of(found, preset=preset_name)
  return found[preset_name]
