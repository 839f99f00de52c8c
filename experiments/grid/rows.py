"""Which test images an experiment looks at, and where its attacks may go."""

from __future__ import annotations

import numpy as np

NO_BOX = (-100.0, 100.0)  # a radius holds outside the value range, too


def chosen_rows(dataset, count: int) -> np.ndarray:
  """Every k-th test image: every 20th of 10,000 for 500."""
  stride = max(1, dataset.num_test // count)
  return np.arange(0, dataset.num_test, stride)[:count]
