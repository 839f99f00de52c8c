"""Tables of the studies of `privacy_risks.membership`, from its results.

Tables 5, 6, 7, 10 and 11, Figure 2 in numbers, Appendix E, and private models.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import Callable

from experiments.grid import page as grid_page
from experiments.grid import sheets
from experiments.privacy_risks.membership import findings as findings_lib
from experiments.privacy_risks.membership import measure as membership_measure
from experiments.privacy_risks.membership import rows as rows_lib
from experiments.privacy_risks.training import page as robust_training_page

Results = findings_lib.Results
Table = grid_page.Table


def tables(results: Results) -> list[Table]:
  """In the order of the paper; private models last."""
  return [
    _share_table(results),
    _radius_table(results),
    _classes_table(results),
    _subset_table(results),
    _adaptation_table(results),
    _sensitivity_table(results),
    _noise_layer_table(results),
    private_table(results),
  ]


# Tables 5, 6, 10 and 11.


def _study_table(
  results: Results,
  study: str,
  title: str,
  parameter: str,
  published: Sequence[sheets.Published],
  as_text: Callable[[float], str] = "{:g}".format,
) -> Table:
  """Measured rows by parameter, then the published ones.

  Args:
    results: of all cells.
    study: whose models.
    title: of the table.
    parameter: head of its column.
    published: rows of the paper's table.
    as_text: shows their parameter.
  """
  verified = study == "subset"
  columns = rows_lib.COLUMNS if verified else rows_lib.COLUMNS[:4]
  names = rows_lib.STRATEGIES if verified else rows_lib.STRATEGIES[:2]
  rows = []
  for trained in findings_lib.in_study(results, study):
    infer = findings_lib.infer_of(results, trained)
    rows.append(
      [
        *robust_training_page.who(trained),
        trained["dataset"],
        f"{trained['studies'][study]:.4g}",
        f"{trained['attack_eps']:.4g}",
        *rows_lib.accuracies(trained, infer, columns),
        *rows_lib.inferred(trained, infer, names),
        *rows_lib.inferred(trained, infer, names, "held_out"),
        rows_lib.points(infer),
      ]
    )
  for row in published if rows else ():
    label = {"pgd": "PGD"}.get(row.model, row.model)
    values = robust_training_page.published_values(row, [*columns, *names])
    head = [*rows_lib.as_published(label, row), row.dataset, as_text(row.value)]
    rows.append([*head, "-", *values, *["-"] * len(names), "-"])
  head = [*rows_lib.WHO, "data set", parameter, "radius of inference"]
  head += [*columns, *names]
  head += [f"{name}, held-out threshold" for name in names]
  head += [rows_lib.POINTS]
  return Table(f"{title} ({rows_lib.UPPER})", head, rows)


def _of_study(study: str) -> list[sheets.Published]:
  return [row for row in rows_lib.PUBLISHED if row.study == study]


def _share_table(results: Results) -> Table:
  title = "Table 5: share of the training set with an adversarial loss"
  return _study_table(results, "share", title, "share", _of_study("share"))


def _radius_table(results: Results) -> Table:
  title = "Table 6: radius of training"
  return _study_table(
    results,
    "radius",
    title,
    "trained at radius",
    _of_study("radius"),
    lambda radius: f"{255 * radius:.0f}/255",
  )


def _subset_table(results: Results) -> Table:
  title = "Table 10: dual training on few examples"
  return _study_table(
    results,
    "subset",
    title,
    "trained at radius",
    _of_study("subset"),
    lambda radius: f"{255 * radius:.4g}/255",
  )


def _adaptation_table(results: Results) -> Table:
  rows = []
  for row in _of_study("adaptation"):
    plain = rows_lib.published_of(row.dataset, row.model)
    rows += [dataclasses.replace(plain, value=0.0), row]
  title = "Table 11: domain adaptation"
  return _study_table(results, "adaptation", title, "adapted", rows)


# Table 7, Figure 2, Appendix E.


def _classes_table(results: Results) -> Table:
  names = membership_measure.CLASS_STRATEGIES
  rows = []
  for result in grid_page.of_part(results, "classes"):
    trained = results[f"{result['model']}/train"]
    who = [*robust_training_page.who(trained), result["dataset"]]
    found = [result["strategies"][name] for name in names]
    counts = f"{found[0]['num_members']:,} and {found[0]['num_nonmembers']:,}"
    rows.append([*who, "all", *map(rows_lib.shown, found), counts])
    for place, first in enumerate(found[0]["per_class"]):
      values = [rows_lib.shown(each["per_class"][place]) for each in found]
      counts = f"{first['num_members']:,} and {first['num_nonmembers']:,}"
      rows.append([*who, str(first["class"]), *values, counts])
  for row in _of_study("class") if rows else ():
    values = robust_training_page.published_values(row, names)
    place = [row.dataset, f"{row.value:g}"]
    rows.append([*rows_lib.as_published("PGD", row), *place, *values, "-"])
  head = [
    *rows_lib.WHO,
    "data set",
    "class",
    *names,
    "members and non-members judged",
  ]
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
  head = [*rows_lib.WHO, "data set", "mean of left-out examples", "largest"]
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
        *rows_lib.accuracies(trained, infer, rows_lib.COLUMNS[:2]),
        *rows_lib.inferred(trained, infer, ("I_B",)),
        *rows_lib.inferred(trained, infer, ("I_B",), "held_out"),
        rows_lib.points(infer),
      ]
    )
  for row in _of_study("noise_layer") if rows else ():
    values = robust_training_page.published_values(row, ["I_B"])
    head = [*rows_lib.as_published(row.model, row), row.dataset]
    rows.append([*head, "-", "-", *values, "-", "-"])
  head = [
    *rows_lib.WHO,
    "data set",
    *rows_lib.COLUMNS[:2],
    "I_B",
    "I_B, held-out threshold",
  ]
  head += [rows_lib.POINTS]
  return Table(f"Appendix E: a noise layer ({rows_lib.UPPER})", head, rows)


# Private models.


def bounds_of(trained) -> tuple[Any, Any] | None:
  """What the proven budget allows any attacker; None without one.

  For one example that is added or removed, and for one that is replaced, which
  is how training and test sets of fixed sizes differ.
  """
  from tf_privrob import membership

  proven = trained["proven"]
  if not proven:
    return None
  figures = proven["dp_epsilon"], proven["dp_delta"]
  return tuple(
    membership.advantage_bound(*figures, fixed_size=fixed)
    for fixed in (False, True)
  )


def private_table(results: Results) -> Table:
  """Advantages of all strategies beside what the proven budget allows."""
  rows = []
  for trained in findings_lib.in_study(results, "private"):
    infer = findings_lib.infer_of(results, trained)
    if infer is None:
      continue
    allowed = bounds_of(trained)
    benign, attacked = (
      findings_lib.inferred(infer, name, "held_out") for name in ("I_B", "I_A")
    )
    rows.append(
      [
        *robust_training_page.who(trained),
        trained["dataset"],
        *rows_lib.accuracies(trained, infer, rows_lib.COLUMNS[:4]),
        *rows_lib.inferred(trained, infer, ("I_B", "I_A")),
        *(_advantage(found) for found in (benign, attacked)),
        *(
          [_rounded_up(bound.advantage) for bound in allowed]
          if allowed
          else ["no bound"] * 2
        ),
        _within(allowed, (benign, attacked)),
        rows_lib.points(infer),
      ]
    )
  head = [*rows_lib.WHO, "data set", *rows_lib.COLUMNS[:4], "I_B", "I_A"]
  head += ["advantage of I_B, held out", "advantage of I_A, held out"]
  head += ["allowed, one example added or removed"]
  head += ["allowed, one replaced", "verdict"]
  head += [rows_lib.POINTS]
  title = "Private models (not in the paper): inference and what is allowed"
  return Table(title, head, rows)


def _advantage(found) -> str:
  if found is None:
    return grid_page.NOT_RUN
  interval = found["advantage_interval"]
  return grid_page.with_interval(found["advantage"], interval, 1)


def _rounded_up(advantage: float) -> str:
  """In percent; an upper bound stays one."""
  return f"{math.ceil(1e4 * advantage) / 100:.2f}"


def _within(allowed, found) -> str:
  """Whether what was measured contradicts what is proven."""
  if allowed is None:
    return "nothing is proven"
  lows = [each["advantage_interval"][0] for each in found if each]
  if max(lows) > allowed[1].advantage:
    return "ABOVE what is proven"
  return "below what is allowed"
