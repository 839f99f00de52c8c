"""IBP, DiffAI and the dual: losses by hand, certificates, refusals."""

import numpy as np
import pytest
import tensorflow as tf

from tests.methods.objectives import robust_cases as cases
from tf_privrob import bounds
from tf_privrob import certify
from tf_privrob import methods
from tf_privrob import randomness

_layers = tf.keras.layers
WEIGHTS = np.array([[1.0, -2.0, 0.5], [-0.5, 1.5, 1.0]], np.float32)
EPS = 0.1


def points(count=6):
  rng = np.random.default_rng(3)
  x = rng.uniform(0.2, 0.8, (count, 2)).astype("float32")
  return tf.constant(x), tf.constant(rng.integers(0, 3, count))


def worst_margins(x, y, apart=False):
  """max z_j - z_y over the ball, of a linear network; 0 for y.

  Apart, each logit is at its own worst, as the Box of DiffAI has it.
  """
  differences = WEIGHTS[:, None, :] - WEIGHTS[:, y][:, :, None]
  size = np.abs(differences).sum(0)
  if apart:
    radius = np.abs(WEIGHTS).sum(0)
    size = radius[None] + radius[y][:, None]
    size[np.arange(len(y)), y] = 0
  return np.einsum("bi,ibj->bj", x, differences) + EPS * size


row_losses = cases.row_losses


def on_linear(case, scale=1.0, **changes):
  net = cases.linear(scale * WEIGHTS)
  return cases.prepared(case, net, attack_eps=EPS, **changes)


@pytest.mark.parametrize(("step", "kappa"), [(0, 1.0), (6, 0.75), (10, 0.5)])
def test_ibp_mixes_at_kappa(step, kappa):
  method = on_linear("ibp", ramp=methods.Ramp(warmup="2", length="8"))
  method.set_step([0, 0], step)
  x, y = points()
  found, _ = row_losses(method, x, y)
  clean = x.numpy() @ WEIGHTS
  progress = max(step - 2, 0) / 8
  worst = worst_margins(x.numpy(), y.numpy())
  start = clean - clean[np.arange(6), y.numpy()][:, None]
  worst = start + progress * (worst - start)  # linear in the radius
  expected = kappa * cases.cross_entropy(clean, y.numpy())
  expected += (1 - kappa) * cases.cross_entropy(worst, y.numpy())
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_ibp_counts_what_is_verified():
  method = on_linear("ibp", scale=3.0)
  x, y = points(40)
  found = row_losses(method, x, y)[1]["verified"].numpy()
  worst = worst_margins(x.numpy(), y.numpy())
  own = np.eye(3, dtype=bool)[y.numpy()]
  np.testing.assert_array_equal(found, np.all((worst < 0) | own, axis=1))
  assert 0 < found.sum() < 40


@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_diffai_floors_the_softplus(floor):
  method = on_linear(
    "box", natural_term_weight=0.0, margin_floor=floor, scale=1.0
  )
  x, y = points(40)
  found, _ = row_losses(method, x, y)
  worst = worst_margins(x.numpy(), y.numpy(), apart=True)
  worst[np.arange(40), y.numpy()] = -floor
  expected = np.log1p(np.exp(worst.max(1)))
  np.testing.assert_allclose(found, expected, rtol=1e-4)
  least = np.log1p(np.exp(-floor))
  assert np.min(found) >= least - 1e-6
  if floor == 1:
    assert least == pytest.approx(0.3133, abs=1e-4)


def test_diffai_asks_for_no_margin_beyond_the_floor():
  method = on_linear("box", natural_term_weight=0.0, scale=30.0)
  x, y = points(40)
  kernel = method.network.weights[0]
  with tf.GradientTape() as tape:
    losses, _ = row_losses(method, x, y)
    total = tf.reduce_sum(tf.where(losses < 0.3134, losses, 0.0))
  assert np.sum(losses < 0.3134) > 3
  np.testing.assert_array_equal(tape.gradient(total, kernel), 0 * WEIGHTS)


def test_diffai_weighs_its_terms():
  method = on_linear("box")
  x, y = points()
  found, _ = row_losses(method, x, y)
  clean = cases.cross_entropy(x.numpy() @ WEIGHTS, y.numpy())
  worst = worst_margins(x.numpy(), y.numpy(), apart=True)
  worst[np.arange(6), y.numpy()] = -1
  robust = np.log1p(np.exp(worst.max(1)))
  np.testing.assert_allclose(found, (clean + 0.2 * robust) / 1.2, rtol=1e-4)


@pytest.mark.parametrize("case", ["zonotope", "dual"])
def test_linear_networks_are_bounded_exactly(case):
  """What two logits have in common cancels, unlike for the Box."""
  changes = {"natural_term_weight": 0.0} if case == "zonotope" else {}
  method = on_linear(case, **changes)
  x, y = points()
  found, _ = row_losses(method, x, y)
  worst = worst_margins(x.numpy(), y.numpy())
  expected = cases.cross_entropy(worst, y.numpy())
  if case == "zonotope":
    worst[np.arange(6), y.numpy()] = -1
    expected = np.log1p(np.exp(worst.max(1)))
  np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize(("clipped", "same"), [(True, False), (False, True)])
def test_the_ball_is_cut_to_the_range_if_asked(clipped, same):
  x, y = tf.constant([[1.0, 0.0]]), tf.constant([1])
  method = on_linear("dual", clip_to_range=clipped)
  worst = worst_margins(x.numpy(), y.numpy())
  expected = cases.cross_entropy(worst, y.numpy())
  found = row_losses(method, x, y)[0].numpy()
  assert np.allclose(found, expected, rtol=1e-4) == same


def test_projections_are_drawn_anew_at_each_step():
  method = cases.prepared("dual_median", attack_eps=0.3)
  x, y = cases.tensors(6)
  values = []
  for step in (0, 0, 1):
    method.set_step(randomness.Key.of(step).stateless_seed(), step)
    values.append(row_losses(method, x, y)[0].numpy())
  np.testing.assert_array_equal(values[0], values[1])
  assert np.abs(values[0] - values[2]).max() > 1e-3


def test_the_published_dual_does_not_intersect():
  x, y = cases.tensors(20)
  plain, cut = (
    row_losses(cases.prepared("dual", intersect=i, attack_eps=0.4), x, y)[0]
    for i in (False, True)
  )
  assert np.all(cut <= plain + 1e-5)
  assert np.max(plain - cut) > 1e-3


# Certificates.


@pytest.mark.parametrize("case", cases.VERIFIED)
def test_certifier_is_sound_and_of_the_same_domain(case, tmp_path):
  method = cases.build(case, attack_eps=0.02)
  x, y = cases.arrays()
  method.fit(x, y, verbose=0)
  certifier = method.certifier()
  assert isinstance(certifier, certify.VerifiedBound)
  assert certifier.domain.is_bound
  assert certifier.domain.name == method.objective.training_domain.name
  is_diffai = case in ("box", "zonotope")  # it does not cut the ball
  assert certifier.value_range == (None if is_diffai else (0, 1))
  rows = certifier.certify(method, x[:20], y[:20])
  assert {row.kind for row in rows} == {"proven"}
  assert {row.radius for row in rows} <= {0.0, 0.02}
  assert any(row.radius for row in rows)
  assert method.certifier(attack_eps=0.3, largest=True).attack_eps == 0.3
  method.save(tmp_path / "model.keras")
  loaded = tf.keras.models.load_model(tmp_path / "model.keras")
  assert loaded.certifier() == certifier


def test_a_certificate_before_training_holds_for_all_inputs():
  assert cases.build("ibp").certifier().value_range is None


def test_attacked_trainers_have_no_certificate():
  for case in ("natural", "pgd", "trades", "wrm_linf"):
    assert cases.build(case).certifier() is None


# Refusals, before anything is trained.


def _with(layer):
  return tf.keras.Sequential(
    [
      _layers.Input(cases.SHAPE),
      _layers.Conv2D(2, 2),
      layer,
      _layers.Flatten(),
      _layers.Dense(cases.CLASSES),
    ]
  )


@pytest.mark.parametrize(
  ("case", "layer", "message"),
  [
    ("ibp", _layers.MaxPooling2D(2), "AveragePooling2D or a convolution"),
    ("box", _layers.LayerNormalization(), "layers whose bounds are known"),
    (
      "dual",
      _layers.Activation("tanh"),
      "affine layers and ReLUs for Dual",
    ),
    ("dual_median", _layers.LeakyReLU(0.1), "affine layers and ReLUs"),
  ],
)
def test_layers_without_a_rule(case, layer, message):
  with pytest.raises(ValueError, match=message):
    cases.build(case, _with(layer))


def test_weights_that_are_not_finite():
  net = cases.network()
  net.weights[0].assign(np.nan * net.weights[0])
  with pytest.raises(ValueError, match="Expected finite weights"):
    cases.build("ibp", net)


def test_the_radius_grows():
  ramp = methods.Ramp(first_eps=1.0)
  with pytest.raises(ValueError, match="the radius grows"):
    methods.DualLoss(ramp=ramp)


def test_check_says_why_a_network_cannot_be_bounded():
  bounds.Dual().check(cases.network())
  with pytest.raises(ValueError, match="for Dual"):
    bounds.Dual().check(_with(_layers.Activation("tanh")))
  bounds.Interval().check(_with(_layers.Activation("tanh")))
