"""The gallery: inputs, attacked inputs, and what was changed, inline."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

import numpy as np

from tf_privrob.report import formats
from tf_privrob.report import results as results_lib

_MOST = 10
# A raised value is drawn in the first colour, a lowered one in the second.
_RAISED, _LOWERED = (214, 69, 65), (42, 111, 219)


class Row(NamedTuple):
  """Pictures in a row, each with the network's answer, if it was asked."""

  name: str
  small: str
  pictures: list[tuple]
  first: bool = True
  last: bool = True


def gallery(results: results_lib.Results) -> list[Row]:
  """Inputs, attacked inputs, and below these what was changed, amplified."""
  arrays = results.examples
  low, high = results.run.dataset.value_range or (0.0, 1.0)
  if low >= high:
    low, high = 0.0, 1.0
  shown = range(min(len(arrays["clean"]), _MOST))
  labels = arrays["labels"]

  def row(images, answers, alt: str) -> list[tuple]:
    return [
      (
        data_uri(to_pixels(images[i], (low, high))),
        alt.format(labels[i]),
        answers[i],
        answers[i] == labels[i],
      )
      for i in shown
    ]

  clean = arrays["clean"]
  answers = arrays["clean_predictions"]
  found = [
    Row("clean", "no attack", row(clean, answers, "test example of class {}"))
  ]
  for index, name in enumerate(arrays["attack_names"]):
    attacked = arrays["adversarial"][index]
    change = attacked - clean
    full = float(np.abs(np.nan_to_num(change[: len(shown)])).max())
    gain = f"full colour: \u00b1{formats.number(round(full, 4))}"
    if 0 < full < high - low:
      gain += f" (\u00d7{(high - low) / full:.3g})"
    answers = arrays["adversarial_predictions"][index]
    alt = f"example under {name}".replace("{", "{{").replace("}", "}}")
    found.append(Row(str(name), "", row(attacked, answers, alt), last=False))
    changes = [
      (data_uri(difference(each, full)), f"what {name} changed", None, None)
      for each in change[: len(shown)]
    ]
    found.append(Row("difference", gain, changes, first=False))
  return found


def to_pixels(
  image: np.ndarray, value_range: tuple[float, float]
) -> np.ndarray:
  """Maps an image of values in `value_range` to uint8 pixels, RGB."""
  low, high = value_range
  scaled = (np.nan_to_num(image) - low) / (high - low)
  pixels = np.round(255 * np.clip(scaled, 0, 1)).astype(np.uint8)
  if pixels.shape[-1] != 3:
    pixels = np.repeat(pixels[..., :1], 3, axis=-1)
  return pixels


def difference(change: np.ndarray, full: float) -> np.ndarray:
  """A signed change as colour: its sign the hue, its size the opacity.

  Where nothing changed the picture is transparent, on any background. A
  change of `full` or more is opaque. Channels are averaged.

  Args:
    change: adversarial minus clean, [height, width, channels].
    full: the change that is drawn in full colour.
  """
  change = np.nan_to_num(change).mean(axis=-1) / max(full, 1e-12)
  pixels = np.empty((*change.shape, 4), np.uint8)
  pixels[..., :3] = np.where(change[..., None] > 0, _RAISED, _LOWERED)
  pixels[..., 3] = np.round(255 * np.clip(np.abs(change), 0, 1))
  return pixels


def data_uri(pixels: np.ndarray) -> str:
  """The picture as a `data:` address, which needs no file and no request."""
  from matplotlib import image

  buffer = io.BytesIO()
  image.imsave(buffer, pixels, format="png", metadata={"Software": None})
  return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
