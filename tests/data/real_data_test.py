"""Public facts about the real data sets, read through the loader.

Class counts and moments are the well-known figures of each data set.
"""

from __future__ import annotations

import numpy as np


def _counts(y):
  return np.bincount(y).tolist()


def test_mnist(real_data):
  mnist = real_data("mnist")
  assert mnist.x_train.shape == (60000, 28, 28, 1)
  assert mnist.x_test.shape == (10000, 28, 28, 1)
  assert _counts(mnist.y_train) == [
    *(5923, 6742, 5958, 6131, 5842),
    *(5421, 5918, 6265, 5851, 5949),
  ]
  assert mnist.y_train[:5].tolist() == [5, 0, 4, 1, 9]
  np.testing.assert_allclose(mnist.x_train.mean(dtype="f8"), 0.13066, atol=1e-5)
  np.testing.assert_allclose(mnist.x_train.std(dtype="f8"), 0.30811, atol=1e-5)
  assert mnist.split.startswith("Official split")


def test_usps(real_data):
  usps = real_data("usps")
  assert usps.x_train.shape == (7291, 16, 16, 1)
  assert _counts(usps.y_test) == [
    *(359, 264, 198, 166, 200),
    *(160, 170, 147, 166, 177),
  ]


def test_uci_har(real_data):
  har = real_data("uci_har")
  assert har.input_shape == (561,)
  assert har.value_range == (-1.0, 1.0)
  np.testing.assert_allclose(
    har.x_train[0, :3], [0.28858451, -0.020294171, -0.13290514], rtol=1e-6
  )
  assert "fficial split" in har.split


def test_embedded_images_are_mnist_training_images(real_data):
  from tf_privrob import data

  mnist, embedded = real_data("mnist"), data.load("mnist_5k")

  def rows(x):
    return [row.tobytes() for row in np.rint(255 * x).astype(np.uint8)]

  label = dict(zip(rows(mnist.x_train), mnist.y_train))
  assert [label.get(row) for row in rows(embedded.x_test)] == (
    embedded.y_test.tolist()
  )
