"""A privacy statement in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_privrob.privacy import rounding

if TYPE_CHECKING:
  from tf_privrob.privacy import statement as statement_lib

NOT_STATED = "not stated"


def proven(statement: statement_lib.PrivacyStatement) -> str:
  """The proven figure with its condition."""
  if statement.proven is None:
    return "none known"
  condition = f" ({statement.condition})" if statement.condition else ""
  return f"{statement.proven}{condition}"


def coverage(
  statement: statement_lib.PrivacyStatement,
) -> tuple[tuple[str, str], ...]:
  """What NIST SP 800-226 and OpenDP's registry of deployments ask."""
  return (
    ("Unit of privacy", statement.unit),
    ("Taken to be public", "; ".join(statement.unprotected) or NOT_STATED),
    ("Preprocessing", statement.preprocessing),
    ("Tuning", statement.tuning),
    ("Trust model", statement.trust_model),
    ("Side channels", statement.side_channels),
    ("Gaussian DP", mu(statement)),
  )


def mu(statement: statement_lib.PrivacyStatement) -> str:
  """The mu of Gaussian DP, with where it holds and its condition."""
  if statement.gaussian_mu is None:
    return "no mu known"
  condition = f" ({statement.condition})" if statement.condition else ""
  found = rounding.up(statement.gaussian_mu)
  return f"mu={found} for every dp_delta >= 1e-10{condition}"


def paragraph(statement: statement_lib.PrivacyStatement) -> str:
  """Figures first, then what limits them, then what they rest on."""
  parts = [
    _figures(statement),
    *_caveats(statement),
    *_accounted(statement),
    *_assumptions(statement),
    *_covered(statement),
  ]
  return " ".join(parts)


def _figures(statement: statement_lib.PrivacyStatement) -> str:
  audited = "not run"
  if statement.audited is not None:
    audited = f"dp_epsilon>={rounding.down(statement.audited)}"
  if statement.audit_note:
    audited += f" ({statement.audit_note})"
  text = (
    f"Privacy ({statement.neighbouring}, sampler {statement.sampler}): claimed"
    f" {statement.claimed or 'none'} / proven {proven(statement)}"
    f" / audited {audited}."
  )
  if statement.violated:
    text += " VIOLATED: the audit refutes a stated figure."
  return text


def _caveats(statement: statement_lib.PrivacyStatement) -> list[str]:
  if not statement.caveats:
    return []
  return ["Caveats: " + " ".join(statement.caveats)]


def _accounted(statement: statement_lib.PrivacyStatement) -> list[str]:
  parts, accountant = [], statement.accountant
  if accountant:
    by = accountant.get("rdp_library")
    parts.append(
      f"Accountant {accountant['name']} ({accountant['library']}"
      f" {accountant['version']}): pld {rounding.up(accountant['pld'])},"
      f" rdp {rounding.up(accountant['rdp'])}{f' ({by})' if by else ''}."
    )
  if statement.releases:
    listed = ", ".join(
      f"{release['count']} x {release['name']}"
      for release in statement.releases
    )
    parts.append(f"Released: {listed}.")
  return parts


def _assumptions(statement: statement_lib.PrivacyStatement) -> list[str]:
  if not statement.assumptions:
    return []
  listed = "; ".join(
    f"{item.text} [{item.enforced_by}]" for item in statement.assumptions
  )
  return [f"Assumes: {listed}."]


def _covered(statement: statement_lib.PrivacyStatement) -> list[str]:
  """A sentence for each answer, and one for all that have none."""
  rows = coverage(statement)
  found = [
    f"{question}: {answer.rstrip('.')}."
    for question, answer in rows
    if answer != NOT_STATED
  ]
  missing = [question for question, answer in rows if answer == NOT_STATED]
  if missing:
    found.append(f"Not stated: {', '.join(missing).lower()}.")
  return found
