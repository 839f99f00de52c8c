import numpy as np
import pytest
import tensorflow as tf

from tf_privrob.attacks import objectives

_LOGITS = tf.constant([[3.0, 1.0, 0.5, -1.0], [0.0, 2.0, 1.0, 1.5]])
_LABEL = tf.constant([0, 2])


@pytest.mark.parametrize(
  ("loss", "expected"),
  [
    (
      "cross_entropy",
      [
        np.log(np.exp([3, 1, 0.5, -1]).sum()) - 3,
        np.log(np.exp([0, 2, 1, 1.5]).sum()) - 1,
      ],
    ),
    ("margin", [-2.0, 1.0]),
    ("dlr", [-2.0 / 2.5, 1.0 / 1.0]),
  ],
)
def test_by_hand(loss, expected):
  got = objectives.value(loss, _LOGITS, _LABEL, targeted=False)
  np.testing.assert_allclose(got, expected, rtol=1e-6)
  negated = objectives.value(loss, _LOGITS, _LABEL, targeted=True)
  np.testing.assert_allclose(negated, -np.array(expected), rtol=1e-6)


def test_dlr_ignores_scale_and_shift():
  base = objectives.dlr(_LOGITS, _LABEL)
  moved = objectives.dlr(1e-4 * _LOGITS + 0.25, _LABEL)
  np.testing.assert_allclose(moved, base, rtol=2e-3)


def test_margin_has_a_gradient_where_cross_entropy_has_none():
  logits = tf.constant([[500.0, 0.0, 1.0]])
  sizes = {}
  for loss in ("cross_entropy", "margin"):
    with tf.GradientTape() as tape:
      tape.watch(logits)
      value = objectives.value(loss, logits, tf.constant([0]), False)
    sizes[loss] = np.abs(tape.gradient(value, logits)).max()
  assert sizes["cross_entropy"] == 0
  assert sizes["margin"] == 1


def test_score_is_positive_exactly_for_success():
  logits = tf.random.stateless_normal((64, 5), [1, 2])
  label = tf.random.stateless_uniform((64,), [3, 4], 0, 5, tf.int32)
  right = np.argmax(logits, axis=1) == label.numpy()
  np.testing.assert_array_equal(
    objectives.score(logits, label, False).numpy() > 0, ~right
  )
  np.testing.assert_array_equal(
    objectives.score(logits, label, True).numpy() > 0, right
  )


@pytest.mark.parametrize(
  ("loss", "shape"),
  [("cross_entropy", (2, 1)), ("dlr", (2, 2)), ("margin", (2, 3, 4))],
)
def test_too_few_classes(loss, shape):
  with pytest.raises(ValueError, match="A binary model needs two logits"):
    objectives.value(loss, tf.zeros(shape), _LABEL, False)


def test_half_precision_logits_are_widened():
  half = tf.cast(_LOGITS, tf.float16)
  got = objectives.value("cross_entropy", half, _LABEL, False)
  assert got.dtype == tf.float32
