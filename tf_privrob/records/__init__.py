"""The records of a run folder: what its JSON files hold, for all who use them.

Those who write a file make its record and write `to_json()`; those who read it
take `from_json(...)`. `schema` says what a record is, `run` holds config.json,
run.json and the history, `evaluation` metrics.json, `audits` the entries of
audit.json and certificate_audit.json, `membership` membership.json. The
statement of privacy.json is `privacy.PrivacyStatement`, a row of
certificates.csv `certify.Certificate`.
"""

from __future__ import annotations

from tf_privrob.records.audits import Audit
from tf_privrob.records.audits import CertificateAudit
from tf_privrob.records.evaluation import Accuracy
from tf_privrob.records.evaluation import AttackResult
from tf_privrob.records.evaluation import Metrics
from tf_privrob.records.evaluation import Radii
from tf_privrob.records.membership import Inference
from tf_privrob.records.membership import Membership
from tf_privrob.records.run import Config
from tf_privrob.records.run import Data
from tf_privrob.records.run import Epoch
from tf_privrob.records.run import Run

__all__ = [
  "Accuracy",
  "AttackResult",
  "Audit",
  "CertificateAudit",
  "Config",
  "Data",
  "Epoch",
  "Inference",
  "Membership",
  "Metrics",
  "Radii",
  "Run",
]
