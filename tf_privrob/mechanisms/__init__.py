"""Noise, and what it guarantees.

A mechanism is a frozen dataclass: its fields are public configuration, private
data enters only through `add_noise` (or through `select`, where an index is
released: `ExponentialMechanism`). It knows its sensitivity, draws its noise
from an explicit seed, and answers with the `DpEvent` that an accountant
composes, so that no noise is ever added that nobody pays for.
"""

from __future__ import annotations

from tf_privrob.mechanisms.exponential import ExponentialMechanism
from tf_privrob.mechanisms.gaussian import gaussian_dp_delta
from tf_privrob.mechanisms.gaussian import gaussian_dp_epsilon
from tf_privrob.mechanisms.gaussian import GaussianMechanism
from tf_privrob.mechanisms.heterogeneous import extended_stddev
from tf_privrob.mechanisms.heterogeneous import HeterogeneousGaussianMechanism
from tf_privrob.mechanisms.laplace import LaplaceMechanism
from tf_privrob.mechanisms.mechanism import Mechanism
from tf_privrob.mechanisms.mechanism import stateless_seed

__all__ = [
  "ExponentialMechanism",
  "GaussianMechanism",
  "HeterogeneousGaussianMechanism",
  "LaplaceMechanism",
  "Mechanism",
  "extended_stddev",
  "gaussian_dp_delta",
  "gaussian_dp_epsilon",
  "stateless_seed",
]
