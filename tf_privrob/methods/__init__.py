"""Training methods: Keras models around a user's network, one file each."""

from tf_privrob.methods.config import DPSGDConfig
from tf_privrob.methods.dp_sgd import DPSGD
from tf_privrob.methods.dpal import DPAL
from tf_privrob.methods.dpal_config import DPALConfig
from tf_privrob.methods.dpal_sound import SoundDPAL
from tf_privrob.methods.dpal_sound import SoundDPALConfig
from tf_privrob.methods.method import Method
from tf_privrob.methods.plan import TrainingPlan
from tf_privrob.methods.registry import build
from tf_privrob.methods.registry import NAMES
from tf_privrob.methods.registry import preset

__all__ = [
  "DPAL",
  "DPSGD",
  "NAMES",
  "DPALConfig",
  "DPSGDConfig",
  "Method",
  "SoundDPAL",
  "SoundDPALConfig",
  "TrainingPlan",
  "build",
  "preset",
]
