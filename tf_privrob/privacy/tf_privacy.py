"""TF Privacy's part in a statement: its RDP accountant beside our own bound.

TF Privacy can be imported under TensorFlow 2.15 only. Its accountant is that of
`dp_accounting`, whose figures are below the truth where little is lost
(`renyi`), so that it can raise the figure that is stated, and never lower it.
"""

from __future__ import annotations

import dataclasses
from importlib import metadata

from tf_privrob import compat
from tf_privrob.privacy import accounting
from tf_privrob.privacy import rounding

_ROUNDING = 1e-6  # A smaller difference is one of the last places.
_EVENTS = ("GaussianDpEvent", "PoissonSampledDpEvent(GaussianDpEvent)")


def beside(
  found: accounting.Figures,
  releases: list[accounting.Release],
  dp_delta: float,
) -> tuple[accounting.Figures, str, list[str]]:
  """The figures, whose library the RDP one is by, and what is to be said.

  Args:
    found: What `accounting.figures` says of these releases.
    releases: All of them; TF Privacy is asked where they are DP-SGD alone, that
      is Gaussians, and sampled ones under add-or-remove-one.
    dp_delta: In (0, 1).
  """
  library = " ".join(accounting.library().values())
  theirs = None
  if found.rdp_route == "rdp":
    theirs = _rdp(releases, dp_delta)
  if theirs is None:
    return found, library, []
  library = f"tensorflow_privacy {metadata.version('tensorflow-privacy')}"
  if abs(theirs - found.rdp) <= _ROUNDING * found.rdp:
    return found, library, []
  said = (
    f"By RDP TF Privacy finds dp_epsilon={rounding.up(theirs)}, and the own"
    f" bound of tf_privrob is {rounding.up(found.rdp)}: the larger is stated."
  )
  larger = max(theirs, found.rdp)
  return dataclasses.replace(found, rdp=larger), library, [said]


def _rdp(releases: list[accounting.Release], dp_delta: float) -> float | None:
  """TF Privacy's figure; None where it has none."""
  library = compat.tf_privacy()
  events = {release.record()["parameters"].get("event") for release in releases}
  if library is None or not releases or not events <= set(_EVENTS):
    return None
  accountant = library.AccountantType.RDP.get_accountant()
  try:
    for release in releases:
      accountant.compose(release.event, release.count)
    return float(accountant.get_epsilon(dp_delta))
  except ValueError:  # Its rounding left a divergence below zero.
    return None
