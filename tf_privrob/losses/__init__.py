"""Losses of the papers' methods, one value an example.

`domain_adaptation` alone compares whole batches.
"""

from tf_privrob.losses import smoothing
from tf_privrob.losses.domain_adaptation import domain_adaptation
from tf_privrob.losses.taylor import label_noise_term
from tf_privrob.losses.taylor import taylor_cross_entropy
from tf_privrob.losses.taylor import taylor_reconstruction

__all__ = [
  "domain_adaptation",
  "label_noise_term",
  "smoothing",
  "taylor_cross_entropy",
  "taylor_reconstruction",
]
