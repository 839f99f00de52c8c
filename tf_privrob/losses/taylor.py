"""Polynomial losses of the functional mechanism: DPAL's Eq. 5-8 and 11.

A polynomial in the weights has coefficients that depend on the data alone;
noise on the coefficients then makes the whole objective private. That argument
needs weights that enter linearly and coefficients that are released once; it
does not hold for the networks of the papers (`docs/soundness.md`).
"""

from __future__ import annotations

import math

import tensorflow as tf

from tf_privrob import validate

RECONSTRUCTION_FORMS = ("paper", "released_code")
LABEL_FORMS = ("taylor", "paper")
NOISE_FORMS = ("paper", "released_mnist", "released_cifar10")


def taylor_reconstruction(
  reconstruction: tf.Tensor, x: tf.Tensor, form: str = "paper"
) -> tf.Tensor:
  """First-order Taylor reconstruction loss of each example, [B].

  The cross-entropy (Eq. 5) x log(1 + e^-r) + (1 - x) log(1 + e^r) of a
  reconstruction r is, to first order at r = 0 (Eq. 6),

    log 2 + (1/2 - x) r,

  summed over the values of an example. "paper" drops the constant log 2 (Eq.
  7-8); the result is linear in r and unbounded below. "released_code" keeps it
  and takes the absolute value of each summand.

  Args:
    reconstruction: r, of the shape of x.
    x: the (perturbed) input.
    form: "paper" or "released_code".
  """
  validate.one_of(RECONSTRUCTION_FORMS, form=form)
  _require_equal_shapes("reconstruction", reconstruction, x)
  linear = (0.5 - x) * reconstruction
  if form == "released_code":
    linear = tf.abs(math.log(2.0) + linear)
  return tf.reduce_sum(linear, axis=list(range(1, len(x.shape))))


def taylor_cross_entropy(
  logits: tf.Tensor, labels: tf.Tensor, form: str = "taylor"
) -> tf.Tensor:
  """Second-order cross-entropy of each example, summed over classes, [B].

  With z the logit and y in {0, 1} of one class, the sigmoid cross-entropy is
  max(z, 0) - z y + log(1 + e^-|z|). Its last term is log 2 - |z|/2 + z^2/8 to
  second order, which gives the polynomial

    "taylor": log 2 + z/2 - z y + z^2/8,

  the released code's loss. The paper's Eq. 11 reads, taken literally,

    "paper": z - z y - |z|/2 + z^2/8:

  for z < 0 that is not the Taylor polynomial (which has +|z|/2 there), and for
  y = 1 its minimum -1/2 is reached at z = 2 and at z = -2 alike.

  Args:
    logits: [B, K].
    labels: sparse, [B].
    form: "taylor" or "paper".
  """
  validate.one_of(LABEL_FORMS, form=form)
  y = tf.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  if form == "taylor":
    linear = math.log(2.0) + 0.5 * logits
  else:
    linear = logits - 0.5 * tf.abs(logits)
  return tf.reduce_sum(linear - logits * y + tf.square(logits) / 8, axis=-1)


def label_noise_term(
  noise: tf.Tensor, kernel: tf.Tensor, form: str = "paper"
) -> tf.Tensor:
  """What the noise on the label coefficients adds to a batch's mean loss.

  Eq. 11 perturbs the coefficients h_pi y of the last kernel W by chi_3/m: the
  mean loss changes by

    "paper": -sum (chi_3/m) W,
    "released_mnist": K times that, since the code adds the scalar to each of
      the K class terms,
    "released_cifar10": +mean |(chi_3/m) W|, a weighted l1 penalty.

  The term depends on the last kernel only: it hides nothing of the labels in
  the gradients of the layers below.

  Args:
    noise: chi_3 / m, [hidden units, K].
    kernel: W, of the same shape.
    form: one of the three.
  """
  validate.one_of(NOISE_FORMS, form=form)
  _require_equal_shapes("noise", noise, kernel)
  product = noise * kernel
  if form == "released_cifar10":
    return tf.reduce_mean(tf.abs(product))
  factor = kernel.shape[-1] if form == "released_mnist" else 1
  return -factor * tf.reduce_sum(product)


def _require_equal_shapes(name: str, first, second) -> None:
  """Broadcasting would silently make another loss of it."""
  first, second = tf.TensorShape(first.shape), tf.TensorShape(second.shape)
  if not first.is_compatible_with(second):
    raise ValueError(
      f"Expected {name} of shape {second}, received shape {first}."
    )
