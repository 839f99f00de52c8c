"""What the builders of networks share: seeds of layers, checks of shapes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence

Shape = Sequence[int]


def seeds(seed: int) -> Iterator[int]:
  """A different seed for each layer: equal shapes must not start equal."""
  return iter(range(1000 * seed, 1000 * seed + 1000))


def require_images(input_shape: Shape, smallest: int, name: str) -> None:
  """Refuses inputs that are not images, or too small for the network."""
  if len(input_shape) != 3 or min(input_shape[:2]) < smallest:
    raise ValueError(
      f"Expected images of at least {smallest} x {smallest} pixels (height,"
      f" width, channels) for {name}, received input_shape="
      f"{tuple(input_shape)}. Use network='mlp', which takes any shape."
    )
