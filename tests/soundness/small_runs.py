"""Data and settings of trainings that take a moment."""

from __future__ import annotations

import numpy as np

from tf_privrob import methods

CONFIG = methods.DPSGDConfig(
  noise_multiplier=1.0, batch_size=16, epochs=1, dp_epsilon=50.0, dp_delta=1e-3
)


def arrays(count: int = 64, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Rows of six features, and labels of three classes."""
  rng = np.random.default_rng(seed)
  x = rng.random((count, 6), "float32")
  return x, (x[:, 0] * 3).astype("int64")
