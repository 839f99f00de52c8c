"""Curves of several runs in one plot, for runs that are comparable."""

from __future__ import annotations

from collections.abc import Sequence

from tf_privrob.report import canvas
from tf_privrob.report import comparable
from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import plots_membership

_HEIGHT = 320


def draw(group: comparable.Group, order: Sequence[str], name: str) -> str:
  """The curves of one group.

  Args:
    group: runs that are comparable in this part.
    order: the names of all runs of the page, so that a run keeps its colour.
    name: of the drawing on its page.
  """
  if group.part == "attacked":
    return _attacked(group, order, name)
  if group.part == "radius":
    return _radius(group, order, name)
  curves = [(run.name, comparable.roc_of(run)) for run in group.runs]
  places = [order.index(run.name) for run in group.runs]
  return plots_membership.roc_curves(curves, name=name, places=places)


def _style(place: int) -> dict:
  return {
    "color": canvas.SERIES[place % len(canvas.SERIES)],
    "linestyle": canvas.DASHES[place % len(canvas.DASHES)],
  }


def _attacked(group: comparable.Group, order: Sequence[str], name: str) -> str:
  """The worst attack at every size, from no attack on, with 95% bands."""
  norm = group.key[1]
  label = f"Worst accuracy under {norm} attacks, by run"
  with canvas.Plot(name, label, height=_HEIGHT) as plot:
    for run in group.runs:
      results = run.results
      series = [
        (size, attack)
        for (of, size), attack in metrics_lib.worst_by_size(
          results.attacks
        ).items()
        if of == norm
      ]
      if results.clean is not None:
        series.insert(0, (0.0, results.clean))
      place = order.index(run.name)
      _band(plot.axes, series, place)
      plot.axes.plot(
        [size for size, _ in series],
        [point.accuracy for _, point in series],
        marker=canvas.MARKERS[place % len(canvas.MARKERS)],
        label=canvas.short(run.name),
        clip_on=False,
        **_style(place),
      )
    canvas.percent_axis(plot.axes)
    plot.axes.set_xlim(left=0)
    distance = canvas.short(formats.norm(norm))
    plot.axes.set_xlabel(f"size of the attack, {distance} distance")
    plot.legend()
  return plot.svg


def _band(axes, series, place: int, step: str | None = None) -> None:
  if any(point.interval is None for _, point in series):
    return
  axes.fill_between(
    [x for x, _ in series],
    [point.interval[0] for _, point in series],
    [point.interval[1] for _, point in series],
    step=step,
    color=canvas.SERIES[place % len(canvas.SERIES)],
    alpha=0.1,
    linewidth=0,
  )


def _radius(group: comparable.Group, order: Sequence[str], name: str) -> str:
  """Share of examples whose radius reaches r; between radii the lower one."""
  _, norm, kind = group.key
  word = "certified" if kind == "proven" else "claimed"
  label = f"{word} accuracy against the {norm} radius, by run"
  with canvas.Plot(name, label, height=_HEIGHT) as plot:
    furthest = 0.0
    for run in group.runs:
      curve = run.results.smoothed.curve
      series = [(point.radius, point) for point in curve]
      place = order.index(run.name)
      furthest = max(furthest, curve[-1].radius)
      _band(plot.axes, series, place, step="pre")
      plot.axes.step(
        [radius for radius, _ in series],
        [point.accuracy for _, point in series],
        where="pre",
        label=canvas.short(run.name),
        **_style(place),
      )
    canvas.percent_axis(plot.axes)
    plot.axes.set_xlim(0, max(furthest, 1e-6))
    distance = canvas.short(formats.norm(norm))
    plot.axes.set_xlabel(f"radius, {distance} distance")
    plot.legend()
  return plot.svg
