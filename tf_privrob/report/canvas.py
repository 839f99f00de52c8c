"""Where the report's plots are drawn: SVG that lives inside the page.

matplotlib draws with a fixed set of marker colours; each is then replaced by
a CSS variable of the page, so that the same drawing follows the reader into
dark mode and onto paper. Text stays text: it takes the page's font, can be
selected, and is found by a search.
"""

from __future__ import annotations

import html
import io
import re
import warnings

INK = "#010101"
MUTED = "#020202"
GRID = "#030303"
SERIES = ("#110001", "#110002", "#110003", "#110004", "#110005", "#110006")
_VARIABLES = {
  INK: "var(--ink)",
  MUTED: "var(--muted)",
  GRID: "var(--grid)",
  **{color: f"var(--c{i + 1})" for i, color in enumerate(SERIES)},
}
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
_STYLE = {
  "axes.axisbelow": True,
  "axes.edgecolor": GRID,
  "axes.grid": True,
  "axes.grid.axis": "y",
  "axes.labelcolor": MUTED,
  "axes.labelsize": 12,
  "axes.linewidth": 1.0,
  "axes.spines.left": False,
  "axes.spines.right": False,
  "axes.spines.top": False,
  "font.family": "sans-serif",
  "font.size": 12,
  "grid.color": GRID,
  "grid.linewidth": 0.8,
  "legend.borderaxespad": 0.0,
  "legend.borderpad": 0.0,
  "legend.columnspacing": 1.4,
  "legend.fontsize": 12,
  "legend.frameon": False,
  "legend.handlelength": 2.0,
  "legend.labelcolor": INK,
  "lines.linewidth": 2.0,
  "lines.markersize": 5.5,
  "lines.solid_capstyle": "round",
  "svg.fonttype": "none",
  "text.color": INK,
  "text.parse_math": False,
  "xtick.color": MUTED,
  "xtick.major.size": 0,
  "ytick.color": MUTED,
  "ytick.major.size": 0,
}


class Plot:
  """One figure of `width` x `height` page pixels, drawn when entered."""

  def __init__(
    self, name: str, label: str, width: int = 460, height: int = 290
  ):
    self.name = re.sub(r"[^a-z0-9]+", "-", name.lower())
    self.label = html.escape(label, quote=True)
    self.size = (width / 72, height / 72)
    self.svg = ""

  def __enter__(self):
    import matplotlib
    from matplotlib import figure

    style = {**_STYLE, "svg.hashsalt": self.name}
    self._context = matplotlib.rc_context(style)
    self._context.__enter__()
    self._figure = figure.Figure(figsize=self.size, layout="constrained")
    self.axes = self._figure.add_subplot()
    return self

  def __exit__(self, kind, error, trace):
    try:
      if kind is None:
        self.svg = self._render()
    finally:
      self._context.__exit__(kind, error, trace)

  def legend(self) -> None:
    """Puts the legend above the axes, where it can hide nothing."""
    labels = self.axes.get_legend_handles_labels()[1]
    widest = max((45 + 6.5 * len(label) for label in labels), default=1)
    self.axes.legend(
      loc="lower left",
      bbox_to_anchor=(0, 1.04),
      ncols=max(1, int(72 * self.size[0] / widest)),
    )

  def _render(self) -> str:
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with warnings.catch_warnings():
      # The browser draws the text, so matplotlib's font need not have it.
      warnings.filterwarnings("ignore", message="Glyph")
      self._figure.savefig(
        buffer, format="svg", transparent=True, metadata=nothing
      )
    return _embed(buffer.getvalue(), self.name, self.label)


def _embed(svg: str, name: str, label: str) -> str:
  """Turns a stand-alone SVG file into an element of the page."""
  svg = svg[svg.index("<svg") :]
  svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
  svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
  view_box = re.search(r'viewBox="([^"]*)"', svg).group(1)
  body = svg[svg.index(">") + 1 :]
  body = body.replace("xlink:href", "href")
  # Ids must be unique on the page, not only in this drawing.
  body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
  body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
  body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
  body = re.sub(r"font-family:[^;\"]*;?", "", body)
  body = re.sub(r"font:\s*([\d.]+)px[^;\"]*", r"font-size: \1px", body)
  for color, variable in _VARIABLES.items():
    body = body.replace(color, variable)
  return (
    f'<svg class="plot" role="img" aria-label="{label}" viewBox="{view_box}">'
    f"{body.strip()}"
  )


def short(text: str, most: int = 28) -> str:
  """A label that leaves room for the plot."""
  return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def percent_axis(axes) -> None:
  """A vertical axis of shares, from 0 to 100%."""
  axes.set_ylim(-0.02, 1.02)
  axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])


def power_axis(axis, low: float) -> None:
  """Ticks at powers of ten as percentages, without minor ones."""
  from matplotlib import ticker

  powers = []
  tick = 1.0
  while tick >= low * 0.999:
    powers.append(tick)
    tick /= 10
  axis.set_major_locator(ticker.FixedLocator(powers))
  labels = [f"{100 * tick:.6g}%" for tick in powers]
  axis.set_major_formatter(ticker.FixedFormatter(labels))
  axis.set_minor_locator(ticker.NullLocator())
