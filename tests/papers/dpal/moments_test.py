import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import mechanisms
from tf_privrob import papers

_RANGE = (-1.0, 2.0)


def _query(
  mechanism="gaussian",
  clip=1e6,
  kernel_size=(3, 2),
  strides=(2, 1),
  value_range=_RANGE,
  dp_epsilon=1.0,
  dp_delta=1e-5,
):
  return papers.PatchMoments(
    kernel_size, strides, value_range, clip, mechanism, dp_epsilon, dp_delta
  )


def _images(count=5, shape=(7, 6, 2), seed=0, value_range=_RANGE):
  rng = np.random.default_rng(seed)
  return rng.uniform(*value_range, (count, *shape)).astype("float32")


def _patches(image, kernel_size, strides):
  """All patches of one image, one after the other."""
  height, width = kernel_size
  rows = range(0, image.shape[0] - height + 1, strides[0])
  columns = range(0, image.shape[1] - width + 1, strides[1])
  return [
    image[i : i + height, j : j + width].ravel() for i in rows for j in columns
  ]


def _naive_moments(image, kernel_size=(3, 2), strides=(2, 1)):
  """Mean of u u^T, by a loop, in float64."""
  image = (image.astype(np.float64) - _RANGE[0]) / (_RANGE[1] - _RANGE[0])
  patches = [image.ravel()]
  if kernel_size is not None:
    patches = _patches(image, kernel_size, strides)
  total = 0.0
  for patch in patches:
    u = np.append(patch, 1.0)
    total = total + np.outer(u, u)
  return total / len(patches)


def _naive_vector(matrix, mechanism):
  root = math.sqrt(2) if mechanism == "gaussian" else 1.0
  size = len(matrix)
  return np.array(
    [
      matrix[i, j] * (1.0 if i == j else root)
      for i in range(size)
      for j in range(i, size)
    ]
  )


# What is summed.


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("kernel_size", [(3, 2), None])
def test_one_image_of_any_kind_adds_at_most_the_clip(mechanism, kernel_size):
  """Also not finite ones, which leave the others' parts alone."""
  images = np.concatenate([_images(2), np.zeros((7, 7, 6, 2), "float32")])
  query = _query(mechanism, 0.7, kernel_size)
  alone = query.parts(images).numpy()
  kinds = (np.nan, np.inf, 1e30, 1e19, 1e-19, 1e-40, 1.0)
  for row, kind in enumerate(kinds, start=2):
    images[row] = kind
  found = query.parts(images).numpy()
  np.testing.assert_array_equal(found[:2], alone[:2])
  assert not found[2:5].any()
  assert (_norm(found, mechanism) <= 0.7).all()
  assert (_norm(found, mechanism)[5:] > 0.69).all()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_long_vectors_are_clipped_exactly(mechanism):
  """300,000 squares: a float32 norm of them is not good to 1e-6."""
  images = np.full((1, 28, 28, 1), 0.3, "float32")
  query = _query(mechanism, 1.0, None, value_range=(0.0, 1.0))
  norm = _norm(query.parts(images), mechanism)[0]
  assert 1 - 1e-8 < norm <= 1


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("kernel_size", [(3, 2), (1, 1), (7, 6), None])
def test_parts_are_the_moments_of_a_naive_loop(mechanism, kernel_size):
  images = _images()
  found = _query(mechanism, kernel_size=kernel_size).parts(images).numpy()
  for part, image in zip(found, images):
    matrix = _naive_moments(image, kernel_size)
    np.testing.assert_allclose(
      part, _naive_vector(matrix, mechanism), rtol=1e-5, atol=1e-6
    )


def test_vector_has_the_norm_of_the_matrix():
  images = _images()
  parts = _query().parts(images).numpy()
  expected = [np.linalg.norm(_naive_moments(image)) for image in images]
  np.testing.assert_allclose(np.linalg.norm(parts, axis=1), expected, rtol=1e-5)


def test_inputs_without_positions_are_one_patch():
  x = _images(shape=(4,))
  found = _query(kernel_size=None).parts(x).numpy()
  expected = [_naive_vector(_naive_moments(r, None), "gaussian") for r in x]
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# Sensitivity.


def _adversarial():
  """Images that press on the bound: constant, corners, one hot, in between."""
  low, high = _RANGE
  rng = np.random.default_rng(3)
  corners = np.where(rng.random((4, 7, 6, 2)) < 0.5, low, high)
  single = np.full((1, 7, 6, 2), low)
  single[0, 3, 3, 0] = high
  constant = [np.full((7, 6, 2), c) for c in (low, high, 0.37)]
  return np.concatenate([corners, single, constant]).astype("float32")


def _norm(vectors, mechanism):
  order = 2 if mechanism == "gaussian" else 1
  return np.linalg.norm(np.asarray(vectors, np.float64), ord=order, axis=-1)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("clip", [0.3, 1.0, 4.0, 40.0])
def test_one_image_moves_the_release_by_no_more_than_the_clip(mechanism, clip):
  """Add or remove one, for random images and for those that press hardest.

  Under one seed the noise cancels: what is left is that image's part.
  """
  query = _query(mechanism, clip)
  crowd = _images(6)
  base = query.release(crowd, seed=1)
  moves = []
  for image in np.concatenate([_images(3, seed=1), _adversarial()]):
    change = query.release(np.concatenate([crowd, image[None]]), 1) - base
    upper = change[np.triu_indices(len(change))]
    l1, l2 = np.abs(upper).sum(), np.linalg.norm(change)
    moves.append(l2 if mechanism == "gaussian" else l1)
  assert max(moves) <= clip
  largest = _norm(_query(mechanism).parts(_adversarial()), mechanism).max()
  assert max(moves) == pytest.approx(min(clip, largest), rel=1e-5)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_clipping_keeps_the_direction(mechanism):
  images = _images()
  full = _query(mechanism).parts(images).numpy()
  clipped = _query(mechanism, 0.7).parts(images).numpy()
  ratio = clipped / full
  np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones_like(ratio), 1e-5)


def test_clip_in_the_wrong_norm_is_seen():
  """The l2 clip does not bound the l1 change that Laplace noise needs."""
  parts = _query("gaussian", 1.0).parts(_adversarial())
  assert _norm(parts, "laplace").max() > 5


@pytest.mark.parametrize(
  ("norm", "golden"), [("l1", 367_500.0), ("l2", 14_700.0)]
)
def test_sensitivity_of_the_objective_is_golden(norm, golden):
  """Facts 6.i: 5 x 5 patches, 196 positions, |x| <= 1, replace-one."""
  assert papers.objective_sensitivity(25, 196, norm) == golden


def test_sensitivity_of_the_objective_is_reached_in_order():
  """M = p (1/2 - p)^T at p = -1 is as large as the bound says."""
  p = -np.ones(25)
  matrix = 196 * np.outer(p, 0.5 - p)
  bounds = [papers.objective_sensitivity(25, 196, n) for n in ("l1", "l2")]
  assert 2 * np.abs(matrix).sum() == pytest.approx(bounds[0])
  assert 2 * np.linalg.norm(matrix) == pytest.approx(bounds[1])


# The release.


def test_release_is_symmetric_and_unbiased_with_little_noise():
  images = _images(40)
  expected = sum(_naive_moments(image) for image in images)
  for mechanism in ("gaussian", "laplace"):
    query = _query(mechanism, clip=80.0, dp_epsilon=1e12)
    found = query.release(images, seed=1)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found[-1, -1] == pytest.approx(40, rel=1e-4)


def test_sum_over_chunks_loses_no_image():
  x = _images(4100, (2,))  # more than two chunks of 2,000
  query = _query(kernel_size=None, clip=50.0, dp_epsilon=1e9)
  found = query.release(x, seed=1)
  u = np.c_[(x.astype(np.float64) + 1) / 3, np.ones(4100)]
  np.testing.assert_allclose(found, u.T @ u, rtol=1e-4)


def _noise_entries(mechanism):
  """Noise of a release of 150 features, and which are on the diagonal."""
  query = _query(mechanism, 3.0, None, dp_epsilon=0.7)
  x = np.zeros((1, 150), "float32")
  quiet = query.parts(x).numpy()[0].astype(np.float64)
  found = query.release(x, seed=11)
  rows, columns = np.triu_indices(151)
  expected = np.zeros((151, 151))
  root = np.where(rows == columns, 1.0, math.sqrt(2))
  expected[rows, columns] = quiet / (root if mechanism == "gaussian" else 1)
  noise = found[rows, columns] - expected[rows, columns]
  return noise, rows == columns


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_has_the_law_that_is_accounted(mechanism, factor, accepted):
  """Laplace: clip / dp_epsilon everywhere. Gaussian: analytic, on the vector:

  an off-diagonal entry of the matrix has 1/sqrt(2) of it.
  """
  noise, diagonal = _noise_entries(mechanism)
  if mechanism == "laplace":
    law = stats.laplace(scale=factor * 3.0 / 0.7)
    assert (stats.kstest(noise, law.cdf).pvalue > 1e-3) == accepted
    return
  stddev = mechanisms.GaussianMechanism.analytic(3.0, 0.7, 1e-5).stddev
  scaled = np.where(diagonal, noise, math.sqrt(2) * noise) / (factor * stddev)
  for part in (scaled, scaled[~diagonal]):
    assert (stats.kstest(part, "norm").pvalue > 1e-3) == accepted
  # Few entries are on the diagonal: their deviation is compared.
  spread = scaled[diagonal].std()
  assert (abs(spread - 1) < 0.2) == accepted


def test_multiplier_that_is_accounted_is_noise_over_clip():
  gaussian, laplace = (
    _query(kind, 3.0, dp_epsilon=0.7).noise for kind in ("gaussian", "laplace")
  )
  assert laplace.noise_multiplier == pytest.approx(1 / 0.7)
  exact = mechanisms.GaussianMechanism.analytic(1.0, 0.7, 1e-5).stddev
  assert gaussian.noise_multiplier == pytest.approx(exact)
  assert gaussian.dp_epsilon_at(1e-5) == pytest.approx(0.7, rel=1e-3)


def test_seed_decides():
  images = _images()
  query = _query(clip=2.0)
  first = query.release(images, seed=3)
  np.testing.assert_array_equal(first, query.release(images, seed=3))
  assert (first != query.release(images, seed=4)).all()


@pytest.mark.parametrize(
  ("images", "message"),
  [
    (np.full((3, 7, 6, 2), np.nan, "float32"), "NaN"),
    (3 * _images(), r"images in \[-1.0, 2.0\]"),
    (_images()[:0], "at least one"),
    (_images(shape=(2, 6, 2)), r"images of at least 3 x 2 .* \(2, 6, 2\)"),
    (_images(shape=(6,)), r"images of at least 3 x 2 .* \(6,\)"),
  ],
)
def test_bad_images_are_refused(images, message):
  with pytest.raises(ValueError, match=message):
    _query().release(images, seed=0)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ((0, 196, "l1"), "patch=0"),
    ((25, 0, "l1"), "positions=0"),
    ((25, 196, "linf"), "Known: l1, l2"),
  ],
)
def test_bad_objective_is_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    papers.objective_sensitivity(*arguments)


# Filters.


def _correlated(count=4000, dim=6, seed=0):
  """Points with known principal directions and variances 1, 1/2, 1/4, ..."""
  rng = np.random.default_rng(seed)
  axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
  scale = 0.2 * np.sqrt(0.5 ** np.arange(dim))
  points = 0.3 + (rng.normal(size=(count, dim)) * scale) @ axes.T
  return points.clip(*_RANGE).astype("float32")


def _exact_moments(points):
  u = (np.float64(points) - _RANGE[0]) / (_RANGE[1] - _RANGE[0])
  u = np.c_[u, np.ones(len(u))]
  return u.T @ u


def _directions(filters, count):
  return filters.kernel[:, :count] / np.linalg.norm(
    filters.kernel[:, :count], axis=0
  )


def _subspace(vectors):
  return np.linalg.qr(vectors)[0]


def _overlap(a, b):
  """Mean squared cosine of the principal angles: 1 for the same space."""
  cosines = np.linalg.svd(_subspace(a).T @ _subspace(b), compute_uv=False)
  return float(np.mean(cosines**2))


def test_principal_directions_and_variances_are_recovered():
  points = _correlated()
  values, axes = np.linalg.eigh(np.cov(points.T, bias=True))
  values, axes = values[::-1], axes[:, ::-1]
  filters = papers.filters_from_moments(_exact_moments(points), 12, _RANGE)
  cosines = np.abs(np.sum(_directions(filters, 6) * axes, axis=0))
  np.testing.assert_allclose(cosines, 1, atol=1e-6)
  np.testing.assert_allclose(filters.spectrum, values, rtol=1e-4, atol=1e-8)


def test_outputs_are_centred_and_scaled():
  """Deviation 0.5 sqrt(s / (s + floor s_max)) along a direction of variance s.

  The strongest one is thus a little below 0.5.
  """
  points = _correlated()
  filters = papers.filters_from_moments(
    _exact_moments(points), 12, _RANGE, whitening_floor=0.2
  )
  out = points @ filters.kernel + filters.bias
  np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-4)
  s = filters.spectrum
  expected = 0.5 * np.sqrt(s / (s + 0.2 * s[0]))
  np.testing.assert_allclose(out[:, :6].std(axis=0), expected, rtol=1e-3)


@pytest.mark.parametrize("objective", ["pca", "taylor"])
def test_mean_patch_maps_to_zero(objective):
  points = _correlated()
  filters = papers.filters_from_moments(
    _exact_moments(points), 20, _RANGE, objective
  )
  mean = points.astype(np.float64).mean(axis=0)
  np.testing.assert_allclose(mean @ filters.kernel + filters.bias, 0, atol=1e-6)


@pytest.mark.parametrize("num_filters", [1, 2, 5, 12])
def test_filters_come_in_pairs_of_opposite_sign(num_filters):
  moments = _exact_moments(_correlated())
  filters = papers.filters_from_moments(moments, num_filters, _RANGE)
  half = math.ceil(num_filters / 2)
  assert filters.kernel.shape == (6, num_filters)
  assert filters.bias.shape == (num_filters,)
  left = filters.kernel[:, :half]
  np.testing.assert_array_equal(
    filters.kernel[:, half:], -left[:, : num_filters - half]
  )


@pytest.mark.parametrize("num_filters", [1, 4, 6])
def test_without_pairs_every_filter_is_another_direction(num_filters):
  """For layers whose activation keeps the sign."""
  moments = _exact_moments(_correlated())
  single = papers.filters_from_moments(
    moments, num_filters, _RANGE, paired=False
  )
  pairs = papers.filters_from_moments(moments, 12, _RANGE)
  np.testing.assert_array_equal(single.kernel, pairs.kernel[:, :num_filters])


def test_more_filters_than_directions_are_mixtures():
  moments = _exact_moments(_correlated())
  most = papers.filters_from_moments(moments, 12, _RANGE)
  filters = papers.filters_from_moments(moments, 40, _RANGE, seed=1)
  np.testing.assert_array_equal(filters.kernel[:, :12], most.kernel)
  extra = filters.kernel[:, 12:]
  assert extra.shape == (6, 28)
  assert len(np.unique(extra.round(9), axis=1).T) == 28
  # Each is a unit combination of the six scaled directions.
  mixing = np.linalg.solve(most.kernel[:, :6], extra)
  np.testing.assert_allclose(np.linalg.norm(mixing, axis=0), 1, rtol=1e-6)
  other = papers.filters_from_moments(moments, 40, _RANGE, seed=2)
  assert (other.kernel[:, 12:] != extra).all()


def _taylor_objective(theta, patches):
  """DPAL's Eq. 7 without noise, patch by patch: (1/2 - p) . theta theta^T p."""
  return sum((0.5 - p) @ theta @ theta.T @ p for p in np.float64(patches))


@pytest.mark.parametrize("half", [1, 2, 3])
def test_taylor_filters_minimise_the_papers_objective(half):
  """Over orthonormal theta: below every random one, and every small move."""
  points = _correlated(300)
  filters = papers.filters_from_moments(
    _exact_moments(points), 2 * half, _RANGE, "taylor"
  )
  theta = _directions(filters, half)
  np.testing.assert_allclose(theta.T @ theta, np.eye(half), atol=1e-8)
  best = _taylor_objective(theta, points)
  rng = np.random.default_rng(1)
  for size in (10.0, 0.3, 0.05):
    for _ in range(8):
      moved = _subspace(theta + size * rng.normal(size=theta.shape))
      assert _taylor_objective(moved, points) > best
  principal = _directions(
    papers.filters_from_moments(_exact_moments(points), 2 * half, _RANGE),
    half,
  )
  assert _taylor_objective(principal, points) > best


def test_taylor_minimum_is_the_sum_of_eigenvalues():
  """By hand: M = sum p (1/2 - p)^T formed from the patches themselves."""
  points = _correlated(500)
  matrix = sum(np.outer(p, 0.5 - p) for p in np.float64(points))
  lowest = np.linalg.eigvalsh((matrix + matrix.T) / 2)[:3].sum()
  filters = papers.filters_from_moments(
    _exact_moments(points), 6, _RANGE, "taylor"
  )
  found = _taylor_objective(_directions(filters, 3), points)
  assert found == pytest.approx(lowest, rel=1e-6)


def test_images_to_filters_through_the_release():
  """The whole way, with hardly any noise, against the patches themselves."""
  images = _images(60, (9, 9, 1))
  images = tf.nn.avg_pool2d(images, 3, 1, "SAME").numpy()
  query = _query(clip=9.0, kernel_size=(3, 3), strides=(1, 1), dp_epsilon=1e12)
  patches = np.concatenate(
    [_patches(image, (3, 3), (1, 1)) for image in images]
  )
  filters = papers.filters_from_moments(
    query.release(images, seed=0), 6, _RANGE
  )
  axes = np.linalg.eigh(np.cov(patches.T))[1][:, ::-1]
  assert _overlap(filters.kernel[:, :3], axes[:, :3]) > 0.9999
  layer = tf.keras.layers.Conv2D(6, 3)
  layer.build((None, 9, 9, 1))
  layer.kernel.assign(filters.kernel.reshape(3, 3, 1, 6))
  layer.bias.assign(filters.bias)
  np.testing.assert_allclose(
    np.reshape(layer(images), [-1, 6]),
    patches @ filters.kernel + filters.bias,
    atol=1e-4,
  )


def test_filters_are_a_function_of_the_matrix_alone():
  """Post-processing: equal matrices give equal filters, whoever made them."""
  moments = _query(kernel_size=None, clip=2.0).release(_correlated(), seed=5)
  first = papers.filters_from_moments(moments, 15, _RANGE, seed=1)
  np.random.seed(12345)
  again = papers.filters_from_moments(moments.copy(), 15, _RANGE, seed=1)
  for a, b in zip(vars(first).values(), vars(again).values()):
    np.testing.assert_array_equal(a, b)


def test_hopeless_noise_still_gives_finite_filters():
  query = _query(kernel_size=None, clip=2.0, dp_epsilon=1e-4)
  for objective in ("pca", "taylor"):
    filters = papers.filters_from_moments(
      query.release(_correlated(10), seed=2), 16, _RANGE, objective
    )
    assert np.isfinite(filters.kernel).all()
    assert np.isfinite(filters.bias).all()
    assert (filters.spectrum >= 0).all()


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"num_filters": 0}, "num_filters=0"),
    ({"objective": "taylr"}, "Did you mean 'taylor'"),
    ({"whitening_floor": 0.0}, "whitening_floor=0.0 > 0"),
    ({"output_stddev": -1.0}, "output_stddev=-1.0 > 0"),
    ({"value_range": (1.0, 1.0)}, "increasing"),
    ({"moments": np.zeros((3, 4))}, r"square matrix .* \(3, 4\)"),
    ({"moments": np.full((3, 3), np.nan)}, "finite"),
  ],
)
def test_bad_filters_are_refused(changes, message):
  arguments = {
    "moments": np.eye(3),
    "num_filters": 4,
    "value_range": _RANGE,
    **changes,
  }
  with pytest.raises(ValueError, match=message):
    papers.filters_from_moments(**arguments)


# Real data.


@pytest.mark.slow
@pytest.mark.parametrize(
  ("mechanism", "clip", "half", "least"),
  [
    pytest.param("gaussian", 3.0, 8, 0.97, marks=pytest.mark.slow),
    ("laplace", 30.0, 4, 0.93),
  ],
)
def test_mnist_filters_survive_the_noise(
  real_data, mechanism, clip, half, least
):
  """Moments of 60,000 images at dp_epsilon = 0.1 lose hardly anything."""
  images = real_data("mnist").rescaled((-1.0, 1.0)).x_train

  def directions(dp_epsilon, count):
    query = papers.PatchMoments(
      (5, 5), (4, 4), (-1.0, 1.0), clip, mechanism, dp_epsilon, 1e-5
    )
    moments = query.release(images[:count], seed=9)
    filters = papers.filters_from_moments(moments, 2 * half, (-1.0, 1.0))
    return filters.kernel[:, :half]

  exact = directions(1e9, 60_000)
  assert _overlap(directions(0.1, 60_000), exact) > least
  # Not because any noise would do: with 600 images they are lost in it.
  assert _overlap(directions(0.1, 600), exact) < 0.8
