"""The papers' networks as plain Keras models that return logits."""

from tf_privrob.models.denoiser import classifier_of
from tf_privrob.models.denoiser import convolutional_denoiser
from tf_privrob.models.denoiser import denoised_classifier
from tf_privrob.models.denoiser import denoiser_of
from tf_privrob.models.files.exporting import export
from tf_privrob.models.files.importing import import_weights
from tf_privrob.models.files.importing import names_of_ccs_2019
from tf_privrob.models.files.loading import load_classifier
from tf_privrob.models.files.loading import load_model
from tf_privrob.models.files.trained_on import trained_on
from tf_privrob.models.files.trained_on import write_trained
from tf_privrob.models.fingerprint import fingerprint
from tf_privrob.models.fingerprint import fingerprint_of
from tf_privrob.models.fingerprint import model_hash
from tf_privrob.models.folding import folded
from tf_privrob.models.fresh import redraw
from tf_privrob.models.logits import as_logits
from tf_privrob.models.logits import returns_probabilities
from tf_privrob.models.marks import claimed
from tf_privrob.models.marks import mark_released
from tf_privrob.models.marks import released
from tf_privrob.models.signs import signs_of_training
from tf_privrob.models.zoo.classifiers import residual_mnist
from tf_privrob.models.zoo.classifiers import vgg_cifar10
from tf_privrob.models.zoo.denoisers import denoiser_by_name
from tf_privrob.models.zoo.denoisers import DENOISERS
from tf_privrob.models.zoo.denoisers import paper_denoiser
from tf_privrob.models.zoo.denoisers import smooth_denoiser
from tf_privrob.models.zoo.networks import by_name
from tf_privrob.models.zoo.networks import dpal_cifar10
from tf_privrob.models.zoo.networks import dpal_mnist
from tf_privrob.models.zoo.networks import linear
from tf_privrob.models.zoo.networks import mlp
from tf_privrob.models.zoo.networks import NAMES
from tf_privrob.models.zoo.networks import pixeldp_mnist
from tf_privrob.models.zoo.networks import random_features_linear
from tf_privrob.models.zoo.networks import scattering_linear
from tf_privrob.models.zoo.networks import secure_sgd_mnist
from tf_privrob.models.zoo.networks import tutorial_cnn
from tf_privrob.models.zoo.robust_networks import fashion_mnist_cnn
from tf_privrob.models.zoo.robust_networks import ibp_large
from tf_privrob.models.zoo.robust_networks import ibp_medium
from tf_privrob.models.zoo.robust_networks import ibp_small
from tf_privrob.models.zoo.robust_networks import small_dual_resnet
from tf_privrob.models.zoo.robust_networks import yale_cnn
from tf_privrob.models.zoo.wide_residual import wide_resnet

__all__ = [
  "DENOISERS",
  "NAMES",
  "as_logits",
  "by_name",
  "claimed",
  "classifier_of",
  "convolutional_denoiser",
  "denoised_classifier",
  "denoiser_by_name",
  "denoiser_of",
  "dpal_cifar10",
  "dpal_mnist",
  "export",
  "fashion_mnist_cnn",
  "fingerprint",
  "fingerprint_of",
  "folded",
  "ibp_large",
  "ibp_medium",
  "ibp_small",
  "import_weights",
  "linear",
  "load_classifier",
  "load_model",
  "mark_released",
  "mlp",
  "model_hash",
  "names_of_ccs_2019",
  "paper_denoiser",
  "pixeldp_mnist",
  "random_features_linear",
  "redraw",
  "released",
  "residual_mnist",
  "returns_probabilities",
  "scattering_linear",
  "secure_sgd_mnist",
  "signs_of_training",
  "small_dual_resnet",
  "smooth_denoiser",
  "trained_on",
  "tutorial_cnn",
  "vgg_cifar10",
  "wide_resnet",
  "write_trained",
  "yale_cnn",
]
