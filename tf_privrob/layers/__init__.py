"""Keras layers that carry a bound, noise or a guarantee; all serialise."""

from tf_privrob.layers.batch_statistics import BatchStandardization
from tf_privrob.layers.bounded import BoundedActivation
from tf_privrob.layers.noise import GaussianNoise
from tf_privrob.layers.noise import LaplaceNoise
from tf_privrob.layers.random_features import RandomFourierFeatures
from tf_privrob.layers.scattering import Scattering
from tf_privrob.layers.temperature import Temperature
from tf_privrob.layers.weight_normalization import NormalizedConv2D
from tf_privrob.layers.weight_normalization import NormalizedDense

__all__ = [
  "BatchStandardization",
  "BoundedActivation",
  "GaussianNoise",
  "LaplaceNoise",
  "NormalizedConv2D",
  "NormalizedDense",
  "RandomFourierFeatures",
  "Scattering",
  "Temperature",
]
