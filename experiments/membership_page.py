"""Tables and notes of `experiments.membership`, from its results."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from experiments import grid_page
from experiments import membership_findings as findings_lib
from experiments import membership_published as published_rows
from experiments import robust_training_cells
from experiments import robust_training_page
from experiments import robust_training_published

Results = findings_lib.Results
Table = grid_page.Table
_WHO = robust_training_page.WHO
_COLUMNS = robust_training_published.COLUMNS
_STRATEGIES = published_rows.STRATEGIES
_TABLES = {
  "yale_b": "Tables 2 and 8",
  "fashion_mnist": "Tables 3 and 9",
  "cifar10": "Table 4",
  "uci_har": "Table 12",
}
_NOT_RUN, _NO_BOUND = "not run", "no bound"
_UPPER = "oracle threshold, an upper estimate"


def tables(results: Results) -> list[Table]:
  """Findings first, trainings last."""
  names = dict.fromkeys(
    r["dataset"] for r in findings_lib.in_study(results, "main")
  )
  made = [findings_table(results)]
  for name in names:
    made += [
      _accuracy_table(name, results),
      _inference_table(name, results),
      _others_table(name, results),
    ]
  made += [
    _share_table(results),
    _radius_table(results),
    _classes_table(results),
    _subset_table(results),
    _adaptation_table(results),
    _sensitivity_table(results),
    _noise_layer_table(results),
    private_table(results),
    robust_training_page.training_table(results),
  ]
  return made


def findings_table(results: Results) -> Table:
  """The paper's findings, with a verdict each."""
  rows = []
  for found in findings_lib.findings(results):
    tested = not found.note
    difference = found.larger - found.smaller
    rows.append(
      [
        found.claim,
        found.where,
        f"{found.larger:.4f}",
        f"{found.smaller:.4f}",
        f"{difference:+.4f}" if tested else "-",
        f"{found.error:.4f}" if tested else "-",
        found.verdict,
      ]
    )
  head = ["finding", "where", "should be above", "should be below"]
  head += ["difference", "two standard errors", "verdict"]
  return Table("Findings of the paper, checked here", head, rows)


# Parts of rows.


def _main(name: str, results: Results) -> list[Mapping[str, Any]]:
  """Trainings of a data set's main tables, in the order of the paper."""
  found = [
    trained
    for trained in findings_lib.in_study(results, "main")
    if trained["dataset"] == name
  ]
  order = list(robust_training_cells.LABELS)
  return sorted(found, key=lambda trained: order.index(trained["trainer"]))


def shown(inference) -> str:
  """An inference accuracy and its interval, in percent."""
  if inference is None:
    return _NOT_RUN
  low, high = inference["interval"]
  accuracy = 100 * inference["balanced_accuracy"]
  return f"{accuracy:.2f} ({100 * low:.1f} to {100 * high:.1f})"


def _accuracies(trained, infer, columns: Sequence[str]) -> list[str]:
  found = infer["accuracies"] if infer else {}
  return [
    robust_training_page.shown(found[column])
    if column in found
    else _absent(trained, column)
    for column in columns
  ]


def _absent(trained, column: str) -> str:
  """Why there is no figure."""
  is_bound = column.startswith("ver-") or column == "I_V"
  has_bounds = trained["trainer"] in robust_training_cells.VERIFIED
  return _NO_BOUND if is_bound and not has_bounds else _NOT_RUN


def _inferred(trained, infer, names, *kind: str) -> list[str]:
  made = []
  for name in names:
    found = findings_lib.inferred(infer, name, *kind)
    made.append(shown(found) if found else _absent(trained, name))
  return made


def _points(infer, name: str = "I_B") -> str:
  found = findings_lib.inferred(infer, name)
  if found is None:
    return "-"
  return f"{found['num_members']:,} and {found['num_nonmembers']:,}"


def _published_values(
  published, columns: Sequence[str], names: Sequence[str]
) -> list[str]:
  """Accuracies, then inference; what rests on estimates is called so."""
  percent = dict(zip(_COLUMNS, published.accuracies))
  percent.update(zip(_STRATEGIES, published.inference))
  made = []
  for column in (*columns, *names):
    text = f"{percent[column]:.2f}" if column in percent else "-"
    is_bound = column.startswith("ver-") or column == "I_V"
    if text != "-" and is_bound and published.estimated:
      text += " estimated"
    made.append(text)
  return made


def _as_published(label: str, published) -> list[str]:
  text = f"{label}, as published in Table {published.table}"
  return [text, "-", "-", "-"]


# Tables 2, 3, 4, 8, 9 and 12.


def _title(name: str) -> str:
  return f"{_TABLES.get(name, 'No table of the paper')}, {name}"


def _published(trained):
  return published_rows.row(trained["dataset"], trained["trainer"])


def _accuracy_table(name: str, results: Results) -> Table:
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        f"{trained['attack_eps']:.4g}",
        *_accuracies(trained, infer, _COLUMNS),
        _points(infer),
        _points(infer, "I_V"),
      ]
    )
    published = _published(trained)
    if published:
      values = _published_values(published, _COLUMNS, ())
      row = _as_published(trained["label"], published)
      rows.append([*row, "-", *values, "-", "-"])
  head = [*_WHO, "radius", *_COLUMNS, "members and non-members"]
  head += ["verified members and non-members"]
  return Table(f"{_title(name)}: accuracy in %", head, rows)


def _inference_table(name: str, results: Results) -> Table:
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        *_inferred(trained, infer, _STRATEGIES),
        *_inferred(trained, infer, _STRATEGIES, "held_out"),
        _points(infer),
        _points(infer, "I_V"),
      ]
    )
    published = _published(trained)
    if published:
      values = _published_values(published, (), _STRATEGIES)
      row = _as_published(trained["label"], published)
      rows.append([*row, *values, *["-"] * 5])
  head = [*_WHO, *_STRATEGIES]
  head += [f"{name}, held-out threshold" for name in _STRATEGIES]
  head += ["members and non-members", "of I_V"]
  title = f"{_title(name)}: inference accuracy in % ({_UPPER})"
  return Table(title, head, rows)


def _others_table(name: str, results: Results) -> Table:
  rows = []
  for trained in _main(name, results):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        *_inferred(trained, infer, _STRATEGIES, "gap", "correct"),
        *_inferred(trained, infer, _STRATEGIES, "oracle", "margin"),
        *(_area(infer, name) for name in ("I_B", "I_A")),
        *(_low_fpr(infer, name) for name in ("I_B", "I_A")),
      ]
    )
  head = [*_WHO, "gap, benign", "gap, attacked", "gap, verified"]
  head += [f"margin of {name}" for name in _STRATEGIES]
  head += ["AUC of I_B", "AUC of I_A"]
  head += ["TPR of I_B at FPR 1 %", "TPR of I_A at FPR 1 %"]
  title = f"{_title(name)}: other strategies, inference accuracy in %"
  return Table(title, head, rows)


def _area(infer, name: str) -> str:
  found = findings_lib.inferred(infer, name)
  if found is None:
    return _NOT_RUN
  low, high = found["auc_interval"]
  return f"{found['auc']:.3f} ({low:.3f} to {high:.3f})"


def _low_fpr(infer, name: str) -> str:
  found = findings_lib.inferred(infer, name)
  if found is None:
    return _NOT_RUN
  for row in found["tpr_at_fpr"]:
    if abs(row["fpr"] - 0.01) < 1e-9:
      low, high = row["interval"]
      return f"{100 * row['tpr']:.1f} ({100 * low:.1f} to {100 * high:.1f})"
  return "too few non-members"


# Tables 5, 6, 10 and 11.


def _study_table(
  results: Results,
  study: str,
  title: str,
  parameter: str,
  published: Sequence[tuple[str, str, Any]],
  verified: bool = False,
) -> Table:
  """Measured rows by parameter, then the published ones.

  Args:
    results: of all cells.
    study: whose models.
    title: of the table.
    parameter: head of its column.
    published: label, parameter and row.
    verified: has columns of bounds.
  """
  columns = _COLUMNS if verified else _COLUMNS[:4]
  names = _STRATEGIES if verified else _STRATEGIES[:2]
  rows = []
  for trained in findings_lib.in_study(results, study):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        trained["dataset"],
        f"{trained['studies'][study]:.4g}",
        f"{trained['attack_eps']:.4g}",
        *_accuracies(trained, infer, columns),
        *_inferred(trained, infer, names),
        *_inferred(trained, infer, names, "held_out"),
        _points(infer),
      ]
    )
  if rows:
    for label, value, row in published:
      values = _published_values(row, columns, names)
      head = [*_as_published(label, row), row.dataset, value, "-"]
      rows.append([*head, *values, *["-"] * len(names), "-"])
  head = [*_WHO, "data set", parameter, "radius of inference"]
  head += [*columns, *names]
  head += [f"{name}, held-out threshold" for name in names]
  head += ["members and non-members"]
  return Table(f"{title} ({_UPPER})", head, rows)


def _share_table(results: Results) -> Table:
  rows = [
    ("PGD", f"{share:g}", row) for share, row in published_rows.SHARES.items()
  ]
  title = "Table 5: share of the training set with an adversarial loss"
  return _study_table(results, "share", title, "share", rows)


def _radius_table(results: Results) -> Table:
  rows = [
    ("PGD", f"{255 * radius:.0f}/255", row)
    for radius, row in published_rows.RADII.items()
  ]
  title = "Table 6: radius of training"
  return _study_table(results, "radius", title, "trained at radius", rows)


def _subset_table(results: Results) -> Table:
  rows = [
    ("dual" if radius else "natural", f"{255 * radius:g}/255", row)
    for radius, row in published_rows.SUBSET.items()
  ]
  title = "Table 10: dual training on few examples"
  return _study_table(
    results, "subset", title, "trained at radius", rows, verified=True
  )


def _adaptation_table(results: Results) -> Table:
  rows = [
    ("PGD", "1" if adapted else "0", published_rows.adapted(name, adapted))
    for name in published_rows.ADAPTED
    for adapted in (False, True)
  ]
  title = "Table 11: domain adaptation"
  return _study_table(results, "adaptation", title, "adapted", rows)


# Table 7, Figure 2, Appendix E.


def _classes_table(results: Results) -> Table:
  names = published_rows.CLASS_STRATEGIES
  rows = []
  for result in results.values():
    if result["part"] != "classes":
      continue
    trained = results[f"{result['model']}/train"]
    who = [*robust_training_page.who(trained), result["dataset"]]
    found = [result["strategies"][name] for name in names]
    counts = f"{found[0]['num_members']:,} and {found[0]['num_nonmembers']:,}"
    rows.append([*who, "all", *map(shown, found), counts])
    for place, first in enumerate(found[0]["per_class"]):
      values = [shown(each["per_class"][place]) for each in found]
      counts = f"{first['num_members']:,} and {first['num_nonmembers']:,}"
      rows.append([*who, str(first["class"]), *values, counts])
  if rows:
    for number, percent in enumerate(published_rows.CLASSES):
      label = "PGD, as published in Table 7"
      values = [f"{value:.2f}" for value in percent]
      row = [label, "-", "-", "-", "cifar10", str(number), *values, "-"]
      rows.append(row)
  head = [*_WHO, "data set", "class", *names, "members and non-members judged"]
  return Table("Table 7: class by class, inference accuracy in %", head, rows)


def _sensitivity_table(results: Results) -> Table:
  rows = []
  for (dataset, trainer), groups in findings_lib.sensitivities(results).items():
    trained = results.get(f"{dataset}-{trainer}/train")
    if trained is None:
      continue
    cells = []
    for values in (groups["left_out"], groups["kept"]):
      mean, error = findings_lib.mean_and_error(values)
      cells += [f"{mean:+.4f} +- {2 * error:.4f}", f"{max(values):+.4f}"]
    count = str(len(groups["left_out"]))
    rows.append([*robust_training_page.who(trained), dataset, *cells, count])
  head = [*_WHO, "data set", "mean of left-out examples", "largest"]
  head += ["mean of kept examples", "largest", "examples of each kind"]
  title = "Figure 2: confidence lost by retraining without an example"
  return Table(title, head, rows)


def _noise_layer_table(results: Results) -> Table:
  rows = []
  for trained in findings_lib.in_study(results, "noise_layer"):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        trained["dataset"],
        *_accuracies(trained, infer, _COLUMNS[:2]),
        *_inferred(trained, infer, ("I_B",)),
        *_inferred(trained, infer, ("I_B",), "held_out"),
        _points(infer),
      ]
    )
  if rows:
    for has_noise, percent in published_rows.NOISE_LAYER.items():
      label = "PixelDP" if has_noise else "natural"
      row = [f"{label}, as published in Appendix E", "-", "-", "-", "cifar10"]
      rows.append([*row, "-", "-", f"{percent:.2f}", "-", "-"])
  head = [*_WHO, "data set", *_COLUMNS[:2], "I_B", "I_B, held-out threshold"]
  head += ["members and non-members"]
  return Table(f"Appendix E: a noise layer ({_UPPER})", head, rows)


# Private models.


def bound_of(trained) -> Mapping[str, float] | None:
  """What the proven budget allows any attacker; None without one."""
  from tf_privrob import membership

  proven = trained["proven"]
  if not proven:
    return None
  return membership.advantage_bound(proven["dp_epsilon"], proven["dp_delta"])


def private_table(results: Results) -> Table:
  """Advantages of all strategies beside what the proven budget allows."""
  rows = []
  for trained in findings_lib.in_study(results, "private"):
    infer = findings_lib.infer_of(results, trained)
    if infer is None:
      continue
    bound = bound_of(trained)
    benign, attacked = (
      findings_lib.inferred(infer, name, "held_out") for name in ("I_B", "I_A")
    )
    rows.append(
      [
        *robust_training_page.who(trained),
        trained["dataset"],
        *_accuracies(trained, infer, _COLUMNS[:4]),
        *_inferred(trained, infer, ("I_B", "I_A")),
        *(_advantage(found) for found in (benign, attacked)),
        "none" if bound is None else f"{100 * bound['advantage']:.1f}",
        _within(bound, (benign, attacked)),
        _points(infer),
      ]
    )
  head = [*_WHO, "data set", *_COLUMNS[:4], "I_B", "I_A"]
  head += ["advantage of I_B, held out", "advantage of I_A, held out"]
  head += ["advantage that the proven budget allows", "verdict"]
  head += ["members and non-members"]
  title = "Private models (not in the paper): inference and what is allowed"
  return Table(title, head, rows)


def _advantage(found) -> str:
  if found is None:
    return _NOT_RUN
  low, high = found["advantage_interval"]
  return (
    f"{100 * found['advantage']:.1f} ({100 * low:.1f} to {100 * high:.1f})"
  )


def _within(bound, found) -> str:
  """Whether what was measured contradicts what is proven."""
  if bound is None:
    return "nothing is proven"
  lows = [each["advantage_interval"][0] for each in found if each]
  if max(lows) > bound["advantage"]:
    return "ABOVE what is proven"
  return "below what is allowed"


def notes(experiment, results: Results) -> list[str]:
  """What the figures mean, in sentences."""
  settings = experiment["settings"]
  trainings = [r for r in results.values() if r["part"] == "train"]
  data, origins = {}, {}
  for trained in trainings:
    if "left_out" not in trained["studies"]:
      data.setdefault(f"{trained['dataset']}: {trained['data']}")
    origins.setdefault(trained["origin"], []).append(trained["model"])
  count = settings["num_points"]
  asked = (
    "all training and all test examples"
    if count is None
    else f"up to {count:,} training and as many test examples, evenly spread"
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
    " where that is 0: its cost grows with the square of the width. Published"
    " figures of dual training rest on random projections: estimates.",
    "Gap: who is classified correctly is called a member. Margin: log p_y minus"
    " log of the sum of the others, in float64, where the confidence of float32"
    " is exactly 1 for many.",
    "Findings: the difference against twice its standard error, as if the two"
    " figures were independent; oracle thresholds, as published. 'If it fits':"
    f" accuracy of at least {100 * findings_lib.FITS:.0f} % on attacked (or"
    " verified) members; otherwise the paper expects nothing.",
    "Table 7: thresholds and 200-20-2 networks were fitted to"
    f" {shown_fits} members and as many non-members of each class, 500 in the"
    " paper; all others are judged. Targeted attacks: one for each wrong class.",
    "Figure 2: one training example of each class is left out at a time. Batches"
    " are drawn anew, so that a kept example's confidence changes, too: what is"
    " the same for both kinds is not memory of the example.",
    "Temperature: logits are divided after the attack; accuracy does not change."
    " Domain adaptation: weight and divisors were not published, they are those"
    " of ATDA as remembered. PixelDP: the score is the mean softmax over 20"
    " draws of its noise; its network here is that of the natural model beside"
    " it, not the published one.",
    "Without privacy there is no budget: none claimed, none known to hold. A"
    " proven budget bounds TPR - FPR of every attacker by (e^dp_epsilon - 1 + 2"
    " dp_delta) / (e^dp_epsilon + 1); membership inference with these"
    " strategies is far from a tight audit, and staying below the bound proves"
    " nothing. Choosing settings of private models, and their accuracy on"
    " members shown here, are not charged to the budget.",
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
    published = _published(trained)
    if published and published.remark:
      name = f"{trained['dataset']}, {trained['label']}"
      found.append(f"{name}: {published.remark}")
  return found
