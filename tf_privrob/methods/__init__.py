"""Training methods: Keras models around a user's network, one file each."""

from tf_privrob.methods import relevance
from tf_privrob.methods.adlm import AdLM
from tf_privrob.methods.adlm_config import AdLMConfig
from tf_privrob.methods.adlm_config import SoundAdLMConfig
from tf_privrob.methods.adlm_sound import SoundAdLM
from tf_privrob.methods.adversarial import AdversarialTraining
from tf_privrob.methods.adversarial_config import AdversarialConfig
from tf_privrob.methods.adversarial_config import TradesConfig
from tf_privrob.methods.adversarial_config import WRMConfig
from tf_privrob.methods.config import DPSGDConfig
from tf_privrob.methods.dp_sgd import DPSGD
from tf_privrob.methods.dp_smooth import DPSmooth
from tf_privrob.methods.dp_smooth import DPSmoothConfig
from tf_privrob.methods.dpal import DPAL
from tf_privrob.methods.dpal_config import DPALConfig
from tf_privrob.methods.dpal_sound import SoundDPAL
from tf_privrob.methods.dpal_sound import SoundDPALConfig
from tf_privrob.methods.halfspace import Halfspaces
from tf_privrob.methods.halfspace_config import HalfspacesConfig
from tf_privrob.methods.halfspace_config import PureHalfspacesConfig
from tf_privrob.methods.halfspace_pure import PureHalfspaces
from tf_privrob.methods.halfspace_trials import Trials
from tf_privrob.methods.method import Method
from tf_privrob.methods.noise_place import NoisePlace
from tf_privrob.methods.pixeldp import PixelDP
from tf_privrob.methods.pixeldp_config import PixelDPConfig
from tf_privrob.methods.plan import FixedPlan
from tf_privrob.methods.plan import TrainingPlan
from tf_privrob.methods.registry import build
from tf_privrob.methods.registry import class_of
from tf_privrob.methods.registry import NAMES
from tf_privrob.methods.registry import preset
from tf_privrob.methods.robust import NaturalTraining
from tf_privrob.methods.robust import RobustTraining
from tf_privrob.methods.robust_config import NaturalConfig
from tf_privrob.methods.robust_config import RobustConfig
from tf_privrob.methods.secure_sgd import SecureSGD
from tf_privrob.methods.secure_sgd_config import SecureSGDConfig
from tf_privrob.methods.secure_sgd_config import SoundSecureSGDConfig
from tf_privrob.methods.secure_sgd_sound import SoundSecureSGD
from tf_privrob.methods.trades import Trades
from tf_privrob.methods.transdenoiser import TransDenoiser
from tf_privrob.methods.transdenoiser_config import SoundTransDenoiserConfig
from tf_privrob.methods.transdenoiser_config import TransDenoiserConfig
from tf_privrob.methods.transdenoiser_sound import SoundTransDenoiser
from tf_privrob.methods.verified import DiffAI
from tf_privrob.methods.verified import DualTraining
from tf_privrob.methods.verified import IBP
from tf_privrob.methods.verified_config import DiffAIConfig
from tf_privrob.methods.verified_config import DualConfig
from tf_privrob.methods.verified_config import IBPConfig
from tf_privrob.methods.wrm import DistributionalTraining

__all__ = [
  "DPAL",
  "DPSGD",
  "IBP",
  "NAMES",
  "AdLM",
  "AdLMConfig",
  "AdversarialConfig",
  "AdversarialTraining",
  "DPALConfig",
  "DPSGDConfig",
  "DPSmooth",
  "DPSmoothConfig",
  "DiffAI",
  "DiffAIConfig",
  "DistributionalTraining",
  "DualConfig",
  "DualTraining",
  "FixedPlan",
  "Halfspaces",
  "HalfspacesConfig",
  "IBPConfig",
  "Method",
  "NaturalConfig",
  "NaturalTraining",
  "NoisePlace",
  "PixelDP",
  "PixelDPConfig",
  "PureHalfspaces",
  "PureHalfspacesConfig",
  "RobustConfig",
  "RobustTraining",
  "SecureSGD",
  "SecureSGDConfig",
  "SoundAdLM",
  "SoundAdLMConfig",
  "SoundDPAL",
  "SoundDPALConfig",
  "SoundSecureSGD",
  "SoundSecureSGDConfig",
  "SoundTransDenoiser",
  "SoundTransDenoiserConfig",
  "Trades",
  "TradesConfig",
  "TrainingPlan",
  "TransDenoiser",
  "TransDenoiserConfig",
  "Trials",
  "WRMConfig",
  "build",
  "class_of",
  "preset",
  "relevance",
]
