"""Methods by name: each with its settings, one class of them a variant."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_privrob import validate
from tf_privrob.methods import adlm
from tf_privrob.methods import adlm_config
from tf_privrob.methods import adlm_sound
from tf_privrob.methods import adversarial
from tf_privrob.methods import adversarial_config
from tf_privrob.methods import config
from tf_privrob.methods import dp_sgd
from tf_privrob.methods import dp_smooth
from tf_privrob.methods import dpal
from tf_privrob.methods import dpal_config
from tf_privrob.methods import dpal_sound
from tf_privrob.methods import halfspace
from tf_privrob.methods import halfspace_config
from tf_privrob.methods import halfspace_pure
from tf_privrob.methods import method
from tf_privrob.methods import pixeldp
from tf_privrob.methods import pixeldp_config
from tf_privrob.methods import robust
from tf_privrob.methods import robust_config
from tf_privrob.methods import secure_sgd
from tf_privrob.methods import secure_sgd_config
from tf_privrob.methods import secure_sgd_sound
from tf_privrob.methods import trades
from tf_privrob.methods import transdenoiser
from tf_privrob.methods import transdenoiser_config
from tf_privrob.methods import transdenoiser_sound
from tf_privrob.methods import verified
from tf_privrob.methods import verified_config
from tf_privrob.methods import wrm

# The first class of settings is a method's default.
_METHODS = {
  "adlm": {
    adlm_config.AdLMConfig: adlm.AdLM,
    adlm_config.SoundAdLMConfig: adlm_sound.SoundAdLM,
  },
  "adversarial": {
    adversarial_config.AdversarialConfig: adversarial.AdversarialTraining
  },
  "diffai": {verified_config.DiffAIConfig: verified.DiffAI},
  "dp_sgd": {config.DPSGDConfig: dp_sgd.DPSGD},
  "dp_smooth": {dp_smooth.DPSmoothConfig: dp_smooth.DPSmooth},
  "dpal": {
    dpal_config.DPALConfig: dpal.DPAL,
    dpal_sound.SoundDPALConfig: dpal_sound.SoundDPAL,
  },
  "dual": {verified_config.DualConfig: verified.DualTraining},
  "halfspaces": {
    halfspace_config.HalfspacesConfig: halfspace.Halfspaces,
    halfspace_config.PureHalfspacesConfig: halfspace_pure.PureHalfspaces,
  },
  "ibp": {verified_config.IBPConfig: verified.IBP},
  "natural": {robust_config.NaturalConfig: robust.NaturalTraining},
  "pixeldp": {pixeldp_config.PixelDPConfig: pixeldp.PixelDP},
  "secure_sgd": {
    secure_sgd_config.SecureSGDConfig: secure_sgd.SecureSGD,
    secure_sgd_config.SoundSecureSGDConfig: secure_sgd_sound.SoundSecureSGD,
  },
  "trades": {adversarial_config.TradesConfig: trades.Trades},
  "transdenoiser": {
    transdenoiser_config.TransDenoiserConfig: transdenoiser.TransDenoiser,
    transdenoiser_config.SoundTransDenoiserConfig: (
      transdenoiser_sound.SoundTransDenoiser
    ),
  },
  "wrm": {adversarial_config.WRMConfig: wrm.DistributionalTraining},
}
NAMES = tuple(sorted(_METHODS))


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
  validate.one_of(NAMES, method=name)
  found = _METHODS[name].get(type(settings))
  if found is None:
    expected = " or ".join(kind.__name__ for kind in _METHODS[name])
    raise ValueError(
      f"Expected {expected} for method {name!r}, received"
      f" {type(settings).__name__}."
    )
  return found


def preset(name: str, preset_name: str | None) -> Any:
  """Settings of a method by name; the defaults without one."""
  validate.one_of(NAMES, method=name)
  kinds = list(_METHODS[name])
  if preset_name is None:
    return kinds[0]()
  found = {}
  for kind in kinds:
    found.update(kind.presets())
  validate.one_of(found, preset=preset_name)
  return found[preset_name]
