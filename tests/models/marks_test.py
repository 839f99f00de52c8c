"""Weights that carry what was released through them."""

import gc
import weakref

import pytest
import tensorflow as tf

from tf_privrob import models

_layers = tf.keras.layers
_RECORD = {"releases": [{"count": 3}]}


def test_mark_survives_assignments_and_wrapping():
  network = models.mlp((6,), 3)
  assert models.released(network) is None
  record = {"releases": [{"count": 3}]}
  models.mark_released(network.weights, record)
  record["releases"][0]["count"] = 4
  network.set_weights([w + 1 for w in network.get_weights()])
  assert models.released(network) == _RECORD
  models.released(network)["releases"].clear()
  outer = tf.keras.Sequential([_layers.Input((6,)), network])
  assert models.released(outer) == _RECORD


def test_a_part_carries_it_into_another_network():
  network = models.mlp((6,), 3)
  models.mark_released(network.trainable_variables, _RECORD)
  inputs = tf.keras.Input((6,))
  flat = network.layers[1](network.layers[0](inputs))
  other = tf.keras.Model(inputs, _layers.Dense(2)(flat))
  assert models.released(other) == _RECORD
  assert models.released(tf.keras.Sequential([_layers.Dense(3)])) is None


def test_the_last_mark_counts():
  network = models.mlp((6,), 3)
  models.mark_released(network.weights, {"count": 1})
  models.mark_released(network.weights, {"count": 2})
  assert models.released(network) == {"count": 2}


def test_parts_of_several_trainings_are_refused():
  network = models.mlp((6,), 3)
  models.mark_released(network.weights[:2], {"count": 1})
  models.mark_released(network.weights[2:4], {"count": 2})
  with pytest.raises(ValueError, match="one training, received 'mlp'"):
    models.released(network)


def test_variables_are_not_kept_alive():
  network = models.mlp((6,), 3)
  models.mark_released(network.weights, _RECORD)
  seen = weakref.ref(network.weights[0])
  del network
  tf.keras.backend.clear_session()
  gc.collect()
  assert seen() is None


def test_files_do_not_hold_it(tmp_path):
  network = models.mlp((6,), 3)
  models.mark_released(network.weights, {"secret": "tell nobody"})
  for name in ("x.keras", "x.h5"):
    network.save(tmp_path / name)
    assert b"tell nobody" not in (tmp_path / name).read_bytes()
    loaded = tf.keras.models.load_model(tmp_path / name)
    assert models.released(loaded) is None


def test_a_redraw_does_not_take_back_what_was_released():
  from tf_privrob import randomness

  network = models.mlp((6,), 3)
  models.mark_released(network.weights, _RECORD)
  models.redraw(network, randomness.Key.of(1))
  assert models.released(network) == _RECORD


def test_copies_of_weights_by_our_own_functions_are_marked():
  softmax = tf.keras.Sequential(
    [_layers.Input((8, 8, 1)), _layers.Flatten(), _layers.Dense(3, "softmax")]
  )
  models.mark_released(softmax.weights, _RECORD)
  logits = models.as_logits(softmax)
  assert models.released(logits) == _RECORD
  denoiser = models.smooth_denoiser((8, 8, 1))
  joined = models.denoised_classifier(denoiser, logits)
  assert models.released(joined) == _RECORD
  assert models.released(denoiser) is None
  bottom = models.vgg_cifar10((16, 16, 3), 4, width=2)
  models.mark_released(bottom.weights, _RECORD)
  built = models.vgg_cifar10((16, 16, 3), 4, width=2, bottom=bottom)
  assert models.released(built) == _RECORD
