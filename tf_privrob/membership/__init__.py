"""Membership inference: who was in the training set, judged honestly."""

from __future__ import annotations

from tf_privrob.membership.inference import Inference
from tf_privrob.membership.inference import tpr_at_fpr
from tf_privrob.membership.outputs import Outputs
from tf_privrob.membership.scores import available
from tf_privrob.membership.scores import NAMES
from tf_privrob.membership.scores import score
from tf_privrob.membership.scores import Scores
from tf_privrob.membership.thresholds import class_dependent
from tf_privrob.membership.thresholds import fixed
from tf_privrob.membership.thresholds import from_shadow
from tf_privrob.membership.thresholds import held_out
from tf_privrob.membership.thresholds import oracle

__all__ = [
  "NAMES",
  "Inference",
  "Outputs",
  "Scores",
  "available",
  "class_dependent",
  "fixed",
  "from_shadow",
  "held_out",
  "oracle",
  "score",
  "tpr_at_fpr",
]
