"""Membership inference: who was in the training set, judged honestly."""

from __future__ import annotations

from tf_privrob.membership.asking import evaluation_attack
from tf_privrob.membership.asking import outputs_of
from tf_privrob.membership.asking import Request
from tf_privrob.membership.caching import cached_outputs
from tf_privrob.membership.disjoint import distinct
from tf_privrob.membership.disjoint import require_disjoint
from tf_privrob.membership.inference import Inference
from tf_privrob.membership.inference import tpr_at_fpr
from tf_privrob.membership.outputs import Outputs
from tf_privrob.membership.predictions import from_predictions
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
  "Request",
  "Scores",
  "available",
  "cached_outputs",
  "class_dependent",
  "distinct",
  "evaluation_attack",
  "fixed",
  "from_predictions",
  "from_shadow",
  "held_out",
  "oracle",
  "outputs_of",
  "require_disjoint",
  "score",
  "tpr_at_fpr",
]
