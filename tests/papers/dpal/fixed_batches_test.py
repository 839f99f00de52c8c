"""What the published DPAL and AdLM share."""

import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import papers


@pytest.mark.parametrize(
  ("config", "heir"),
  [
    (papers.DPALConfig, "SoundDPALConfig with SoundDPAL"),
    (papers.AdLMConfig, "SoundAdLMConfig with SoundAdLM"),
  ],
)
def test_the_sound_heir_has_settings_of_its_own(config, heir):
  with pytest.raises(ValueError, match=f"use {heir}"):
    config(variant="sound")


@pytest.mark.parametrize(
  ("method", "paired"), [(papers.DPAL, True), (papers.AdLM, False)]
)
def test_batches_have_the_size_that_the_noise_is_made_for(method, paired):
  network = _network()
  config = method.config_class(batch_size=6, steps=3)
  found = method(network, config)
  plan = found.plan(20)
  assert plan.sampler == data.FixedBatchSampler(20, 6, "random", paired)
  assert plan.steps == 3
  assert found.spent_dp_epsilon(3) is None
  with pytest.raises(ValueError, match=f"which {method.__name__}'s"):
    found.check_value_range((0.0, 2.0))


def _network():
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Input((4,)),
      layers.Dense(3, "relu"),
      layers.Dense(3, "tanh"),
      layers.Dense(2),
    ]
  )
