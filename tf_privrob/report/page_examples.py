"""The page's gallery: inputs, attacked inputs, and what was changed."""

from __future__ import annotations

import numpy as np

from tf_privrob.report import formats
from tf_privrob.report import pictures
from tf_privrob.report import results as results_lib
from tf_privrob.report.markup import Html
from tf_privrob.report.markup import not_run
from tf_privrob.report.markup import safe
from tf_privrob.report.markup import section
from tf_privrob.report.markup import tag

_MAX_EXAMPLES = 10


def examples_section(results: results_lib.Results, command: str) -> Html:
  """Clean and adversarial inputs, and what was changed."""
  arrays = results.examples
  title = "Adversarial examples"
  if arrays is None:
    text = "Evaluation keeps a few examples where the inputs are pictures."
    return section("examples", title, not_run(text, command))
  bounds = results.section("dataset").get("value_range")
  valid = isinstance(bounds, (list, tuple)) and len(bounds) == 2
  bounds = tuple(bounds) if valid and bounds[0] < bounds[1] else (0.0, 1.0)
  shown = range(min(len(arrays["clean"]), _MAX_EXAMPLES))
  rows = [_clean_row(arrays, shown, bounds)]
  for index in range(len(arrays["attack_names"])):
    rows += _attack_rows(arrays, index, shown, bounds)
  return section(
    "examples",
    title,
    tag(
      "p",
      "Under each input, the network\u2019s answer. Below each attack, what it"
      " changed: red raises a value, blue lowers it, amplified as stated.",
      css="lead",
    ),
    tag("div", tag("table", *rows, css="gallery"), css="scroll", tabindex="0"),
  )


def _image(pixels: np.ndarray, alt: str) -> Html:
  source = pictures.data_uri(pixels)
  return Html(f'<img src="{source}" alt="{safe(alt)}">')


def _answer(prediction: int, label: int) -> Html:
  if prediction == label:
    return tag("span", f"\u2713 {prediction}", css="right")
  return tag("span", f"\u2717 {prediction}", css="wrong")


def _clean_row(arrays, shown, bounds) -> Html:
  cells = [
    tag(
      "td",
      _image(
        pictures.to_pixels(arrays["clean"][i], bounds),
        f"test example of class {arrays['labels'][i]}",
      ),
      _answer(arrays["clean_predictions"][i], arrays["labels"][i]),
    )
    for i in shown
  ]
  head = tag("th", "clean", tag("small", "no attack"), scope="row")
  return tag("tr", head, *cells, css="first last")


def _attack_rows(arrays, index: int, shown, bounds) -> list[Html]:
  """The attacked inputs, and below them the amplified differences."""
  name = str(arrays["attack_names"][index])
  attacked = arrays["adversarial"][index]
  change = attacked - arrays["clean"]
  full = float(np.abs(np.nan_to_num(change[: len(shown)])).max())
  width = bounds[1] - bounds[0]
  gain = f"full colour: \u00b1{formats.number(round(full, 4))}"
  if 0 < full < width:
    gain += f" (\u00d7{width / full:.3g})"
  inputs = [
    tag(
      "td",
      _image(pictures.to_pixels(attacked[i], bounds), f"example under {name}"),
      _answer(arrays["adversarial_predictions"][index, i], arrays["labels"][i]),
    )
    for i in shown
  ]
  changes = [
    tag(
      "td",
      _image(pictures.difference(change[i], full), f"what {name} changed"),
    )
    for i in shown
  ]
  head = tag("th", name, scope="row")
  below = tag("th", "difference", tag("small", gain), scope="row")
  return [
    tag("tr", head, *inputs, css="first"),
    tag("tr", below, *changes, css="last"),
  ]
