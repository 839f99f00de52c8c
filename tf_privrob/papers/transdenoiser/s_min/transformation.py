"""Input noise as gradient noise: the transformation matrix of TransDenoiser.

Setting (Algorithm 1 of the paper): a denoiser g, the loss of an example
l(z) = |g(z) - x|^2 with the target x held fixed, z = x + b. To first order
grad_theta l(z) = grad_theta l(x) + A b with A = d/dtheta grad_x l(x), a matrix
of w parameters by v pixels, so that noise of variance s^2 on the pixels is
noise of covariance s^2 A A^T on the gradient. This is arithmetic about a
Taylor expansion; what it says about privacy is for a method to state.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_privrob import validate
from tf_privrob.gradients import state
from tf_privrob.papers.transdenoiser.s_min import double
from tf_privrob.papers.transdenoiser.s_min import locality
from tf_privrob.papers.transdenoiser.s_min import mixed
from tf_privrob.papers.transdenoiser.s_min import paths
from tf_privrob.papers.transdenoiser.s_min import singularity
from tf_privrob.papers.transdenoiser.s_min import slices as slicing
from tf_privrob.papers.transdenoiser.s_min import windows


def taylor_remainder(
  denoiser: tf.keras.Model, x: tf.Tensor, z: tf.Tensor
) -> tf.Tensor:
  """o_i = l(z_i) - l(x_i) - b_i^T grad_x l(x_i), b = z - x (Algorithm 1, 8).

  The target stays x_i in all three terms. Examples with o_i >= 0 form the
  paper's group "non". Dropout is off: the remainder is of one function.

  Args:
    denoiser: any model from images to images.
    x: [B, ...], the clean images.
    z: [B, ...], the noisy ones.

  Returns:
    [B] in the denoiser's dtype.
  """
  x, z = tf.convert_to_tensor(x), tf.convert_to_tensor(z)
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(x)
    at_x = mixed.losses(denoiser, x, x)
  slope = (z - x) * tape.gradient(at_x, x)
  linear = tf.reduce_sum(slope, axis=range(1, slope.shape.rank))
  return mixed.losses(denoiser, z, x) - at_x - tf.cast(linear, at_x.dtype)


def smallest_singular_value(matrix: tf.Tensor) -> tf.Tensor:
  """S_min of a positive semidefinite matrix; 0 where rounding hides it.

  It is the least eigenvalue. With w rows it cannot be told from zero if
  lambda_min <= 10 w 2.2e-16 lambda_max, and is declared 0.
  """
  matrix = tf.debugging.assert_all_finite(
    tf.cast(matrix, tf.float64),
    "The transformation matrix is NaN or infinite: the denoiser's weights"
    " diverged or its second derivatives overflow. Lower the learning rate.",
  )
  values = tf.linalg.eigvalsh(matrix)
  size = tf.cast(tf.shape(values)[-1], tf.float64)
  floor = 10 * size * np.finfo(np.float64).eps * values[..., -1]
  return tf.where(values[..., 0] <= floor, tf.zeros_like(floor), values[..., 0])


class Group(NamedTuple):
  """Slices that are differentiated together."""

  slices: tuple[int, ...]
  how: str
  """"windows", "columns" or "rows"."""
  path: paths.Path


class PerturbationTransformation:
  """M_s = sum_i c_is^2 A_is A_is^T of every slice s, and its S_min.

  Everything is computed in float64 by a copy of the denoiser, whatever its own
  dtype, so that small eigenvalues are real; the weights are copied at every
  call, inside the graph. Dropout is off. A is never formed for more than a few
  examples at once.

  Where the slice sees the image through a code t narrower than the image,
  A_i = (d/dt grad_theta l) dt/dx and only as many columns as the code is wide
  are formed. They come one direction of t after the other (forward mode), or
  one parameter after the other (reverse mode), whichever is fewer. Where the
  network is local (`locality`) and a pixel's windows are smaller than that
  number, all columns come from windows (`windows`).

  Args:
    denoiser: a functional model (or a sequential one with an Input) from one
      image to one image, in which examples do not mix.
    slices: the trainable variables, each in exactly one slice.
    max_slice_size: largest number of parameters w of a slice that is not
      proven singular; its M takes 8 w^2 bytes.
    max_examples: if given, batches never have more examples, and a slice is
      proven singular where w > rank_bound * max_examples.
    max_elements: intermediate results are kept near so many numbers, but at
      least one direction of one example is taken at a time (in reverse mode
      and with windows all of A_is of one example).
    windows: whether a network that is local is differentiated by windows. None:
      where they are smaller than the passes over the image.

  Attributes:
    sizes: parameters of each slice.
    proofs: of each slice, a `singularity.Proof` or None.
    rank_bounds: of each slice, the largest rank one example can add.
  """

  def __init__(
    self,
    denoiser: tf.keras.Model,
    slices: Sequence[Sequence[tf.Variable]],
    max_slice_size: int = 2000,
    max_examples: int | None = None,
    max_elements: int = 2**20,
    windows: bool | None = None,
  ):
    validate.positive_int(
      max_slice_size=max_slice_size, max_elements=max_elements
    )
    if max_examples is not None:
      validate.positive_int(max_examples=max_examples)
    _require_image_to_image(denoiser)
    state.refuse_batch_normalization(denoiser)
    slicing.require_partition(slices, denoiser.trainable_variables)
    self.sizes = [sum(int(np.prod(v.shape)) for v in part) for part in slices]
    self.proofs = [
      singularity.structural_proof(denoiser, part) for part in slices
    ]
    self.rank_bounds = [
      singularity.rank_bound(denoiser, part) for part in slices
    ]
    self._open = tuple(i for i, p in enumerate(self.proofs) if p is None)
    self._limit = max_slice_size
    for index, size in enumerate(self.sizes):
      bound = self.rank_bounds[index] * (max_examples or np.inf)
      if self.proofs[index] is None and size <= bound:
        self._require_small(index)
    self._max_examples = max_examples
    self._max_elements = max_elements
    self._by_windows = windows
    self._source = denoiser.weights
    self._twin = double.in_double_precision(denoiser)
    twin_of = {
      ours.ref(): copy for ours, copy in zip(self._source, self._twin.weights)
    }
    self._slices = [[twin_of[v.ref()] for v in part] for part in slices]
    mixed.check_second_derivatives(self._twin)
    self._factored = mixed.factored_variables(self._twin)
    self._network = locality.analyse(self._twin)
    known: dict[int, paths.Path] = {}
    self._paths = [
      paths.narrowest(self._twin, part, known) for part in self._slices
    ]
    self._compiled = tf.function(self._accumulate, autograph=False)

  def gram(self, x: tf.Tensor, coefficients: tf.Tensor) -> list[tf.Tensor]:
    """M_s of every slice, float64 [w_s, w_s], rows in the slice's order.

    There is no 1/B^2 in it: the caller scales.

    Args:
      x: [B, ...], the clean images, B static.
      coefficients: [B, K], c_is; 0 leaves example i out of slice s.

    Raises:
      ValueError: a slice is too large, though proven singular.
    """
    for index in range(len(self.sizes)):
      self._require_small(index)
    everything = tuple(range(len(self.sizes)))
    return self._gram(*self._checked(x, coefficients), everything)

  def smallest(self, x: tf.Tensor, coefficients: tf.Tensor) -> tf.Tensor:
    """S_min(M_s) of every slice, float64 [K], 0 where M_s is singular.

    The proofs come first and cost nothing: structure, rank
    (w_s > rank_bound * number of non-zero c_is), a parameter that no example
    moves (a zero on the diagonal, e.g. of a dead unit).

    Args:
      x: [B, ...], the clean images, B static.
      coefficients: [B, K], c_is; 0 leaves example i out of slice s.
    """
    x, coefficients = self._checked(x, coefficients)
    counts = tf.math.count_nonzero(coefficients, 0, dtype=tf.int64)
    # A coefficient of 0 everywhere: no work is done for the slice.
    needed = tf.cast(self._can_be_regular(counts), tf.float64)
    return self.smallest_of(self.partial(x, coefficients * needed), counts)

  def partial(self, x: tf.Tensor, coefficients: tf.Tensor) -> list[tf.Tensor]:
    """M_s of the slices that no structure proves singular, for `smallest_of`.

    Those of several chunks of a batch may be added up.
    """
    x, coefficients = self._checked(x, coefficients)
    return self._gram(x, coefficients, self._open)

  def smallest_of(
    self, matrices: Sequence[tf.Tensor], counts: tf.Tensor
  ) -> tf.Tensor:
    """S_min of every slice, float64 [K], from the sums of `partial`.

    Args:
      matrices: as `partial` returns them, summed over a batch.
      counts: how many examples took part, int64, a scalar or [K].
    """
    zero = tf.zeros([], tf.float64)
    found = [zero] * len(self.sizes)
    regular = self._can_be_regular(counts)
    for index, matrix in zip(self._open, matrices):
      moved = tf.reduce_min(tf.linalg.diag_part(matrix)) > 0
      found[index] = tf.cond(
        tf.logical_and(moved, regular[index]),
        lambda matrix=matrix: smallest_singular_value(matrix),
        lambda: zero,
      )
    return tf.stack(found)

  def _can_be_regular(self, counts: tf.Tensor) -> tf.Tensor:
    """[K]: whether so many examples can span a slice, by the rank bounds."""
    proven = tf.constant([proof is not None for proof in self.proofs])
    most = tf.constant(self.rank_bounds, tf.int64) * counts
    return tf.logical_and(
      tf.logical_not(proven), tf.constant(self.sizes, tf.int64) <= most
    )

  def _checked(self, x, coefficients):
    x = tf.cast(x, tf.float64)
    coefficients = tf.cast(coefficients, tf.float64)
    expected = [x.shape[0], len(self.sizes)]
    if x.shape[0] is None or coefficients.shape.as_list() != expected:
      raise ValueError(
        "Expected a static batch size and coefficients of shape [B, K] ="
        f" {expected}, received {coefficients.shape}."
      )
    if self._max_examples is not None and x.shape[0] > self._max_examples:
      raise ValueError(
        f"Expected at most max_examples={self._max_examples} examples, on which"
        f" the proofs rest, received {x.shape[0]}."
      )
    return x, coefficients

  def _require_small(self, index: int) -> None:
    size = self.sizes[index]
    if size > self._limit:
      raise ValueError(
        f"Expected slices of at most max_slice_size={self._limit} parameters,"
        f" received slice {index} of {size}, whose matrix would take"
        f" {8 * size**2 / 2**20:.0f} MiB. Cut it into more slices, use smaller"
        " layers, or raise max_slice_size (8 w^2 bytes, time w^3). A slice"
        " that is proven singular may be of any size: give max_examples if the"
        f" rank bound of {self.rank_bounds[index]} an example proves it."
      )

  def _gram(self, x, coefficients, wanted) -> list[tf.Tensor]:
    return self._compiled(x, coefficients, wanted)

  def _accumulate(self, x, coefficients, wanted):
    for ours, copy in zip(self._source, self._twin.weights):
      copy.assign(tf.cast(ours, copy.dtype))
    matrices = {}
    for group in self.groups(wanted):
      matrices.update(zip(group.slices, self._sum(group, x, coefficients)))
    return [matrices[index] for index in wanted]

  def groups(self, wanted: Sequence[int] | None = None) -> list[Group]:
    """Slices that see the image through the same code, and how to do them.

    Args:
      wanted: numbers of slices; None: of all.
    """
    together = collections.defaultdict(list)
    for index in range(len(self.sizes)) if wanted is None else wanted:
      together[id(self._paths[index])].append(index)
    groups = []
    for members in together.values():
      path = self._paths[members[0]]
      factored = all(
        v.ref() in self._factored for i in members for v in self._slices[i]
      )
      size = sum(self.sizes[i] for i in members)
      if self._takes_windows(path, size):
        groups.append(Group(tuple(members), "windows", path))
      elif factored and path.width <= size:
        groups.append(Group(tuple(members), "columns", path))
      else:
        groups += [Group((i,), "rows", path) for i in members]
    return groups

  def _takes_windows(self, path: paths.Path, size: int) -> bool:
    """Whether a window costs less than the passes, or what was asked for."""
    if self._network is None:
      return False
    if self._by_windows is not None:
      return self._by_windows
    smaller = self._network.window < min(path.width, size)
    return path.prefix is None and smaller

  def _sum(self, group: Group, x, coefficients) -> list[tf.Tensor]:
    """sum_i F_i F_i^T over the examples that any slice of the group wants."""
    coefficients = tf.gather(coefficients, group.slices, axis=1)
    used = tf.reduce_any(coefficients != 0, axis=1)
    order = tf.argsort(tf.cast(used, tf.int32), direction="DESCENDING")
    rows, parts, step = self._chunks(group, x.shape[0])

    def body(index, matrices):
      picked = order[index // parts * rows :][:rows]
      images = tf.ensure_shape(tf.gather(x, picked), [rows, *x.shape[1:]])
      scales = tf.unstack(tf.gather(coefficients, picked), axis=1)
      found = self._form(group, images, index % parts * step, step)
      return index + 1, [
        matrix + _gram_of(factor, scale, group.how)
        for matrix, factor, scale in zip(matrices, found, scales)
      ]

    count = tf.math.count_nonzero(used, dtype=tf.int32)
    end = (count + rows - 1) // rows * parts
    sizes = [self.sizes[index] for index in group.slices]
    _, matrices = tf.while_loop(
      lambda index, _: index < end,
      body,
      (0, [tf.zeros([w, w], tf.float64) for w in sizes]),
      parallel_iterations=1,
    )
    return matrices

  def _chunks(self, group: Group, batch: int) -> tuple[int, int, int]:
    """Examples a step, steps an example, directions (or parameters) a pass.

    With windows, rows of pixels in place of the directions.
    """
    width = sum(self.sizes[index] for index in group.slices)
    if group.how == "windows":
      variables = [v for index in group.slices for v in self._slices[index]]
      rows, strip = windows.chunks(
        self._network, variables, batch, self._max_elements
      )
      return rows, 1, strip
    passes = group.path.width if group.how == "columns" else width
    for layer in group.path.suffix.layers:
      outputs = tf.nest.flatten(layer.output)
      width += sum(int(np.prod(t.shape[1:])) for t in outputs)
    fitting = max(1, self._max_elements // (width * passes))
    rows = max(n for n in range(1, fitting + 1) if batch % n == 0)
    parts = -(-passes * width * rows // self._max_elements)
    parts = min(parts, passes)
    step = -(-passes // parts)
    return rows, parts if group.how == "columns" else 1, step

  def _form(self, group: Group, images, first, step) -> list[tf.Tensor]:
    """F_i of each slice: some columns, or all columns, or all rows."""
    slices = [self._slices[index] for index in group.slices]
    if group.how == "windows":
      variables = [variable for part in slices for variable in part]
      found = windows.columns(self._network, variables, images, step)
      return tf.split(found, [self.sizes[i] for i in group.slices], axis=-1)
    if group.how == "columns":
      return paths.columns(
        group.path, slices, self._factored, images, first, step
      )
    return [paths.rows(group.path, slices[0], self._factored, images, step)]


def _gram_of(factor, scales: tf.Tensor, how: str) -> tf.Tensor:
  """sum_i c_i^2 F_i F_i^T; the parameters are the first axis or the last."""
  scales = scales[:, None, None] if how == "windows" else scales[:, None]
  factor = tf.math.multiply_no_nan(factor, scales)
  if how != "rows":
    flat = tf.reshape(factor, [-1, factor.shape[-1]])
    return tf.matmul(flat, flat, transpose_a=True)
  flat = tf.reshape(factor, [factor.shape[0], -1])
  return tf.matmul(flat, flat, transpose_b=True)


def _require_image_to_image(denoiser: tf.keras.Model) -> None:
  try:
    fits = denoiser.input_shape[1:] == denoiser.output_shape[1:]
    fits = fits and None not in denoiser.input_shape[1:]
    fits = fits and len(denoiser.inputs) == len(denoiser.outputs) == 1
  except (AttributeError, RuntimeError, TypeError):
    fits = False
  if not fits:
    raise ValueError(
      "Expected a functional denoiser (or a sequential one with an Input) from"
      " one image of known size to an image of the same shape, received"
      f" {type(denoiser).__name__} {getattr(denoiser, 'name', '')!r}."
    )
