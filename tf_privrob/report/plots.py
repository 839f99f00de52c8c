"""The report's plots of one run, as SVG that lives inside the page."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tf_privrob.report import canvas
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib


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
      axes.axhline(
        limit, color=canvas.MUTED, linewidth=1.2, linestyle=canvas.DASHES[1]
      )
      axes.set_ylim(0, max(limit, *values, 0) * 1.18)
      axes.annotate(
        f"proven at the end: {formats.dp_epsilon(limit)}",
        (0.0, limit),
        xycoords=("axes fraction", "data"),
        xytext=(4, 5),
        textcoords="offset points",
        color=canvas.MUTED,
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
  with canvas.Plot(f"attacks-{norm}", f"Accuracy under {norm} attacks") as plot:
    axes = plot.axes
    if clean is not None:
      axes.axhline(
        clean.accuracy,
        color=canvas.MUTED,
        linewidth=1.2,
        linestyle=canvas.DASHES[1],
      )
      axes.annotate(
        "no attack",
        (1, clean.accuracy),
        xycoords=("axes fraction", "data"),
        xytext=(0, -13 if clean.accuracy > 0.9 else 5),
        textcoords="offset points",
        horizontalalignment="right",
        color=canvas.MUTED,
      )
    for index, name in enumerate(names):
      series = sorted(
        (a for a in attacks if (a.name, a.norm) == (name, norm)),
        key=lambda attack: attack.attack_eps,
      )
      if series:
        _attack_line(axes, series, index)
    canvas.percent_axis(axes)
    axes.set_xlim(left=0)
    distance = canvas.short(formats.norm(norm))
    axes.set_xlabel(f"size of the attack, {distance} distance")
    plot.legend()
  return plot.svg


def _attack_line(axes, series, index: int) -> None:
  sizes = [attack.attack_eps for attack in series]
  color = canvas.SERIES[index % len(canvas.SERIES)]
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
    linestyle=canvas.DASHES[index % len(canvas.DASHES)],
    marker=canvas.MARKERS[index % len(canvas.MARKERS)],
    label=canvas.short(series[0].name),
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
  with canvas.Plot("certified", f"{word} accuracy against the radius") as plot:
    axes = plot.axes
    radii = [point.radius for point in smoothed.curve]
    distance = canvas.short(formats.norm(smoothed.norm))
    color = canvas.SERIES[2]
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
        color=canvas.SERIES[1],
        marker="s",
        linestyle="none",
        label=f"worst {distance} attack, plain network",
        clip_on=False,
      )
    canvas.percent_axis(axes)
    axes.set_xlim(0, max(radii[-1], 1e-6))
    axes.set_xlabel(f"radius, {distance} distance")
    plot.legend()
  return plot.svg
