"""cleverhans (tf2) as the oracle of the deterministic attacks."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks

_ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}
_RADII = {"linf": 0.15, "l2": 1.5, "l1": 4.0}
_STEPS = 12


def _oracle(name, model, x, y, norm, targeted, value_range):
  from cleverhans.tf2 import attacks as oracle

  radius = _RADII[norm]
  shared = {
    "clip_min": value_range[0],
    "clip_max": value_range[1],
    "y": None if y is None else tf.constant(y),
    "targeted": targeted,
    "sanity_checks": False,
  }
  x = tf.constant(x)
  if name == "fgsm":
    run = oracle.fast_gradient_method.fast_gradient_method
    return run(model, x, radius, _ORDERS[norm], **shared)
  run = {
    "bim": oracle.basic_iterative_method.basic_iterative_method,
    "mim": oracle.momentum_iterative_method.momentum_iterative_method,
    "pgd": oracle.projected_gradient_descent.projected_gradient_descent,
  }[name]
  if name == "pgd":
    shared["rand_init"] = False
  return run(model, x, radius, radius / 8, _STEPS, _ORDERS[norm], **shared)


def _ours(name, norm, **fields):
  if name == "fgsm":
    return attacks.FGSM(_RADII[norm], norm, **fields)
  if name == "pgd":
    fields["random_start"] = False
  return attacks.by_name(
    name,
    attack_eps=_RADII[norm],
    norm=norm,
    steps=_STEPS,
    step_size=_RADII[norm] / 8,
    **fields,
  )


@pytest.fixture(autouse=True)
def _import_oracles():
  import cleverhans.tf2.attacks.basic_iterative_method
  import cleverhans.tf2.attacks.fast_gradient_method
  import cleverhans.tf2.attacks.momentum_iterative_method
  import cleverhans.tf2.attacks.projected_gradient_descent  # noqa: F401


_CASES = [
  (name, norm)
  for name in ("fgsm", "bim", "mim", "pgd")
  for norm in ("linf", "l2")
]


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize(("name", "norm"), _CASES)
def test_same_result_as_cleverhans(convnet, images, name, norm, targeted):
  x, y = images
  ours = _ours(name, norm, targeted=targeted).compile(convnet)(x, y, 0)
  oracle = _oracle(name, convnet, x, y, norm, targeted, (0.0, 1.0))
  np.testing.assert_allclose(ours, oracle, atol=1e-5)
  assert np.abs(ours - x).max() > 0.01


@pytest.mark.parametrize("name", ["fgsm", "bim", "mim", "pgd"])
def test_own_labels_and_another_range(convnet, images, name):
  x, _ = images
  x = 2 * x - 1
  fields = {"label_source": "model", "value_range": (-1.0, 1.0)}
  ours = _ours(name, "linf", **fields)(convnet, x, None, 0)
  oracle = _oracle(name, convnet, x, None, "linf", False, (-1.0, 1.0))
  np.testing.assert_allclose(ours, oracle, atol=1e-5)


@pytest.mark.parametrize("targeted", [False, True])
def test_l1_step_far_from_the_range_is_cleverhans(convnet, images, targeted):
  x, y = images
  wide = (-100.0, 100.0)
  attack = _ours("fgsm", "l1", targeted=targeted, value_range=wide)
  oracle = _oracle("fgsm", convnet, x, y, "l1", targeted, wide)
  np.testing.assert_allclose(attack(convnet, x, y, 0), oracle, atol=1e-5)


def _losses(model, x, y):
  return tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)).numpy()


def test_l1_step_uses_the_length_that_the_range_cuts_off(convnet, images):
  x, y = images
  ours = _ours("fgsm", "l1")(convnet, x, y, 0).numpy()
  oracle = _oracle("fgsm", convnet, x, y, "l1", False, (0.0, 1.0)).numpy()
  length = np.abs(ours - x).sum(axis=(1, 2, 3))
  np.testing.assert_allclose(length, _RADII["l1"], rtol=1e-4)
  assert (np.abs(oracle - x).sum(axis=(1, 2, 3)) <= 1).all()
  assert (_losses(convnet, ours, y) > _losses(convnet, oracle, y)).all()


@pytest.mark.parametrize("name", ["bim", "mim", "pgd"])
def test_l1_iterations_exist_only_here(convnet, images, name):
  x, y = images
  with pytest.raises(NotImplementedError):
    _oracle(name, convnet, x, y, "l1", False, (0.0, 1.0))
  ours = _ours(name, "l1")(convnet, x, y, 0).numpy()
  length = np.abs(ours - x).sum(axis=(1, 2, 3))
  assert (length <= _RADII["l1"] * (1 + 1e-5)).all()
  once = _ours("fgsm", "l1")(convnet, x, y, 0).numpy()
  gain = _losses(convnet, ours, y) - _losses(convnet, once, y)
  assert gain.mean() > 0


@pytest.mark.parametrize(("name", "scale"), [("fgsm", 1e-9), ("mim", 1e-25)])
def test_tiny_gradients_are_where_we_differ(convnet, images, name, scale):
  """cleverhans hardly moves where a confident model has tiny gradients."""
  x, y = images

  @tf.custom_gradient
  def dimmed(inputs):
    return tf.identity(inputs), lambda upstream: scale * upstream

  def faint(inputs):
    return convnet(dimmed(inputs))

  plain = _ours(name, "l2")(convnet, x, y, 0).numpy()
  ours = _ours(name, "l2")(faint, x, y, 0).numpy()
  oracle = _oracle(name, faint, x, y, "l2", False, (0.0, 1.0)).numpy()
  np.testing.assert_allclose(ours, plain, atol=1e-4)
  assert np.abs(oracle - x).max() < 0.1 * np.abs(ours - x).max()
