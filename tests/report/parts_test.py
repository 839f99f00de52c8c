"""Membership, audits and violations: on the page, in Markdown, in JSON."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.report import conftest
from tests.report import leaks
from tf_privrob import privacy
from tf_privrob import records
from tf_privrob import report
from tf_privrob.report import plots
from tf_privrob.report import views


@pytest.fixture
def everything(files):
  files.update(leaks.files())
  files["privacy.json"]["audited"] = 0.4321
  return files


def _write(path, files):
  return report.write(conftest.write_run(path, files))


def _shown(html):
  return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_whole_page_is_sound(tmp_path, everything):
  written = _write(tmp_path, everything)
  text = written.html.read_text(encoding="utf-8")
  page = conftest.Page(text)
  assert 'class="banner' not in text
  assert "Not run." not in text
  assert len(page.ids) == len(set(page.ids))
  values = [float(v) for v in page.data if re.fullmatch(r"[-\d.e]+", v)]
  for figure in (0.21, 0.605, 0.611, 0.0231, 0.4321, 1.1, 2.9512, 0.001):
    assert figure in values, figure
  # 2 dp_epsilon and (1 + e^dp_epsilon) dp_delta: (e^5.974 - 1) / (e^5.974 + 1)
  assert any(abs(value - 0.99492) < 1e-5 for value in values)
  data = json.loads(written.json.read_text(), parse_constant=pytest.fail)
  assert data["membership"]["advantage"] == 0.21
  assert data["membership"]["covered"] is False
  measured = " ".join(data["promises"]["measured"])
  assert "private training data: not covered by the guarantee" in measured
  assert "results of audits" in " ".join(data["promises"]["must_not"])
  assert data["audits"][1]["verdict"] == "below proven"
  assert data["certificate_audit"]["verdict"] == "no violation"
  assert len(data["promises"]["may"]) == 2
  markdown = written.markdown.read_text(encoding="utf-8")
  assert "| I\\_A, held-out threshold | 60.5% (58.5\u201362.5%)" in markdown
  assert "100 certified radii, verdict: no violation." in markdown


@pytest.mark.parametrize(
  ("change", "kind"),
  [
    ({}, "one_run"),
    ({"sampler": "shuffle"}, "step"),
    ({"proven": None}, "step"),
  ],
)
@pytest.mark.usefixtures("no_plots")
def test_the_audit_that_is_proposed_can_be_run(
  tmp_path, everything, change, kind
):
  del everything["audit.json"]
  everything["privacy.json"] = {**everything["privacy.json"], **change}
  written = _write(tmp_path, everything)
  part = conftest.part(written.html.read_text(encoding="utf-8"), "audits")
  assert f"--kind={kind}" in part


@pytest.mark.parametrize(
  ("name", "anchor", "command"),
  [
    (
      "nonprivate/membership.json",
      "membership",
      r"tf_privrob infer --run_dir=\S+",
    ),
    (
      "audit.json",
      "audits",
      r"tf_privrob audit --run_dir=\S+ --kind=one_run",
    ),
    (
      "certificate_audit.json",
      "violations",
      r"tf_privrob audit_certificates --run_dir=\S+",
    ),
  ],
)
@pytest.mark.usefixtures("no_plots")
def test_a_part_that_was_not_run_has_its_command(
  tmp_path, everything, name, anchor, command
):
  del everything[name]
  written = _write(tmp_path, everything)
  part = conftest.part(written.html.read_text(encoding="utf-8"), anchor)
  assert "Not run." in part
  assert re.search(rf"python -m {command}<", part)
  assert re.search(rf"python -m {command}\n", written.markdown.read_text())


@pytest.mark.parametrize(
  "name", ["nonprivate/membership.json", "audit.json", "certificate_audit.json"]
)
@pytest.mark.parametrize(
  "content", ['{"broken', "[1]", "{}", '{"audits": [3]}']
)
@pytest.mark.usefixtures("no_plots")
def test_a_file_that_cannot_be_read_is_named(
  tmp_path, everything, name, content
):
  path = conftest.write_run(tmp_path, everything)
  (path / name).write_text(content)
  written = report.write(path)
  text = written.html.read_text(encoding="utf-8")
  conftest.Page(text)
  assert name in text[: text.index('id="promises"')]
  assert "Could not be read:" in written.markdown.read_text()


@pytest.mark.usefixtures("no_plots")
def test_one_bad_audit_does_not_hide_the_others(tmp_path, everything):
  everything["audit.json"]["audits"][0]["audited"] = "high"
  written = _write(tmp_path, everything)
  data = json.loads(written.json.read_text())
  assert [audit["name"] for audit in data["audits"]] == ["two_world"]
  assert "audit.json, audit 1" in data["problems"][0]


_SEEN = (
  "Violations inside the stated radii: 0 of 100; had the radii been 3 times as"
  " large, 55 of 100 would have fallen, so an error of a factor of 3 would have"
  " been seen; a smaller one need not have been."
)
_BLIND = (
  "Violations inside the stated radii: 0 of 100; inside radii 10 times as large"
  " 0 fell, so no inflation up to 10 would have been seen: this audit has no"
  " power here."
)


@pytest.mark.parametrize(
  ("fallen", "sentence", "short", "status"),
  [
    ((0, 1, 55, 100), _SEEN, "a factor of 3 would have been seen", "pass"),
    (
      (0, 0, 0, 0),
      _BLIND,
      "no power: not even a factor of 10 would be seen",
      "note",
    ),
    (None, "was not measured.", "power not measured", "note"),
  ],
)
@pytest.mark.usefixtures("no_plots")
def test_what_the_attacks_could_have_seen_is_said_everywhere(
  tmp_path, everything, fallen, sentence, short, status
):
  audit = everything["certificate_audit.json"]
  for row, count in zip(audit["inflated"], fallen or ()):
    row["violations"] = count
  if fallen is None:
    del audit["inflated"]
  path = conftest.write_run(tmp_path / "a", everything)
  written = report.write(path)
  text = written.html.read_text(encoding="utf-8")
  shown = _shown(conftest.part(text, "violations"))
  assert sentence in shown
  assert f'class="pill {status}"' in conftest.part(text, "violations")
  if fallen:
    assert "Radii times Fell" in shown
    assert f"1.1 {fallen[0]} of 100 1.5 {fallen[1]} of 100" in shown
  markdown = written.markdown.read_text(encoding="utf-8")
  assert sentence in markdown.split("## Attacks within the radii")[1]
  assert short in written.summary.splitlines()[3]
  data = json.loads(written.json.read_text(), parse_constant=pytest.fail)
  expected = 3.0 if fallen and fallen[2] else None
  assert data["certificate_audit"]["detectable"] == expected
  assert sentence in " ".join(data["promises"]["measured"])
  check = next(c for c in data["checks"] if "withstand" in c["title"])
  assert check["status"] == status
  assert short in check["detail"]
  other = conftest.write_run(tmp_path / "b", everything)
  compared = report.compare([path, other], tmp_path / "out" / "compare.html")
  assert short in compared.html.read_text(encoding="utf-8")
  assert short in compared.markdown.read_text(encoding="utf-8")
  runs = json.loads(compared.json.read_text())["runs"]
  assert runs[0]["violations"]["detectable"] == expected


@pytest.mark.usefixtures("no_plots")
def test_violated_certificates_are_alarmed(tmp_path, everything):
  everything["certificate_audit.json"] = leaks.certificate_audit(25)
  written = _write(tmp_path, everything)
  text = written.html.read_text(encoding="utf-8")
  part = _shown(conftest.part(text, "violations"))
  assert "violated 25 of 100 answers changed. A certificate is wrong" in part
  assert "the first 20; 5 more are in the file" in part
  assert 'class="banner fail"' in text
  assert "REFUTED" in written.summary.splitlines()[3]
  assert len(written.summary.splitlines()) == 5


@pytest.mark.usefixtures("no_plots")
def test_refuted_claimed_radii_are_not_called_certified(tmp_path, everything):
  everything["certificate_audit.json"] = leaks.certificate_audit(25)
  path = conftest.write_run(tmp_path, everything)
  (path / "certificates.csv").write_text("index,radius,kind\n0,1,claimed\n")
  written = report.write(path)
  part = conftest.part(written.html.read_text(encoding="utf-8"), "violations")
  shown = _shown(part).lower()
  assert "the claimed radii are refuted" in shown
  assert "certif" not in shown
  markdown = written.markdown.read_text(encoding="utf-8")
  assert "certified" not in markdown.lower()
  assert "Claimed robustness" in markdown


def _alone(text, figure):
  """Places of a claimed figure without proven and audited close after it."""
  places = [match.end() for match in re.finditer(re.escape(figure), text)]
  assert places
  return [
    text[end - 40 : end + 160]
    for end in places
    if not re.search(r"no finite bound known|none known", text[end : end + 160])
    or not re.search(r"(\u2265|>=) ?(0\.77|0\.7654)", text[end : end + 200])
  ]


def _objects(node):
  """Every JSON object, at any depth."""
  if isinstance(node, dict):
    yield node
    node = list(node.values())
  for item in node if isinstance(node, list) else ():
    yield from _objects(item)


@pytest.mark.usefixtures("no_plots")
def test_claimed_never_stands_alone_in_any_format(tmp_path, everything):
  claimed = {"dp_epsilon": 0.217, "dp_delta": 1e-5}
  everything["privacy.json"].update(claimed=claimed, proven=None, audited=0.77)
  everything["audit.json"]["audits"] = [
    leaks.audit(claimed=claimed, proven=None, audited=0.77)
  ]
  first = conftest.write_run(tmp_path / "a", everything)
  second = conftest.write_run(tmp_path / "b", everything)
  reports = [
    report.write(first),
    report.compare([first, second], tmp_path / "out" / "compare.html"),
  ]
  for written in reports:
    text = conftest.Page(written.html.read_text(encoding="utf-8")).text
    assert _alone(re.sub(r"\( ?([\d.]+) ?, ?", r"(\1, ", text), "0.217") == []
    lines = written.markdown.read_text(encoding="utf-8")
    assert _alone(lines.replace("&gt;", ">").replace("\\", ""), "0.217") == []
    seen = _objects(json.loads(written.json.read_text()))
    holders = [item for item in seen if item.get("claimed") == claimed]
    assert holders
    for item in holders:
      assert item["proven"] is None
      assert item["audited"] == 0.77
  inside = reports[0].json.read_text()
  sentences = [line for line in inside.splitlines() if "(0.217" in line]
  assert sentences
  for line in sentences:
    assert "no finite bound known" in line
    assert "audited >= 0.77" in line


def test_the_region_that_privacy_rules_out_is_shaded():
  items = records.Membership.from_json(leaks.membership())
  curves = views.curves(items)
  assert [name for name, _ in curves] == [
    "I_A, held-out threshold",
    "benign confidence",
  ]
  statement = privacy.PrivacyStatement(None, privacy.Budget(1.0, 1e-5))
  svg = plots.roc_curves(curves, statement)
  assert ">ruled out by proven privacy<" in svg
  assert ">bound, one added or removed<" in svg
  assert ">guessing<" in svg
  assert "var(--c2)" in svg
  assert "#0" not in svg.replace("href", "")
  for unproven in (None, statement.replace(proven=None)):
    assert "ruled out" not in plots.roc_curves(curves, unproven)


def test_between_two_thresholds_a_coin_decides():
  entry = leaks.inference()
  entry["roc"] = {"fpr": [0, 0, 0.5, 1], "tpr": [0, 0.2, 0.6, 1]}
  (item,) = records.Membership.from_json({"strategies": [entry]}).strategies
  found = plots.between(item.roc, np.array([0, 0.25, 0.5, 0.75]))
  np.testing.assert_allclose(found, [0.2, 0.4, 0.6, 0.8])
