"""Certificates: what a model promises about every input near a given one.

A `Certifier` turns inputs into `Certificate`s, one row per input: the class, a
radius, the norm, the probability with which the statement holds, and whether
the radius is proven or merely claimed. `RandomizedSmoothing` certifies any
classifier in l2; `SingleLayerCertificate` certifies one with Laplace or
Gaussian noise at its input or inside it (PixelDP), in l1, l2 or linf;
`LinearMargin` certifies linear classifiers, exactly, and those on fixed
features;
`prefix_norms` bounds what the layers before the noise make of a change;
`VerifiedBound` certifies a network without noise in linf, by bounds of its
logits; `ClaimedInference` computes what DPAL claims. `run` certifies a data
set into a file that survives a crash, which `read` reads;
`certified_accuracy` counts. `audit_certificates` attacks inside the radii.
"""

from tf_privrob.certify.accuracy import certified_accuracy
from tf_privrob.certify.accuracy import claimed_accuracy
from tf_privrob.certify.accuracy import mean_certified_radius
from tf_privrob.certify.audit.audit import audit_certificates
from tf_privrob.certify.certificate import ABSTAIN
from tf_privrob.certify.certificate import Certificate
from tf_privrob.certify.certificate import NORMS
from tf_privrob.certify.certifier import Certifier
from tf_privrob.certify.linear.feature_bounds import feature_bound
from tf_privrob.certify.linear.margin import LinearMargin
from tf_privrob.certify.noise_layer.noisy_scores import NoisyModel
from tf_privrob.certify.noise_layer.pixeldp import classic_multiplier
from tf_privrob.certify.noise_layer.pixeldp import gaussian_search
from tf_privrob.certify.noise_layer.pixeldp import gaussian_tight
from tf_privrob.certify.noise_layer.prefix_values import prefix_values
from tf_privrob.certify.noise_layer.single_layer import SingleLayerCertificate
from tf_privrob.certify.noise_layer.single_layer import tight_epsilon
from tf_privrob.certify.norms.keras_norms import is_activation
from tf_privrob.certify.norms.keras_norms import linear_map
from tf_privrob.certify.norms.keras_norms import prefix_norms
from tf_privrob.certify.norms.operator_norms import OperatorNorms
from tf_privrob.certify.record import read
from tf_privrob.certify.running import check_recorded
from tf_privrob.certify.running import run
from tf_privrob.certify.smoothing.smoothing import RandomizedSmoothing
from tf_privrob.certify.verified import VerifiedBound

__all__ = [
  "ABSTAIN",
  "NORMS",
  "Certificate",
  "Certifier",
  "LinearMargin",
  "NoisyModel",
  "OperatorNorms",
  "RandomizedSmoothing",
  "SingleLayerCertificate",
  "VerifiedBound",
  "audit_certificates",
  "certified_accuracy",
  "check_recorded",
  "claimed_accuracy",
  "classic_multiplier",
  "feature_bound",
  "gaussian_search",
  "gaussian_tight",
  "is_activation",
  "linear_map",
  "mean_certified_radius",
  "prefix_norms",
  "prefix_values",
  "read",
  "run",
  "tight_epsilon",
]
