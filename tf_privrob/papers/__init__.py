"""What serves one paper only: its published form, its sound heir, its claims.

One folder a paper. Names are imported on first use, so that nobody pays for the
other papers:

>>> from tf_privrob import papers
>>> papers.DPALConfig  # doctest: +SKIP
"""

from __future__ import annotations

import importlib

_HOMES = {
  "adlm.config": (
    "AdLMConfig",
    "Relevance",
    "SoundAdLMConfig",
  ),
  "adlm.published": ("AdLM",),
  "adlm.sound": ("SoundAdLM",),
  "dpal.autoencoder": ("FunctionalMechanismAutoencoder",),
  "dpal.config": (
    "DPALConfig",
    "Inference",
  ),
  "dpal.functional": (
    "FunctionalNoise",
    "adlm_input_sensitivity",
    "adlm_label_sensitivity",
    "hidden_factor",
    "label_sensitivity",
    "reconstruction_sensitivity",
    "reduced_dp_epsilon",
  ),
  "dpal.moments": (
    "PatchFilters",
    "PatchMoments",
    "filters_from_moments",
    "objective_sensitivity",
  ),
  "dpal.published": ("DPAL",),
  "dpal.sizes": (
    "claimed_radius",
    "input_sensitivity",
    "paper_hidden_sensitivity",
    "released_hidden_sensitivity",
  ),
  "dpal.sound": (
    "Moments",
    "SoundDPAL",
    "SoundDPALConfig",
  ),
  "dpal.claimed_inference": (
    "ClaimedInference",
    "Estimate",
  ),
  "halfspaces.config": (
    "HalfspacesConfig",
    "PureHalfspacesConfig",
  ),
  "halfspaces.perceptron": ("Halfspaces",),
  "halfspaces.pure": ("PureHalfspaces",),
  "halfspaces.trials": ("Trials",),
  "pixeldp.layer": ("NoiseLayer",),
  "pixeldp.method": (
    "PixelDP",
    "PixelDPConfig",
    "PrivatePixelDP",
    "PrivatePixelDPConfig",
  ),
  "secure_sgd.config": (
    "ClaimedRobustness",
    "MeasuredRedistribution",
    "ReleasedRedistribution",
    "SecureSGDConfig",
    "SoundSecureSGDConfig",
  ),
  "secure_sgd.published": ("SecureSGD",),
  "secure_sgd.sizes": ("ClaimedSizes",),
  "secure_sgd.sound": ("SoundSecureSGD",),
  "transdenoiser.config": (
    "DenoisedSmoothingConfig",
    "Reading",
    "SoundTransDenoiserConfig",
    "TransDenoiserConfig",
  ),
  "transdenoiser.missing_noise": ("extra_stddev",),
  "transdenoiser.published": ("TransDenoiser",),
  "transdenoiser.s_min.singularity": (
    "Proof",
    "rank_bound",
    "structural_proof",
  ),
  "transdenoiser.s_min.slices": (
    "SlicedGradients",
    "SlicedSum",
    "layer_slices",
  ),
  "transdenoiser.s_min.transformation": (
    "PerturbationTransformation",
    "smallest_singular_value",
    "taylor_remainder",
  ),
  "transdenoiser.sound": (
    "DenoisedSmoothing",
    "SoundTransDenoiser",
  ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str):
  if name not in _HOME_OF:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  home = importlib.import_module(f"{__name__}.{_HOME_OF[name]}")
  return getattr(home, name)


def __dir__() -> list[str]:
  return __all__
