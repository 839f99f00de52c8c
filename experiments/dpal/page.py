"""The page of `experiments.dpal`: tables and notes.

Every budget is shown as claimed, proven and audited, every radius as claimed,
proven and attacked, side by side, and the paper's own numbers beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.dpal import cells as dpal_cells
from experiments.dpal import figures as dpal_figures
from experiments.dpal import measure as dpal_measure
from experiments.grid import page as grid_page
from experiments.grid import sheets
from tf_privrob.report import formats

PUBLISHED = dpal_figures.PUBLISHED
figures = dpal_figures.figures
Results = dpal_figures.Results
Table = grid_page.Table
percent = grid_page.percent
_SHOWN = (0.05, 0.6)  # sizes that the paper's text has figures for
# Those of the six-model table; the others have the same design as DPAL.
_SIX = ("dpal", "adlm", "dp_sgd", "sound_dpal", "secure_sgd", "pixeldp")


def tables(experiment, results: Results) -> list[Table]:
  """Accuracies, radii, and what the paper says."""
  return [
    _accuracy_table(results),
    _radii_table(experiment, results),
    _fallen_table(results),
    _attacked_table(results),
    _paper_table(experiment, results),
  ]


def _accuracy_table(results: Results) -> Table:
  rows = []
  for result in grid_page.of_part(results, "linf"):
    trained = results.get(f"{result['model']}/train", {})
    points = [row["accuracy"] for row in result["attacks"]]
    rows.append(
      [
        dpal_cells.METHODS[result["method"]],
        *grid_page.budgets(trained),
        f"{result['attack_eps']:g}",
        percent(result["clean_accuracy"]),
        *map(percent, points),
        percent(_mean(result)),
      ]
    )
  head = ["method", *grid_page.BUDGETS, "l_inf size"]
  head += ["clean", *dpal_cells.ATTACKS.values(), "mean"]
  return Table("Accuracy in %, under white-box attacks", head, rows)


def _radii_table(experiment, results: Results) -> Table:
  dpal, sound = (
    dpal_figures.radii_of(results, name) for name in ("dpal", "sound_dpal")
  )
  published = dpal_figures.published(experiment, "size")
  rows = []
  for number, size in enumerate(dpal_cells.RADII if dpal or sound else ()):
    known = published.get(size)
    row = [f"{size:g}", percent(known.figures["claimed"]) if known else "-"]
    for name in dpal_measure.FORMULAS:
      points = _by_bound(dpal, name, number)
      row.append(" / ".join(percent(point["accuracy"]) for point in points))
    row = [text or grid_page.NOT_RUN for text in row]
    attacked = dpal and dpal["claimed"]["attacked"][number]["accuracy"]
    row += [percent(attacked)]
    row += [
      percent(dpal_figures.proven_at(dpal, size)),
      percent(dpal_figures.proven_at(sound, size)),
    ]
    rows.append(row)
  head = ["l_inf size", "claimed in the paper's text", *_claimed_heads()]
  head += ["DPAL under EOT-PGD", "proven, DPAL", "proven, SoundDPAL"]
  title = "Right and robust at a size, in % of the test images"
  return Table(f"{title}, claims {_BY_BOUND}", head, rows)


_BY_BOUND = f"by {' / '.join(dpal_measure.BOUNDS.values())}"


def _claimed_heads() -> list[str]:
  return [f"claimed, {f.label}" for f in dpal_measure.FORMULAS.values()]


def _by_bound(dpal, name: str, number: int) -> list[Mapping[str, Any]]:
  """What a formula claims at a size, by every bound; [] if it was not run."""
  if not dpal:
    return []
  curves = dpal["claimed"]["curves"]
  return [curves[bound][name][number] for bound in dpal_measure.BOUNDS]


def _fallen_table(results: Results) -> Table:
  """Of the images that each formula claims to be robust, how many fell."""
  dpal = dpal_figures.radii_of(results, "dpal")
  rows = []
  for number, size in enumerate(dpal_cells.RADII if dpal else ()):
    row = [f"{size:g}"]
    for name in dpal_measure.FORMULAS:
      points = _by_bound(dpal, name, number)
      row.append(
        " / ".join(
          f"{point['fallen']} of {point['claimed']}"
          f" (at most {point['reach']:.2g})"
          for point in points
        )
      )
    row.append(percent(dpal["claimed"]["attacked"][number]["accuracy"]))
    rows.append([*row, percent(dpal_figures.proven_at(dpal, size))])
  head = ["l_inf size", *_claimed_heads(), "% of all standing", "% proven"]
  title = "Images claimed to be robust that an EOT-PGD attack took"
  return Table(
    f"{title}, {_BY_BOUND}; in brackets the size that unanimous draws claim",
    head,
    rows,
  )


def _attacked_table(results: Results) -> Table:
  """Figures 3, 8 and 9: sizes at images that each of four attacks changed."""
  rows = []
  for result in grid_page.of_part(results, "attacked"):
    for point in result["points"]:
      shares = [percent(point["accuracy"]), *_claimed_there(point)]
      proven = "-"
      if "proven" in point:
        share = percent(point["proven"]["accuracy"])
        proven = f"{share} (at most {result['reach']:.2g})"
      shares.append(proven)
      name = dpal_cells.METHODS[result["method"]]
      attack = dpal_cells.ATTACKS[result["attack"]]
      rows.append([name, attack, f"{point['attack_eps']:g}", *shares])
  title = (
    "At attacked images: right, and right with such a size, in % (in brackets"
    " the size that unanimous draws prove)"
  )
  head = ["method", "attack", "l_inf size", "right", *_claimed_heads()]
  return Table(f"{title}, claims {_BY_BOUND}", [*head, "proven"], rows)


def _claimed_there(point) -> list[str]:
  """What each formula claims; the one of another method stands first."""
  claimed = point.get("claimed", {})
  names = list(next(iter(claimed.values()), ()))
  texts = [
    " / ".join(percent(found[name]["accuracy"]) for found in claimed.values())
    for name in names
  ]
  return texts + ["-"] * (len(dpal_measure.FORMULAS) - len(texts))


def _paper_table(experiment, results: Results) -> Table:
  """The few numbers in the paper's text, and what came out here."""
  rows = []
  for row in dpal_figures.published(experiment, "drop").values():
    label = "DPAL, mean over budgets and attacks: points lost from size 0.1 to"
    drops = _mean_drops(results)
    here = sum(drops) / len(drops) if drops else None
    rows.append([f"{label} 0.2", percent(row.figures["drop"]), percent(here)])
  for total, row in dpal_figures.published(experiment, "total").items():
    names = [f"dpal-{total:g}/linf-{size:g}" for size in dpal_cells.SIZES]
    run = [_mean(results[name]) for name in names if name in results]
    here = sum(run) / len(run) if run else None
    label = (
      f"DPAL under attack, mean, claimed budget {total:g}, proven:"
      f" {grid_page.NONE_KNOWN}"
    )
    rows.append([label, percent(row.figures["attacked"]), percent(here)])
  dpal = dpal_figures.radii_of(results, "dpal")
  for size, row in dpal_figures.published(experiment, "size").items():
    number = dpal_cells.RADII.index(size)
    for name in ("paper", "released_v0"):
      points = _by_bound(dpal, name, number)
      proven = percent(dpal_figures.proven_at(dpal, size))
      label = (
        f"DPAL claimed robust at {size:g}, {dpal_measure.FORMULAS[name].label},"
        f" {_BY_BOUND} (proven here: {proven})"
      )
      here = " / ".join(percent(point["accuracy"]) for point in points)
      here = here or grid_page.NOT_RUN
      rows.append([label, percent(row.figures["claimed"]), here])
  rows += _pixeldp_rows(experiment, results)
  return Table("Beside the paper's numbers, in %", ["", "paper", "here"], rows)


def _pixeldp_rows(experiment, results: Results) -> list[list[str]]:
  """PixelDP at attacked images: the mean of three attacks, and FGSM."""
  rows = []
  for study, attacks in (("size", ("bim", "mim", "pgd")), ("fgsm", ("fgsm",))):
    published = dpal_figures.published(experiment, study, "pixeldp")
    names = ", ".join(dpal_cells.ATTACKS[attack] for attack in attacks)
    for size, row in published.items():
      number, here = dpal_cells.RADII.index(size), []
      for method in dpal_cells.NO_BUDGET:
        cells = [f"{method}/attacked-{attack}" for attack in attacks]
        points = [results[c]["points"][number] for c in cells if c in results]
        shares = [point["proven"]["accuracy"] for point in points]
        whole = len(shares) == len(cells)
        here.append(percent(sum(shares) / len(cells) if whole else None))
      label = f"PixelDP for l_2 / for l_inf, proven at {size:g} under {names}"
      claimed = percent(row.figures["claimed"])
      rows.append([label, claimed, " / ".join(here)])
  return rows


def _mean(result) -> float:
  rows = result["attacks"]
  return sum(row["accuracy"] for row in rows) / len(rows)


def _mean_drops(results: Results) -> list[float]:
  """Of DPAL, from the smaller to the larger size, for each budget."""
  small, large = (f"linf-{size:g}" for size in dpal_cells.SIZES)
  return [
    _mean(result) - _mean(results[f"{result['model']}/{large}"])
    for result in results.values()
    if (result["method"], result["part"]) == ("dpal", small)
    and f"{result['model']}/{large}" in results
  ]


def summary(results: Results, audits: Results) -> Table:
  """The six models at one budget; what was not run is called so.

  Args:
    results: of a scale, by cell name.
    audits: of one step, by method.
  """
  rows = []
  for method in _SIX:
    label = dpal_cells.METHODS[method]
    model = method if method == "pixeldp" else f"{method}-2"
    trained = results.get(f"{model}/train", {})
    attacked = [results.get(f"{model}/linf-{s:g}") for s in dpal_cells.SIZES]
    radii = results.get(f"{model}/radii")
    proven = [percent(dpal_figures.proven_at(radii, size)) for size in _SHOWN]
    budgets = grid_page.budgets(trained) if trained else [grid_page.NOT_RUN] * 3
    rows.append(
      [
        label,
        " / ".join(budgets),
        "-" if method == "pixeldp" else _of_a_step(audits.get(method)),
        percent(trained.get("clean", {}).get("accuracy")),
        *(percent(_mean(result) if result else None) for result in attacked),
        *_claimed_robust(method, radii),
        *(proven if method in dpal_cells.RADII_METHODS else ["-"] * 2),
        _in_the_text(method),
      ]
    )
  head = ["model", "claimed / proven / audited", "audit of one step", "clean"]
  head += [f"under attack, {size:g}" for size in dpal_cells.SIZES]
  head += [f"claimed robust at {size:g}, fallen" for size in _SHOWN]
  head += [f"proven at {size:g}" for size in _SHOWN]
  head.append("claimed in the paper at 0.05 and 0.6")
  title = "Six models in the setting of DPAL's paper, MNIST, in %"
  return Table(title, head, rows)


def _of_a_step(audit) -> str:
  """What an audit of one step says."""
  if audit is None:
    return grid_page.NOT_RUN
  return f"{' / '.join(grid_page.budgets(audit))}: {audit['verdict']}"


def _claimed_robust(method: str, radii) -> list[str]:
  """Shares by the paper's formula, or that of the code, and what fell."""
  if method not in ("dpal", "secure_sgd"):
    return ["-"] * len(_SHOWN)
  if radii is None:
    return [grid_page.NOT_RUN] * len(_SHOWN)
  bound, name = "hoeffding", "paper"
  if method == "secure_sgd":
    bound, name = "clopper_pearson", "released"
  curve = radii["claimed"]["curves"][bound][name]
  points = {point["attack_eps"]: point for point in curve}
  return [
    f"{percent(points[size]['accuracy'])}, {points[size]['fallen']} of"
    f" {points[size]['claimed']} fell"
    for size in _SHOWN
  ]


def _in_the_text(method: str) -> str:
  """What DPAL's paper says of a method, "-" if nothing."""
  rows = sheets.by_value(PUBLISHED, "mnist", "size", method)
  known = [percent(rows[size].figures["claimed"]) for size in sorted(rows)]
  return " and ".join(known) or "-"


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  del results
  scale = experiment["settings"]
  dp_delta = formats.dp_delta(dpal_cells.DP_DELTA)
  narrow = [
    "All networks have a quarter of the filters of the paper's, and trainings"
    " are shorter: two cores would need a week for one budget of the paper's."
  ]
  return [
    *(narrow if scale["form"] == "narrow" else ()),
    grid_page.PUBLIC_DRAWS,
    "Budgets of DPAL and AdLM are claimed by their papers; proven: none known."
    " So is that of SecureSGD's released code, whose accountant stops at the"
    " total or before. Those of DP-SGD and SoundDPAL are proven, at delta"
    f" {dp_delta}. One axis, two meanings. PixelDP is trained without a"
    " budget.",
    f"Attacks are white-box on what is deployed: {scale['num_attacked']} test"
    f" images, {scale['attack_steps']} steps, inputs in [-1, 1]. DPAL,"
    " SecureSGD and PixelDP are attacked through the mean of"
    f" {scale['eot_draws']} draws at every step, and judged by the majority of"
    f" {scale['verdict_draws']} fresh ones. A stronger attack may lower every"
    " accuracy.",
    f"Claimed sizes: {scale['num_radii']} test images, {scale['num_draws']}"
    " draws, at the clean image. By Hoeffding's bounds on means, which are the"
    " paper's, and by Clopper and Pearson's on votes, which are the released"
    " code's and allow larger claims: figures draw these. All formulas read the"
    " same draws. None of them is proven: see docs/soundness.md.",
    "A row of theta_1 in Delta_r^h is one tap of the kernel, or the weights"
    " that an input value meets anywhere: a row of the matrix.",
    f"At attacked images: {scale['num_attacked']} test images;"
    f" {scale['num_draws']} draws at 95 % confidence, as in the papers, for all"
    " that is claimed or proven. Attacked is the randomised classifier that"
    " the sizes are about. A certificate at an attacked image is about that"
    " image, not about the clean one.",
    "Proven radii: of DPAL from its one noise layer at the input, of SecureSGD"
    " and PixelDP from theirs behind the first weights, of SoundDPAL"
    " by smoothing, each with confidence 99.9 %; in l_inf the l_2 radius over"
    " the root of the number of values, but of PixelDP for l_inf its own. They"
    " are about the smoothed classifiers.",
    "PixelDP's noise is made for changes of l_2 size 0.1, or of l_inf size 0.1"
    " as DPAL's paper has it; for l_inf the first weights must be so small that"
    " little of the image passes the noise.",
    "AdLM is deployed without noise, with the statistics of clean training"
    " images in place of those of the test batch.",
  ]
