"""Evasion attacks inside the graph, and honest verdicts about them.

An attack is a frozen dataclass, called as `attack(logits_fn, x, y, seed)` both
eagerly and inside a `tf.function` or `train_step`. `evaluate` runs one over a
data set, judges randomised models by majority and reports the findings of
`checks`; docs/attacks.md explains each finding.
"""

from tf_privrob.attacks import checks
from tf_privrob.attacks.apgd import APGD
from tf_privrob.attacks.base import Attack
from tf_privrob.attacks.carlini_wagner import CarliniWagnerL2
from tf_privrob.attacks.catalog import accepted
from tf_privrob.attacks.catalog import by_name
from tf_privrob.attacks.catalog import NAMES
from tf_privrob.attacks.ensembles import ensemble
from tf_privrob.attacks.evaluation import evaluate
from tf_privrob.attacks.gradient import BIM
from tf_privrob.attacks.gradient import FGSM
from tf_privrob.attacks.gradient import MIM
from tf_privrob.attacks.gradient import PGD
from tf_privrob.attacks.randomness import EOT
from tf_privrob.attacks.randomness import eot
from tf_privrob.attacks.spsa import SPSA

__all__ = [
  "APGD",
  "BIM",
  "EOT",
  "FGSM",
  "MIM",
  "NAMES",
  "PGD",
  "SPSA",
  "Attack",
  "CarliniWagnerL2",
  "accepted",
  "by_name",
  "checks",
  "ensemble",
  "eot",
  "evaluate",
]
