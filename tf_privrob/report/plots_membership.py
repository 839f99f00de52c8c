"""ROC curves of membership inference, where they matter: at low FPR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import canvas
from tf_privrob.report import leakage as leakage_lib

_TOP = 1.3  # of the axis, so that a curve at 100% is seen


def roc_curves(
  curves: Sequence[tuple[str, leakage_lib.Inference]],
  statement: statement_lib.PrivacyStatement | None = None,
  name: str = "roc",
  places: Sequence[int] | None = None,
) -> str:
  """TPR against FPR, both on log axes, with guessing as the diagonal.

  What is proven rules out TPR above e^dp_epsilon FPR + dp_delta, and above the
  mirror image of that (`leakage`, equations 1 and 2). The line is for a test
  of the guarantee's own neighbours. Shaded is what is ruled out for members of
  a training set of fixed size, where one example replaces another (5).

  Args:
    curves: names, and inferences that have a curve.
    statement: whose proven budget is drawn; None: none is.
    name: of the drawing on its page.
    places: of each curve among the colours; default: its own order.
  """
  places = range(len(curves)) if places is None else places
  low = _lowest(curves)
  height = 320 + 17 * (len(curves) + 2)  # one line of the legend for each
  with canvas.Plot(
    name, "ROC curves of membership inference, log axes", height=height
  ) as plot:
    axes = plot.axes
    grid = np.geomspace(low, 1, 400)
    if statement is not None and statement.proven is not None:
      _ruled_out(axes, grid, statement)
    axes.plot(
      grid,
      grid,
      color=canvas.MUTED,
      linewidth=1.2,
      linestyle=canvas.DASHES[1],
      label="guessing",
    )
    for index, (label, item) in zip(places, curves):
      tpr = between(item, grid)
      axes.plot(
        grid,
        np.where(tpr > 0, tpr, np.nan),
        color=canvas.SERIES[index % len(canvas.SERIES)],
        linestyle=canvas.DASHES[index % len(canvas.DASHES)],
        label=canvas.short(label, 44),
      )
    for scale in (axes.set_xscale, axes.set_yscale):
      scale("log")
    axes.set_xlim(low, 1)
    axes.set_ylim(low, _TOP)
    canvas.power_axis(axes.xaxis, low)
    canvas.power_axis(axes.yaxis, low)
    axes.tick_params(axis="x", pad=7)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    plot.legend()
  return plot.svg


def between(item: leakage_lib.Inference, fpr: np.ndarray) -> np.ndarray:
  """TPR at any FPR: on the line between two points of the curve.

  A test that picks one of the two thresholds by a coin reaches that line. At
  an FPR that several thresholds have, the largest TPR counts.
  """
  most: dict[float, float] = {}
  for x, y in zip(item.fpr, item.tpr):
    most[x] = max(y, most.get(x, 0.0))
  known = sorted(most)
  return np.interp(fpr, known, [most[x] for x in known])


def _lowest(curves) -> float:
  """The lower end of both axes: the power of ten that one example can show."""
  counts = [item.num_nonmembers or 1000 for _, item in curves]
  most = min(max(counts, default=1000), 10**6)
  return float(10.0 ** -np.ceil(np.log10(max(most, 100)) - 1e-9))


def _ruled_out(axes, grid: np.ndarray, statement) -> None:
  most = leakage_lib.most_tpr(leakage_lib.replaced(statement), grid)
  axes.fill_between(
    grid,
    most,
    1.0,
    color=canvas.MUTED,
    alpha=0.16,
    linewidth=0,
    label="ruled out by proven privacy",
  )
  if statement.neighbouring != "replace_one":
    axes.plot(
      grid,
      leakage_lib.most_tpr(statement.proven, grid),
      color=canvas.MUTED,
      linewidth=1.4,
      label="bound, one added or removed",
    )
