"""The report's plots, as SVG that lives inside the page."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_privrob import records
from tf_privrob.privacy import statement as statement_lib
from tf_privrob.report import canvas
from tf_privrob.report import comparison
from tf_privrob.report import formats
from tf_privrob.report import headlines
from tf_privrob.report import leakage

_TOP = 1.3  # of a log axis, so that a curve at 100% is seen


def _series(rows: Iterable[records.Epoch], key: str):
  """The epochs at which `key` was recorded, and its values there."""
  pairs = [(row.epoch, row.number(key)) for row in rows]
  pairs = [pair for pair in pairs if pair[1] is not None]
  return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def history_keys(rows: Iterable[records.Epoch], prefix: str) -> list[str]:
  """The numeric columns of the history that start with `prefix`."""
  keys = dict.fromkeys(key for row in rows for key in row.figures)
  return [
    key for key in keys if key.startswith(prefix) and _series(rows, key)[0]
  ]


def history(
  rows: Sequence[records.Epoch],
  key: str,
  color: int = 0,
  share: bool = False,
  limit: float | None = None,
  width: int = 460,
  height: int = 260,
) -> str:
  """One column of the history over the epochs.

  Args:
    rows: the history.
    key: the column.
    color: which series colour to use.
    share: whether the values are shares, shown on a 0 to 100% axis.
    limit: a level to mark, such as the privacy budget.
    width: of the drawing.
    height: of the drawing.
  """
  from matplotlib import ticker

  epochs, values = _series(rows, key)
  label = f"{key} over the epochs"
  with canvas.Plot(f"history-{key}", label, width, height) as plot:
    axes = plot.axes
    mark = "o" if len(epochs) <= 40 else ""
    axes.plot(
      epochs, values, color=canvas.SERIES[color], marker=mark, markersize=4
    )
    if share:
      canvas.percent_axis(axes)
    else:
      axes.margins(y=0.12)
      if min(values) >= 0:
        axes.set_ylim(bottom=0)
    if limit is not None:
      axes.set_ylim(0, max(limit, *values, 0) * 1.18)
      text = f"proven at the end: {formats.dp_epsilon(limit)}"
      _level(axes, limit, text, (0.0, limit), (4, 5), "left")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(
      ticker.MaxNLocator(integer=True, min_n_ticks=1)
    )
  return plot.svg


def _level(axes, height: float, text: str, at, offset, align: str) -> None:
  """A dashed line across the plot, with a word on it."""
  axes.axhline(
    height, color=canvas.MUTED, linewidth=1.2, linestyle=canvas.DASHES[1]
  )
  axes.annotate(
    text,
    at,
    xycoords=("axes fraction", "data"),
    xytext=offset,
    textcoords="offset points",
    horizontalalignment=align,
    color=canvas.MUTED,
  )


def _line(
  axes,
  series,
  place: int,
  label: str,
  step: bool = False,
  dash: int | None = None,
) -> None:
  """Accuracies along x, with their 95% band where all of them have one.

  As steps, the curve shows the accuracy of the larger of two radii between
  them: the lower, hence the safe, reading.

  Args:
    axes: to draw on.
    series: pairs of x and a record with an accuracy.
    place: among the colours.
    label: for the legend.
    step: whether to draw steps, and no marks.
    dash: among the dashes; default: as among the colours.
  """
  dash = place if dash is None else dash
  x = [item for item, _ in series]
  color = canvas.SERIES[place % len(canvas.SERIES)]
  if all(point.interval is not None for _, point in series):
    low, high = zip(*(point.interval for _, point in series))
    axes.fill_between(
      x,
      low,
      high,
      step="pre" if step else None,
      color=color,
      alpha=0.13,
      linewidth=0,
    )
  axes.plot(
    x,
    [point.accuracy for _, point in series],
    drawstyle="steps-pre" if step else "default",
    color=color,
    linestyle=canvas.DASHES[dash % len(canvas.DASHES)],
    marker="" if step else canvas.MARKERS[place % len(canvas.MARKERS)],
    label=label,
    clip_on=step,
  )


def _finish(plot, norm: str, furthest: float | None = None) -> None:
  """Axes of accuracy against a size, or against radii up to `furthest`."""
  canvas.percent_axis(plot.axes)
  distance = canvas.short(formats.norm(norm))
  if furthest is None:
    plot.axes.set_xlim(left=0)
    plot.axes.set_xlabel(f"size of the attack, {distance} distance")
  else:
    plot.axes.set_xlim(0, max(furthest, 1e-6))
    plot.axes.set_xlabel(f"radius, {distance} distance")
  plot.legend()


def attack_curves(
  attacks: Sequence[records.AttackResult],
  norm: str,
  names: Sequence[str],
  clean: records.Accuracy | None,
) -> str:
  """Accuracy against the size of each attack in one norm, with 95% bands.

  Args:
    attacks: all results.
    norm: the panel's norm.
    names: all attacks of the page, so that colours agree between panels.
    clean: accuracy without attack, drawn as a level.
  """
  with canvas.Plot(f"attacks-{norm}", f"Accuracy under {norm} attacks") as plot:
    if clean is not None:
      height = clean.accuracy
      offset = (0, -13 if height > 0.9 else 5)
      _level(plot.axes, height, "no attack", (1, height), offset, "right")
    for place, name in enumerate(names):
      series = [
        (a.attack_eps, a) for a in attacks if (a.name, a.norm) == (name, norm)
      ]
      series.sort(key=lambda pair: pair[0])
      if series:
        _line(plot.axes, series, place, canvas.short(name))
    _finish(plot, norm)
  return plot.svg


def certified_curve(
  smoothed: records.Radii, attacks: Sequence[records.AttackResult] = ()
) -> str:
  """Share of examples whose radius reaches r, as steps, with its 95% band."""
  word = smoothed.word
  with canvas.Plot("certified", f"{word} accuracy against the radius") as plot:
    series = [(point.radius, point) for point in smoothed.curve]
    furthest = series[-1][0]
    axes = plot.axes
    label = f"{word}, {smoothed.subject}"
    _line(axes, series, 2, label, step=True, dash=0)
    worst = [
      attack
      for (norm, _), attack in headlines.worst_by_size(attacks).items()
      if norm == smoothed.norm and attack.attack_eps <= furthest * 1.05
    ]
    if worst:
      distance = canvas.short(formats.norm(smoothed.norm))
      axes.plot(
        [attack.attack_eps for attack in worst],
        [attack.accuracy for attack in worst],
        color=canvas.SERIES[1],
        marker="s",
        linestyle="none",
        label=f"worst {distance} attack, plain network",
        clip_on=False,
      )
    _finish(plot, smoothed.norm, furthest)
  return plot.svg


# Several runs in one plot.


def compared(group: comparison.Group, order: Sequence[str], name: str) -> str:
  """The curves of runs that are comparable in one part.

  Args:
    group: the runs.
    order: the names of all runs of the page, so that a run keeps its colour.
    name: of the drawing on its page.
  """
  places = [order.index(run.name) for run in group.runs]
  if group.part == "roc":
    curves = [(run.name, comparison.roc_of(run)) for run in group.runs]
    return roc_curves(curves, name=name, places=places)
  norm, furthest = group.key[1], None
  label = f"{group.title}, by run, {norm}"
  with canvas.Plot(name, label, height=320) as plot:
    for run, place in zip(group.runs, places):
      results = run.results
      if group.part == "radius":
        series = [(point.radius, point) for point in results.smoothed.curve]
        furthest = max(furthest or 0.0, series[-1][0])
      else:
        worst = headlines.worst_by_size(results.attacks).items()
        series = [(size, attack) for (of, size), attack in worst if of == norm]
        if results.clean is not None:
          series.insert(0, (0.0, results.clean))
      step = group.part == "radius"
      _line(plot.axes, series, place, canvas.short(run.name), step)
    _finish(plot, norm, furthest)
  return plot.svg


# ROC curves of membership inference, where they matter: at low FPR.


def roc_curves(
  curves: Sequence[tuple[str, records.Inference]],
  statement: statement_lib.PrivacyStatement | None = None,
  name: str = "roc",
  places: Sequence[int] | None = None,
) -> str:
  """TPR against FPR, both on log axes, with guessing as the diagonal.

  What is proven rules out TPR above e^dp_epsilon FPR + dp_delta, and above the
  mirror image of that (`leakage`, equations 1 and 2). The line is for a test
  of the guarantee's own neighbours. Shaded is what is ruled out for members of
  a training set of fixed size, where one example replaces another (4).

  Args:
    curves: names, and inferences that have a curve.
    statement: whose proven budget is drawn; None: none is.
    name: of the drawing on its page.
    places: of each curve among the colours; default: its own order.
  """
  places = range(len(curves)) if places is None else places
  low = _lowest(curves)
  label = "ROC curves of membership inference, log axes"
  height = 320 + 17 * (len(curves) + 2)  # one line of the legend for each
  with canvas.Plot(name, label, height=height) as plot:
    axes = plot.axes
    grid = np.geomspace(low, 1, 400)
    muted: dict[str, Any] = {"color": canvas.MUTED, "linewidth": 1.2}
    if statement is not None and statement.proven is not None:
      _ruled_out(axes, grid, statement)
    axes.plot(grid, grid, linestyle=canvas.DASHES[1], label="guessing", **muted)
    for index, (label, item) in zip(places, curves):
      tpr = between(item.roc, grid)
      axes.plot(
        grid,
        np.where(tpr > 0, tpr, np.nan),
        color=canvas.SERIES[index % len(canvas.SERIES)],
        linestyle=canvas.DASHES[index % len(canvas.DASHES)],
        label=canvas.short(label, 44),
      )
    axes.set(xscale="log", yscale="log", xlim=(low, 1), ylim=(low, _TOP))
    canvas.power_axis(axes.xaxis, low)
    canvas.power_axis(axes.yaxis, low)
    axes.tick_params(axis="x", pad=7)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    plot.legend()
  return plot.svg


def between(roc, fpr: np.ndarray) -> np.ndarray:
  """TPR at any FPR: on the line between two points of the curve.

  A test that picks one of the two thresholds by a coin reaches that line. At
  an FPR that several thresholds have, the largest TPR counts.
  """
  most: dict[float, float] = {}
  for x, y in zip(roc.fpr, roc.tpr):
    most[x] = max(y, most.get(x, 0.0))
  known = sorted(most)
  return np.interp(fpr, known, [most[x] for x in known])


def _lowest(curves) -> float:
  """The lower end of both axes: the power of ten that one example can show."""
  counts = [item.num_nonmembers or 1000 for _, item in curves]
  most = min(max(counts, default=1000), 10**6)
  return float(10.0 ** -np.ceil(np.log10(max(most, 100)) - 1e-9))


def _ruled_out(axes, grid: np.ndarray, statement) -> None:
  axes.fill_between(
    grid,
    leakage.most_tpr(leakage.replaced(statement), grid),
    1.0,
    color=canvas.MUTED,
    alpha=0.16,
    linewidth=0,
    label="ruled out by proven privacy",
  )
  if statement.neighbouring != "replace_one":
    axes.plot(
      grid,
      leakage.most_tpr(statement.proven, grid),
      color=canvas.MUTED,
      linewidth=1.4,
      label="bound, one added or removed",
    )
