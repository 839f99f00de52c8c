"""The page and its data: safe, self-contained, complete, never flattering."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from tests.report import conftest
from tests.report import leaks
from tf_privrob import privacy
from tf_privrob import report
from tf_privrob.report import commands
from tf_privrob.report import results


def _write(path, files):
  written = report.write(conftest.write_run(path, files))
  return written, conftest.Page(written.html.read_text(encoding="utf-8"))


def test_page_parses_and_is_self_contained(run_dir):
  text = report.write(run_dir).html.read_text(encoding="utf-8")
  page = conftest.Page(text)
  assert text.startswith("<!doctype html>")
  assert len(page.ids) == len(set(page.ids))
  assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
  assert "script" not in page.tags
  for tag, name, value in page.attributes:
    if name == "src":
      assert value.startswith("data:image/png;base64,"), tag
    if name in ("href", "xlink:href"):
      assert value.startswith("#") or value == "data:,", (tag, value)
    assert not name.startswith("on"), (tag, name)
  anchors = {
    v[1:] for _, n, v in page.attributes if n == "href" and v[0] == "#"
  }
  assert anchors <= set(page.ids)


def test_the_same_folder_gives_the_same_page(run_dir):
  first = report.write(run_dir).html.read_bytes()
  assert report.write(run_dir).html.read_bytes() == first


def test_figures_equal_the_files(run_dir, files):
  written = report.write(run_dir)
  page = conftest.Page(written.html.read_text(encoding="utf-8"))
  values = [float(v) for v in page.data if re.fullmatch(r"[-\d.e]+", v)]
  metrics, privacy = files["metrics.json"], files["privacy.json"]
  expected = [metrics["clean"]["accuracy"]]
  expected += [attack["accuracy"] for attack in metrics["attacks"]]
  expected += [point["accuracy"] for point in metrics["certified"]["curve"]]
  expected += [metrics["certified"]["mean_radius"], 0.999]
  expected += [
    privacy["claimed"]["dp_epsilon"],
    privacy["proven"]["dp_epsilon"],
  ]
  expected += [privacy["accountant"]["rdp"], privacy["accountant"]["pld"], 640]
  expected += [files["config.json"]["config"]["l2_clip_norm"]]
  for figure in expected:
    assert figure in values, figure
  for shown in ("93.4%", "91.7\u201394.8%", "50.5%", "71.0%", "(2.99, 1e-5)"):
    assert shown.replace(" ", "") in page.text.replace(" ", ""), shown
  assert "saturated softmax" in page.text
  assert "not covered by the guarantee" in page.text
  assert "1 min 58 s" in page.text


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("noisy", [False, True])
def test_the_page_says_what_was_attacked(tmp_path, files, noisy):
  for row in files["metrics.json"]["attacks"] if noisy else ():
    row.update(eot_draws=10, verdict_draws=70)
  written, page = _write(tmp_path, files)
  text = written.markdown.read_text(encoding="utf-8")
  for shown in (page.text, text):
    assert ("the network, without noise" in shown) != noisy
    assert ("the majority of 70 fresh ones" in shown) == noisy


@pytest.mark.usefixtures("no_plots")
def test_report_json_holds_the_same_figures(run_dir, files):
  written = report.write(run_dir)
  data = json.loads(
    written.json.read_text(encoding="utf-8"), parse_constant=pytest.fail
  )
  assert data["clean"]["accuracy"] == 0.934
  assert data["attacked"]["name"] == "pgd"
  assert data["attacked"]["attack_eps"] == 0.1
  assert data["attacked"]["accuracy"] == 101 / 200
  assert data["certified"]["radius"] == 0.25
  assert data["certified"]["accuracy"] == 0.71
  assert data["claimed_radius"] is None
  assert data["privacy"]["claimed"]["dp_epsilon"] == 3.0
  assert data["privacy"]["proven"]["dp_epsilon"] == 2.987
  assert data["privacy"]["audited"] is None
  assert data["privacy"]["violated"] is False
  assert data["summary"] == written.summary.splitlines()
  assert len(data["attacks"]) == len(files["metrics.json"]["attacks"])


@pytest.mark.usefixtures("no_plots")
def test_report_json_has_no_nan_and_a_file_with_one_is_told(tmp_path, files):
  files["run.json"]["train_seconds"] = float("nan")
  files["config.json"]["config"]["l2_clip_norm"] = float("inf")
  written, _ = _write(tmp_path, files)
  text = written.json.read_text(encoding="utf-8")
  data = json.loads(text, parse_constant=pytest.fail)
  problems = " ".join(data["problems"])
  assert "NaN is no number" in problems
  assert "Infinity is no number" in problems


@pytest.mark.usefixtures("no_plots")
def test_summary_is_five_lines_with_all_figures(run_dir):
  lines = report.write(run_dir).summary.splitlines()
  assert len(lines) == 5
  assert lines[0].startswith("DP-SGD on mnist_5k, network tutorial_cnn")
  assert "93.4%" in lines[1]
  assert "50.5% at linf 0.1, worst: pgd" in lines[2]
  assert "certified  71.0% at l2 radius 0.25, confidence 99.9%" in lines[3]
  expected = "claimed (3, 1e-5) | proven (2.99, 1e-5) | audited not run"
  assert lines[4].endswith(f"{expected} | unit not stated")


_EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>$\\frac{"


def _poison(node):
  """Puts markup into every text and every key that is free text."""
  if isinstance(node, dict):
    return {key: _poison(value) for key, value in node.items()}
  if isinstance(node, list):
    return [_poison(value) for value in node]
  return _EVIL + node if isinstance(node, str) else node


def test_text_from_files_is_escaped_everywhere(tmp_path, files):
  files.update(leaks.files())
  fixed = files["privacy.json"]
  poisoned = {name: _poison(payload) for name, payload in files.items()}
  for key in ("neighbouring", "sampler"):  # closed sets of words
    poisoned["privacy.json"][key] = fixed[key]
  config = poisoned["config.json"]["config"]
  config[_EVIL] = {_EVIL: 1}
  poisoned["run.json"]["versions"][_EVIL] = "1"
  path = conftest.write_run(tmp_path, poisoned)
  row = {"epoch": 4, "nonprivate/" + _EVIL: 1.0, "dp_epsilon": 2.98}
  report.RunFolder(path).append_history(row)
  arrays = report.RunFolder(path).examples
  arrays["attack_names"] = np.array([_EVIL])
  np.savez(path / "examples.npz", **arrays)
  written = report.write(path)
  text = written.html.read_text(encoding="utf-8")
  page = conftest.Page(text)
  assert "<script" not in text.lower()
  assert "<img src=x" not in text
  assert "script" not in page.tags
  assert not [name for _, name, _ in page.attributes if name.startswith("on")]
  # It is shown, as text, in every part.
  for anchor in (
    "may-promise",
    "audits",
    "membership",
    "attacks",
    "violations",
    "examples",
    "training",
    "settings",
    "reproduce",
  ):
    assert "&lt;script&gt;" in conftest.part(text, anchor), anchor
  assert len(written.summary.splitlines()) == 5
  # Markdown passes HTML on, so there it is escaped as well.
  lines = written.markdown.read_text(encoding="utf-8")
  outside = re.sub(r"^(`{3,})[^`].*?^\1$", "", lines, flags=re.M | re.S)
  assert "&lt;script&gt;" in outside
  assert not re.search(r"<script|<img", outside)


@pytest.mark.parametrize(
  "proven", [None, {"dp_epsilon": 2.987, "dp_delta": 1e-5}]
)
@pytest.mark.parametrize("audited", [None, 1.234])
@pytest.mark.usefixtures("no_plots")
def test_claimed_is_never_shown_alone(tmp_path, files, proven, audited):
  files["privacy.json"].update(
    claimed={"dp_epsilon": 0.217, "dp_delta": 1e-5},
    proven=proven,
    audited=audited,
  )
  written, page = _write(tmp_path, files)
  proven_words = (
    r"\(2\.99, 1e-5\)|proven dp_epsilon=2\.987"
    if proven
    else "no finite bound known|proven none known"
  )
  audited_words = r"(\u2265 ?|>= ?)1\.23" if audited else "audited not run"
  text = re.sub(r"\( ?([\d.]+) ?, ?([\de.-]+) ?\)", r"(\1, \2)", page.text)
  places = [match.end() for match in re.finditer(r"0\.217", text)]
  assert len(places) >= 3
  for end in places:
    near = text[end : end + 200]
    assert re.search(proven_words, near), near
    assert re.search(audited_words, near), near
  line = written.summary.splitlines()[-1]
  assert "(0.217, 1e-5)" in line
  assert re.search(proven_words, line)
  assert re.search(audited_words, line)


@pytest.mark.usefixtures("no_plots")
def test_no_finite_bound_is_a_warning(tmp_path, files):
  files["privacy.json"]["proven"] = None
  written, _ = _write(tmp_path, files)
  text = written.html.read_text(encoding="utf-8")
  promises = conftest.part(text, "promises")
  assert re.search(r'class="warned">.*?no finite bound known', promises)
  assert "Treat it as not private" in promises
  assert 'class="banner warn"' in text


@pytest.mark.usefixtures("no_plots")
def test_violated_statement_is_alarmed(tmp_path, files):
  files["privacy.json"].update(audited=3.914, audit_note="one-run audit")
  written, page = _write(tmp_path, files)
  text = written.html.read_text(encoding="utf-8")
  assert 'class="banner fail"' in text
  assert 'class="card wide alarm"' in text
  assert 'class="alarmed"' in text
  assert "do not release this model" in page.text
  assert written.summary.endswith("VIOLATED")
  assert json.loads(written.json.read_text())["privacy"]["violated"] is True


@pytest.mark.usefixtures("no_plots")
def test_a_sound_page_has_no_banner(run_dir):
  text = report.write(run_dir).html.read_text(encoding="utf-8")
  assert 'class="banner' not in text
  assert "alarm" not in text[text.index("<body>") :]


_PARTS = {
  "privacy.json": "privacy",
  "metrics.json": "attacks",
  "examples.npz": "examples",
  "history.jsonl": "training",
  "config.json": "settings",
}


@pytest.mark.parametrize("name", [*_PARTS, "run.json"])
@pytest.mark.usefixtures("no_plots")
def test_a_missing_file_is_not_run(run_dir, name):
  (run_dir / name).unlink()
  written = report.write(run_dir)
  text = written.html.read_text(encoding="utf-8")
  conftest.Page(text)
  if name in _PARTS:
    part = conftest.part(text, _PARTS[name])
    assert "Not run." in part
    assert "python -m tf_privrob " in part
    assert "--run_dir=" in part
  assert len(written.summary.splitlines()) == 5


def test_an_empty_folder_is_a_page_of_not_run(tmp_path):
  written = report.write(tmp_path)
  text = written.html.read_text(encoding="utf-8")
  conftest.Page(text)
  for anchor in _PARTS.values():
    assert "Not run." in conftest.part(text, anchor)
  assert written.summary.count("not run") == 4
  assert json.loads(written.json.read_text())["privacy"] is None


@pytest.mark.usefixtures("no_plots")
def test_radii_of_an_earlier_version_are_read(tmp_path, files):
  metrics = files["metrics.json"]
  metrics["smoothed"] = metrics.pop("certified")
  written, _ = _write(tmp_path, files)
  assert not re.search(r"certified +not run", written.summary)


@pytest.mark.parametrize("name", ["clean", "attacks", "certified"])
@pytest.mark.usefixtures("no_plots")
def test_a_part_of_the_evaluation_may_be_missing(tmp_path, files, name):
  del files["metrics.json"][name]
  written, page = _write(tmp_path, files)
  assert "not run" in page.text
  word = {"clean": "clean", "attacks": "attacked", "certified": "certified"}
  assert re.search(rf"{word[name]} +not run", written.summary)


@pytest.mark.parametrize(
  "name",
  [
    "config.json",
    "run.json",
    "privacy.json",
    "metrics.json",
    "examples.npz",
    "history.jsonl",
  ],
)
@pytest.mark.usefixtures("no_plots")
def test_a_corrupt_file_is_named_and_the_rest_is_shown(run_dir, name):
  (run_dir / name).write_bytes(b'{"broken')
  text = report.write(run_dir).html.read_text(encoding="utf-8")
  conftest.Page(text)
  if name != "history.jsonl":  # there a broken line is simply not a row
    assert "could not be read" in text
    assert name in text[: text.index('id="promises"')]


@pytest.mark.parametrize(
  "edit",
  [
    lambda m: m["attacks"][0].update(accuracy="high"),
    lambda m: m["attacks"][0].update(attack_eps=None),
    lambda m: m["certified"].update(curve=[]),
    lambda m: m["certified"].update(curve=[{"radius": 0.1}]),
    lambda m: m.update(clean={"accuracy": 93.4}),
    lambda m: m.update(clean=[1]),
    lambda m: m.update(attacks=["pgd"]),
  ],
)
@pytest.mark.usefixtures("no_plots")
def test_a_bad_figure_is_named_and_never_shown(tmp_path, files, edit):
  edit(files["metrics.json"])
  written, page = _write(tmp_path, files)
  assert "could not be read" in page.text
  assert "metrics.json, " in page.text
  assert json.loads(written.json.read_text())["problems"]


def test_certain_radii_are_of_the_network_itself(tmp_path, files):
  files["metrics.json"]["certified"].update(
    confidence=1.0, smoothing_stddev=None, num_estimation=None
  )
  written, page = _write(tmp_path, files)
  assert "without randomness, the network itself" in written.summary
  assert "Proven for the network itself" in page.text
  assert "with certainty" in page.text
  assert "smoothed classifier" not in page.text


def test_claimed_radii_are_never_called_certified(tmp_path, files):
  path = conftest.write_run(tmp_path, files)
  rows = "index,radius,kind\n0,0.5,proven\n1,0.5,claimed\n"
  (path / "certificates.csv").write_text(rows)
  written = report.write(path)
  text = written.html.read_text(encoding="utf-8")
  part = conftest.part(text, "certified")
  assert "Claimed robustness" in part
  shown = re.sub(r"<[^>]*>", " ", part[part.index(">") + 1 :]).lower()
  assert "certified" not in shown
  card = text[text.index('class="card certified"') :]
  card = card[card.index(">") : card.index("</article>")]
  assert "not certified" in card
  assert "Certified" not in card
  data = json.loads(written.json.read_text())
  assert data["certified"] is None
  assert data["claimed_radius"]["radius"] == 0.25
  line = written.summary.splitlines()[3]
  assert "claimed radius, not proven" in line
  assert "certified" not in line


def test_command_that_trained_has_every_setting(run_dir):
  folder = report.RunFolder(run_dir)
  command = commands.train(results.read(folder))
  words = shlex.split(command.replace("\\\n", " "))
  assert words == [
    "python",
    "-m",
    "tf_privrob",
    "train",
    "--method=dp_sgd",
    "--dataset=mnist_5k",
    "--network=tutorial_cnn",
    "--preset=demo one",
    f"--run_dir={run_dir}",
    "--config.l2_clip_norm=1.5",
    "--config.epochs=3",
    "--config.sampler=poisson",
    "--config.momentum=None",
  ]


def test_a_torn_last_certificate_does_not_count(tmp_path, files):
  path = conftest.write_run(tmp_path, files)
  rows = "index,radius,kind\n0,0.5,proven\n1,0.5,cla"
  (path / "certificates.csv").write_text(rows)
  data = json.loads(report.write(path).json.read_text())
  assert data["claimed_radius"] is None
  assert data["certified"]["radius"] == 0.25


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("noise_multiplier", [1.3, 0.0])
def test_a_real_statement_is_shown(tmp_path, files, noise_multiplier):
  statement = privacy.PrivacyStatement.for_dp_sgd(
    noise_multiplier=noise_multiplier,
    sampling_prob=250 / 60000,
    steps=240,
    dp_delta=1e-5,
    sampler="shuffle",
  )
  files["privacy.json"] = statement.to_dict()
  written, page = _write(tmp_path, files)
  data = json.loads(written.json.read_text(), parse_constant=pytest.fail)
  assert data["privacy"] == json.loads(statement.to_json())
  for assumption in statement.assumptions:
    assert assumption.text in page.text
    assert assumption.enforced_by in page.text
  for caveat in statement.caveats:
    assert caveat in page.text
  if noise_multiplier:
    assert repr(statement.accountant["rdp"]) in page.data
    assert repr(statement.accountant["pld"]) in page.data
    assert "Batches were shuffled" in page.text
  else:
    assert "no finite figure" in page.text
    assert "Treat it as not private" in page.text


def test_a_refuted_claim_is_alarmed_though_the_proof_stands(tmp_path, files):
  files["privacy.json"]["claimed"]["dp_epsilon"] = 0.2
  files["privacy.json"]["audited"] = 1.0
  written, page = _write(tmp_path, files)
  assert "the claim is false for this model" in page.text
  assert "do not release" not in page.text
  assert written.summary.endswith("VIOLATED")


def test_missing_folder_is_refused_with_the_command(tmp_path):
  with pytest.raises(ValueError, match=r"found none at .*tf_privrob train"):
    report.write(tmp_path / "nowhere")


def test_matplotlib_is_loaded_only_when_it_draws():
  code = (
    "import sys; import tf_privrob.report;"
    "sys.exit('matplotlib' in sys.modules or 'tensorflow' in sys.modules)"
  )
  assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_binary_prints_the_path_and_the_summary(run_dir):
  result = subprocess.run(
    [
      sys.executable,
      "-m",
      "experiments.report",
      f"--run_dir={run_dir}",
      "--notensorboard",
    ],
    capture_output=True,
    text=True,
    check=True,
  )
  lines = result.stdout.splitlines()
  assert len(lines) == 6
  assert lines[-1] == f"Report: {run_dir / 'report.html'}"


@pytest.mark.parametrize(
  ("flag", "message"),
  [
    ("--run_dir={}/no", "Expected a run folder, found none at"),
    ("--run_dir=", "Expected --run_dir, the folder of the run."),
    ("--run_dri=x", "Did you mean"),
  ],
)
def test_binary_refuses_in_one_sentence(tmp_path, flag, message):
  result = subprocess.run(
    [sys.executable, "-m", "experiments.report", flag.format(tmp_path)],
    capture_output=True,
    text=True,
  )
  assert result.returncode == 2
  assert message in result.stderr
  assert "Traceback" not in result.stderr
