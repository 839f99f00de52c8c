from __future__ import annotations

import math

import pytest

from tf_privrob import papers


def test_extra_stddev_by_hand():
  extra = papers.extra_stddev
  # c = sqrt(T S) sigma = 2 sqrt(S).
  of = {0.0: 2.0, 0.2: 2.0, 0.25: math.sqrt(3), 0.5: math.sqrt(2), 1.0: 0.0}
  for smallest, expected in {**of, 9.0: 0.0}.items():
    found = extra(smallest, 0.5, 1.0, 2.0, 16)
    assert isinstance(found, float)
    assert found == pytest.approx(expected)
  assert extra(0.5, 0.5, 0.1, 2.0, 1) == pytest.approx(math.sqrt(4 - 0.125))
  with pytest.raises(ValueError, match=r"xi_low=3\.0 <= xi_up=2\.0"):
    extra(1.0, 1.0, 3.0, 2.0, 1)
  with pytest.raises(ValueError, match=r"smallest=-1\.0 >= 0"):
    extra(-1.0, 1.0, 1.0, 2.0, 1)
  with pytest.raises(ValueError, match="amplification=0 > 0"):
    extra(1.0, 1.0, 1.0, 2.0, 0)
