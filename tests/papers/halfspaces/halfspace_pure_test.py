import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.papers.halfspaces import halfspace_cases as cases
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import randomness
from tf_privrob.methods import outlet as outlet_lib
from tf_privrob.papers.halfspaces import pure as halfspace_pure

BASE = papers.PureHalfspacesConfig(
  dp_epsilon=2.0, margin=0.1, net_size=40, seed=0
)


def _method(dimension=2, classes=2, **changes):
  network = models.linear((dimension,), classes)
  return papers.PureHalfspaces(network, dataclasses.replace(BASE, **changes))


def _binary(count=12, seed=0):
  """The label is the larger coordinate."""
  rng = np.random.default_rng(seed)
  x = rng.random((count, 2)).astype("float32")
  return x, (x[:, 1] > x[:, 0]).astype("int64")


def _net(config, dimension):
  rng = np.random.default_rng(config.net_seed)
  net = rng.normal(size=(config.net_size, dimension))
  return net / np.linalg.norm(net, axis=1, keepdims=True)


def _errors(x, y, net, k, margin):
  signs = np.where(y == k, 1, -1)
  return (signs[:, None] * (cases.unit(x) @ net.T) <= margin).sum(axis=0)


def test_errors_are_those_of_a_plain_count():
  x, y = cases.arrays()
  config = dataclasses.replace(BASE, margin=0.3)
  net = _net(config, cases.DIMENSION)
  one_hot = np.concatenate([np.eye(3)[y], np.ones((len(y), 1))], axis=1)
  one_hot[5] = 0  # padding
  found = halfspace_pure.errors(
    tf.constant(cases.unit(x), tf.float32),
    tf.constant(one_hot, tf.float32),
    tf.constant(net, tf.float32),
    0.3,
  )
  kept = np.arange(len(y)) != 5
  for k in range(3):
    expected = _errors(x[kept], y[kept], net, k, 0.3)
    np.testing.assert_array_equal(found[k], expected)


def test_the_choice_has_the_law_of_the_exponential_mechanism():
  x, y = _binary()
  net = _net(BASE, 2)
  found = _method()
  found.simulate(len(x), outlet=outlet_lib.Simulation(randomness.Key.of(17)))
  batch = (x[None], y[None], np.ones((1, len(x)), "float32"))
  batch = tuple(map(tf.constant, batch))
  step = tf.function(lambda: found.train_step(batch))
  seen = []
  for _ in range(400):
    step()
    chosen = found.network.layers[-1].kernel.numpy()[:, 1]
    seen.append(int((net @ chosen).argmax()))
  errors = _errors(x, y, net, 1, 0.1)

  def pvalue(factor):
    logits = -factor * 2.0 * errors
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    order = np.argsort(-probs)
    top = order[: max(2, int((probs > 0.015).sum()))]
    counts = np.array([seen.count(i) for i in top])
    counts = np.append(counts, 400 - counts.sum())
    expected = np.append(probs[top], 1 - probs[top].sum()) * 400
    return stats.chisquare(counts, expected).pvalue

  assert pvalue(1.0) > 1e-3
  assert pvalue(0.3) < 1e-6


def test_two_classes_share_one_halfspace():
  x, y = _binary(60)
  found = _method(dp_epsilon=5.0)
  found.fit(x, y, verbose=0)
  kernel = found.network.layers[-1].kernel.numpy()
  np.testing.assert_array_equal(kernel[:, 0], -kernel[:, 1])
  assert (found.predict(x, verbose=0).argmax(axis=1) == y).mean() > 0.8
  statement = found.privacy_statement()
  assert statement.proven.dp_epsilon == pytest.approx(5.0)
  assert statement.proven.dp_delta == 0
  assert statement.claimed == statement.proven
  assert statement.releases[0]["count"] == 1


def test_more_classes_divide_the_budget():
  x, y = cases.arrays()
  found = _method(cases.DIMENSION, 3, dp_epsilon=30.0, net_size=None)
  found.fit(x, y, verbose=0)
  assert found.net_size == math.ceil(2 ** (1.2 * cases.DIMENSION))
  statement = found.privacy_statement()
  assert statement.proven.dp_epsilon == pytest.approx(30.0)
  assert statement.releases[0]["count"] == 3
  assert statement.releases[0]["parameters"]["pure_dp_epsilon"] == 10.0
  assert (found.predict(x, verbose=0).argmax(axis=1) == y).mean() > 0.8


def test_the_net_is_large_enough_for_any_direction():
  """Of random directions most have a vector within 0.9."""
  rng = np.random.default_rng(0)
  for dimension in (2, 4, 7):
    size = halfspace_pure.wanted_net_size(dimension)
    config = dataclasses.replace(BASE, net_size=size)
    net = _net(config, dimension)
    wanted = rng.normal(size=(300, dimension))
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    best = (wanted @ net.T).max(axis=1)
    assert (best >= 0.9).mean() > 0.3
    sparse = net[: max(1, size // 16)]
    assert ((wanted @ sparse.T).max(axis=1) >= 0.9).mean() < 0.3


def test_chunks_do_not_change_the_choice():
  x, y = _binary(33)
  kernels = []
  for rows in (None, 4):
    found = _method(physical_batch_size=rows, seed=3)
    found.fit(x, y, verbose=0)
    kernels.append(found.network.layers[-1].kernel.numpy())
  np.testing.assert_array_equal(*kernels)


def test_saved_loaded_and_certified(tmp_path):
  x, y = _binary(30)
  found = _method()
  found.fit(x, y, run_dir=tmp_path / "run", verbose=0)
  found.save(tmp_path / "m.keras")
  loaded = models.load_model(tmp_path / "m.keras")
  np.testing.assert_array_equal(loaded(x), found(x))
  assert loaded.privacy_statement() == found.privacy_statement()
  row = loaded.certifier("linf").certify(loaded, x[:1])[0]
  assert (row.kind, row.norm) == ("proven", "linf")


def test_too_many_dimensions_say_what_they_would_need():
  message = r"d=20 dimensions need 1.678e\+07.*about 13 public dimensions"
  with pytest.raises(ValueError, match=message):
    _method(20, 2, net_size=None).plan(100)
