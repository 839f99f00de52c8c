"""Per-example clipped gradients: the place where privacy is enforced.

`ClippedGradients` owns the sensitivity of what leaves it, so noise is
calibrated against that object and never by hand. `PerturbationTransformation`
is what TransDenoiser computes about noise on the input.
"""

from tf_privrob.gradients.clipping import ClippedGradients
from tf_privrob.gradients.clipping import ClippedSum
from tf_privrob.gradients.clipping import ENGINES
from tf_privrob.gradients.endings import may_end
from tf_privrob.gradients.isolation import row_by_row
from tf_privrob.gradients.state import refuse_batch_normalization
from tf_privrob.gradients.state import refuse_state
from tf_privrob.gradients.unclipped import UnclippedGradients
from tf_privrob.models.row_wise import not_row_wise

__all__ = [
  "ENGINES",
  "ClippedGradients",
  "ClippedSum",
  "UnclippedGradients",
  "may_end",
  "not_row_wise",
  "refuse_batch_normalization",
  "refuse_state",
  "row_by_row",
]
