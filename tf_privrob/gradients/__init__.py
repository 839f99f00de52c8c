"""Per-example clipped gradients: the place where privacy is enforced.

`ClippedGradients` owns the sensitivity of what leaves it, so noise is
calibrated against that object and never by hand.
"""

from tf_privrob.gradients.clipping import ClippedGradients
from tf_privrob.gradients.clipping import ClippedSum
from tf_privrob.gradients.clipping import ENGINES
from tf_privrob.gradients.clipping import NEIGHBOURING
from tf_privrob.gradients.clipping import refuse_batch_normalization
from tf_privrob.gradients.slices import layer_slices
from tf_privrob.gradients.slices import SlicedGradients
from tf_privrob.gradients.slices import SlicedSum
from tf_privrob.gradients.unclipped import UnclippedGradients

__all__ = [
  "ENGINES",
  "NEIGHBOURING",
  "ClippedGradients",
  "ClippedSum",
  "SlicedGradients",
  "SlicedSum",
  "UnclippedGradients",
  "layer_slices",
  "refuse_batch_normalization",
]
