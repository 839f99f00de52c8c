"""The noise that TransDenoiser adds where its input noise does not suffice."""

from __future__ import annotations

from typing import Union

import numpy as np
import tensorflow as tf

from tf_privrob import validate

Number = Union[float, np.ndarray, tf.Tensor]


def extra_stddev(
  smallest: Number,
  input_stddev: float,
  xi_low: float,
  xi_up: float,
  amplification: float,
) -> Number:
  """Algorithm 1, line 16: sigma_bar, what is missing to xi_up.

  With c = sqrt(T S_min(M_t)) sigma,

    sigma_bar = xi_up                 if c < xi_low
                sqrt(xi_up^2 - c^2)   else if c < xi_up
                0                     otherwise.

  Not private: the result depends on the examples and shows in the variance of
  the update, with a jump at xi_low; 0 is no noise at all.

  Args:
    smallest: S_min(M_t), a number or an array, or a tensor in a graph. In a
      tensor, less than 0 (rounding) and NaN give xi_up.
    input_stddev: sigma.
    xi_low: below it the input noise is not counted, >= 0.
    xi_up: the overall standard deviation, > 0.
    amplification: T; 1 leaves the factor out.

  Returns:
    sigma_bar: of the shape of `smallest`, a tensor for a tensor.
  """
  validate.non_negative(input_stddev=input_stddev, xi_low=xi_low)
  validate.positive(xi_up=xi_up, amplification=amplification)
  if xi_low > xi_up:
    raise ValueError(f"Expected xi_low={xi_low!r} <= xi_up={xi_up!r}.")
  factor = float(amplification * input_stddev**2)
  if tf.is_tensor(smallest):
    counted = factor * smallest  # c^2
    rest = tf.sqrt(tf.maximum(xi_up**2 - counted, 0.0))
    return tf.where(
      counted >= xi_low**2, rest, tf.constant(xi_up, counted.dtype)
    )
  smallest = np.asarray(smallest, np.float64)
  validate.non_negative(smallest=float(smallest.min()))
  counted = factor * smallest
  rest = np.sqrt(np.maximum(xi_up**2 - counted, 0.0))
  found = np.where(counted >= xi_low**2, rest, xi_up)
  return found if found.ndim else float(found)
