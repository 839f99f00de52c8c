"""Small pieces of HTML. Text is escaped here, once, and nowhere else.

`Html` marks text that is already safe. Every function below takes plain text
(and escapes it) or `Html` (and keeps it), and returns `Html`; so whatever
comes from a file cannot reach the page unescaped by being forgotten.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Union

from tf_privrob.report import formats


class Html(str):
  """Text that is HTML already."""


Content = Union[str, Html]


def safe(content: object) -> Html:
  """Escapes plain text; keeps `Html` as it is."""
  if isinstance(content, Html):
    return content
  return Html(html.escape(str(content), quote=True))


def join(parts: Iterable[Content], separator: str = "") -> Html:
  """Puts pieces one after the other."""
  return Html(separator.join(safe(part) for part in parts))


def tag(name: str, *content: Content, **attributes: str) -> Html:
  """One element; `css` is its class, and a trailing _ in a name is dropped."""
  text = "".join(
    f" {'class' if key == 'css' else key.rstrip('_').replace('_', '-')}"
    f'="{safe(value)}"'
    for key, value in attributes.items()
    if value
  )
  return Html(f"<{name}{text}>{join(content)}</{name}>")


def value(number: object, text: str, css: str = "") -> Html:
  """A figure as people read it, with its exact value for machines."""
  return tag("data", text, value=repr(number), css=css)


def percent(number: float | None, css: str = "") -> Html:
  """An accuracy."""
  if number is None:
    return safe("-")
  return value(number, formats.percent(number), css)


def pill(status: str, text: str) -> Html:
  """A status in words and in colour, never in colour alone."""
  return tag("span", text, css=f"pill {status.replace(' ', '-')}")


def table(
  head: Sequence[Content],
  rows: Iterable[Sequence[Content]],
  css: str = "",
  caption: Content = "",
  numeric_from: int = 1,
) -> Html:
  """A table that scrolls by itself where the page is too narrow.

  Args:
    head: the column headings.
    rows: the cells; the first of each row is its heading.
    css: a class for the table.
    caption: what the table shows.
    numeric_from: the first column that is aligned as numbers.
  """

  def cell(name: str, index: int, content: Content, scope: str = "") -> Html:
    align = "num" if index >= numeric_from else ""
    return tag(name, content, css=align, scope=scope)

  top = join(cell("th", i, text, "col") for i, text in enumerate(head))
  body = join(
    tag(
      "tr",
      *(
        cell("td" if i else "th", i, content, "" if i else "row")
        for i, content in enumerate(row)
      ),
    )
    for row in rows
  )
  parts = [tag("caption", caption)] if caption else []
  parts += [tag("thead", tag("tr", top)), tag("tbody", body)]
  return tag("div", tag("table", *parts, css=css), css="scroll", tabindex="0")


def definitions(items: Iterable[tuple[Content, Content]]) -> Html:
  """Names and values, side by side."""
  return tag(
    "dl",
    *(
      tag("div", tag("dt", name), tag("dd", content)) for name, content in items
    ),
    css="facts",
  )


def figure(picture: Html, caption: Content) -> Html:
  """A plot under its title."""
  return tag("figure", tag("figcaption", caption), picture)


def section(anchor: str, title: Content, *content: Content) -> Html:
  """A part of the page with a heading that can be linked to."""
  return tag("section", tag("h2", title), *content, id=anchor)


def not_run(what: str, command: str) -> Html:
  """Says that a part is missing, and how to get it."""
  return tag(
    "div",
    tag("p", tag("strong", "Not run."), " ", what, " To get it:"),
    tag("pre", tag("code", command)),
    css="not-run-box",
  )
