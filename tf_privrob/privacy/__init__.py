"""What a model may promise, what that costs, and what was spent.

`accounting` gives RDP and PLD figures for everything that a model released,
`calibration` the noise or the steps for a budget, `statement` the claimed,
proven and audited guarantee side by side, and `ledger` the write-ahead record
that a crash can only make too large. None of it needs TensorFlow, and
`dp_accounting` is imported on first use.
"""

from __future__ import annotations

from tf_privrob.privacy.accounting import dp_epsilon
from tf_privrob.privacy.accounting import Figures
from tf_privrob.privacy.accounting import figures
from tf_privrob.privacy.accounting import group_dp_epsilon
from tf_privrob.privacy.accounting import poisson_sgd
from tf_privrob.privacy.accounting import Release
from tf_privrob.privacy.accounting import shuffled_sgd
from tf_privrob.privacy.audit import dp_epsilon_lower_bound
from tf_privrob.privacy.calibration import calibrate_noise_multiplier
from tf_privrob.privacy.calibration import max_steps
from tf_privrob.privacy.ledger import BudgetExceeded
from tf_privrob.privacy.ledger import Ledger
from tf_privrob.privacy.ledger_format import History
from tf_privrob.privacy.ledger_format import LedgerError
from tf_privrob.privacy.ledger_format import read as read_ledger
from tf_privrob.privacy.statement import Assumption
from tf_privrob.privacy.statement import Budget
from tf_privrob.privacy.statement import PrivacyStatement

__all__ = [
  "Assumption",
  "Budget",
  "BudgetExceeded",
  "Figures",
  "History",
  "Ledger",
  "LedgerError",
  "PrivacyStatement",
  "Release",
  "calibrate_noise_multiplier",
  "dp_epsilon",
  "dp_epsilon_lower_bound",
  "figures",
  "group_dp_epsilon",
  "max_steps",
  "poisson_sgd",
  "read_ledger",
  "shuffled_sgd",
]
