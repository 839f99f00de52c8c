"""Adversarial examples as inline pictures, without an imaging library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

# A raised value is drawn in the first colour, a lowered one in the second.
_RAISED = (214, 69, 65)
_LOWERED = (42, 111, 219)


def png(pixels: np.ndarray) -> bytes:
  """Encodes uint8 pixels [height, width, channels] with 1, 3 or 4 channels.

  Eight bits a sample, no interlacing, filter 0 on every row (ISO 15948).
  """
  color_type = {1: 0, 3: 2, 4: 6}.get(pixels.shape[-1])
  if pixels.dtype != np.uint8 or pixels.ndim != 3 or color_type is None:
    raise ValueError(
      "Expected uint8 pixels [height, width, 1, 3 or 4], received"
      f" {pixels.dtype} of shape {pixels.shape}."
    )
  height, width, _ = pixels.shape

  def chunk(tag: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(tag + body)
    return (
      struct.pack(">I", len(body)) + tag + body + struct.pack(">I", checksum)
    )

  rows = b"".join(b"\0" + row.tobytes() for row in pixels)
  header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
  return (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", header)
    + chunk(b"IDAT", zlib.compress(rows, 9))
    + chunk(b"IEND", b"")
  )


def data_uri(pixels: np.ndarray) -> str:
  """The picture as a `data:` address, which needs no file and no request."""
  return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def to_pixels(
  image: np.ndarray, value_range: tuple[float, float]
) -> np.ndarray:
  """Maps an image of values in `value_range` to uint8 pixels."""
  low, high = value_range
  scaled = (np.nan_to_num(image) - low) / (high - low)
  pixels = np.round(255 * np.clip(scaled, 0, 1)).astype(np.uint8)
  return pixels if pixels.shape[-1] in (1, 3) else pixels[..., :1]


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
