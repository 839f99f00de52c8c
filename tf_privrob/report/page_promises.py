"""The page's plain-language part: what may be promised about the model."""

from __future__ import annotations

from tf_privrob.report import promises as promises_lib
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import section
from tf_privrob.report.markup import tag

_LEAD = (
  "For readers who do not work with these figures. It is built from what was"
  " proven and measured alone."
)
HEADINGS = (
  ("may", "You may promise"),
  ("measured", "You may report as measured, without a guarantee"),
  ("must_not", "You must not promise"),
)


def promises_section(promises: promises_lib.Promises) -> Html:
  """Three short lists in plain sentences."""
  blocks = []
  for name, title in HEADINGS:
    sentences = getattr(promises, name)
    if not sentences:
      continue
    items = (tag("li", sentence) for sentence in sentences)
    css = f"promise {name.replace('_', '-')}"
    blocks.append(tag("div", tag("h3", title), tag("ul", *items), css=css))
  return section(
    "may-promise",
    "What you may promise about this model",
    tag("p", _LEAD, css="lead"),
    tag("div", *blocks, css="promise-box"),
  )
