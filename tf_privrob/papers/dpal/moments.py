"""Second moments of image patches, released once: the sound autoencoder.

With a linear hidden layer h = theta^T p of a patch p, DPAL's first-order
objective (Eq. 7, without noise) is tr(theta theta^T M), M = sum p (1/2 - p)^T:
all that it needs of the data are first and second moments of patches. Noise on
those, added once, makes everything that follows post-processing, whatever the
number of steps. That is the functional mechanism as Zhang et al. (2012) proved
it, and as DPAL's training does not use it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.mechanisms import gaussian
from tf_privrob.mechanisms import laplace
from tf_privrob.mechanisms import mechanism

MECHANISMS = ("gaussian", "laplace")
_ROWS, _MEMORY = 2000, 2**25  # images, and numbers of theirs, at a time


def objective_sensitivity(patch: int, positions: int, norm: str) -> float:
  """The sensitivity of M = sum p (1/2 - p)^T under replace-one, |p| <= 1.

  |p|_1 <= d, |1/2 - p|_1 <= 1.5 d, and the same with sqrt(d) in l2: twice the
  product, times the number of patches. `PatchMoments` releases M's ingredients
  with a smaller sensitivity; this is the yardstick.

  Args:
    patch: d, values in a patch.
    positions: Patches in an image.
    norm: "l1" or "l2" (Frobenius).
  """
  validate.positive_int(patch=patch, positions=positions)
  validate.one_of(("l1", "l2"), norm=norm)
  return 3.0 * positions * (patch**2 if norm == "l1" else patch)


@dataclasses.dataclass(frozen=True)
class PatchMoments:
  """Releases sum_i A_i, with A_i the mean of u u^T over the patches of image i.

  u = (p - low) / (high - low) with a 1 appended, so that one matrix holds
  count, mean and second moments. A_i is symmetric: its upper triangle is
  released, off-diagonal entries times sqrt(2) for l2, so that the norm of the
  vector is that of the matrix. Each A_i is scaled down to norm `clip`, in l2
  for the Gaussian and in l1 for the Laplace mechanism.

  Guarantee: adding or removing one image changes the sum by at most `clip` in
  that norm, for every image. With "laplace" the release is dp_epsilon-DP; with
  "gaussian" (dp_epsilon, dp_delta)-DP by the analytic calibration, and an
  accountant composes it through `event()`.

  Attributes:
    kernel_size: Height and width of a patch; None: the whole input.
    strides: Between patches.
    value_range: Range of the inputs.
    clip: Bound on an image's part.
    mechanism: "gaussian" or "laplace".
    dp_epsilon: The dp_epsilon of the release on its own.
    dp_delta: The dp_delta that goes with it; ignored by "laplace".
  """

  kernel_size: tuple[int, int] | None
  strides: tuple[int, int]
  value_range: tuple[float, float]
  clip: float
  mechanism: str
  dp_epsilon: float
  dp_delta: float

  def __post_init__(self):
    validate.value_range(self.value_range)
    validate.positive(clip=self.clip, dp_epsilon=self.dp_epsilon)
    validate.one_of(MECHANISMS, mechanism=self.mechanism)
    validate.open_probability(dp_delta=self.dp_delta)
    validate.sizes(strides=self.strides)
    if self.kernel_size is not None:
      validate.sizes(kernel_size=self.kernel_size)

  @property
  def noise(self) -> mechanism.Mechanism:
    """The mechanism, calibrated for sensitivity `clip`."""
    if self.mechanism == "laplace":
      return laplace.LaplaceMechanism(self.clip, self.dp_epsilon)
    return gaussian.GaussianMechanism.analytic(
      self.clip, self.dp_epsilon, self.dp_delta
    )

  def parts(self, images: tf.Tensor) -> tf.Tensor:
    """A_i of each image as a clipped vector, float64 [B, q (q + 1) / 2].

    An image whose moments are not finite has zeros.
    """
    low, high = self.value_range
    images = (tf.cast(images, tf.float32) - low) / (high - low)
    u = self._patches(images)
    u = tf.concat([u, tf.ones_like(u[..., :1])], axis=-1)
    moments = tf.einsum("bpi,bpj->bij", u, u) / tf.cast(
      tf.shape(u)[1], tf.float32
    )
    rows, columns = np.triu_indices(u.shape[-1])
    weights = np.ones(len(rows), np.float32)
    if self.mechanism == "gaussian":
      weights[rows != columns] = math.sqrt(2.0)
    indices = rows * u.shape[-1] + columns
    flat = tf.reshape(moments, [-1, u.shape[-1] ** 2])
    vectors = tf.gather(flat, indices, axis=1) * weights
    finite = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
    vectors = tf.where(finite, vectors, tf.zeros_like(vectors))
    vectors = tf.cast(vectors, tf.float64)  # a norm of it cannot overflow
    order = 2 if self.mechanism == "gaussian" else 1
    norms = tf.norm(vectors, ord=order, axis=1, keepdims=True)
    # A relative 1e-9 covers the rounding of norms and of their sum.
    bound = (1 - 1e-9) * self.clip
    return vectors * (bound / tf.maximum(norms, bound))

  def _patches(self, images: tf.Tensor) -> tf.Tensor:
    if self.kernel_size is None:
      return tf.reshape(images, [tf.shape(images)[0], 1, _size(images.shape)])
    height, width = self.kernel_size
    patches = tf.image.extract_patches(
      images,
      [1, height, width, 1],
      [1, *self.strides, 1],
      [1, 1, 1, 1],
      "VALID",
    )
    shape = [tf.shape(images)[0], -1, height * width * images.shape[-1]]
    return tf.reshape(patches, shape)

  def check(self, images: np.ndarray) -> None:
    """Raises a ValueError where `release` cannot be made, before any cost."""
    validate.examples(self.value_range, images=images)
    if self.kernel_size is None:
      return
    (height, width), shape = self.kernel_size, tuple(np.shape(images)[1:])
    if len(shape) != 3 or shape[0] < height or shape[1] < width:
      raise ValueError(
        f"Expected images of at least {height} x {width} pixels (height, width,"
        f" channels), which is the size of a patch, received {shape}."
      )

  def release(self, images: np.ndarray, seed: mechanism.Seed) -> np.ndarray:
    """The noisy sum over all images as a symmetric matrix [q, q].

    Args:
      images: All training inputs, in `value_range`.
      seed: Seed of the noise; never use it twice.
    """
    self.check(images)
    total = 0.0
    rows = self._rows(np.shape(images))
    for start in range(0, len(images), rows):
      parts = self.parts(tf.constant(images[start : start + rows]))
      total += tf.reduce_sum(parts, axis=0)
    noisy = self.noise.add_noise(total, seed).numpy()
    size = (math.isqrt(8 * len(noisy) + 1) - 1) // 2
    rows, columns = np.triu_indices(size)
    if self.mechanism == "gaussian":
      noisy = np.where(rows == columns, noisy, noisy / math.sqrt(2.0))
    matrix = np.zeros((size, size))
    matrix[rows, columns] = noisy
    matrix[columns, rows] = noisy
    return matrix

  def _rows(self, shape: Sequence[int]) -> int:
    """How many images fit into memory at a time."""
    patch = math.prod(shape[1:])
    if self.kernel_size is not None:
      patch = math.prod(self.kernel_size) * shape[-1]
    return max(1, min(_ROWS, _MEMORY // (patch + 1) ** 2))


def _size(shape: Sequence[int]) -> int:
  return math.prod(shape[1:])


@dataclasses.dataclass(frozen=True)
class PatchFilters:
  """A bank of filters from noisy moments: post-processing, free of cost.

  Attributes:
    kernel: [d, filters], in the units of the inputs.
    bias: [filters]; the mean patch is mapped to zero.
    spectrum: The noisy variances along the directions, in their order.
  """

  kernel: np.ndarray
  bias: np.ndarray
  spectrum: np.ndarray


def filters_from_moments(
  moments: np.ndarray,
  num_filters: int,
  value_range: tuple[float, float],
  objective: str = "pca",
  whitening_floor: float = 0.1,
  output_stddev: float = 0.5,
  paired: bool = True,
  seed: int = 0,
) -> PatchFilters:
  """Orthogonal directions of the patches, scaled to outputs of one size.

  "taylor" minimises DPAL's objective tr(theta theta^T M) over orthonormal
  theta, so the directions are eigenvectors of the symmetric part of -M for its
  largest eigenvalues; the constraint keeps the linear objective bounded.
  "pca" takes those of the covariance.

  Each direction with variance s is scaled by 1 / sqrt(s + floor * s_max), so
  that weak directions, which noise has spoilt most, are not blown up.

  Args:
    moments: The result of `PatchMoments.release`.
    num_filters: Number of filters; where directions run out, they are random
      mixtures of them.
    value_range: Range of the inputs.
    objective: "pca" or "taylor".
    whitening_floor: The floor, as above.
    output_stddev: Standard deviation of the strongest direction's output over
      the patches.
    paired: Take each direction with both signs, which loses nothing in a ReLU.
    seed: Seed of the mixtures.
  """
  validate.one_of(("pca", "taylor"), objective=objective)
  validate.positive_int(num_filters=num_filters)
  validate.positive(
    whitening_floor=whitening_floor, output_stddev=output_stddev
  )
  validate.value_range(value_range)
  _require_moments(moments)
  low, high = value_range
  width, dim = high - low, len(moments) - 1
  count = max(moments[-1, -1], 1.0)
  mean = low + width * moments[:dim, -1] / count
  scaled = moments[:dim, -1] / count
  covariance = moments[:dim, :dim] / count - np.outer(scaled, scaled)
  covariance *= width**2
  target = covariance
  if objective == "taylor":
    half = 0.5 * np.outer(mean, np.ones(dim))
    target = covariance + np.outer(mean, mean) - (half + half.T) / 2
  _, vectors = np.linalg.eigh(target)
  vectors = vectors[:, ::-1]
  spectrum = np.einsum("ik,ij,jk->k", vectors, covariance, vectors)
  spectrum = np.maximum(spectrum, 0.0)
  largest = max(spectrum.max(), 1e-12)
  gains = output_stddev / np.sqrt(spectrum + whitening_floor * largest)
  directions = vectors * gains
  distinct = math.ceil(num_filters / 2) if paired else num_filters
  bank = directions[:, :distinct]
  if paired:
    bank = np.concatenate([bank, -bank], axis=1)[:, :num_filters]
  if bank.shape[1] < num_filters:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(dim, num_filters - bank.shape[1]))
    mixing /= np.linalg.norm(mixing, axis=0)
    bank = np.concatenate([bank, directions @ mixing], axis=1)
  return PatchFilters(bank, -mean @ bank, spectrum)


def _require_moments(moments: np.ndarray) -> None:
  shape = np.shape(moments)
  if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
    raise ValueError(
      f"Expected moments as a square matrix of a patch and a 1, received shape"
      f" {shape}."
    )
  if not np.isfinite(moments).all():
    raise ValueError("Expected finite moments, received NaN or infinity.")
