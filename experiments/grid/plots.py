"""The look that the figures of all experiments share."""

from __future__ import annotations

import os

from tf_privrob import files

COLORS = {
  "blue": "#2a6db8",
  "green": "#168261",
  "orange": "#cc6a14",
  "purple": "#7f50b5",
  "pink": "#bd3d66",
  "olive": "#80701a",
  "black": "#1d2126",
}
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


def draw(make, *arguments):
  """A figure in the style of all of them."""
  import matplotlib

  with matplotlib.rc_context(_STYLE):
    return make(*arguments)


def panels(count: int, width: float, height: float):
  """A row of panels whose common y axis is a share of test images."""
  from matplotlib import figure

  made = figure.Figure(figsize=(width, height), layout="constrained")
  row = made.subplots(1, count, sharey=True, squeeze=False)[0]
  for axes in row:
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
  return made, row


def legend(figure, columns: int, title: str = "") -> None:
  """One legend below all panels; what stands in several is named once.

  Args:
    figure: with labelled lines.
    columns: of the legend.
    title: above its lines, such as the condition of what they say is proven.
  """
  found = {}
  for axes in figure.axes:
    for handle, label in zip(*axes.get_legend_handles_labels()):
      found.setdefault(label, handle)
  figure.legend(
    found.values(),
    found,
    loc="outside lower center",
    ncols=columns,
    title=title or None,
  )


def save(figure, path: str | os.PathLike) -> None:
  """Writes a figure whole; the format follows from the name."""
  import matplotlib

  svg = os.fspath(path).endswith(".svg")
  metadata = {"Date": None} if svg else {}
  # Without the style's salt no two drawings are the same.
  with matplotlib.rc_context(_STYLE), files.writing(path) as draft:
    figure.savefig(draft, facecolor="white", dpi=110, metadata=metadata)
