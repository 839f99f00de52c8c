"""Whatever a template puts in shows as text, in HTML and in Markdown."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report import conftest
from tf_privrob import report
from tf_privrob.report import rendering

_EVIL = "<script>alert('x')</script>\" | `a` **b** [c](d) # $e$ ~f~\n# g"
_TEMPLATES = pathlib.Path(report.__file__).with_name("templates")


@pytest.fixture
def template(tmp_path):
  def write(text, name="page.html"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path

  return write


def test_html_is_escaped_without_being_asked(template):
  path = template('<p title="{{ evil }}">{{ evil }}</p>')
  page = conftest.Page(rendering.html(path, evil=_EVIL))
  assert page.tags == ["p"]
  assert page.attributes == [("p", "title", _EVIL)]
  assert page.text == " ".join(_EVIL.split())


def test_markdown_is_escaped_without_being_asked(template):
  path = template("| {{ evil }} | {{ 3 }} |", "table.md")
  line = rendering.markdown(path, evil=_EVIL)
  assert "<" not in line
  assert len(line.splitlines()) == 1
  assert len(re.findall(r"(?<!\\)\|", line)) == 3


@given(st.text())
def test_markdown_shows_what_it_was_given(item):
  shown = rendering.text(item)
  for sign in "`*_[]|#~$":
    assert not re.search(rf"(?<!\\){re.escape(sign)}", shown)
  plain = re.sub(r"\\(.)", r"\1", shown)
  for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
    plain = plain.replace(entity, sign)
  assert plain == " ".join(item.split())


@pytest.mark.parametrize("inside", ["ls", "a ``` b", "````"])
def test_a_fence_is_longer_than_what_it_holds(inside):
  first, *_, last = rendering.code(inside).splitlines()
  assert set(last) == {"`"}
  assert last not in inside
  assert first == f"{last}sh"
  assert rendering.text(rendering.code(inside)) == rendering.code(inside)


def test_a_name_that_nobody_gave_is_an_error(template):
  with pytest.raises(jinja2.UndefinedError, match="'figure' is undefined"):
    rendering.html(template("{{ figure }}"))


def test_no_template_turns_escaping_off():
  for path in _TEMPLATES.iterdir():
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe|autoescape|Markup", text), path


def test_the_templates_are_in_the_wheel():
  code = (
    "import setuptools, sys; setuptools.setup = lambda **s: print(s); import"
    " runpy; runpy.run_path('setup.py')"
  )
  root = _TEMPLATES.parents[2]
  found = subprocess.run(
    [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
  )
  assert "'package_data': {'tf_privrob.report': ['templates/*']}" in (
    found.stdout
  )
  assert not [path for path in _TEMPLATES.iterdir() if path.is_dir()]
