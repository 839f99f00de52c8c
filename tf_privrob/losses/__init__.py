"""Losses of the papers' methods, one value an example."""

from tf_privrob.losses import smoothing
from tf_privrob.losses.taylor import label_noise_term
from tf_privrob.losses.taylor import taylor_cross_entropy
from tf_privrob.losses.taylor import taylor_reconstruction

__all__ = [
  "label_noise_term",
  "smoothing",
  "taylor_cross_entropy",
  "taylor_reconstruction",
]
