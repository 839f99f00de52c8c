"""The report's plots, as SVG that lives inside the page.

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
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib

_INK = "#010101"
_MUTED = "#020202"
_GRID = "#030303"
_SERIES = ("#110001", "#110002", "#110003", "#110004", "#110005", "#110006")
_VARIABLES = {
  _INK: "var(--ink)",
  _MUTED: "var(--muted)",
  _GRID: "var(--grid)",
  **{color: f"var(--c{i + 1})" for i, color in enumerate(_SERIES)},
}
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
_STYLE = {
  "axes.axisbelow": True,
  "axes.edgecolor": _GRID,
  "axes.grid": True,
  "axes.grid.axis": "y",
  "axes.labelcolor": _MUTED,
  "axes.labelsize": 12,
  "axes.linewidth": 1.0,
  "axes.spines.left": False,
  "axes.spines.right": False,
  "axes.spines.top": False,
  "font.family": "sans-serif",
  "font.size": 12,
  "grid.color": _GRID,
  "grid.linewidth": 0.8,
  "legend.borderaxespad": 0.0,
  "legend.borderpad": 0.0,
  "legend.columnspacing": 1.4,
  "legend.fontsize": 12,
  "legend.frameon": False,
  "legend.handlelength": 2.0,
  "legend.labelcolor": _INK,
  "lines.linewidth": 2.0,
  "lines.markersize": 5.5,
  "lines.solid_capstyle": "round",
  "svg.fonttype": "none",
  "text.color": _INK,
  "text.parse_math": False,
  "xtick.color": _MUTED,
  "xtick.major.size": 0,
  "ytick.color": _MUTED,
  "ytick.major.size": 0,
}


class _Plot:
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


def _short(text: str, most: int = 28) -> str:
  """A label that leaves room for the plot."""
  return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _percent_axis(axes) -> None:
  axes.set_ylim(-0.02, 1.02)
  axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])


def _series(rows: Iterable[Mapping[str, Any]], key: str):
  """The epochs at which `key` was recorded, and its values there."""
  pairs = [(row["epoch"], metrics_lib.as_number(row.get(key))) for row in rows]
  pairs = [pair for pair in pairs if pair[1] is not None]
  return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _epoch_axis(axes) -> None:
  from matplotlib import ticker

  axes.set_xlabel("epoch")
  axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))


def history_keys(rows: Iterable[Mapping[str, Any]], prefix: str) -> list[str]:
  """The numeric columns of the history that start with `prefix`."""
  keys = dict.fromkeys(key for row in rows for key in row)
  return [
    key for key in keys if key.startswith(prefix) and _series(rows, key)[0]
  ]


def history(
  rows: Sequence[Mapping[str, Any]],
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
  epochs, values = _series(rows, key)
  label = f"{key} over the epochs"
  with _Plot(f"history-{key}", label, width, height) as plot:
    axes = plot.axes
    mark = "o" if len(epochs) <= 40 else ""
    axes.plot(epochs, values, color=_SERIES[color], marker=mark, markersize=4)
    if share:
      _percent_axis(axes)
    else:
      axes.margins(y=0.12)
      if min(values) >= 0:
        axes.set_ylim(bottom=0)
    if limit is not None:
      axes.axhline(limit, color=_MUTED, linewidth=1.2, linestyle=_DASHES[1])
      axes.set_ylim(0, max(limit, *values, 0) * 1.18)
      axes.annotate(
        f"proven at the end: {formats.dp_epsilon(limit)}",
        (0.0, limit),
        xycoords=("axes fraction", "data"),
        xytext=(4, 5),
        textcoords="offset points",
        color=_MUTED,
      )
    _epoch_axis(axes)
  return plot.svg


def attack_curves(
  attacks: Sequence[metrics_lib.AttackResult],
  norm: str,
  names: Sequence[str],
  clean: metrics_lib.Accuracy | None,
) -> str:
  """Accuracy against the size of each attack in one norm, with 95% bands.

  Args:
    attacks: all results.
    norm: the panel's norm.
    names: all attacks of the page, so that colours agree between panels.
    clean: accuracy without attack, drawn as a level.
  """
  with _Plot(f"attacks-{norm}", f"Accuracy under {norm} attacks") as plot:
    axes = plot.axes
    if clean is not None:
      axes.axhline(
        clean.accuracy,
        color=_MUTED,
        linewidth=1.2,
        linestyle=_DASHES[1],
      )
      axes.annotate(
        "no attack",
        (1, clean.accuracy),
        xycoords=("axes fraction", "data"),
        xytext=(0, -13 if clean.accuracy > 0.9 else 5),
        textcoords="offset points",
        horizontalalignment="right",
        color=_MUTED,
      )
    for index, name in enumerate(names):
      series = sorted(
        (a for a in attacks if (a.name, a.norm) == (name, norm)),
        key=lambda attack: attack.attack_eps,
      )
      if series:
        _attack_line(axes, series, index)
    _percent_axis(axes)
    axes.set_xlim(left=0)
    distance = _short(formats.norm(norm))
    axes.set_xlabel(f"size of the attack, {distance} distance")
    plot.legend()
  return plot.svg


def _attack_line(axes, series, index: int) -> None:
  sizes = [attack.attack_eps for attack in series]
  color = _SERIES[index % len(_SERIES)]
  if all(attack.interval is not None for attack in series):
    axes.fill_between(
      sizes,
      [attack.interval[0] for attack in series],
      [attack.interval[1] for attack in series],
      color=color,
      alpha=0.13,
      linewidth=0,
    )
  axes.plot(
    sizes,
    [attack.accuracy for attack in series],
    color=color,
    linestyle=_DASHES[index % len(_DASHES)],
    marker=_MARKERS[index % len(_MARKERS)],
    label=_short(series[0].name),
    clip_on=False,
  )


def certified_curve(
  smoothed: metrics_lib.Smoothed,
  attacks: Sequence[metrics_lib.AttackResult] = (),
) -> str:
  """Share of examples whose radius reaches r, as steps, with its 95% band.

  Between two evaluated radii the curve shows the accuracy at the larger one:
  the lower, hence the safe, reading.
  """
  word = consistency.radius_word(smoothed)
  with _Plot("certified", f"{word} accuracy against the radius") as plot:
    axes = plot.axes
    radii = [point.radius for point in smoothed.curve]
    distance = _short(formats.norm(smoothed.norm))
    color = _SERIES[2]
    if all(point.interval is not None for point in smoothed.curve):
      axes.fill_between(
        radii,
        [point.interval[0] for point in smoothed.curve],
        [point.interval[1] for point in smoothed.curve],
        step="pre",
        color=color,
        alpha=0.15,
        linewidth=0,
      )
    axes.step(
      radii,
      [point.accuracy for point in smoothed.curve],
      where="pre",
      color=color,
      label=f"{word}, {smoothed.subject}",
    )
    worst = [
      attack
      for (norm, _), attack in metrics_lib.worst_by_size(attacks).items()
      if norm == smoothed.norm and attack.attack_eps <= radii[-1] * 1.05
    ]
    if worst:
      axes.plot(
        [attack.attack_eps for attack in worst],
        [attack.accuracy for attack in worst],
        color=_SERIES[1],
        marker="s",
        linestyle="none",
        label=f"worst {distance} attack, plain network",
        clip_on=False,
      )
    _percent_axis(axes)
    axes.set_xlim(0, max(radii[-1], 1e-6))
    axes.set_xlabel(f"radius, {distance} distance")
    plot.legend()
  return plot.svg
