import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tf_privrob import layers as privrob_layers
from tf_privrob import mechanisms
from tf_privrob import models
from tf_privrob import privacy
from tf_privrob.methods import relevance

_layers = tf.keras.layers


def _linear(weights):
  """One bias-free logit: relevances are x_j w_j, but for the stabiliser."""
  weights = np.asarray(weights, "float32")
  network = tf.keras.Sequential(
    [_layers.Input((len(weights),)), _layers.Dense(1, use_bias=False)]
  )
  network.set_weights([weights[:, None]])
  return network


def _convolutional(bias=True, seed=0):
  init = tf.keras.initializers.GlorotUniform
  start = tf.keras.initializers.RandomUniform(-0.5, 0.5, seed) if bias else None
  return tf.keras.Sequential(
    [
      _layers.Input((6, 6, 2)),
      _layers.Conv2D(
        3,
        3,
        2,
        "same",
        activation="relu",
        kernel_initializer=init(seed),
        use_bias=bias,
        bias_initializer=start,
      ),
      _layers.AveragePooling2D(2, 1),
      _layers.Flatten(),
      _layers.Dense(
        5,
        "tanh",
        kernel_initializer=init(seed + 1),
        use_bias=bias,
        bias_initializer=start,
      ),
      privrob_layers.BoundedActivation(),
      _layers.Dropout(0.5),
      _layers.Dense(
        4,
        kernel_initializer=init(seed + 2),
        use_bias=bias,
        bias_initializer=start,
      ),
    ]
  )


def _images(count=5, shape=(6, 6, 2), seed=0):
  rng = np.random.default_rng(seed)
  return rng.uniform(-1, 1, (count, *shape)).astype("float32")


# The epsilon rule.


def test_two_layers_by_hand():
  network = tf.keras.Sequential(
    [_layers.Input((2,)), _layers.Dense(2, "relu"), _layers.Dense(2)]
  )
  network.set_weights(
    [
      np.array([[1.0, -1.0], [2.0, 1.0]]),
      np.array([0.5, 0.0]),
      np.array([[3.0, 0.0], [1.0, 7.0]]),
      np.array([-1.0, 0.0]),
    ]
  )
  # x = (1, 2): z1 = (1 + 4 + 0.5, -1 + 2) = (5.5, 1), h = z1.
  # logit 0 = 16.5 + 1 - 1 = 16.5. With stabiliser 0.5:
  # R_h = h w / 17 * 16.5 = (16.5, 1) * 16.5 / 17.
  first, second = 16.5 * 16.5 / 17, 16.5 / 17
  # R_x0 = 1 * 1 / 6 R_h0 + 1 * -1 / 1.5 R_h1, R_x1 = 4 / 6 ... + 2 / 1.5 ...
  expected = [first / 6 - second / 1.5, 4 * first / 6 + 2 * second / 1.5]
  propagate = relevance.LayerwiseRelevance(network, stabiliser=0.5)
  found = propagate(np.array([[1.0, 2.0]]), [0])
  np.testing.assert_allclose(found, [expected], rtol=1e-6)
  # Logit 1 is 7: the predicted class is 0.
  np.testing.assert_array_equal(propagate(np.array([[1.0, 2.0]])), found)
  other = propagate(np.array([[1.0, 2.0]]), [1])
  assert not np.allclose(other, found)


def test_negative_and_zero_outputs_keep_away_from_zero():
  network = _linear([1.0, 1.0])
  propagate = relevance.LayerwiseRelevance(network, stabiliser=0.25)
  # z = -1: R = x w / (-1.25) * -1.
  found = propagate(np.array([[-3.0, 2.0]]), [0])
  np.testing.assert_allclose(found, [[-2.4, 1.6]], rtol=1e-6)
  np.testing.assert_array_equal(propagate(np.array([[1.0, -1.0]])), [[0, 0]])


def _naive(network, image, label, stabiliser):
  """The rule with loops over positions and units, in float64."""
  sign = lambda z: stabiliser if z >= 0 else -stabiliser  # noqa: E731
  conv, pool, flatten, dense, _, _, head = network.layers
  states = [image[None]]
  for layer in (conv, pool, flatten, dense):
    states.append(layer(states[-1]).numpy())
  x, after_conv, after_pool, flat, hidden = (s[0].astype(float) for s in states)

  def through_dense(layer, a, r):
    kernel, bias = (w.numpy().astype(float) for w in layer.weights)
    below = np.zeros_like(a)
    for j in range(kernel.shape[1]):
      z = a @ kernel[:, j] + bias[j]
      below += a * kernel[:, j] / (z + sign(z)) * r[j]
    return below

  kernel, bias = (w.numpy().astype(float) for w in head.weights)
  r = np.where(np.arange(4) == label, hidden @ kernel + bias, 0.0)
  r = through_dense(head, hidden, r)
  r = through_dense(dense, flat, r).reshape(after_pool.shape)
  below = np.zeros_like(after_conv)
  for i, j, c in np.ndindex(*r.shape):
    window = after_conv[i : i + 2, j : j + 2, c]
    z = window.mean()
    below[i : i + 2, j : j + 2, c] += window / 4 / (z + sign(z)) * r[i, j, c]
  kernel, bias = (w.numpy().astype(float) for w in conv.weights)
  padded = np.pad(x, ((0, 1), (0, 1), (0, 0)))  # "same", stride 2, 6 -> 3
  total = np.zeros_like(padded)
  for i, j, f in np.ndindex(*below.shape):
    rows, columns = slice(2 * i, 2 * i + 3), slice(2 * j, 2 * j + 3)
    parts = padded[rows, columns] * kernel[..., f]
    z = parts.sum() + bias[f]
    total[rows, columns] += parts / (z + sign(z)) * below[i, j, f]
  return total[:6, :6]


@pytest.mark.parametrize("stabiliser", [1.0, 0.01])
def test_equals_a_naive_loop(stabiliser):
  network, images = _convolutional(), _images()
  labels = np.array([0, 1, 2, 3, 0])
  found = relevance.LayerwiseRelevance(network, stabiliser)(images, labels)
  expected = [_naive(network, *p, stabiliser) for p in zip(images, labels)]
  scale = np.abs(expected).max()
  np.testing.assert_allclose(found / scale, expected / scale, atol=1e-5)


def test_relevance_is_conserved_without_bias():
  network, images = _convolutional(bias=False), _images()
  found = relevance.LayerwiseRelevance(network, 1e-7)(images)
  total = tf.reduce_sum(found, [1, 2, 3])
  np.testing.assert_allclose(
    total, tf.reduce_max(network(images), 1), rtol=1e-3
  )


def test_max_pooling_gives_all_to_the_winner():
  network = tf.keras.Sequential(
    [
      _layers.Input((2, 2, 1)),
      _layers.MaxPooling2D(2),
      _layers.Reshape((1,)),
      _layers.Dense(1, use_bias=False, kernel_initializer="ones"),
    ]
  )
  image = np.array([[[[1.0], [4.0]], [[2.0], [3.0]]]], "float32")
  found = relevance.LayerwiseRelevance(network, 1e-6)(image)
  np.testing.assert_allclose(np.ravel(found), [0, 4, 0, 0], rtol=1e-5)


def test_examples_do_not_mix():
  network, images = _convolutional(), _images()
  propagate = relevance.LayerwiseRelevance(network)
  together = propagate(images)
  for i, image in enumerate(images):
    alone = propagate(image[None])[0]
    np.testing.assert_allclose(alone, together[i], rtol=1e-5, atol=1e-8)


def test_nested_and_functional_chains():
  inner = _convolutional()
  inputs = tf.keras.Input((6, 6, 2))
  hidden = _layers.Activation("tanh")(_layers.ReLU()(inner(inputs)))
  outer = tf.keras.Model(inputs, _layers.Dense(3)(hidden))
  found = relevance.LayerwiseRelevance(outer)(_images())
  assert found.shape == (5, 6, 6, 2)
  assert np.abs(found).max() > 0


def test_the_papers_networks_have_a_relevance():
  for network in (models.dpal_mnist(), models.tutorial_cnn()):
    found = relevance.LayerwiseRelevance(network)(_images(2, (28, 28, 1)))
    assert np.isfinite(found).all()


# Networks without a rule.


def _chain_with(layer, shape=(6,)):
  return tf.keras.Sequential([_layers.Input(shape), layer, _layers.Dense(2)])


@pytest.mark.parametrize(
  ("network", "message"),
  [
    (_chain_with(_layers.BatchNormalization()), "BatchNormalization 'batch_"),
    (_chain_with(_layers.Dense(3, "sigmoid")), "received 'sigmoid' in 'dense"),
    (_chain_with(_layers.Activation("softmax")), "models.as_logits"),
    (
      _chain_with(_layers.Conv2DTranspose(2, 3), (4, 4, 1)),
      "received Conv2DTranspose",
    ),
    (models.dpal_cifar10(), "received Concatenate"),
    (tf.keras.Sequential([_layers.Dense(2)]), "known input shape"),
  ],
)
def test_other_networks_are_refused(network, message):
  with pytest.raises(ValueError, match=message):
    relevance.LayerwiseRelevance(network)


def relu(x):
  """Keras' name, but the whole batch is looked at."""
  return tf.nn.relu(x) / (1e-6 + tf.reduce_max(x))


@pytest.mark.parametrize("kind", ["dense", "activation"])
def test_a_function_is_not_known_by_its_name(kind):
  layer = _layers.Dense(3, relu)
  if kind == "activation":
    layer = _layers.Activation(relu)
  with pytest.raises(ValueError, match=r"Keras' own activations.*'relu' in"):
    relevance.LayerwiseRelevance(_chain_with(layer))


@pytest.mark.parametrize(
  "function", ["linear", "relu", "tanh", None, tf.nn.relu, tf.nn.tanh, tf.tanh]
)
def test_keras_and_tensorflows_own_functions_are_known(function):
  network = _chain_with(_layers.Dense(3, function))
  relevance.LayerwiseRelevance(network)


def test_a_layer_whose_call_was_replaced_is_refused():
  """Its type is Keras' own, and yet it mixes the examples."""
  network = _chain_with(_layers.Flatten())
  network.layers[0].call = lambda x: x - tf.reduce_mean(x, axis=0)
  with pytest.raises(ValueError, match=r"example alone.*call was replaced"):
    relevance.LayerwiseRelevance(network)


def test_a_shared_layer_is_refused():
  inputs, shared = tf.keras.Input((3,)), _layers.Dense(3, "tanh")
  network = tf.keras.Model(inputs, shared(shared(inputs)))
  with pytest.raises(ValueError, match="a layer is shared"):
    relevance.LayerwiseRelevance(network)


def test_bad_arguments():
  network = _linear([1.0, 2.0])
  with pytest.raises(ValueError, match=r"stabiliser=0\.0 > 0"):
    relevance.LayerwiseRelevance(network, 0.0)
  with pytest.raises(ValueError, match="Did you mean 'each'"):
    relevance.mean_relevance(network, np.ones((2, 2)), absolute="eech")
  with pytest.raises(ValueError, match="at least one example"):
    relevance.mean_relevance(network, np.ones((0, 2)))
  with pytest.raises(ValueError, match="Unknown form='mnits'"):
    relevance.normalise(np.ones(3), "mnits")
  with pytest.raises(ValueError, match="finite relevances"):
    relevance.normalise(np.array([1.0, np.nan]))
  with pytest.raises(ValueError, match="a GaussianMechanism, received str"):
    relevance.private_relevance(network, np.ones((2, 2)), None, "x", 0)


# Maps.


@pytest.mark.parametrize(
  ("absolute", "expected"),
  [("none", [1.0, -1.0]), ("mean", [1.0, 1.0]), ("each", [2.0, 1.0])],
)
def test_mean_relevance_by_hand(absolute, expected):
  x = np.array([[3.0, -1.0], [-1.0, -1.0]], "float32")
  found = relevance.mean_relevance(
    _linear([1.0, 1.0]), x, None, 1e-6, absolute, batch_size=1
  )
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_batches_do_not_change_the_mean():
  network, images = _convolutional(), _images(7)
  whole = relevance.mean_relevance(network, images, batch_size=7)
  parts = relevance.mean_relevance(network, images, batch_size=3)
  np.testing.assert_allclose(whole, parts, atol=1e-7)


@pytest.mark.parametrize(
  ("form", "expected"),
  [
    ("linear", [0, 0.5, 0.75, 1]),
    ("mnist", [0, 0.0625, 0.31640625, 1]),
    ("cifar10", [0.3, 0.8, 1, 1]),
  ],
)
def test_normalisations_by_hand(form, expected):
  found = relevance.normalise(np.array([-1.0, 1.0, 2.0, 3.0]), form)
  np.testing.assert_allclose(found, expected)
  np.testing.assert_array_equal(relevance.normalise(np.zeros(2), form), [1, 1])


def test_budget_factors_by_hand():
  found = relevance.budget_factors(np.array([[1.5, 0.5], [-5.0, 0.0]]))
  total = 2 + 2e-5
  np.testing.assert_allclose(
    found, [[6 / total, 2 / total], [4e-5 / total, 4e-5 / total]]
  )
  assert found.mean() == pytest.approx(1)
  lone = relevance.budget_factors(np.r_[1e6, np.zeros(9)])
  assert lone.min() == 1e-5  # 10 * 1e-5 / 1e6 is floored


# The noise of the paper.


def test_the_papers_scale_is_golden():
  assert relevance.paper_noise_scale(784, 60000, 0.075) == pytest.approx(
    0.3484444, rel=1e-6
  )


@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
def test_paper_noise_has_the_papers_law(factor, accepted):
  weights = np.linspace(-1, 1, 2000)
  network, x = _linear(weights), np.ones((2, 2000), "float32")
  clean = relevance.normalise(relevance.mean_relevance(network, x))
  noisy = relevance.paper_relevance(network, x, None, 50_000, 0.5, seed=3)
  scale = factor * 2 * 2000 / (0.5 * 50_000)
  p_value = stats.kstest((noisy - clean) / scale, "laplace").pvalue
  assert (p_value > 1e-3) == accepted


def _privacy_loss(first, second, scale):
  """The largest log-likelihood ratio of two maps under Laplace noise."""
  return np.abs(first - second).sum() / scale


def test_paper_noise_does_not_cover_an_average_of_2000():
  """|R| <= 1, one of 2,000 replaced: 30 times the claimed 0.075."""
  features, dp_epsilon = 16, 0.075
  network = _linear(np.ones(features))
  x = np.random.default_rng(0).choice([-1.0, 1.0], (2000, features))
  x[0], other = 1.0, x.copy()
  other[0] = -1.0
  maps = [
    relevance.mean_relevance(network, a, stabiliser=1e-6) for a in (x, other)
  ]
  scale = relevance.paper_noise_scale(features, 60_000, dp_epsilon)
  loss = _privacy_loss(*maps, scale)
  assert loss == pytest.approx(30 * dp_epsilon, rel=1e-3)
  # With D = 2,000 in the scale, the claim would hold for this query.
  honest = relevance.paper_noise_scale(features, 2000, dp_epsilon)
  assert _privacy_loss(*maps, honest) <= dp_epsilon * (1 + 1e-3)


def test_paper_noise_does_not_cover_min_max_scaling():
  """One example decides where the map is 0 and 1, whatever D is."""
  features, count, dp_epsilon = 16, 2000, 0.075
  network = _linear(np.ones(features))
  x = np.full((count, features), 0.5)
  halves = np.repeat([1.0, 0.0], features // 2)
  maps = []
  for one in (halves, 1 - halves):
    x[0] = one
    mean = relevance.mean_relevance(network, x, stabiliser=1e-6)
    maps.append(relevance.normalise(mean, "mnist"))
  assert np.abs(maps[0] - maps[1]).sum() == pytest.approx(features, rel=1e-2)
  scale = relevance.paper_noise_scale(features, count, dp_epsilon)
  loss = _privacy_loss(*maps, scale)
  assert loss > 900 * dp_epsilon  # D / 2 = 1,000 times the claim


# The form whose guarantee holds.

_MECHANISMS = [
  mechanisms.LaplaceMechanism(0.2, 0.5),
  mechanisms.GaussianMechanism(0.2, 0.9),
]


def _raw_sum(network, x, y, mechanism, monkeypatch):
  """n times the map before noise, through the library's own path."""
  with monkeypatch.context() as patch:
    patch.setattr(
      type(mechanism), "add_noise", lambda self, values, seed: values
    )
    return len(x) * relevance.private_relevance(network, x, y, mechanism, 0)


@pytest.mark.parametrize("mechanism", _MECHANISMS, ids=["laplace", "gaussian"])
def test_removing_one_example_moves_the_sum_by_at_most_the_sensitivity(
  mechanism, monkeypatch
):
  network, x = _convolutional(), _images(6)
  x[0] *= 1000  # clipped
  x[1] *= 1e-4  # not clipped
  y = np.arange(6) % 4
  whole = _raw_sum(network, x, y, mechanism, monkeypatch)
  order = 2 if isinstance(mechanism, mechanisms.GaussianMechanism) else 1
  moves = []
  for i in range(6):
    keep = np.arange(6) != i
    part = _raw_sum(network, x[keep], y[keep], mechanism, monkeypatch)
    moves.append(np.linalg.norm((whole - part).ravel(), ord=order))
  assert moves[0] == pytest.approx(0.2, rel=1e-6)
  assert max(moves) <= 0.2 * (1 + 1e-6)
  assert moves[1] < 0.19


def test_without_clipping_an_example_could_move_it_further():
  network, x = _convolutional(), _images(6)
  mean = relevance.mean_relevance(network, 1000 * x[:1], absolute="each")
  assert mean.sum() > 0.2


@pytest.mark.parametrize("mechanism", _MECHANISMS, ids=["laplace", "gaussian"])
@pytest.mark.parametrize(
  ("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)]
)
def test_private_noise_has_the_law_that_is_accounted(
  mechanism, factor, accepted
):
  weights = np.full(4000, 1000.0, "float32")
  network, x = _linear(weights), np.ones((8, 4000), "float32")
  order = 2 if isinstance(mechanism, mechanisms.GaussianMechanism) else 1
  signal = 8 * 0.2 / 4000 ** (1 / order)  # every row has norm 0.2
  noisy = 8 * relevance.private_relevance(network, x, None, mechanism, seed=5)
  shown = noisy[noisy > 0]  # negative sums are cut off, as post-processing
  law = stats.norm if order == 2 else stats.laplace
  frozen = law(signal, factor * mechanism.scale)
  below = frozen.cdf(0)
  p_value = stats.kstest(
    shown, lambda v: (frozen.cdf(v) - below) / (1 - below)
  ).pvalue
  assert (p_value > 1e-3) == accepted
  assert abs((noisy > 0).mean() - (1 - law(signal, mechanism.scale).cdf(0))) < (
    4 / math.sqrt(4000)
  )


def test_private_map_approaches_the_mean_of_normalised_maps():
  network, x = _convolutional(), _images(6)
  weak = mechanisms.GaussianMechanism(1e-6, 1e-12)
  found = relevance.private_relevance(network, x, None, weak, 0)
  each = np.abs(relevance.LayerwiseRelevance(network)(x).numpy())
  norms = np.sqrt((each**2).sum((1, 2, 3), keepdims=True))
  np.testing.assert_allclose(
    found, (1e-6 * each / norms).mean(0), rtol=1e-3, atol=1e-11
  )


def test_a_broken_example_cannot_spoil_the_sum():
  values = np.array([[3.0, 4.0], [np.inf, 1.0], [np.nan, 0.0], [0.3, 0.4]])
  found = relevance.clip(values, 1.0, 2)
  np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [0, 0], [0.3, 0.4]])
  np.testing.assert_allclose(
    relevance.clip(values[:1], 1.0, 1), [[3 / 7, 4 / 7]]
  )


def test_same_seed_same_map():
  network, x = _convolutional(), _images(3)
  first, second, other = (
    relevance.private_relevance(network, x, None, _MECHANISMS[0], seed)
    for seed in (1, 1, 2)
  )
  np.testing.assert_array_equal(first, second)
  assert np.any(first != other)


@pytest.mark.parametrize(
  ("mechanism", "expected"),
  [
    (_MECHANISMS[0], 0.5 + 2 * math.log1p(-1e-5)),
    (_MECHANISMS[1], mechanisms.gaussian_dp_epsilon(4.5, 1e-5)),
  ],
  ids=["laplace", "gaussian"],
)
def test_the_release_costs_what_the_mechanism_costs(mechanism, expected):
  found = privacy.dp_epsilon(relevance.release(mechanism), 1e-5)
  assert found == pytest.approx(expected, rel=2e-3)
