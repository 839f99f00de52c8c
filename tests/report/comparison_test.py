"""Runs side by side: complete, honest about what is not comparison."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.report import conftest
from tests.report import leaks
from tf_privrob import report
from tf_privrob.report import comparison


def _run(path, *edits):
  files = {**conftest.contents(), **leaks.files()}
  files["privacy.json"]["audited"] = 0.4321
  for edit in edits:
    edit(files)
  return conftest.write_run(path, files)


def _groups(*paths):
  runs = comparison.read(paths)
  found = comparison.groups(runs)
  names = {}
  for group in found:
    names.setdefault(group.part, []).append([run.name for run in group.runs])
  return names, comparison.differences(runs, found)


def test_page_shows_every_run_and_parses(tmp_path):
  first, second = _run(tmp_path / "a"), _run(tmp_path / "b")
  written = report.compare([first, second], tmp_path / "out" / "both.html")
  text = written.html.read_text(encoding="utf-8")
  page = conftest.Page(text)
  assert len(page.ids) == len(set(page.ids))
  assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
  assert 'class="banner' not in text
  assert text.count("<figure>") == 4  # linf, l2, radius, ROC
  assert written.summary == ""
  for figure in ("0.934", "0.505", "0.71", "0.21", "0.4321"):
    assert page.data.count(figure) == 2, figure
  anchors = {
    v[1:] for _, n, v in page.attributes if n == "href" and v[0] == "#"
  }
  assert anchors <= set(page.ids)
  assert written.markdown == tmp_path / "out" / "both.md"
  data = json.loads(written.json.read_text(), parse_constant=pytest.fail)
  assert [run["name"] for run in data["runs"]] == ["a", "b"]
  assert data["runs"][0]["membership"]["advantage"] == 0.21
  assert data["runs"][0]["membership"]["covered"] is False
  for shown in (page.text, written.markdown.read_text(encoding="utf-8")):
    assert "Membership advantage (not covered by the guarantee)" in shown
  assert data["runs"][0]["violations"]["verdict"] == "no violation"
  assert data["runs"][0]["radius"]["kind"] == "proven"
  assert data["not_comparable"] == []


def _dataset(files):
  files["config.json"]["dataset"] = "fashion_mnist"


def _value_range(files):
  files["run.json"]["dataset"]["value_range"] = [-1, 1]


def _size(files):
  files["metrics.json"]["attacks"][3]["attack_eps"] = 0.3


def _steps(files):
  files["metrics.json"]["attacks"][3]["steps"] = 1


def _claimed(files):
  files["metrics.json"]["certified"]["kind"] = "claimed"


def _norm(files):
  files["metrics.json"]["certified"]["norm"] = "linf"


def _strategy(files):
  files["nonprivate/membership.json"]["strategies"] = [
    leaks.inference("from_shadow")
  ]


_APART = [["a"], ["b"]]
_TOGETHER = [["a", "b"]]


@pytest.mark.parametrize(
  ("edit", "part", "words"),
  [
    (_dataset, None, "the runs are over different data"),
    (_value_range, None, "the runs are over different data"),
    (_size, "attacked", "attacked with other attacks or other sizes (linf)"),
    (_steps, "attacked", "attacked with other attacks or other sizes (linf)"),
    (_claimed, "radius", "given radii in other norms or of another kind"),
    (_norm, "radius", "given radii in other norms or of another kind"),
    (_strategy, "roc", "tested by other strategies"),
  ],
)
def test_what_is_not_comparable_is_said_and_not_overlaid(
  tmp_path, edit, part, words
):
  first, second = _run(tmp_path / "a"), _run(tmp_path / "b", edit)
  groups, differences = _groups(first, second)
  linf, l2 = (_TOGETHER, _TOGETHER) if part else (_APART, _APART)
  expected = {
    "attacked": (_APART if part == "attacked" else linf) + l2,
    "radius": _APART if part in ("radius", None) else _TOGETHER,
    "roc": _APART if part in ("roc", None) else _TOGETHER,
  }
  assert groups == expected
  assert len(differences) == 1
  assert words in differences[0]


def test_adversarial_scores_need_the_same_attack_size(tmp_path):
  def adversarial(files):
    files["nonprivate/membership.json"]["strategies"] = [
      leaks.inference(score="adversarial_confidence")
    ]

  def larger(files):
    files["nonprivate/membership.json"]["attack_eps"] = 0.2

  first = _run(tmp_path / "a", adversarial)
  second = _run(tmp_path / "b", adversarial, larger)
  assert _groups(first, second)[0]["roc"] == _APART
  # A benign score does not look at the attack.
  third, fourth = _run(tmp_path / "c"), _run(tmp_path / "d", larger)
  assert _groups(third, fourth)[0]["roc"] == [["c", "d"]]


@pytest.mark.usefixtures("no_plots")
def test_a_run_without_results_is_not_run_with_its_command(tmp_path):
  empty = tmp_path / "empty"
  empty.mkdir()
  config = conftest.contents()["config.json"]
  (empty / "config.json").write_text(json.dumps(config))
  written = report.compare([_run(tmp_path / "a"), empty], tmp_path / "c.html")
  text = written.html.read_text(encoding="utf-8")
  for anchor, binary in (
    ("attacked", "evaluate"),
    ("radius", "evaluate"),
    ("roc", "infer"),
  ):
    part = conftest.part(text, anchor)
    assert "Missing: " in part
    assert f"python -m tf_privrob {binary} --run_dir={empty}" in part
  assert written.summary == ""  # nothing measured, nothing that differs
  assert json.loads(written.json.read_text())["runs"][1]["privacy"] is None


def test_runs_of_experiments_are_found_and_named_apart(tmp_path):
  first = _run(tmp_path / "grid" / "pgd" / "run").parent
  second = _run(tmp_path / "other" / "pgd" / "run").parent
  third = _run(tmp_path / "plain")
  runs = comparison.read([first, second, third])
  names = [run.name for run in runs]
  assert names[0] == "grid/pgd"
  assert names[1] == "other/pgd"
  assert names[2].endswith("/plain")
  assert runs[0].results.run_dir == str(first / "run")
  assert report.write(first).html == first / "run" / "report.html"


@pytest.mark.usefixtures("no_plots")
def test_violations_of_one_run_are_alarmed(tmp_path):
  def violate(files):
    files["certificate_audit.json"] = leaks.certificate_audit(25)
    files["privacy.json"]["audited"] = 5.0

  paths = [_run(tmp_path / "a"), _run(tmp_path / "b", violate)]
  written = report.compare(paths, tmp_path / "c.html")
  text = written.html.read_text(encoding="utf-8")
  assert "A guarantee of b is violated" in text
  assert "A guarantee of a is violated" not in text
  markdown = written.markdown.read_text(encoding="utf-8")
  assert "25 of 100 proven: violated" in markdown
  assert "&gt;= 5 VIOLATED" in markdown
  assert "certified, refuted" in markdown
  data = json.loads(written.json.read_text())
  assert data["runs"][0]["failed"] == []
  assert len(data["runs"][1]["failed"]) == 2


@pytest.mark.usefixtures("no_plots")
def test_names_from_folders_are_escaped(tmp_path):
  evil = "<img src=x>|b"
  paths = [_run(tmp_path / evil), _run(tmp_path / "b")]
  written = report.compare(paths, tmp_path / "c.html")
  text = written.html.read_text(encoding="utf-8")
  conftest.Page(text)
  assert "<img" not in text
  markdown = written.markdown.read_text(encoding="utf-8")
  assert "<img" not in markdown
  rows = [line for line in markdown.splitlines() if line.startswith("| ")]
  widths = {len(re.findall(r"(?<!\\)\|", line)) for line in rows}
  assert widths == {12}


@pytest.mark.parametrize(
  ("names", "out", "message"),
  [
    (["a"], "c.html", r"at least 2 run folders to compare, received 1"),
    (["a", "a/../a"], "c.html", r"each run folder once, received .*a"),
    (["a", "no"], "c.html", r"found none at .*no"),
    (["a", "b"], "c.pdf", r"to end in \.html"),
  ],
)
def test_refusals(tmp_path, names, out, message):
  _run(tmp_path / "a")
  with pytest.raises(ValueError, match=message):
    report.compare([tmp_path / name for name in names], tmp_path / out)
  assert not (tmp_path / out).exists()


@pytest.mark.slow
def test_binary_compares(tmp_path):
  first, second = _run(tmp_path / "a"), _run(tmp_path / "b", _dataset)
  out = tmp_path / "c.html"
  command = [sys.executable, "-m", "experiments.report"]
  command += [f"--compare={first},{second}", f"--out={out}"]
  result = subprocess.run(command, capture_output=True, text=True, check=True)
  lines = result.stdout.splitlines()
  assert lines[0].startswith("Not comparable: the runs are over different data")
  assert lines[-1] == f"Comparison: {out}"
  both = subprocess.run(
    [*command, f"--run_dir={first}"], capture_output=True, text=True
  )
  assert both.returncode == 2
  assert "Expected --run_dir or --compare, received both." in both.stderr
