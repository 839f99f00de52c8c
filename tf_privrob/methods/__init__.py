"""Training methods: Keras models around a user's network, one file each."""

from tf_privrob.methods import relevance
from tf_privrob.methods.config import DPSGDConfig
from tf_privrob.methods.dp_sgd import DPSGD
from tf_privrob.methods.dp_smooth import DPSmooth
from tf_privrob.methods.dp_smooth import DPSmoothConfig
from tf_privrob.methods.method import Method
from tf_privrob.methods.objectives.adversarial import AdversarialTraining
from tf_privrob.methods.objectives.adversarial_config import AdversarialConfig
from tf_privrob.methods.objectives.adversarial_config import TradesConfig
from tf_privrob.methods.objectives.adversarial_config import WRMConfig
from tf_privrob.methods.objectives.robust import NaturalTraining
from tf_privrob.methods.objectives.robust_config import NaturalConfig
from tf_privrob.methods.objectives.trades import Trades
from tf_privrob.methods.objectives.verified import DiffAI
from tf_privrob.methods.objectives.verified import DualTraining
from tf_privrob.methods.objectives.verified import IBP
from tf_privrob.methods.objectives.verified_config import DiffAIConfig
from tf_privrob.methods.objectives.verified_config import DualConfig
from tf_privrob.methods.objectives.verified_config import IBPConfig
from tf_privrob.methods.objectives.wrm import DistributionalTraining
from tf_privrob.methods.plan import TrainingPlan
from tf_privrob.methods.registry import build
from tf_privrob.methods.registry import class_of
from tf_privrob.methods.registry import NAMES
from tf_privrob.methods.registry import preset

__all__ = [
  "DPSGD",
  "IBP",
  "NAMES",
  "AdversarialConfig",
  "AdversarialTraining",
  "DPSGDConfig",
  "DPSmooth",
  "DPSmoothConfig",
  "DiffAI",
  "DiffAIConfig",
  "DistributionalTraining",
  "DualConfig",
  "DualTraining",
  "IBPConfig",
  "Method",
  "NaturalConfig",
  "NaturalTraining",
  "Trades",
  "TradesConfig",
  "TrainingPlan",
  "WRMConfig",
  "build",
  "class_of",
  "preset",
  "relevance",
]
