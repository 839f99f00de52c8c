"""How Keras' graphs are read; what certificates refuse is in tests/certify."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob.models import graph

_layers = tf.keras.layers
X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def _branching():
  """Two calls of one layer, and a sum of three."""
  inputs = tf.keras.Input((4,), name="inputs")
  twice = _layers.Dense(4, "tanh", name="twice")
  first = twice(inputs)
  scaled = _layers.Rescaling(2.0, name="scaled")(first)
  total = _layers.Add(name="total")([first, twice(scaled), scaled])
  return tf.keras.Model(inputs, _layers.Dense(3, name="last")(total))


def _names(calls):
  return [call.layer.name for call in calls]


def test_calls_come_in_an_order_in_which_they_can_be_made():
  model = _branching()
  calls = graph.calls(model)
  assert _names(calls) == [
    "inputs",
    "twice",
    "scaled",
    "twice",
    "total",
    "last",
  ]
  made = set()
  for call in calls:
    assert made.issuperset(map(id, call.inputs))
    made |= set(map(id, call.outputs))
  assert calls[0].is_input
  assert calls[0].inputs == ()
  assert len(calls[4].inputs) == 3
  assert calls[-1].output is model.outputs[0]
  assert calls[-1].args == (calls[4].output,)


def test_a_model_inside_another_is_one_call():
  inner = tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(4)])
  outer = tf.keras.Sequential([_layers.Input((4,)), inner, _layers.Dense(2)])
  assert [call.layer for call in graph.calls(outer)][1:] == outer.layers
  assert [call.layer for call in graph.calls(inner)][1:] == inner.layers


def test_several_outputs_have_no_only_one():
  inputs = tf.keras.Input((3, 4))
  output, state = _layers.GRU(2, return_state=True)(inputs)
  (_, call) = graph.calls(tf.keras.Model(inputs, [output, state]))
  assert len(call.outputs) == 2
  assert call.output is None


def test_calls_in_another_model_are_not_among_those_of_this_one():
  model = _branching()
  model(tf.keras.Input((4,)))
  model.layers[-1](tf.keras.Input((4,)))
  assert len(graph.calls(model)) == 6
  assert len(graph.calls_of(model.get_layer("twice"))) == 2
  assert len(graph.calls_of(model.layers[-1])) == 2


def test_the_layers_that_feed_a_layer():
  model = _branching()
  feeding = graph.feeding(model.get_layer("total"))
  assert [layer.name for layer in feeding] == ["twice", "twice", "scaled"]
  assert graph.feeding(model.get_layer("inputs")) == []


def test_a_call_that_reads_what_nobody_makes_is_refused():
  model = _branching()
  del vars(model)["_nodes_by_depth"][4]  # the first call of the shared layer
  with pytest.raises(ValueError, match="reads what no layer makes"):
    graph.calls(model)


def test_a_part_of_a_model_is_read_from_where_it_begins():
  model = _branching()
  part = tf.keras.Model(model.get_layer("total").output, model.output)
  assert _names(graph.calls(part))[1:] == ["last"]


def test_applied_calls_every_layer_where_it_was_called():
  model = _branching()
  inputs = tf.keras.Input((4,))
  (outputs,) = graph.applied(model, [_layers.Rescaling(-1.0)(inputs)])
  turned = tf.keras.Model(inputs, outputs)
  np.testing.assert_allclose(turned(X), model(-X), rtol=1e-6)
  assert not any(isinstance(layer, tf.keras.Model) for layer in turned.layers)
  assert model.get_layer("twice") in turned.layers


def test_applied_keeps_arguments():
  inputs = tf.keras.Input((3, 4))
  attended = _layers.MultiHeadAttention(1, 2)(
    inputs, value=inputs, use_causal_mask=True
  )
  model = tf.keras.Model(inputs, tf.nn.relu(attended) + 1.0)
  again = tf.keras.Input((3, 4))
  (outputs,) = graph.applied(model, [again])
  x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
  np.testing.assert_array_equal(tf.keras.Model(again, outputs)(x), model(x))


@pytest.mark.parametrize(
  ("make", "expected"),
  [
    (_branching, True),
    (lambda: tf.keras.Sequential([_layers.Dense(2)]), False),
  ],
)
def test_a_model_without_an_input_begins_with_none(make, expected):
  model = make()
  model(X)
  assert graph.begins_with_input(model) is expected


def test_held_layers_are_those_of_the_first_level():
  inner = tf.keras.Sequential([_layers.Input((4,)), _layers.Dense(4)])
  outer = tf.keras.Sequential([_layers.Input((4,)), inner, _layers.Dense(2)])
  held = graph.held_by(outer)
  assert inner in held
  assert inner.layers[0] not in held
  assert outer not in held
  assert graph.held_by(_layers.Bidirectional(_layers.LSTM(2)))
