import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import layers


def test_clips_by_hand():
  layer = layers.BoundedActivation(0.5)
  np.testing.assert_array_equal(
    layer(tf.constant([-3.0, -0.5, 0.25, 7.0])), [-0.5, -0.5, 0.25, 0.5]
  )


def test_bound_must_be_positive():
  with pytest.raises(ValueError, match="bound=0 > 0"):
    layers.BoundedActivation(0)
