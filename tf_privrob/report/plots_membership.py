"""ROC curves of membership inference, where they matter: at low FPR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import canvas
from tf_privrob.report import leakage as leakage_lib


def roc_curves(
  curves: Sequence[tuple[str, leakage_lib.Inference]],
  proven: statement_lib.Budget | None = None,
  name: str = "roc",
  places: Sequence[int] | None = None,
) -> str:
  """TPR against FPR, both on log axes, with guessing as the diagonal.

  What `proven` rules out is shaded: TPR above e^dp_epsilon FPR + dp_delta, and
  above its mirror image (`leakage`, equations 1 and 2).

  Args:
    curves: names, and inferences that have a curve.
    proven: the budget whose region is shaded.
    name: of the drawing on its page.
    places: of each curve among the colours; default: its own order.
  """
  places = range(len(curves)) if places is None else places
  low = _lowest(curves)
  with canvas.Plot(
    name, "ROC curves of membership inference, log axes", height=360
  ) as plot:
    axes = plot.axes
    grid = np.geomspace(low, 1, 200)
    if proven is not None:
      _ruled_out(axes, grid, leakage_lib.most_tpr(proven, grid))
    axes.plot(
      grid,
      grid,
      color=canvas.MUTED,
      linewidth=1.2,
      linestyle=canvas.DASHES[1],
      label="guessing",
    )
    for index, (label, item) in zip(places, curves):
      fpr, tpr = np.array(item.fpr), np.array(item.tpr)
      axes.plot(
        np.maximum(fpr, low),
        np.maximum(tpr, low),
        color=canvas.SERIES[index % len(canvas.SERIES)],
        linestyle=canvas.DASHES[index % len(canvas.DASHES)],
        drawstyle="steps-post",
        label=canvas.short(label, 44),
      )
    for scale in (axes.set_xscale, axes.set_yscale):
      scale("log")
    axes.set_xlim(low, 1)
    axes.set_ylim(low, 1.15)
    canvas.power_axis(axes.xaxis, low)
    canvas.power_axis(axes.yaxis, low)
    axes.tick_params(axis="x", pad=7)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    plot.legend()
  return plot.svg


def _lowest(curves) -> float:
  """The lower end of both axes: the power of ten that one example can show."""
  counts = [item.num_nonmembers or 1000 for _, item in curves]
  most = min(max(counts, default=1000), 10**6)
  return float(10.0 ** -np.ceil(np.log10(max(most, 100)) - 1e-9))


def _ruled_out(axes, grid: np.ndarray, most: np.ndarray) -> None:
  axes.fill_between(
    grid,
    most,
    1.15,
    color=canvas.MUTED,
    alpha=0.14,
    linewidth=0,
    label="ruled out by proven privacy",
  )
  axes.plot(grid, most, color=canvas.MUTED, linewidth=1.4)
