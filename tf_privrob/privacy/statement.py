"""Claimed, proven, audited: one guarantee, three figures, never one alone."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from tf_privrob import files
from tf_privrob import validate
from tf_privrob.privacy import accounting
from tf_privrob.privacy import rounding
from tf_privrob.privacy import statement_text
from tf_privrob.privacy.statement_text import NOT_STATED

SAMPLERS = ("poisson", "shuffle", "full_batch", "fixed", "none")
UNIT = "one example (one row of the training data)"


@dataclasses.dataclass(frozen=True)
class Budget:
  """(dp_epsilon, dp_delta), both finite; no bound is None, not infinity."""

  dp_epsilon: float
  dp_delta: float

  def __post_init__(self):
    validate.non_negative(dp_epsilon=self.dp_epsilon, dp_delta=self.dp_delta)
    if self.dp_delta >= 1:
      raise ValueError(f"Expected 0 <= dp_delta={self.dp_delta!r} < 1.")

  def __str__(self) -> str:
    dp_epsilon, dp_delta = map(rounding.up, (self.dp_epsilon, self.dp_delta))
    return f"dp_epsilon={dp_epsilon} at dp_delta={dp_delta}"


@dataclasses.dataclass(frozen=True)
class Assumption:
  """What a proof rests on, and the code that makes it true."""

  text: str
  enforced_by: str


@dataclasses.dataclass(frozen=True)
class PrivacyStatement:
  """What is known about the privacy of one model.

  Attributes:
    claimed: What the theorem of the method's paper would say, None: nothing.
    proven: What composition supports for what the code really did; None: no
      finite bound is known.
    audited: A lower bound on dp_epsilon that an attack demonstrated, which is
      finite; None: not run.
    audit_note: How the audit was made, its confidence.
    neighbouring: "add_or_remove_one" or "replace_one".
    sampler: "poisson", "shuffle", "full_batch", "fixed" (batches of one size,
      no amplification) or "none" (no mini-batches).
    accountant: Name, library, version, and both figures `rdp` and `pld` with
      their routes, `inf` where one knows no finite bound; empty if nothing was
      accounted.
    releases: `Release.record()` of each: name, description, count, parameters.
    assumptions: Assumptions of the proof.
    caveats: Why claimed is not proven, and what no figure covers.
    condition: What proven depends on, in a few words that stand beside the
      figure wherever it is printed; "" if nothing.
    gaussian_mu: mu of Gaussian DP for the same releases; see `gaussian_mu`.
    unit: Whom the figures protect.
    unprotected: What is taken to be public, and is not protected.
    preprocessing: What it cost, or that it is not covered.
    tuning: The same of the choice of settings.
    trust_model: Who sees what.
    side_channels: Which are covered and which are not.
    run_id: Identity of the run in its ledger; None: it has none.
    weights: Fingerprint of the weights that were released, if known.
  """

  claimed: Budget | None
  proven: Budget | None
  audited: float | None = None
  audit_note: str = ""
  neighbouring: str = "add_or_remove_one"
  sampler: str = "none"
  accountant: dict[str, Any] = dataclasses.field(default_factory=dict)
  releases: tuple[dict[str, Any], ...] = ()
  assumptions: tuple[Assumption, ...] = ()
  caveats: tuple[str, ...] = ()
  condition: str = ""
  gaussian_mu: float | None = None
  unit: str = UNIT
  unprotected: tuple[str, ...] = ()
  preprocessing: str = NOT_STATED
  tuning: str = NOT_STATED
  trust_model: str = NOT_STATED
  side_channels: str = NOT_STATED
  run_id: str | None = None
  weights: str | None = None

  def __post_init__(self):
    validate.one_of(accounting.NEIGHBOURING, neighbouring=self.neighbouring)
    validate.one_of(SAMPLERS, sampler=self.sampler)
    if self.audited is not None:
      validate.non_negative(audited=self.audited)
    if self.gaussian_mu is not None:
      validate.non_negative(gaussian_mu=self.gaussian_mu)
      if self.proven is None:
        raise ValueError(
          f"Expected no gaussian_mu={self.gaussian_mu!r} where nothing is"
          " proven. Leave it None."
        )
    for name in ("releases", "assumptions", "caveats", "unprotected"):
      object.__setattr__(self, name, tuple(getattr(self, name)))

  @classmethod
  def for_dp_sgd(cls, *args, **kwargs) -> PrivacyStatement:
    """The statement of a DP-SGD run; see `dp_sgd_statement.for_dp_sgd`."""
    from tf_privrob.privacy import dp_sgd_statement

    return dp_sgd_statement.for_dp_sgd(*args, **kwargs)

  @property
  def violated(self) -> bool:
    """Whether the audit refutes the proven or the claimed figure."""
    if self.audited is None:
      return False
    bounds = [b.dp_epsilon for b in (self.proven, self.claimed) if b]
    return any(self.audited > bound for bound in bounds)

  def coverage(self) -> tuple[tuple[str, str], ...]:
    """(question, answer): whom, what and against whom the figures protect."""
    return statement_text.coverage(self)

  def text(self) -> str:
    """One paragraph that always shows all three figures."""
    return statement_text.paragraph(self)

  def __str__(self) -> str:
    return self.text()

  def replace(self, **changes) -> PrivacyStatement:
    """A copy with some fields changed, e.g. `audited` after an audit.

    Another proven figure takes `gaussian_mu` away, unless one is given with it.
    """
    if "proven" in changes:
      changes.setdefault("gaussian_mu", None)
    return dataclasses.replace(self, **changes)

  def unproven(self, *reasons: str) -> PrivacyStatement:
    """A copy that proves nothing, for these reasons; they come first.

    The accountant's figures go as well: they stand for releases that were
    not made as they are accounted.
    """
    return self.replace(
      proven=None, accountant={}, caveats=(*reasons, *self.caveats)
    )

  def to_dict(self) -> dict[str, Any]:
    """The JSON form as a dict, with the text beside it."""
    return {
      **files.to_jsonable(self),
      "violated": self.violated,
      "text": self.text(),
    }

  def to_json(self) -> str:
    """Strict JSON, as in all files: null where there is no finite figure."""
    return json.dumps(self.to_dict(), indent=2, allow_nan=False)

  @classmethod
  def from_dict(cls, values: dict[str, Any]) -> PrivacyStatement:
    """Inverts `to_dict`; unknown fields are errors.

    Files of earlier versions lack some fields: they are "not stated".
    """
    values = {k: v for k, v in values.items() if k not in ("violated", "text")}
    names = [field.name for field in dataclasses.fields(cls)]
    for name in values:
      validate.one_of(names, field=name)
    values = {"unit": NOT_STATED, **values}
    values["accountant"] = _accounted(values.get("accountant", {}))
    for name in ("claimed", "proven"):
      if values.get(name) is not None:
        values[name] = Budget(**values[name])
    values["assumptions"] = tuple(
      Assumption(**a) for a in values.get("assumptions", ())
    )
    return cls(**values)

  @classmethod
  def from_json(cls, text: str) -> PrivacyStatement:
    """Inverts `to_json`."""
    return cls.from_dict(json.loads(text))


def _accounted(accountant: Any) -> dict[str, Any]:
  """What a file has; versions before wrote "Infinity" where it has null."""
  if not isinstance(accountant, dict):
    raise ValueError(f"Expected accountant={accountant!r} to be an object.")
  return {
    name: math.inf
    if name in accounting.ACCOUNTANTS and value in (None, "Infinity")
    else value
    for name, value in accountant.items()
  }
