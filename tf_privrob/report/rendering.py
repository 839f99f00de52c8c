"""Templates, filled: HTML and Markdown in which text shows as text.

Whatever a template puts in is escaped, once and for all templates, so that
nothing from a file reaches a page by being forgotten: HTML by Jinja's own
autoescape, Markdown by `text`, since Markdown passes HTML on. The numbers on a
page are written by `formats`, whose functions are the filters of a template.
"""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any

import jinja2
from markupsafe import Markup

from tf_privrob.report import formats

_TEMPLATES = pathlib.Path(__file__).with_name("templates")
_WORDS = {
  "pass": "holds",
  "note": "note",
  "warn": "warning",
  "fail": "violated",
  "not run": "not run",
}


class Markdown(str):
  """Text that is Markdown already."""


def text(item: object) -> str:
  """Plain text as Markdown that shows it: no markup, no HTML, one line."""
  if isinstance(item, Markdown):
    return item
  line = " ".join(str(item).split())
  line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
  return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", line)


def code(item: str, language: str = "sh") -> Markdown:
  """A block of code, fenced by more backticks than it has."""
  longest = max((len(run) for run in re.findall("`+", item)), default=0)
  fence = "`" * max(3, longest + 1)
  return Markdown(f"{fence}{language}\n{item}\n{fence}")


def html(name: str, **values: Any) -> str:
  """A page: the template `name` of this folder, or the file of that path."""
  return _environment(True).get_template(str(name)).render(**values)


def markdown(name: str, **values: Any) -> str:
  """The same for Markdown; empty parts leave no gap."""
  page = _environment(False).get_template(str(name)).render(**values)
  return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


@functools.cache
def _environment(escape: bool) -> jinja2.Environment:
  """The templates with their filters; `escape`: for HTML."""
  found = jinja2.Environment(
    loader=jinja2.ChoiceLoader(
      [jinja2.FileSystemLoader(_TEMPLATES), jinja2.FunctionLoader(_file)]
    ),
    autoescape=escape,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    **({} if escape else {"finalize": text}),
  )
  names = (
    "accuracy advantage budget dp_delta dp_delta_lower dp_epsilon"
    " dp_epsilon_lower duration interval norm number percent privacy_figures"
    " proven share_interval three upper"
  )
  found.filters.update({n: getattr(formats, n) for n in names.split()})
  found.filters.update(exact=repr, word_of=_WORDS.get)
  found.globals["drawn"] = Markup
  if not escape:
    found.filters["code"] = code
  return found


def _file(path: str) -> str | None:
  """A template outside of this folder, by its whole path."""
  place = pathlib.Path(path)
  return place.read_text(encoding="utf-8") if place.is_absolute() else None
