"""What the builders of networks share: seeds of layers, checks of shapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from collections.abc import Sequence

from tf_privrob import randomness

Shape = Sequence[int]


def seeds(seed: int | None) -> Iterator[int | None]:
  """A seed for each layer's initialiser: equal shapes must not start equal.

  A network's seed is public: model files hold what follows from it here, and
  whoever guesses it finds it confirmed. So it must not be the seed of a run,
  which the noise comes from.

  Args:
    seed: of the network; None leaves the initialisers without one, so that
      Keras draws new weights each time, and a method those of its own run.
  """
  if seed is None:
    return itertools.repeat(None)
  key = randomness.Key.of(seed).child("network")
  return (key.child(layer).integer(31) for layer in itertools.count())


def require_images(input_shape: Shape, smallest: int, name: str) -> None:
  """Refuses inputs that are not images, or too small for the network."""
  if len(input_shape) != 3 or min(input_shape[:2]) < smallest:
    raise ValueError(
      f"Expected images of at least {smallest} x {smallest} pixels (height,"
      f" width, channels) for {name}, received input_shape="
      f"{tuple(input_shape)}. Use network='mlp', which takes any shape."
    )
