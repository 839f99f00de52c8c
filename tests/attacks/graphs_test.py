import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import attacks
from tf_privrob.attacks import graphs


def test_traced_once_per_shape():
  calls = []

  def double(x, y=None):
    calls.append(None)
    return 2 * x if y is None else x + y

  traced = graphs.Traced(double)
  one, two = tf.ones(3), tf.ones(4)
  np.testing.assert_array_equal(traced(x=one), [2, 2, 2])
  traced(x=5 * one)
  assert len(calls) == traced.traces == 1
  np.testing.assert_array_equal(traced(x=one, y=3 * one), [4, 4, 4])
  traced(x=two)
  assert len(calls) == traced.traces == 3


@pytest.mark.parametrize(
  "batch", [None, 1, 31, 63, 127, 128, 192, 250, 256, 4096]
)
def test_pieces_are_equal_and_not_small(batch):
  pieces = graphs.default_pieces(batch)
  assert pieces >= 1
  if pieces > 1:
    assert batch % pieces == 0
    assert batch // pieces >= 32


def test_splitting_changes_no_example(network, digits, monkeypatch):
  monkeypatch.setattr(graphs, "default_pieces", lambda batch: 4)
  x, y = digits[0][:128], digits[1][:128]
  attack = attacks.PGD(0.1, steps=4, restarts=2, keep_best=True)
  whole = attack.compile(network, split_batch=False)(x, y, 0)
  split = attack.compile(network)(x, y, 0)
  np.testing.assert_allclose(split, whole, atol=1e-5)


def test_split_batch_false_shows_the_whole_batch(digits, monkeypatch):
  monkeypatch.setattr(graphs, "default_pieces", lambda batch: 2)
  x, y = digits[0][:128], digits[1][:128]
  weights = tf.random.stateless_normal((64, 10), [1, 2])
  for split, expected in ((True, 64), (False, 128)):
    shapes = set()

    def model(inputs, shapes=shapes):
      shapes.add(inputs.shape[0])
      return inputs @ weights

    attacks.FGSM(0.1).compile(model, split_batch=split)(x, y, 0)
    assert shapes == {expected}


def test_randomised_models_are_not_split(digits, monkeypatch):
  monkeypatch.setattr(graphs, "default_pieces", lambda batch: 2)
  x, y = digits[0][:128], digits[1][:128]
  shapes = set()

  def model(inputs, seed):
    shapes.add(inputs.shape[0])
    noise = tf.random.stateless_normal((128, 10), seed)
    return inputs[:, :10] + noise

  attacks.FGSM(0.1).compile(model)(x, y, 0)
  assert shapes == {128}
