"""Methods and objectives by name; a short name is one of each."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.methods import method
from tf_privrob.methods import objective as objective_lib

# By name: where settings and method live. The first settings are the default.
_HOMES = {
  "adlm": (
    ("papers.adlm.config.AdLMConfig", "papers.adlm.published.AdLM"),
    ("papers.adlm.config.SoundAdLMConfig", "papers.adlm.sound.SoundAdLM"),
  ),
  "dp_sgd": (("methods.dp_sgd.DPSGDConfig", "methods.dp_sgd.DPSGD"),),
  "dpal": (
    ("papers.dpal.config.DPALConfig", "papers.dpal.published.DPAL"),
    ("papers.dpal.sound.SoundDPALConfig", "papers.dpal.sound.SoundDPAL"),
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
  "pixeldp": (
    ("papers.pixeldp.method.PixelDPConfig", "papers.pixeldp.method.PixelDP"),
    (
      "papers.pixeldp.method.PrivatePixelDPConfig",
      "papers.pixeldp.method.PrivatePixelDP",
    ),
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
  "sgd": (("methods.trainer.TrainingConfig", "methods.trainer.Trainer"),),
  "transdenoiser": (
    (
      "papers.transdenoiser.config.TransDenoiserConfig",
      "papers.transdenoiser.published.TransDenoiser",
    ),
    (
      "papers.transdenoiser.config.SoundTransDenoiserConfig",
      "papers.transdenoiser.sound.SoundTransDenoiser",
    ),
    (
      "papers.transdenoiser.config.DenoisedSmoothingConfig",
      "papers.transdenoiser.sound.DenoisedSmoothing",
    ),
  ),
}
# All that a file or a flag may name as an objective.
_OBJECTIVES = {
  "adversarial": "adversarial.Adversarial",
  "diffai": "diffai.DiffAI",
  "dual": "dual.DualLoss",
  "ibp": "ibp.IBP",
  "natural": "natural.Natural",
  "smooth": "smooth.Smooth",
  "trades": "trades.Trades",
  "wrm": "wrm.WRM",
}
OBJECTIVES = tuple(sorted(_OBJECTIVES))
# Short names: a method and its objective.
_SHORT = {
  **{name: ("sgd", name) for name in OBJECTIVES if name != "smooth"},
  "dp_smooth": ("dp_sgd", "smooth"),
}
NAMES = tuple(sorted({*_HOMES, *_SHORT}))


def objective(name: Any) -> type[objective_lib.Objective]:
  """The class of an objective by name.

  Names are those of `OBJECTIVES`, and those under which a program registered a
  class of its own by `tf.keras.saving.register_keras_serializable`; nothing is
  imported by a name.
  """
  if name in OBJECTIVES:
    return _found(f"methods.objectives.{_OBJECTIVES[name]}")
  found = None
  if isinstance(name, str):
    found = tf.keras.saving.get_registered_object(name)
  if not (
    isinstance(found, type) and issubclass(found, objective_lib.Objective)
  ):
    validate.one_of(OBJECTIVES, objective=name)
  return found


def objective_name(kind: type[objective_lib.Objective]) -> str:
  """The name by which `objective` finds a class."""
  path = f"{kind.__module__}.{kind.__qualname__}"
  for name, home in _OBJECTIVES.items():
    if path == f"tf_privrob.methods.objectives.{home}":
      return name
  return tf.keras.saving.get_registered_name(kind)


@functools.cache
def classes(name: str) -> dict[type, type[method.Method]]:
  """By class of settings, the class of the method."""
  validate.one_of(NAMES, method=name)
  homes = _HOMES[_SHORT.get(name, (name,))[0]]
  return {_found(config): _found(kind) for config, kind in homes}


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
  if name in _SHORT and not isinstance(
    settings.objective, expected := objective(_SHORT[name][1])
  ):
    raise ValueError(
      f"Expected settings with objective={expected.__name__}(...) for method"
      f" {name!r}, received {type(settings.objective).__name__}."
    )
  return found


def name_of(model: method.Method) -> str | None:
  """The shortest name of a method; None for a class of someone else."""
  kind = type(model)
  path = f"{kind.__module__}.{kind.__qualname__}"
  for name, homes in _HOMES.items():
    if any(path == f"tf_privrob.{home}" for _, home in homes):
      return shortest_name(name, model.config)
  return None


def shortest_name(name: str, settings: Any) -> str:
  """The short name of a method with this objective, if there is one."""
  own = getattr(settings, "objective", None)
  if not isinstance(own, objective_lib.Objective):
    return name
  pair = name, objective_name(type(own))
  return next((short for short, p in _SHORT.items() if p == pair), name)


def preset_of(name: str, settings: Any) -> str | None:
  """A preset by which the command line comes to settings of this class.

  None: it comes to them without one.
  """
  if type(settings) is next(iter(classes(name))):
    return None
  return next(iter(type(settings).presets()))


def presets(name: str) -> dict[str, Any]:
  """All settings that a method has by name."""
  from tf_privrob.methods.objectives import presets as by_objective

  kinds = classes(name)
  if name in _SHORT:
    return by_objective.PRESETS[_SHORT[name][1]]()
  if name == "sgd":
    own = [short for by, short in _SHORT.values() if by == name]
    tables = [by_objective.PRESETS[short]() for short in own]
    return {key: value for table in tables for key, value in table.items()}
  return {key: value for kind in kinds for key, value in kind.presets().items()}


def preset(
  name: str, preset_name: str | None = None, objective_name: str | None = None
) -> Any:
  """Settings of a method by name; the defaults without one.

  Args:
    name: of the method.
    preset_name: of its settings.
    objective_name: of the objective, for a method that has any; None: its own.
  """
  found = next(iter(classes(name)))()
  if preset_name is not None:
    table = presets(name)
    validate.one_of(table, preset=preset_name)
    found = table[preset_name]
  elif name in _SHORT:
    found = _with_objective(name, found, _SHORT[name][1])
  if objective_name is not None:
    found = _with_objective(name, found, objective_name)
  return found


def _with_objective(name: str, settings: Any, objective_name: str) -> Any:
  """The settings with an objective of this name, its own where it is that."""
  own = getattr(settings, "objective", None)
  kind = objective(objective_name)
  if not isinstance(own, objective_lib.Objective):
    raise ValueError(
      f"Expected no objective for method {name!r}, whose loss is its own,"
      f" received {objective_name!r}. Pass method='sgd' or 'dp_sgd'."
    )
  if name in _SHORT and objective_name != _SHORT[name][1]:
    raise ValueError(
      f"Expected objective={_SHORT[name][1]!r} for method {name!r}, received"
      f" {objective_name!r}. Pass method={_SHORT[name][0]!r}."
    )
  if type(own) is kind:
    return settings
  return dataclasses.replace(settings, objective=kind())
