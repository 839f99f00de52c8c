"""What a model may promise, what that costs, and what was spent.

`accounting` gives RDP and PLD figures for everything that a model released,
`gaussian_dp` one number for all of them, `calibration` the noise or the steps
for a budget, `statement` the claimed, proven and audited guarantee side by
side, with what `run_facts` says of the training, and `ledger` the write-ahead
record that a crash can only make too large. `two_world`, `one_run` and
`refuter` audit a training, and `audit` holds the bounds that they rest on;
`canaries` are the records they look for. TensorFlow and `dp_accounting` are
imported on first use, the former by `gaussian_lower_bound` and `gaussian_mu`.
"""

from __future__ import annotations

from tf_privrob.privacy.accounting import dp_epsilon
from tf_privrob.privacy.accounting import figures
from tf_privrob.privacy.accounting import group_dp_epsilon
from tf_privrob.privacy.accounting import poisson_sgd
from tf_privrob.privacy.accounting import Release
from tf_privrob.privacy.accounting import shuffled_sgd
from tf_privrob.privacy.audit.audit import dp_epsilon_lower_bound
from tf_privrob.privacy.audit.audit import gaussian_lower_bound
from tf_privrob.privacy.audit.audit import reachable
from tf_privrob.privacy.audit.audit import require_reachable
from tf_privrob.privacy.audit.audit import runs_for
from tf_privrob.privacy.audit.one_run import canaries_for
from tf_privrob.privacy.audit.one_run import one_run as audit_one_run
from tf_privrob.privacy.audit.one_run import one_run_lower_bound
from tf_privrob.privacy.audit.one_run import one_run_reachable
from tf_privrob.privacy.audit.planted import audit_planted
from tf_privrob.privacy.audit.planted import canaries_in_one_training
from tf_privrob.privacy.audit.refuter import refute
from tf_privrob.privacy.audit.two_world import two_world as audit_two_world
from tf_privrob.privacy.calibration import calibrate_noise_multiplier
from tf_privrob.privacy.calibration import max_steps
from tf_privrob.privacy.gaussian_dp import gaussian_mu
from tf_privrob.privacy.ledger import BudgetExceeded
from tf_privrob.privacy.ledger import diverged
from tf_privrob.privacy.ledger import Ledger
from tf_privrob.privacy.ledger_format import History
from tf_privrob.privacy.ledger_format import LedgerError
from tf_privrob.privacy.ledger_format import read as read_ledger
from tf_privrob.privacy.rounding import down as rounded_down
from tf_privrob.privacy.rounding import up as rounded_up
from tf_privrob.privacy.run_facts import RunFacts
from tf_privrob.privacy.run_facts import scalar_of_proven
from tf_privrob.privacy.statement import Assumption
from tf_privrob.privacy.statement import Budget
from tf_privrob.privacy.statement import PrivacyStatement

__all__ = [
  "Assumption",
  "Budget",
  "BudgetExceeded",
  "History",
  "Ledger",
  "LedgerError",
  "PrivacyStatement",
  "Release",
  "RunFacts",
  "audit_one_run",
  "audit_planted",
  "audit_two_world",
  "calibrate_noise_multiplier",
  "canaries_for",
  "canaries_in_one_training",
  "diverged",
  "dp_epsilon",
  "dp_epsilon_lower_bound",
  "figures",
  "gaussian_lower_bound",
  "gaussian_mu",
  "group_dp_epsilon",
  "max_steps",
  "one_run_lower_bound",
  "one_run_reachable",
  "poisson_sgd",
  "reachable",
  "read_ledger",
  "refute",
  "require_reachable",
  "rounded_down",
  "rounded_up",
  "runs_for",
  "scalar_of_proven",
  "shuffled_sgd",
]
