"""What is known of each named data set without opening it.

Shapes, classes, the range in which values are stored and the official sizes
are public facts; a file that contradicts them is refused.
"""

from __future__ import annotations

import dataclasses

_DIGITS = tuple("0123456789")
_PIXELS = (0.0, 255.0)
_GCS = "storage.googleapis.com"


@dataclasses.dataclass(frozen=True)
class Spec:
  """One entry of the catalog.

  Attributes:
    name: Its name, as in `data.load(name)`.
    shape: Shape of one example, with the channel axis for images.
    num_classes: Number of classes.
    stored_range: Range of the stored values; pixels are stored as uint8.
    default_range: The range that `load` delivers unless told otherwise.
    official: Official (train, test) sizes, None where no split is official.
    class_names: One name per class, or None.
    tfds_hosts: Hosts TFDS downloads it from; empty: TFDS does not have it.
  """

  name: str
  shape: tuple[int, ...]
  num_classes: int
  stored_range: tuple[float, float] = _PIXELS
  default_range: tuple[float, float] = (0.0, 1.0)
  official: tuple[int, int] | None = None
  class_names: tuple[str, ...] | None = None
  tfds_hosts: tuple[str, ...] = ()

  @property
  def stores_pixels(self) -> bool:
    """Whether examples are images, stored as uint8."""
    return len(self.shape) == 3

  def describe_file(self) -> str:
    """What `<name>.npz` must hold."""
    shape = self.shape
    if self.stores_pixels and shape[-1] == 1:
      shape = shape[:-1]
    axes = ", ".join(["n", *map(str, shape)])
    low, high = self.stored_range
    kind = "uint8" if self.stores_pixels else f"floats in [{low:g}, {high:g}]"
    return (
      f"{self.name}.npz with the keys x_train, x_test ({kind}, [{axes}]) and"
      f" y_train, y_test (whole numbers in [0, {self.num_classes}), [n])"
    )


def _names(text: str) -> tuple[str, ...]:
  return tuple(text.split(", "))


SPECS = {
  spec.name: spec
  for spec in (
    Spec("mnist_5k", (28, 28, 1), 10, class_names=_DIGITS),
    Spec("digits", (8, 8, 1), 10, (0.0, 16.0), class_names=_DIGITS),
    Spec(
      "mnist",
      (28, 28, 1),
      10,
      official=(60000, 10000),
      class_names=_DIGITS,
      tfds_hosts=(_GCS,),
    ),
    Spec(
      "fashion_mnist",
      (28, 28, 1),
      10,
      official=(60000, 10000),
      class_names=_names(
        "T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker,"
        " bag, ankle boot"
      ),
      tfds_hosts=(
        _GCS,
        "fashion-mnist.s3-website.eu-central-1.amazonaws.com",
      ),
    ),
    Spec(
      "cifar10",
      (32, 32, 3),
      10,
      official=(50000, 10000),
      class_names=_names(
        "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"
      ),
      tfds_hosts=(_GCS, "www.cs.toronto.edu"),
    ),
    Spec("usps", (16, 16, 1), 10, official=(7291, 2007), class_names=_DIGITS),
    Spec("yale_b", (192, 168, 1), 38),
    Spec(
      "uci_har",
      (561,),
      6,
      stored_range=(-1.0, 1.0),
      default_range=(-1.0, 1.0),
      official=(7352, 2947),
      class_names=_names(
        "walking, walking upstairs, walking downstairs, sitting, standing,"
        " laying"
      ),
    ),
  )
}

NAMES = tuple(SPECS)
