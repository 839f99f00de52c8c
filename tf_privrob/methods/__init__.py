"""Training methods: Keras models around a user's network, one file each."""

from tf_privrob.methods import relevance
from tf_privrob.methods.adlm import AdLM
from tf_privrob.methods.adlm_config import AdLMConfig
from tf_privrob.methods.adlm_config import SoundAdLMConfig
from tf_privrob.methods.adlm_sound import SoundAdLM
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
from tf_privrob.methods.secure_sgd import SecureSGD
from tf_privrob.methods.secure_sgd_config import SecureSGDConfig
from tf_privrob.methods.secure_sgd_config import SoundSecureSGDConfig
from tf_privrob.methods.secure_sgd_sound import SoundSecureSGD
from tf_privrob.methods.transdenoiser import TransDenoiser
from tf_privrob.methods.transdenoiser_config import SoundTransDenoiserConfig
from tf_privrob.methods.transdenoiser_config import TransDenoiserConfig
from tf_privrob.methods.transdenoiser_sound import SoundTransDenoiser

__all__ = [
  "DPAL",
  "DPSGD",
  "NAMES",
  "AdLM",
  "AdLMConfig",
  "DPALConfig",
  "DPSGDConfig",
  "DPSmooth",
  "DPSmoothConfig",
  "FixedPlan",
  "Halfspaces",
  "HalfspacesConfig",
  "Method",
  "NoisePlace",
  "PixelDP",
  "PixelDPConfig",
  "PureHalfspaces",
  "PureHalfspacesConfig",
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
  "TrainingPlan",
  "TransDenoiser",
  "TransDenoiserConfig",
  "Trials",
  "build",
  "class_of",
  "preset",
  "relevance",
]
