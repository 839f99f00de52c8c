"""Layers, regularisers and classes that once passed with a proven figure.

They keep an example where no noise reaches it, or end the training for one, or
borrow the name of what was tried.
"""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.soundness import small_runs
from tf_privrob import methods
from tf_privrob import models

_layers = tf.keras.layers


def _sequential(*parts, **settings):
  return tf.keras.Sequential(
    [_layers.Input((6,)), *parts, _layers.Dense(3, **settings)]
  )


class _Skips(_layers.Layer):
  """Moves a generator on by what it sees: its state is a place to store."""

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.generator = tf.random.Generator.from_seed(1, alg="philox")

  def call(self, inputs):
    self.generator.skip(tf.cast(1e6 * inputs[0, 0], tf.uint64))
    return inputs


class _KeepsASingleRow(_layers.Layer):
  """Writes only where a batch is one row, as some engines make them."""

  def build(self, shape):
    self.kept = self.add_weight("kept", shape=(1, 6), trainable=False)

  def call(self, inputs):
    if inputs.shape[0] == 1:
      self.kept.assign(inputs)
    return inputs


class _KeepsInAList(_layers.Layer):
  """Writes into a variable that Keras does not list among the weights."""

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.hidden = {"kept": [tf.Variable(np.zeros(6, "float32"))]}

  def call(self, inputs):
    self.hidden["kept"][0].assign(inputs[0])
    return inputs


@pytest.mark.parametrize("layer", [_Skips, _KeepsASingleRow, _KeepsInAList])
@pytest.mark.parametrize("engine", [None, "loop"])
def test_a_layer_that_keeps_an_example_is_refused(tmp_path, layer, engine):
  config = dataclasses.replace(small_runs.CONFIG, engine=engine)
  method = methods.DPSGD(_sequential(layer()), config, public_weights="zeros")
  with pytest.raises(ValueError, match="only reads its variables"):
    method.fit(*small_runs.arrays(), run_dir=tmp_path, verbose=0)
  assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.parametrize("holds", ["a tensor", "a variable"])
def test_a_regulariser_that_holds_data_is_refused(tmp_path, holds):
  """Its gradient, a row of the data, was added after the noise."""
  row = tf.constant(small_runs.arrays()[0][:1].T)
  held = tf.Variable(row) if holds == "a variable" else row
  network = _sequential(
    kernel_regularizer=lambda kernel: tf.reduce_sum(1e3 * held * kernel)
  )
  method = methods.DPSGD(network, small_runs.CONFIG, public_weights="zeros")
  with pytest.raises(ValueError, match="regularisers of weights alone"):
    method.fit(*small_runs.arrays(), run_dir=tmp_path, verbose=0)
  assert not (tmp_path / "ledger.jsonl").exists()


def test_a_look_up_that_one_row_can_fail_is_refused():
  """An index outside of the vocabulary ended the training after payment."""
  inputs = tf.keras.Input((6,))
  words = _layers.Embedding(2, 3)(tf.cast(inputs, tf.int32))
  network = tf.keras.Model(inputs, _layers.Dense(3)(_layers.Flatten()(words)))
  with pytest.raises(ValueError, match="no Embedding"):
    methods.DPSGD(network, small_runs.CONFIG)


def test_a_class_that_borrows_a_name_proves_nothing():
  """The table of what was tried was asked by name."""

  class DPSGD(methods.DPSGD):
    pass

  for kind, proves in ((DPSGD, False), (methods.DPSGD, True)):
    method = kind(models.mlp((6,), 3, hidden=()), small_runs.CONFIG)
    method.fit(*small_runs.arrays(), verbose=0)
    found = method.privacy_statement()
    assert (found.proven is not None) == proves
    assert ("not among the combinations" in str(found)) != proves


def test_weights_outside_of_the_network_are_watched():
  """They are saved with the model, and were not looked at."""
  method = methods.DPSGD(models.mlp((6,), 3, hidden=()), small_runs.CONFIG)
  method.beside = tf.Variable(np.zeros(6, "float32"))
  method.fit(*small_runs.arrays(), verbose=0)
  assert method.privacy_statement().proven is not None
  method.beside.assign(small_runs.arrays()[0][0])
  assert method.privacy_statement().proven is None


def test_a_backup_that_is_put_back_shares_no_noise(tmp_path):
  """Two continuations with one seed had one noise, which then cancelled."""
  config = dataclasses.replace(
    small_runs.CONFIG, seed=7, sampler="full_batch", epochs=2
  )

  def method():
    return methods.DPSGD(models.mlp((6,), 3, hidden=(), seed=0), config)

  first = tmp_path / "run"
  with pytest.raises(KeyboardInterrupt):
    method().fit(
      *small_runs.arrays(),
      run_dir=first,
      callbacks=[small_runs.Stop()],
      verbose=0,
    )
  shutil.copytree(first, tmp_path / "backup")
  weights = []
  for folder in (first, tmp_path / "backup"):
    resumed = method()
    resumed.fit(*small_runs.arrays(), run_dir=folder, resume=True, verbose=0)
    weights.append(resumed.network.get_weights()[0])
  assert np.abs(weights[0] - weights[1]).min() > 0
