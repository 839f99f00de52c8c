"""Membership inference: who was in the training set, judged honestly.

A `Request` asks a model once; `score` makes one number per example of what it
said; a strategy makes an `Inference` of the scores, with intervals that say
what they are: `oracle` is the published upper estimate, `held_out` and
`from_shadow` are what an attacker can do, `class_dependent` and
`model_inference` learn class by class, `lira` uses reference models.
`advantage_bound` is what differential privacy allows at most. TensorFlow is
imported when a model is asked, or a network trained.
"""

from __future__ import annotations

from tf_privrob.membership.asking import distinct
from tf_privrob.membership.asking import Request
from tf_privrob.membership.asking import require_disjoint
from tf_privrob.membership.asking import worst_cases
from tf_privrob.membership.dp_bound import advantage_bound
from tf_privrob.membership.inference import tpr_at_fpr
from tf_privrob.membership.learnt import model_inference
from tf_privrob.membership.leave_one_out import leave_out_groups
from tf_privrob.membership.leave_one_out import sensitivity
from tf_privrob.membership.likelihood_ratio import lira
from tf_privrob.membership.outputs import cached_outputs
from tf_privrob.membership.outputs import Outputs
from tf_privrob.membership.predictions import from_predictions
from tf_privrob.membership.predictions import PREDICTION_KEYS
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
  "PREDICTION_KEYS",
  "Outputs",
  "Request",
  "Scores",
  "advantage_bound",
  "available",
  "cached_outputs",
  "class_dependent",
  "distinct",
  "fixed",
  "from_predictions",
  "from_shadow",
  "held_out",
  "leave_out_groups",
  "lira",
  "model_inference",
  "oracle",
  "require_disjoint",
  "score",
  "sensitivity",
  "tpr_at_fpr",
  "worst_cases",
]
