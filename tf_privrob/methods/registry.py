"""Methods by name, each with its settings."""

from __future__ import annotations

from tf_privrob import validate
from tf_privrob.methods import config
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import dpal
from tf_privrob.methods import dpal_config

_METHODS = {
  "dp_sgd": (dp_sgd.DPSGD, config.DPSGDConfig),
  "dpal": (dpal.DPAL, dpal_config.DPALConfig),
}
NAMES = tuple(sorted(_METHODS))


def by_name(method: str) -> tuple[type, type]:
  """The method's class and the class of its settings."""
  validate.one_of(NAMES, method=method)
  return _METHODS[method]


def preset(method: str, name: str | None):
  """Settings of a method by name; the defaults without one."""
  _, settings = by_name(method)
  if name is None:
    return settings()
  presets = settings.presets()
  validate.one_of(presets, preset=name)
  return presets[name]
