"""The privacy statement in every format: its condition and what it covers."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report import conftest
from tests.report import leaks
from tf_privrob import privacy
from tf_privrob import report
from tf_privrob.report import formats
from tf_privrob.report import results as results_lib
from tf_privrob.report import scalars

_CONDITION = "only against those who do not know the seed"
_COVERED = {
  "unit": "one hospital stay",
  "unprotected": ["the number of wards"],
  "preprocessing": "ages were rounded",
  "tuning": "one setting, chosen on public data",
  "trust_model": "Central, in one house",
  "side_channels": "Not covered: time",
  "gaussian_mu": 0.71234,
}


@pytest.fixture
def seeded(files):
  files.update(leaks.files())
  conftest.prove(files, 2.3451)
  files["privacy.json"].update(condition=_CONDITION, **_COVERED)
  return files


def _formats(path, files):
  """The page, Markdown and the comparison, as readers see them."""
  first = conftest.write_run(path / "a", files)
  second = conftest.write_run(path / "b", files)
  for written in (
    report.write(first),
    report.compare([first, second], path / "out" / "compare.html"),
  ):
    shown = conftest.Page(written.html.read_text(encoding="utf-8")).text
    yield written, re.sub(r"\( ?([\d.]+) ?, ?([\de-]+) ?\)", r"(\1, \2)", shown)
    lines = written.markdown.read_text(encoding="utf-8")
    yield written, lines.replace("\\", "").replace("&gt;", ">")


@pytest.mark.usefixtures("no_plots")
def test_the_condition_stands_beside_the_proven_figure(tmp_path, seeded):
  for _, text in _formats(tmp_path, seeded):
    ends = [match.end() for match in re.finditer(r"\(2\.35, 1e-5\)", text)]
    ends += [match.end() for match in re.finditer(r"dp_epsilon=2\.346", text)]
    assert ends
    for end in ends:
      assert _CONDITION in text[end : end + 90], text[end - 60 : end + 90]


@pytest.mark.usefixtures("no_plots")
def test_what_proven_privacy_allows_names_the_condition(tmp_path, seeded):
  written = report.write(conftest.write_run(tmp_path, seeded))
  measured = json.loads(written.json.read_text())["promises"]["measured"]
  (sentence,) = [text for text in measured if "membership" in text]
  assert f"the proven privacy ({_CONDITION}) allows 99." in sentence


@pytest.mark.usefixtures("no_plots")
def test_what_proven_privacy_allows_is_rounded_up(tmp_path, seeded):
  """With dp_epsilon 1 an advantage of tanh(1) = 0.76159, right 88.0797 %."""
  conftest.prove(seeded, 1.0, 0.0)
  written = report.write(conftest.write_run(tmp_path, seeded))
  measured = json.loads(written.json.read_text())["promises"]["measured"]
  assert any("allows 88.1%" in text for text in measured)
  conftest.prove(seeded, 1.001, 0.0)  # tanh: 0.76201
  written = report.write(conftest.write_run(tmp_path / "more", seeded))
  page = conftest.Page(written.html.read_text(encoding="utf-8")).text
  markdown = written.markdown.read_text(encoding="utf-8")
  for text in (page, markdown):
    assert "0.763" in text
    assert "0.762" not in text


@pytest.mark.usefixtures("no_plots")
def test_a_promise_repeats_the_condition(tmp_path, seeded):
  written = report.write(conftest.write_run(tmp_path, seeded))
  data = json.loads(written.json.read_text())
  promise = data["promises"]["may"][0]
  assert promise.startswith(
    f"Its training is (2.35, 1e-5)-differentially private, but {_CONDITION}:"
  )
  assert f"proven (2.35, 1e-5) ({_CONDITION}) |" in written.summary
  results = results_lib.read(report.RunFolder(tmp_path))
  assert f"({_CONDITION})" in scalars.settings(results)["privacy"]


@pytest.mark.usefixtures("no_plots")
def test_what_is_covered_is_shown(tmp_path, seeded):
  (written, page), (_, markdown), *_ = _formats(tmp_path, seeded)
  for text in (page, markdown):
    assert "What the statement covers" in text
    for question in ("Unit of privacy", "Taken to be public", "Trust model"):
      assert question in text
    for name, answer in _COVERED.items():
      if name != "gaussian_mu":
        assert "".join(answer) in text
    assert "mu=0.7124 for every dp_delta >= 1e-10" in text
  assert "| mu 0.713 | unit one hospital stay" in written.summary


@pytest.mark.usefixtures("no_plots")
def test_an_earlier_statement_says_what_is_not_stated(tmp_path, files):
  (_, page), (_, markdown), *_ = _formats(tmp_path, files)
  assert "Trust model not stated" in page
  assert "| Trust model | not stated |" in markdown


def test_figures_on_a_page_are_never_flattered():
  assert formats.dp_epsilon(3.0) == "3"
  assert formats.dp_epsilon(3.0000001) == "3.01"
  assert formats.dp_epsilon(1234.5) == "1240"
  assert formats.dp_epsilon_lower(1239.0) == "1230"
  assert formats.dp_delta(1.0001e-5) == "1.01e-5"
  assert formats.dp_delta_lower(1.0099e-5) == "1e-5"
  budget = privacy.Budget(2.9901, 1e-5)
  assert formats.budget(budget) == "(3, 1e-5)"


@given(st.floats(1e-6, 1e5))
def test_rounding_on_a_page(value):
  assert value <= float(formats.dp_epsilon(value)) <= value * 1.01
  assert value * 0.99 <= float(formats.dp_epsilon_lower(value)) <= value
  assert float(formats.dp_delta(value / 1e6)) >= value / 1e6
