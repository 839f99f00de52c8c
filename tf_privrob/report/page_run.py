"""The page's parts about the run: training, checks, settings, commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from tf_privrob import run_folder
from tf_privrob.report import consistency
from tf_privrob.report import formats
from tf_privrob.report import metrics as metrics_lib
from tf_privrob.report import plots
from tf_privrob.report import results as results_lib
from tf_privrob.report.markup import definitions
from tf_privrob.report.markup import figure
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import join
from tf_privrob.report.markup import not_run
from tf_privrob.report.markup import pill
from tf_privrob.report.markup import section
from tf_privrob.report.markup import tag
from tf_privrob.report.markup import value

_NONPRIVATE = run_folder.NONPRIVATE
_COMMAND_WIDTH = 88
_ALONE = ("poisson", "full_batch")


def command(results: results_lib.Results, binary: str) -> str:
  """The command line that runs `binary` on this folder."""
  folder = shlex.quote(results.run_dir)
  more = ""
  if binary == "audit":
    # One run serves where records come and go alone, and something is proven.
    privacy = results.privacy
    alone = privacy and privacy.proven and privacy.sampler in _ALONE
    more = f" --kind={'one_run' if alone else 'step'}"
  return f"python -m tf_privrob {binary} --run_dir={folder}{more}"


def train_command(results: results_lib.Results) -> str:
  """The command that trained the run, with every setting it had.

  A seed that is kept secret is left out. None is said only where a preset might
  have another value.
  """
  config = results.config
  flags = {name: config.get(name) for name in ("method", "dataset", "network")}
  if isinstance(flags["method"], str):
    flags["method"] = flags["method"].split(" (")[0]  # without its variant
  given, fields = config.get("flags"), config.get("config")
  flags.update(given if isinstance(given, Mapping) else {})
  flags["run_dir"] = results.run_dir
  if isinstance(fields, Mapping):
    own = fields.get("objective")
    if isinstance(own, Mapping):
      flags["objective"] = own.get("name")
    for name, item in _setting_flags(fields):
      if name != "config.seed" or not isinstance(item, str):
        unsaid = item is None and flags.get("preset") and name != "config.seed"
        flags[name] = "None" if unsaid else item
  parts = [
    f"--{name}={shlex.quote(_flag_value(item))}"
    for name, item in flags.items()
    if isinstance(item, (bool, int, float, str)) and item != ""
  ]
  lines = ["python -m tf_privrob train"]
  for part in parts:
    if len(lines[-1]) + len(part) < _COMMAND_WIDTH:
      lines[-1] += f" {part}"
    else:
      lines.append(f"  {part}")
  return " \\\n".join(lines)


def _setting_flags(
  fields: Mapping[str, Any], prefix: str = "config."
) -> Iterator[tuple[str, Any]]:
  """Flags of settings, and of settings inside of them."""
  for name, item in fields.items():
    if isinstance(item, Mapping):
      inner = f"{prefix.removeprefix('config.')}{name}."
      rest = {key: value for key, value in item.items() if key != "name"}
      yield from _setting_flags(rest, inner)
    else:
      yield prefix + name, item


def _flag_value(item: bool | int | float | str) -> str:
  return str(item).lower() if isinstance(item, bool) else str(item)


def training_section(results: results_lib.Results) -> Html:
  """Curves over the epochs; what the guarantee does not cover set apart."""
  title = "Training"
  rows = results.history
  if not rows:
    text = "Training writes one line of history for each epoch."
    return section("training", title, not_run(text, train_command(results)))
  statement = results.privacy
  figures = []
  if plots.history_keys(rows, "eval_accuracy"):
    svg = plots.history(rows, "eval_accuracy", color=0, share=True)
    figures.append(figure(Html(svg), "Accuracy on the test set"))
  if plots.history_keys(rows, "dp_epsilon"):
    limit = None
    if statement is not None and statement.proven is not None:
      limit = statement.proven.dp_epsilon
    svg = plots.history(rows, "dp_epsilon", color=3, limit=limit)
    caption = "dp_epsilon spent"
    if limit is None:
      caption = "dp_epsilon as accounted; none is proven of this model"
    else:
      delta = formats.dp_delta(statement.proven.dp_delta)
      caption += f", at dp_delta = {delta}"
      if statement.condition:
        caption += f"; proven {statement.condition}"
    figures.append(figure(Html(svg), caption))
  return section(
    "training",
    title,
    tag("p", _training_facts(results), css="lead"),
    tag("div", *figures, css="plots") if figures else "",
    _uncovered(rows),
  )


def _training_facts(results: results_lib.Results) -> str:
  number = metrics_lib.as_number
  facts = [f"{len(results.history):,} epochs recorded"]
  if number(results.run.get("steps")) is not None:
    facts.append(f"{results.run['steps']:,} steps")
  if number(results.run.get("train_seconds")) is not None:
    facts.append(formats.duration(results.run["train_seconds"]))
  sessions = number(results.run.get("sessions"))
  if sessions is not None and sessions > 1:
    again = f"{sessions - 1:g} times" if sessions > 2 else "once"
    facts.append(f"resumed {again}")
  return ", ".join(facts) + "."


def _uncovered(rows) -> Html:
  """Statistics of the private data that no noise protects."""
  keys = plots.history_keys(rows, _NONPRIVATE)
  if not keys:
    return Html("")
  figures = []
  for index, key in enumerate(keys):
    values = [metrics_lib.as_number(row.get(key)) for row in rows]
    share = key.endswith(("accuracy", "fraction")) and all(
      item is None or 0 <= item <= 1 for item in values
    )
    svg = plots.history(
      rows, key, color=(4 + index) % 6, share=share, width=300, height=200
    )
    name = key[len(_NONPRIVATE) :].replace("_", " ")
    figures.append(figure(Html(svg), name.capitalize()))
  note = join(
    [
      pill("warn", "not covered by the guarantee"),
      " These statistics were computed on the private training data without"
      " noise. They help to debug; publishing them voids the statement above.",
    ]
  )
  return tag(
    "div",
    tag("p", note),
    tag("div", *figures, css="plots three"),
    css="uncovered",
  )


def checks_section(checks: tuple[consistency.Check, ...]) -> Html:
  """All comparisons between the run's own figures."""
  words = {
    consistency.PASS: "holds",
    consistency.NOTE: "note",
    consistency.WARN: "warning",
    consistency.FAIL: "violated",
    consistency.NOT_RUN: "not run",
  }
  items = [
    tag(
      "li",
      tag("div", pill(check.status, words[check.status])),
      tag("p", tag("strong", check.title)),
      tag("p", check.detail, css="detail"),
    )
    for check in checks
  ]
  return section(
    "checks",
    "Do the numbers agree?",
    tag(
      "p",
      "Orderings that theory demands of one run\u2019s figures, beyond what"
      " chance explains.",
      css="lead",
    ),
    tag("ul", *items, css="checks"),
  )


def settings_section(results: results_lib.Results) -> Html:
  """Every field of the configuration, and the data set."""
  fields = results.config.get("config")
  if not results.config:
    text = "Training writes the configuration."
    body = [not_run(text, train_command(results))]
  elif isinstance(fields, Mapping) and fields:
    body = [definitions(_flat(fields))]
  else:
    body = [tag("p", "The configuration has no fields.")]
  dataset = results.section("dataset")
  if dataset:
    body += [tag("h3", "Data"), definitions(_flat(dataset))]
  return section("settings", "Settings", *body)


def _flat(fields: Mapping[str, Any], prefix: str = "") -> list:
  """Nested fields as dotted names."""
  items = []
  for name, item in fields.items():
    if isinstance(item, Mapping) and item:
      items += _flat(item, f"{prefix}{name}.")
    else:
      label = tag("code", f"{prefix}{name}")
      items.append((label, value(item, formats.number(item))))
  return items


def reproduce_section(results: results_lib.Results) -> Html:
  """Commands, versions, machine and time."""
  commands = [train_command(results)]
  commands += results.commands or [command(results, "evaluate")]
  for part in (
    results.membership,
    *results.audits,
    results.certificate_audit,
  ):
    if part is not None and part.command:
      commands.append(part.command)
  commands.append(command(results, "report"))
  parts = [tag("pre", tag("code", "\n".join(dict.fromkeys(commands))))]
  items = [
    (name, str(version))
    for name, version in results.section("versions").items()
  ]
  if results.run.get("device"):
    items.append(("device", str(results.run["device"])))
  seconds = [attack.seconds for attack in results.attacks]
  seconds = [item for item in seconds if item is not None]
  if metrics_lib.as_number(results.run.get("train_seconds")) is not None:
    spent = formats.duration(results.run["train_seconds"])
    items.append(("time to train", spent))
  if seconds:
    items.append(("time to attack", formats.duration(sum(seconds))))
  if results.smoothed and results.smoothed.seconds is not None:
    spent = formats.duration(results.smoothed.seconds)
    items.append(("time to certify", spent))
  if items:
    parts.append(definitions(items))
  else:
    text = "Training writes versions and times."
    parts.append(not_run(text, train_command(results)))
  return section("reproduce", "Reproduce this page", *parts)
