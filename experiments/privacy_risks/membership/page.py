"""The page of `privacy_risks.membership`: main tables and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.grid import page as grid_page
from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.membership import plots as membership_plots
from experiments.privacy_risks.membership import rows as rows_lib
from experiments.privacy_risks.membership import studies as membership_studies
from experiments.privacy_risks.training import cells as robust_training_cells
from experiments.privacy_risks.training import page as robust_training_page

PUBLISHED = rows_lib.PUBLISHED
Results = findings_lib.Results
figures = membership_plots.figures
Table = grid_page.Table
_TABLES = {
  "yale_b": "Tables 2 and 8",
  "fashion_mnist": "Tables 3 and 9",
  "cifar10": "Table 4",
  "uci_har": "Table 12",
}


def tables(experiment, results: Results) -> list[Table]:
  """Findings first, trainings last."""
  del experiment
  names = dict.fromkeys(
    r["dataset"] for r in findings_lib.in_study(results, "main")
  )
  made = [_findings_table(results)]
  for name in names:
    made += [
      _accuracy_table(name, results),
      _inference_table(name, results),
      _others_table(name, results),
    ]
  made += membership_studies.tables(results)
  return [*made, robust_training_page.training_table(results)]


def _findings_table(results: Results) -> Table:
  """The paper's findings, with a verdict each."""
  rows = []
  for found in findings_lib.findings(results):
    tested = not found.note
    difference = found.larger - found.smaller
    rows.append(
      [
        found.claim,
        found.where,
        found.verdict,
        f"{found.larger:.4f}",
        f"{found.smaller:.4f}",
        f"{difference:+.4f}" if tested else "-",
        f"{found.error:.4f}" if tested else "-",
      ]
    )
  head = ["finding", "where", "verdict", "should be above", "should be below"]
  head += ["difference", "two standard errors"]
  return Table("Findings of the paper, checked here", head, rows)


def _main(name: str, results: Results) -> list[Mapping[str, Any]]:
  """Trainings of a data set's main tables, in the order of the paper."""
  found = [
    trained
    for trained in findings_lib.in_study(results, "main")
    if trained["dataset"] == name
  ]
  order = list(robust_training_cells.LABELS)
  return sorted(found, key=lambda trained: order.index(trained["trainer"]))


# Tables 2, 3, 4, 8, 9 and 12.


def _title(name: str) -> str:
  return f"{_TABLES.get(name, 'No table of the paper')}, {name}"


def _published_rows(trained, *columns: str) -> list[list[str]]:
  """What was published of the same trainer and data set; [] if nothing.

  Columns that are no names of figures are empty.
  """
  row = rows_lib.published_of(trained["dataset"], trained["trainer"])
  if row is None:
    return []
  values = robust_training_page.published_values(row, columns)
  return [[*rows_lib.as_published(trained["label"], row), *values]]


def _accuracy_table(name: str, results: Results) -> Table:
  head = [*rows_lib.WHO, "radius", *rows_lib.COLUMNS, rows_lib.POINTS]
  head += ["verified members and non-members"]
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        f"{trained['attack_eps']:.4g}",
        *rows_lib.accuracies(trained, infer, rows_lib.COLUMNS),
        rows_lib.points(infer),
        rows_lib.points(infer, "I_V"),
      ]
    )
    rows += _published_rows(trained, *head[4:])
  return Table(f"{_title(name)}: accuracy in %", head, rows)


def _inference_table(name: str, results: Results) -> Table:
  head = [*rows_lib.WHO, *rows_lib.STRATEGIES]
  head += [f"{strategy}, held-out threshold" for strategy in head[4:]]
  head += [rows_lib.POINTS, "of I_V"]
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        *rows_lib.inferred(trained, infer, rows_lib.STRATEGIES),
        *rows_lib.inferred(trained, infer, rows_lib.STRATEGIES, "held_out"),
        rows_lib.points(infer),
        rows_lib.points(infer, "I_V"),
      ]
    )
    rows += _published_rows(trained, *head[4:])
  title = f"{_title(name)}: inference accuracy in % ({rows_lib.UPPER})"
  return Table(title, head, rows)


def _others_table(name: str, results: Results) -> Table:
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        *rows_lib.inferred(
          trained, infer, rows_lib.STRATEGIES, "gap", "correct"
        ),
        *rows_lib.inferred(
          trained, infer, rows_lib.STRATEGIES, "oracle", "margin"
        ),
        *(_area(infer, name) for name in ("I_B", "I_A")),
        *(_low_fpr(infer, name) for name in ("I_B", "I_A")),
      ]
    )
  head = [*rows_lib.WHO, "gap, benign", "gap, attacked", "gap, verified"]
  head += [f"margin of {name}" for name in rows_lib.STRATEGIES]
  head += ["AUC of I_B", "AUC of I_A"]
  head += ["TPR of I_B at FPR 1 %", "TPR of I_A at FPR 1 %"]
  title = f"{_title(name)}: other strategies, inference accuracy in %"
  return Table(title, head, rows)


def _area(infer, name: str) -> str:
  found = findings_lib.inferred(infer, name)
  if found is None:
    return grid_page.NOT_RUN
  low, high = found["auc_interval"]
  return f"{found['auc']:.3f} ({low:.3f} to {high:.3f})"


def _low_fpr(infer, name: str) -> str:
  found = findings_lib.inferred(infer, name)
  if found is None:
    return grid_page.NOT_RUN
  for row in found["tpr_at_fpr"]:
    if abs(row["fpr"] - 0.01) < 1e-9:
      return grid_page.with_interval(row["tpr"], row["interval"], 1)
  return "too few non-members"


# Notes.


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  settings = experiment["settings"]
  trainings = grid_page.of_part(results, "train")
  data, origins = {}, {}
  for trained in trainings:
    if "left_out" not in trained["studies"]:
      data.setdefault(f"{trained['dataset']}: {trained['data']}")
    origins.setdefault(trained["origin"], []).append(trained["model"])
  count = settings["num_points"]
  asked = (
    "all training and all test examples"
    if count is None
    else f"up to {count:,} training and up to as many test examples, drawn once"
  )
  fits = sorted({r["num_fit"] for r in results.values() if "num_fit" in r})
  shown_fits = ", ".join(str(number) for number in fits) or "none"
  return [
    "Published figures are those of Song, Shokri and Mittal (CCS 2019), as"
    " printed; nothing of them was measured here. Their networks, lengths and"
    " training sets are the paper's, ours those of the table of trainings: a"
    " factor below 1, fewer examples or a narrower network is no reproduction."
    " Where a study was published for another data set, its rows say which.",
    *data,
    f"Members and non-members: {asked}; test examples that occur among the"
    " training examples are left out. Radii and targeted attacks:"
    f" {_count(settings['num_swept'])}.",
    "I_B, I_A, I_V: the confidence in the true class (float32 softmax) on the"
    " input itself, on its adversarial example (l_inf PGD, 20 steps of 2.5"
    " radius / 20 from the input), and of the verified worst case within the"
    " radius, above a threshold. Inference accuracy is balanced: 50 is a guess,"
    " and advantage is twice what is above it. As published, the threshold is"
    " the best one for the very points it is judged on: an upper estimate of"
    " what an attacker achieves, with an interval (Dvoretzky, Kiefer and"
    " Wolfowitz) for the best threshold. A held-out threshold is learnt on one"
    " half and judged on the other, with Clopper-Pearson intervals. All are 95"
    " %, over the choice of points; one training each, so that what another"
    " seed would change is not covered.",
    "I_V uses the bounds that a model was trained on: intervals with outward"
    " rounding for IBP and DiffAI, the exact dual for dual training, on"
    f" {settings['num_dual']} examples of each kind at this scale, and not run"
    " where that is 0 or the network too wide: its cost grows with the square"
    " of the width. Published"
    " figures of dual training rest on random projections: estimates.",
    "Gap: who is classified correctly is called a member. Margin: log p_y minus"
    " log of the sum of the others, in float64, where the confidence of float32"
    " is exactly 1 for many.",
    "Findings: the difference against twice its standard error, point by point"
    " for I_A and I_B, or I_V and I_A, of one model, else as if the two figures"
    " were independent;"
    " oracle thresholds, as published; one training each. 'If it fits':"
    f" accuracy of at least {100 * findings_lib.FITS:.0f} % on attacked (or"
    " verified) members; otherwise the paper expects nothing.",
    "Table 7: thresholds and 200-20-2 networks were fitted to"
    f" {shown_fits} members and as many non-members of each class, 500 in the"
    " paper; all others are judged. One targeted attack for each wrong class.",
    "Figure 2: one training example of each class is left out at a time."
    " Batches are drawn anew, so that the confidence in kept examples changes,"
    " too: what both kinds have in common is no memory of the example.",
    "Temperature: logits are divided after the attack; accuracy stays the same."
    " Domain adaptation: weight and divisors were not published, they are those"
    " of ATDA as remembered. PixelDP: the score is the mean softmax over 20"
    " draws of its noise; its network here is that of the natural model beside"
    " it, not the published one.",
    "Without privacy there is no budget: none claimed, none known to hold. A"
    " proven budget bounds TPR - FPR of every attacker by (e^dp_epsilon - 1 + 2"
    " dp_delta) / (e^dp_epsilon + 1) where one example is added or removed;"
    " training sets of one size differ by a replaced example, hence by twice"
    " dp_epsilon, and that is what measurements are held against. These"
    " strategies are no tight audit: staying below proves nothing. Choosing the"
    " settings of private models, and what is shown here of their members, is"
    " not charged to the budget.",
    "What is inferred is membership only as far as test examples are of the"
    " same kind as training examples. Where they are not (uci_har: other"
    " people than those of the training set, as in the paper), a score may tell"
    " the kinds apart; then no budget bounds it, and even a model that was"
    " trained on neither may show an advantage.",
    *(
      f"{len(names)} of {len(trainings)} models: {origin}."
      for origin, names in origins.items()
    ),
    *_remarks(results),
  ]


def _count(count: int | None) -> str:
  return "all of them" if count is None else f"up to {count:,} of each"


def _remarks(results: Results) -> list[str]:
  found = []
  for trained in findings_lib.in_study(results, "main"):
    place = (trained["dataset"], trained["trainer"])
    published = rows_lib.published_of(*place)
    if published and published.remark:
      name = f"{trained['dataset']}, {trained['label']}"
      found.append(f"{name}: {published.remark}")
  return found
