"""What proven privacy allows membership inference to find.

TPR is the share of members that a test calls members, FPR the share of
non-members, and TPR - FPR its advantage. A model that is (dp_epsilon,
dp_delta)-DP lets no test have (Kairouz et al. 2015, Theorem 2.1)

    TPR <= e^dp_epsilon FPR + dp_delta,                                    (1)
    TPR <= 1 - e^-dp_epsilon (1 - FPR - dp_delta),                         (2)

and where both hold with equality the advantage is the largest one allowed,

    TPR - FPR <= (e^dp_epsilon - 1 + 2 dp_delta) / (e^dp_epsilon + 1).     (3)

The two worlds must differ as the guarantee's neighbours do. Members are a
training set of fixed size and non-members are other examples, so that one
example replaces another. For a guarantee about adding or removing one these
are two steps, and (1) to (3) hold with (`replaced`)

    2 dp_epsilon and (1 + e^dp_epsilon) dp_delta.                          (4)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tf_privrob.privacy import statement as statement_lib


def replaced(
  statement: statement_lib.PrivacyStatement | None,
) -> statement_lib.Budget | None:
  """What is proven for one example in another's place: (4); None: nothing."""
  if statement is None or statement.proven is None:
    return None
  proven = statement.proven
  if statement.neighbouring == "replace_one":
    return proven
  dp_delta = (1 + math.exp(min(proven.dp_epsilon, 700.0))) * proven.dp_delta
  return statement_lib.Budget(
    2 * proven.dp_epsilon, min(dp_delta, math.nextafter(1.0, 0.0))
  )


def most_tpr(budget: statement_lib.Budget, fpr: Iterable[float]) -> np.ndarray:
  """The largest TPR at each FPR that `budget` allows: (1) and (2)."""
  fpr = np.asarray(tuple(fpr), np.float64)
  grows = math.exp(min(budget.dp_epsilon, 700.0))
  first = grows * fpr + budget.dp_delta
  second = 1 - (1 - fpr - budget.dp_delta) / grows
  return np.clip(np.minimum(first, second), 0.0, 1.0)


def most_advantage(budget: statement_lib.Budget) -> float:
  """The largest advantage that `budget` allows: (3), and never above 1."""
  shrinks = math.exp(-budget.dp_epsilon)
  top = 1 - shrinks + 2 * budget.dp_delta * shrinks
  return min(1.0, top / (1 + shrinks))
