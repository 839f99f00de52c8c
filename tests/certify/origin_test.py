"""Where the rows of a file come from: their draws, their settings, their data.

The draws of a seed can be known to a model, and rows of another file tell
nothing of this one's inputs.
"""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import certify
from tf_privrob import randomness
from tf_privrob.certify import record
from tf_privrob.certify.smoothing import grid
from tf_privrob.certify.smoothing import votes

_layers = tf.keras.layers
STDDEV, SELECTION, ESTIMATION = 0.25, 50, 500
SMOOTHING = certify.RandomizedSmoothing(
  STDDEV, num_selection=SELECTION, num_estimation=ESTIMATION
)
X = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
OTHER = np.random.default_rng(1).normal(size=(6, 16)).astype(np.float32)


def linear():
  model = tf.keras.Sequential([tf.keras.Input((16,)), _layers.Dense(3)])
  rng = np.random.default_rng(2)
  model.set_weights([0.3 * rng.normal(size=(16, 3)), np.zeros(3)])
  return model


def content(rows):
  return [dataclasses.replace(row, seconds=0.0, stamp="") for row in rows]


def initiated(seed, count):
  """A plain network with class 1 at the draws of a seed, and 0 elsewhere."""
  noise = grid.GridNoise("gaussian", STDDEV, X.shape[1:])
  points = np.concatenate(
    [
      noise.draw(X[row], votes.seed_key(seed).child(row, stage, block), 25)
      for row in range(count)
      for stage, draws in (
        (votes.SELECTION, SELECTION),
        (votes.ESTIMATION, ESTIMATION),
      )
      for block in range(draws // 25)
    ]
  )
  inputs = tf.keras.Input(X.shape[1:])
  squares = _layers.Multiply()([inputs, inputs])
  size = _layers.Dense(len(points), use_bias=False, name="size")(squares)
  near = _layers.Dense(len(points), name="near")(inputs)
  wide = _layers.Reshape((-1, 1))(_layers.Add()([size, near]))
  nearest = _layers.GlobalMaxPooling1D()(wide)
  model = tf.keras.Model(inputs, _layers.Dense(2, name="logits")(nearest))
  parts = {
    "size": [-np.ones((16, len(points)))],
    "near": [2 * points.T, -(points.astype(float) ** 2).sum(1)],
    "logits": [[[0, 10.0]], [0, 1.0]],  # class 1 within 0.3
  }
  for name, arrays in parts.items():
    model.get_layer(name).set_weights([np.array(part) for part in arrays])
  return model


def test_a_model_that_knows_a_seed_gains_nothing_by_default():
  """10 of 10 rows of the former default, seed 0, were false."""
  model = initiated(0, 2)
  rows = SMOOTHING.certify(model, X[:2])
  assert {row.prediction for row in rows} == {0}
  known = SMOOTHING.certify(model, X[:2], seed=0)
  assert {row.prediction for row in known} == {1}
  assert {row.condition for row in known} == {randomness.SEEDED}
  assert randomness.SEEDED in str(known[0])
  assert set(SMOOTHING.predict(model, X[:2])) == {0}


def test_draws_are_new_by_default():
  one, other = (SMOOTHING.certify(linear(), X) for _ in range(2))
  assert [row.radius for row in one] != [row.radius for row in other]
  assert {row.condition for row in (*one, *other)} == {""}


@pytest.mark.parametrize("seed", [None, 3])
def test_a_file_that_is_gone_on_with_has_its_draws(tmp_path, seed):
  path, model = tmp_path / "rows.csv", linear()

  def run(**kwargs):
    return certify.run(
      SMOOTHING, model, X, csv_path=path, seed=seed, progress=False, **kwargs
    )

  rows = run()
  lines = path.read_text().splitlines(keepends=True)
  path.write_text("".join(lines[:3]))
  assert content(run()) == content(rows)
  assert [row.condition for row in rows] == (
    [randomness.SEEDED if seed else ""] * len(X)
  )
  kept = json.loads((tmp_path / "rows.csv.json").read_text())
  assert kept["settings"]["seed"] == ([3] if seed else None)
  again = run(resume=False)
  same = [row.radius for row in again] == [row.radius for row in rows]
  assert same == bool(seed)
  recorded = certify.read(path)
  assert [row.condition for row in recorded.rows] == (
    [randomness.SEEDED if seed else ""] * len(X)
  )


def test_a_seed_has_no_part_where_nothing_is_drawn():
  rows = certify.LinearMargin().certify(linear(), X, seed=3)
  assert {row.condition for row in rows} == {""}


def test_another_condition_is_no_row():
  row = certify.LinearMargin().certify(linear(), X)[0]
  with pytest.raises(ValueError, match="condition"):
    dataclasses.replace(row, condition="if you say so")


@pytest.mark.parametrize("key", [None, "", "0" * 63, "z" * 64, 5])
def test_a_key_that_is_damaged_is_named(tmp_path, key):
  path, model = tmp_path / "rows.csv", linear()
  certify.run(SMOOTHING, model, X, csv_path=path, progress=False)
  side = tmp_path / "rows.csv.json"
  side.write_text(json.dumps({**json.loads(side.read_text()), "key": key}))
  for ask in (
    lambda: certify.read(path),
    lambda: certify.run(SMOOTHING, model, X, csv_path=path, progress=False),
  ):
    with pytest.raises(ValueError, match="key of 64 hexadecimal digits"):
      ask()


# Rows of another file.

EXCHANGED = {
  "inputs": ((certify.LinearMargin(), X), (certify.LinearMargin(), OTHER)),
  "norm": ((certify.LinearMargin("l1"), X), (certify.LinearMargin("linf"), X)),
  "noise": (
    (dataclasses.replace(SMOOTHING, smoothing_stddev=2.0), X),
    (SMOOTHING, X),
  ),
  "draws": ((SMOOTHING, X), (SMOOTHING, X)),
  "confidence": (
    (dataclasses.replace(SMOOTHING, confidence=0.9), X),
    (SMOOTHING, X),
  ),
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_rows_of_another_file_are_refused(tmp_path, name):
  """139 of 200 rows were of other inputs; radii of noise 2 beside 0.1."""
  model = linear()
  paths = [tmp_path / "one.csv", tmp_path / "other.csv"]
  for path, (certifier, x) in zip(paths, EXCHANGED[name]):
    certify.run(certifier, model, x, csv_path=path, progress=False)
  shutil.copy(*paths)
  certifier, x = EXCHANGED[name][1]
  for ask in (
    lambda: certify.read(paths[1]),
    lambda: certify.run(certifier, model, x, csv_path=paths[1], progress=False),
  ):
    with pytest.raises(ValueError, match="belongs to another file"):
      ask()


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"norm": "l1"}, "rows of norm 'l2'"),
    ({"confidence": 0.99}, "rows of confidence 0.999"),
    (
      {"method": "laplace_input_tight"},
      "rows of method 'randomised_smoothing'",
    ),
    ({"kind": "claimed"}, "rows of kind 'proven'"),
  ],
)
def test_rows_of_another_statement_are_refused(tmp_path, changes, message):
  """Whatever their stamp says."""
  path, model = tmp_path / "rows.csv", linear()
  rows = certify.run(SMOOTHING, model, X, csv_path=path, progress=False)
  head = path.read_text().splitlines()[0]
  rows[2] = dataclasses.replace(rows[2], **changes)
  lines = [",".join(row.to_csv_row()) for row in rows]
  path.write_text("\n".join([head, *lines]) + "\n")
  with pytest.raises(ValueError, match=message):
    certify.run(SMOOTHING, model, X, csv_path=path, progress=False)
  with pytest.raises(ValueError, match=f"{message}|rows of one statement"):
    certify.audit_certificates(SMOOTHING, model, X, rows, progress=False)


def test_a_stamp_is_of_settings_inputs_model_and_key():
  made = {"settings": {"a": 1}, "model": "m", "key": "k"}
  found = {record.stamp_of(made)}
  for change in ({"settings": {"a": 2}}, {"model": "n"}, {"key": "l"}):
    found.add(record.stamp_of({**made, **change}))
  assert len(found) == 4
  assert {len(stamp) for stamp in found} == {16}
