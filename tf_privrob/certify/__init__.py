"""Certificates: what a model promises about every input near a given one.

A `Certifier` turns inputs into `Certificate`s, one row an input: the class, a
radius, the norm, the probability with which the statement holds, and whether
the radius is proven or merely claimed. `RandomizedSmoothing` certifies any
classifier in l2; `run` certifies a data set into a file that survives a
crash; `certified_accuracy` counts.
"""

from tf_privrob.certify.accuracy import certified_accuracy
from tf_privrob.certify.accuracy import claimed_accuracy
from tf_privrob.certify.accuracy import mean_certified_radius
from tf_privrob.certify.certificate import ABSTAIN
from tf_privrob.certify.certificate import Certificate
from tf_privrob.certify.certifier import Certifier
from tf_privrob.certify.running import run
from tf_privrob.certify.smoothing import RandomizedSmoothing

__all__ = [
  "ABSTAIN",
  "Certificate",
  "Certifier",
  "RandomizedSmoothing",
  "certified_accuracy",
  "claimed_accuracy",
  "mean_certified_radius",
  "run",
]
