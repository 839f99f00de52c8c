"""Keras layers that carry a bound, noise or a guarantee; all serialise."""

from tf_privrob.layers.autoencoder import FunctionalMechanismAutoencoder
from tf_privrob.layers.batch_statistics import BatchStandardization
from tf_privrob.layers.bounded import BoundedActivation
from tf_privrob.layers.noise import GaussianNoise
from tf_privrob.layers.noise import LaplaceNoise
from tf_privrob.layers.random_features import RandomFourierFeatures
from tf_privrob.layers.scattering import Scattering
from tf_privrob.layers.temperature import Temperature

__all__ = [
  "BatchStandardization",
  "BoundedActivation",
  "FunctionalMechanismAutoencoder",
  "GaussianNoise",
  "LaplaceNoise",
  "RandomFourierFeatures",
  "Scattering",
  "Temperature",
]
