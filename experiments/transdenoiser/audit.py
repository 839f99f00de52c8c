"""Steps of TransDenoiser that audits tell most about: with one record or not.

The adversary knows all other records, the weights before the step and the
settings, and sees the weights after it (`experiments.audits`). Every record
takes part in the step, so that the claim is that of one Gaussian release with
noise multiplier xi_up.
"""

from __future__ import annotations

import numpy as np

from experiments.transdenoiser import cells as transdenoiser_cells
from tf_privrob import papers

_STDDEV = 0.25  # of the input noise
_SIDE, _EACH, _CLIP = 8, 900, 5.0  # of "branch" and "sound"
_WIDE, _UNITS, _QUIET = 16, 12, 4  # of "group"


def _denoised(denoiser):
  """The denoiser before a classifier that no step looks at."""
  import tensorflow as tf

  from tf_privrob import models

  size = denoiser.input_shape[1]
  classifier = tf.keras.Sequential(
    [tf.keras.layers.Input((size,)), tf.keras.layers.Dense(2)]
  )
  return models.denoised_classifier(denoiser, classifier)


def _dense(units: int, seed: int, activation=None):
  import tensorflow as tf

  return tf.keras.layers.Dense(
    units,
    activation,
    kernel_initializer=tf.keras.initializers.GlorotNormal(seed),
    bias_initializer=tf.keras.initializers.RandomNormal(stddev=0.3, seed=seed),
  )


def _identity_denoiser(size: int):
  """One linear layer that changes nothing: its remainder is |b|^2."""
  import tensorflow as tf

  inputs = tf.keras.Input((size,))
  layer = tf.keras.layers.Dense(
    size, use_bias=False, kernel_initializer=tf.keras.initializers.Identity()
  )
  return tf.keras.Model(inputs, layer(inputs))


def _bent_denoiser(size: int, units: int):
  """Two layers with a tanh between: its remainder has either sign."""
  import tensorflow as tf

  inputs = tf.keras.Input((size,))
  hidden = _dense(units, 1, "tanh")(inputs)
  return tf.keras.Model(inputs, _dense(size, 2)(hidden))


def _settings(count: int, **changes):
  """One step on all records: the claim is that of one Gaussian release."""
  return {
    "dp_epsilon": 100.0,
    "dp_delta": transdenoiser_cells.DP_DELTA,
    "sampler": "full_batch",
    "batch_size": count,
    "epochs": 1,
    "physical_batch_size": count,
    "seed": 1,
    **changes,
  }


def make_branch():
  """One record more, and the rule adds no noise where it added all of it.

  The denoiser is g(z) = W z at W = 1, the records are unit vectors e_j. Then
  A b = 2 b x^T and M_t = 4 1 (x) sum x x^T: S_min is 4 times the number of
  records in the direction that has the fewest. The canary fills that
  direction up; xi_low = xi_up lies between both values. The clip norm is so
  large that hardly any gradient is clipped, and the remainder is |b|^2.
  """
  records = np.tile(np.eye(_SIDE, dtype=np.float32), (_EACH, 1))[::-1]
  smallest = 4 * (_EACH - 0.5)
  xi = float(np.sqrt(smallest)) * _STDDEV / _CLIP
  config = papers.TransDenoiserConfig(
    **_settings(
      len(records),
      xi_up=xi,
      input_stddev=_STDDEV,
      l2_clip_norm=_CLIP,
      reading=papers.Reading(
        xi_low=xi,
        units="sum",
        amplification="none",
        noise_per="batch",
        num_slices=1,
      ),
    )
  )
  network = _denoised(_identity_denoiser(_SIDE))
  return papers.TransDenoiser(network, config), records


def make_group():
  """The canary's remainder is negative: its group gets a draw of its own."""
  denoiser = _bent_denoiser(_WIDE, _UNITS)
  records = _records_by_sign(denoiser)
  config = papers.TransDenoiserConfig(
    **_settings(
      len(records),
      xi_up=10.0,
      input_stddev=_STDDEV,
      reading=papers.Reading(num_slices=2),
    )
  )
  return papers.TransDenoiser(_denoised(denoiser), config), records


def _records_by_sign(denoiser, pool: int = 2_000, draws: int = 400):
  """Some whose remainder is hardly ever negative; last, one that often has."""
  import tensorflow as tf

  rng = np.random.default_rng(3)
  images = rng.random((pool, _WIDE)).astype(np.float32)
  negative = np.zeros(pool)
  remainder = tf.function(lambda x, z: papers.taylor_remainder(denoiser, x, z))
  for _ in range(draws):
    noise = _STDDEV * rng.normal(size=images.shape)
    noisy = tf.constant(images + noise, tf.float32)
    negative += remainder(tf.constant(images), noisy).numpy() < 0
  order = np.argsort(negative)
  return images[[*order[:_QUIET], order[-1]]]


def make_sound():
  """The heir with the same noise on the records of "branch"."""
  paper, records = make_branch()
  config = papers.SoundTransDenoiserConfig(
    **_settings(
      len(records),
      noise_multiplier=paper.config.xi_up,
      input_stddev=_STDDEV,
      l2_clip_norm=_CLIP,
    )
  )
  return papers.SoundTransDenoiser(paper.network, config), records


# Functions of nothing: the method, and the records, the canary last.
CASES = {"group": make_group, "branch": make_branch, "sound": make_sound}
