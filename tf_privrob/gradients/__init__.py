"""Per-example clipped gradients: the place where privacy is enforced.

`ClippedGradients` owns the sensitivity of what leaves it, so noise is
calibrated against that object and never by hand. `PerturbationTransformation`
is what TransDenoiser computes about noise on the input.
"""

from tf_privrob.gradients.clipping import ClippedGradients
from tf_privrob.gradients.clipping import ClippedSum
from tf_privrob.gradients.clipping import ENGINES
from tf_privrob.gradients.clipping import NEIGHBOURING
from tf_privrob.gradients.isolation import not_row_wise
from tf_privrob.gradients.isolation import row_by_row
from tf_privrob.gradients.singularity import Proof
from tf_privrob.gradients.singularity import rank_bound
from tf_privrob.gradients.singularity import structural_proof
from tf_privrob.gradients.slices import layer_slices
from tf_privrob.gradients.slices import SlicedGradients
from tf_privrob.gradients.slices import SlicedSum
from tf_privrob.gradients.state import refuse_batch_normalization
from tf_privrob.gradients.state import refuse_state
from tf_privrob.gradients.transformation import PerturbationTransformation
from tf_privrob.gradients.transformation import smallest_singular_value
from tf_privrob.gradients.transformation import taylor_remainder
from tf_privrob.gradients.unclipped import UnclippedGradients

__all__ = [
  "ENGINES",
  "NEIGHBOURING",
  "ClippedGradients",
  "ClippedSum",
  "PerturbationTransformation",
  "Proof",
  "SlicedGradients",
  "SlicedSum",
  "UnclippedGradients",
  "layer_slices",
  "not_row_wise",
  "rank_bound",
  "refuse_batch_normalization",
  "refuse_state",
  "row_by_row",
  "smallest_singular_value",
  "structural_proof",
  "taylor_remainder",
]
