"""Figures of all studies: what they show as plain values, and how it looks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tf_privrob import files

COLORS = {
  "blue": "#2a6db8",
  "green": "#168261",
  "orange": "#cc6a14",
  "purple": "#7f50b5",
  "pink": "#bd3d66",
  "olive": "#80701a",
  "black": "#1d2126",
  "red": "#a8201c",
  "sand": "#e3c9ae",
  "grey": "#8a8a8a",
}
_CYCLE = ("green", "blue", "orange", "purple", "pink", "olive", "black")
_STYLES = ("-", "--", ":", "-.")
_STYLE = {
  "axes.axisbelow": True,
  "axes.edgecolor": "#b9b6ad",
  "axes.grid": True,
  "axes.labelsize": 10,
  "axes.spines.right": False,
  "axes.spines.top": False,
  "axes.titlesize": 11,
  "font.size": 10,
  "grid.color": "#e3e1da",
  "legend.fontsize": 9.5,
  "legend.frameon": False,
  "lines.linewidth": 1.8,
  "lines.markersize": 5,
  "svg.hashsalt": "tf_privrob",
}


@dataclasses.dataclass(frozen=True)
class Line:
  """One series of a panel.

  Attributes:
    x: Places, or the edges of "stairs".
    y: Values.
    label: In the legend; what stands in several panels is named once.
    color: A key of COLORS.
    style: As matplotlib writes markers and lines.
    shape: "line"; "step": between two places what holds at the larger one is
      shown; "band" and "bars": with intervals; "columns"; "stairs"; "down": a
      line at each x across the panel; "across": one at each y.
    intervals: Lower and upper end of each value, for "band" and "bars".
    more: Further settings of matplotlib.
  """

  x: Sequence[float]
  y: Sequence[float]
  label: Optional[str] = None
  color: str = "black"
  style: str = "-"
  shape: str = "line"
  intervals: Sequence[Sequence[float]] = ()
  more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Panel:
  """One pair of axes.

  Attributes:
    lines: What is drawn.
    title: Above it.
    x_label: Below it.
    y_label: Beside it.
    x_log: The base of a logarithmic axis; 0: the axis is linear.
    y_log: The same of the other axis.
    x_ticks: Texts by place; None: as matplotlib chooses.
    x_limits: Both ends, each None where matplotlib chooses.
    y_limits: The same of the other axis.
    numbers: The y axis has numbers in place of percents.
    texts: Place, text, color and height above the place in points.
    tilted: The texts of the x axis are long.
  """

  lines: Sequence[Line]
  title: str = ""
  x_label: str = ""
  y_label: str = ""
  x_log: int = 0
  y_log: int = 0
  x_ticks: Optional[Mapping[float, str]] = None
  x_limits: tuple[Optional[float], Optional[float]] = (None, None)
  y_limits: tuple[Optional[float], Optional[float]] = (-0.02, 1.02)
  numbers: bool = False
  texts: Sequence[tuple[tuple[float, float], str, str, int]] = ()
  tilted: bool = False


@dataclasses.dataclass(frozen=True)
class Figure:
  """Panels with one legend below them.

  Attributes:
    name: Of its file.
    caption: What it shows.
    panels: From left to right.
    size: Width and height in inches.
    columns: Of the legend.
    title: Above the legend, such as the condition of what it says is proven.
    apart: Every panel has a y axis of its own.
    across: Panels in a row; None: all of them.
  """

  name: str
  caption: str
  panels: Sequence[Panel]
  size: tuple[float, float] = (11.5, 4.5)
  columns: int = 2
  title: str = ""
  apart: bool = False
  across: Optional[int] = None

  @property
  def shows_any(self) -> bool:
    """Whether there is anything to draw; otherwise it is left out."""
    return any(panel.lines for panel in self.panels)


def look(number: int) -> dict[str, str]:
  """Color and style of the series with this number: none of 28 is another's."""
  return {
    "color": _CYCLE[number % len(_CYCLE)],
    "style": _STYLES[number // len(_CYCLE) % len(_STYLES)],
  }


def certified(points, label: str, **more: Any) -> Line:
  """A curve of "accuracy" by "radius", as steps."""
  x = [point["radius"] for point in points]
  y = [point["accuracy"] for point in points]
  return Line(x, y, label, shape="step", **more)


def ticks(values: Sequence[float]) -> dict[float, str]:
  """Places with themselves as their texts."""
  return {value: f"{value:g}" for value in sorted(values)}


def draw(figure: Figure):
  """The figure of matplotlib, in the style of all of them."""
  import matplotlib
  from matplotlib import figure as figure_lib

  count = len(figure.panels)
  across = figure.across or count
  with matplotlib.rc_context(_STYLE):
    made = figure_lib.Figure(figsize=figure.size, layout="constrained")
    every = made.subplots(
      -(-count // across), across, sharey=not figure.apart, squeeze=False
    ).flatten()
    for axes, panel in zip(every, figure.panels):
      _draw_panel(axes, panel)
    for axes in every[count:]:
      axes.set_axis_off()
    _legend(made, figure)
  return made


def _draw_panel(axes, panel: Panel) -> None:
  from matplotlib import ticker

  for line in panel.lines:
    _draw_line(axes, line)
  if not panel.numbers:
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
  if panel.x_log:
    axes.set_xscale("log", base=panel.x_log)
  if panel.y_log:
    axes.set_yscale("log", base=panel.y_log)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.minorticks_off()
  if panel.x_ticks is not None:
    tilted = {"rotation": 35, "ha": "right"} if panel.tilted else {}
    axes.set_xticks(list(panel.x_ticks), list(panel.x_ticks.values()), **tilted)
    axes.set_xticks([], minor=True)
  axes.set_xlim(*panel.x_limits)
  axes.set_ylim(*panel.y_limits)
  axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
  for place, text, color, height in panel.texts:
    axes.annotate(
      text,
      place,
      ha="right",
      xytext=(0, height),
      textcoords="offset points",
      fontsize=8,
      color=COLORS[color],
    )


def _draw_line(axes, line: Line) -> None:
  x, y = list(line.x), list(line.y)
  named = {"color": COLORS[line.color], "label": line.label, **line.more}
  if line.shape == "step":
    axes.step(x, y, line.style, where="pre", **named)
  elif line.shape == "columns":
    axes.bar(x, y, **named)
  elif line.shape == "stairs":
    axes.stairs(y, x, **named)
  elif line.shape == "down":
    for place in x:
      axes.axvline(place, ls=line.style, lw=1, **named)
  elif line.shape == "across":
    for value in y:
      axes.axhline(value, ls=line.style, lw=1, **named)
  elif line.shape == "bars":
    ends = list(zip(y, line.intervals))
    below = [max(0.0, value - low) for value, (low, _) in ends]
    above = [max(0.0, high - value) for value, (_, high) in ends]
    axes.errorbar(x, y, (below, above), fmt=line.style, capsize=2, **named)
  else:
    axes.plot(x, y, line.style, **named)
  if line.shape == "band":
    low, high = zip(*line.intervals)
    color = COLORS[line.color]
    axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)


def _legend(made, figure: Figure) -> None:
  found = {}
  for axes in made.axes:
    for handle, label in zip(*axes.get_legend_handles_labels()):
      found.setdefault(label, handle)
  made.legend(
    found.values(),
    found,
    loc="outside lower center",
    ncols=figure.columns,
    title=figure.title or None,
  )


def save(figure, path: str | os.PathLike) -> None:
  """Writes a drawn figure whole; the format follows from the name."""
  import matplotlib

  svg = os.fspath(path).endswith(".svg")
  metadata = {"Date": None} if svg else {}
  # Without the style's salt no two drawings are the same.
  with matplotlib.rc_context(_STYLE), files.writing(path) as draft:
    figure.savefig(draft, facecolor="white", dpi=110, metadata=metadata)
