"""Training methods: Keras models around a user's network, one file each."""

from tf_privrob.methods import relevance
from tf_privrob.methods.dp_sgd import DPSGD
from tf_privrob.methods.dp_sgd import DPSGDConfig
from tf_privrob.methods.method import Method
from tf_privrob.methods.objective import Objective
from tf_privrob.methods.objectives.adversarial import Adversarial
from tf_privrob.methods.objectives.diffai import DiffAI
from tf_privrob.methods.objectives.dual import DualLoss
from tf_privrob.methods.objectives.ibp import IBP
from tf_privrob.methods.objectives.natural import Natural
from tf_privrob.methods.objectives.ramp import Ramp
from tf_privrob.methods.objectives.smooth import Smooth
from tf_privrob.methods.objectives.trades import Trades
from tf_privrob.methods.objectives.wrm import WRM
from tf_privrob.methods.plan import TrainingPlan
from tf_privrob.methods.registry import build
from tf_privrob.methods.registry import class_of
from tf_privrob.methods.registry import NAMES
from tf_privrob.methods.registry import preset
from tf_privrob.methods.trainer import Trainer
from tf_privrob.methods.trainer import TrainingConfig

__all__ = [
  "DPSGD",
  "IBP",
  "NAMES",
  "WRM",
  "Adversarial",
  "DPSGDConfig",
  "DiffAI",
  "DualLoss",
  "Method",
  "Natural",
  "Objective",
  "Ramp",
  "Smooth",
  "Trades",
  "Trainer",
  "TrainingConfig",
  "TrainingPlan",
  "build",
  "class_of",
  "preset",
  "relevance",
]
