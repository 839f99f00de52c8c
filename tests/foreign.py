"""Private names of other libraries that tests need, all in one place.

No public name gives what is read here: what Keras remembers of a graph and of
its seeds, single directions and masses of a privacy loss distribution, and the
figures of other libraries that ours are compared with. The versions of these
libraries are pinned; where a newer one moves a name, only this file changes.
"""

from __future__ import annotations

import sys

import numpy as np

from tf_privrob import compat


def keras_seeds():
  """What holds the generator of a global seed; None without TensorFlow.

  `tf.keras.utils.set_random_seed` makes its attribute `generator`, from which
  all initialisers without a seed draw from then on, and nothing removes it.
  """
  if "tensorflow" not in sys.modules:
    return None
  return compat.keras_module("src.backend")._SEED_GENERATOR


def give_history(tensor, other) -> None:
  """Makes Keras believe that a tensor came from where another came from."""
  tensor._keras_history = other._keras_history


def directions(distribution) -> tuple:
  """The privacy losses of a removed and of an added example."""
  return distribution._pmf_remove, distribution._pmf_add


def dense(pmf) -> tuple[float, int, np.ndarray]:
  """Step of the grid of losses, place of the first one, and their masses."""
  pmf = pmf.to_dense_pmf()
  return pmf._discretization, pmf._lower_loss, pmf._probs


def sampled_gaussian_rdp(sampling_prob, noise_multiplier, orders):
  """The divergences of dp_accounting, which its accountant does not show."""
  from dp_accounting.rdp import rdp_privacy_accountant

  return rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(
    sampling_prob, noise_multiplier, orders
  )


def user_privacy(library, *arguments):
  """tensorflow_privacy's figure for groups; its public function prints it."""
  return library._compute_dp_sgd_user_privacy(*arguments)
