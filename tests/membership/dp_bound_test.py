import math

import numpy as np
import pytest
from scipy import optimize

from tf_privrob import membership


def _program(dp_epsilon, dp_delta, steps=1):
  """max TPR - FPR over two distributions on 4 outcomes, by linear programming.

  Variables are P(outcome) without a change and after each of the steps; every
  set of outcomes obeys the guarantee both ways, and the attacker says "member"
  on the first two outcomes.
  """
  worlds, rows, limits = steps + 1, [], []
  for step in range(steps):
    for first, second in ((step, step + 1), (step + 1, step)):
      for chosen in range(1, 16):
        row = np.zeros((worlds, 4))
        for outcome in range(4):
          if chosen >> outcome & 1:
            row[first, outcome] += 1
            row[second, outcome] -= math.exp(dp_epsilon)
        rows.append(row.ravel())
        limits.append(dp_delta)
  goal = np.zeros((worlds, 4))
  goal[-1, :2], goal[0, :2] = -1, 1
  found = optimize.linprog(
    goal.ravel(),
    A_ub=np.array(rows),
    b_ub=limits,
    A_eq=np.kron(np.eye(worlds), np.ones(4)),
    b_eq=np.ones(worlds),
    bounds=(0, 1),
  )
  assert found.success
  return -found.fun


@pytest.mark.parametrize("dp_epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("dp_delta", [0.0, 1e-3, 0.2])
def test_the_bound_is_the_optimum_of_a_linear_program(dp_epsilon, dp_delta):
  bound = membership.advantage_bound(dp_epsilon, dp_delta)
  optimum = _program(dp_epsilon, dp_delta)
  assert bound.advantage == pytest.approx(optimum, abs=1e-6)
  assert bound.balanced_accuracy == pytest.approx((1 + optimum) / 2, abs=1e-6)


@pytest.mark.parametrize(("dp_epsilon", "dp_delta"), [(0.3, 0), (1, 0.01)])
def test_a_replacement_is_two_steps(dp_epsilon, dp_delta):
  bound = membership.advantage_bound(dp_epsilon, dp_delta, fixed_size=True)
  optimum = _program(dp_epsilon, dp_delta, steps=2)
  assert optimum <= bound.advantage + 1e-6
  assert optimum > membership.advantage_bound(dp_epsilon, dp_delta).advantage


def test_randomised_response_reaches_it():
  for dp_epsilon in (0.1, 1.0, 3.0):
    kept = math.exp(dp_epsilon) / (math.exp(dp_epsilon) + 1)
    # The released bit says "in" with probability `kept` if it is so.
    bound = membership.advantage_bound(dp_epsilon, 0.0)
    assert kept - (1 - kept) == pytest.approx(bound.advantage)
    assert kept == pytest.approx(bound.balanced_accuracy)


def test_measured_on_randomised_response():
  dp_epsilon, count = 1.0, 4000
  kept = math.exp(dp_epsilon) / (math.exp(dp_epsilon) + 1)
  rng = np.random.default_rng(0)
  scores = membership.Scores(
    "bit",
    (rng.random(count) < kept).astype(float),
    (rng.random(count) >= kept).astype(float),
  )
  found = membership.fixed(scores, 1.0)
  bound = membership.advantage_bound(dp_epsilon, 0.0)
  low, high = found.advantage_interval
  assert low <= bound.advantage <= high
  # And the interval tells it from a guarantee of two thirds the epsilon.
  assert low > membership.advantage_bound(2 / 3 * dp_epsilon, 0.0).advantage
  assert high < membership.advantage_bound(3 / 2 * dp_epsilon, 0.0).advantage


def test_the_ends():
  assert membership.advantage_bound(0, 0).advantage == 0
  assert membership.advantage_bound(0, 0.1).advantage == pytest.approx(0.1)
  assert membership.advantage_bound(math.inf, 0).advantage == 1
  assert membership.advantage_bound(2000, 0.5, fixed_size=True).advantage == 1
  assert membership.advantage_bound(0, 1, fixed_size=True).advantage == 1
  replaced = membership.advantage_bound(1, 0, "replace_one", fixed_size=True)
  assert replaced.advantage == membership.advantage_bound(1, 0).advantage


def test_bad_budgets_are_refused():
  with pytest.raises(ValueError, match="dp_epsilon=-1 >= 0"):
    membership.advantage_bound(-1, 0)
  with pytest.raises(ValueError, match=r"dp_delta=1\.5 <= 1"):
    membership.advantage_bound(1, 1.5)
  with pytest.raises(ValueError, match="fixed_size=True with"):
    membership.advantage_bound(1, 0, "replace_one")
  with pytest.raises(ValueError, match="Did you mean 'replace_one'"):
    membership.advantage_bound(1, 0, "replace")
