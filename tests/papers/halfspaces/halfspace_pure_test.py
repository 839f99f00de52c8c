import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from experiments.halfspaces import instances
from tests import marking
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
  size = halfspace_pure.wanted_net_size(cases.DIMENSION, 0.95, 0.99)
  assert found.net_size == size == 8811
  statement = found.privacy_statement()
  assert statement.proven.dp_epsilon == pytest.approx(30.0)
  assert statement.releases[0]["count"] == 3
  assert statement.releases[0]["parameters"]["pure_dp_epsilon"] == 10.0
  assert (found.predict(x, verbose=0).argmax(axis=1) == y).mean() > 0.8


# The net.


def test_shares_of_the_sphere_by_hand():
  """An arc, Archimedes' hat-box, a half-line, and half of any sphere."""
  assert halfspace_pure.cap_share(2, 0.5) == pytest.approx(1 / 3)
  assert halfspace_pure.cap_share(3, 0.9) == pytest.approx(0.05)
  assert halfspace_pure.cap_share(1, 0.9) == 0.5
  assert halfspace_pure.cap_share(9, 0.0) == pytest.approx(0.5)


@pytest.mark.parametrize("dimension", range(3, 14))
def test_a_net_is_as_large_as_its_success_asks_for(dimension):
  """Of 4 million random vectors as many are in the cap as the formula says."""
  rng, count, cosine = np.random.default_rng(dimension), 4_000_000, 0.8
  first = rng.standard_normal(count)
  across = rng.chisquare(dimension - 1, count)
  hits = (first >= cosine * np.sqrt(first**2 + across)).sum()
  share = halfspace_pure.cap_share(dimension, cosine)
  assert abs(hits - count * share) < 4 * math.sqrt(count * share)
  size = halfspace_pure.wanted_net_size(dimension, cosine, 0.9)
  chance = [1 - (1 - share) ** n for n in (size - 1, size)]
  assert chance[0] < 0.9 <= chance[1]


@pytest.mark.parametrize("dimension", marking.slow_but([5], [3, 5]))
def test_drawn_nets_have_a_vector_near_a_direction_as_often_as_stated(
  dimension,
):
  """40 nets for one direction; of a sixteenth of each net many have none."""
  found, direction = [], np.eye(1, dimension)[0]
  for seed in range(40):
    model = _method(dimension, 2, net_size=None, net_cosine=0.9, net_seed=seed)
    model.simulate(10)
    near = model.net.numpy() @ direction >= 0.9 - 1e-6
    found.append([near.any(), near[: len(near) // 16].any()])
  whole, part = np.mean(found, axis=0)
  assert whole >= 0.95  # 0.99 was asked for
  assert part < 0.6


@pytest.mark.slow
def test_on_the_packing_the_default_net_has_a_robust_halfspace():
  """Theorem 2's points at d = 5: robust at 0.9 gamma in 5 of 5 runs."""
  gamma, robust = 0.25, 0
  for seed in range(5):
    instance = instances.Packing(5, gamma)
    x, labels = instance.draw(500, seed)
    found = papers.PureHalfspaces(
      models.linear((5,), 2),
      papers.PureHalfspacesConfig(
        margin=0.95 * gamma, normalize=False, net_seed=seed, seed=seed
      ),
    )
    y = (labels > 0).astype("int64")
    found.fit(x, y, value_range=(-1.0, 1.0), verbose=0)
    weights = found.network.layers[-1].kernel.numpy()[:, 1]
    risk = instances.robust_risk(weights, x, labels, 0.9 * gamma)
    robust += risk == 0
  assert robust == 5


def test_a_projection_is_public_and_comes_out_as_one_halfspace():
  """<R v, x> = <v, R^T x>: what was learnt behind R is what is published."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(200, 40)).astype("float32")
  y = (x[:, 0] > 0).astype("int64")
  changes = {"projected_dimensions": 5, "net_size": 300, "margin": 0.01}
  found = _method(40, 2, dp_epsilon=50.0, **changes)
  found.fit(x, y, value_range=(-9.0, 9.0), verbose=0)
  weights = found.network.layers[-1].kernel.numpy()[:, 1].astype("float64")
  scores = x @ weights
  z, net = found.features(x).numpy(), found.net.numpy()
  assert z.shape == (200, 5)
  np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, atol=1e-5)
  agree = (np.sign(z @ net.T) == np.sign(scores)[:, None]).mean(axis=0)
  assert agree.max() == 1.0
  assert np.sort(agree)[-2] < 1.0
  errors = ((2 * y - 1)[:, None] * (z @ net.T) <= 0.01).sum(axis=0)
  assert errors[agree.argmax()] == errors.min()
  assert found.ledger_parameters(found.plan(9))["projected_dimensions"] == 5
  with pytest.raises(ValueError, match="projected_dimensions <= 3"):
    _method(3, 2, projected_dimensions=4).plan(9)


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
  message = r"d=20 dimensions need 1.958e\+11.*projected_dimensions=9 or less"
  with pytest.raises(ValueError, match=message):
    _method(20, 2, net_size=None).plan(100)
  with pytest.raises(ValueError, match=r"d=784 dimensions need 4.6\d*e\+300"):
    _method(784, 2, net_size=None).plan(100)
