"""Noise, and what it guarantees.

A mechanism is a frozen dataclass: its fields are public configuration, private
data enters only through `add_noise` (or through `select`, where an index is
released: `ExponentialMechanism`). It knows its sensitivity, draws its noise
from an explicit seed, and answers with the `DpEvent` that an accountant
composes, so that no noise is ever added that nobody pays for.
"""

from __future__ import annotations

from tf_privrob.mechanisms.exponential import ExponentialMechanism
from tf_privrob.mechanisms.functional import adlm_input_sensitivity
from tf_privrob.mechanisms.functional import adlm_label_sensitivity
from tf_privrob.mechanisms.functional import FunctionalNoise
from tf_privrob.mechanisms.functional import hidden_factor
from tf_privrob.mechanisms.functional import label_sensitivity
from tf_privrob.mechanisms.functional import reconstruction_sensitivity
from tf_privrob.mechanisms.functional import reduced_dp_epsilon
from tf_privrob.mechanisms.gaussian import gaussian_dp_delta
from tf_privrob.mechanisms.gaussian import gaussian_dp_epsilon
from tf_privrob.mechanisms.gaussian import GaussianMechanism
from tf_privrob.mechanisms.heterogeneous import extended_stddev
from tf_privrob.mechanisms.heterogeneous import HeterogeneousGaussianMechanism
from tf_privrob.mechanisms.laplace import LaplaceMechanism
from tf_privrob.mechanisms.mechanism import Mechanism
from tf_privrob.mechanisms.mechanism import stateless_seed
from tf_privrob.mechanisms.moments import filters_from_moments
from tf_privrob.mechanisms.moments import objective_sensitivity
from tf_privrob.mechanisms.moments import PatchFilters
from tf_privrob.mechanisms.moments import PatchMoments
from tf_privrob.mechanisms.multivariate import claimed_condition
from tf_privrob.mechanisms.multivariate import claimed_mixed_stddev
from tf_privrob.mechanisms.multivariate import claimed_stddev
from tf_privrob.mechanisms.multivariate import extra_stddev
from tf_privrob.mechanisms.multivariate import moments_bound
from tf_privrob.mechanisms.multivariate import MultivariateGaussianMechanism

__all__ = [
  "ExponentialMechanism",
  "FunctionalNoise",
  "GaussianMechanism",
  "HeterogeneousGaussianMechanism",
  "LaplaceMechanism",
  "Mechanism",
  "MultivariateGaussianMechanism",
  "PatchFilters",
  "PatchMoments",
  "adlm_input_sensitivity",
  "adlm_label_sensitivity",
  "claimed_condition",
  "claimed_mixed_stddev",
  "claimed_stddev",
  "extended_stddev",
  "extra_stddev",
  "filters_from_moments",
  "gaussian_dp_delta",
  "gaussian_dp_epsilon",
  "hidden_factor",
  "label_sensitivity",
  "moments_bound",
  "objective_sensitivity",
  "reconstruction_sensitivity",
  "reduced_dp_epsilon",
  "stateless_seed",
]
