"""experiments.public_classifier: it learns, repeats itself, and is a file."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import data
from tf_privrob import models
from tf_privrob import papers
from tf_privrob.runs import public_classifier as public_training

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def public():
  return data.split_public(data.load("digits"), 0.5)[0]


def _train(public, **kwargs):
  network = models.residual_mnist(public.input_shape, 10, width=4, seed=0)
  settings = {"epochs": 2, "batch_size": 32, "augmentation": "none"}
  settings.update(kwargs)
  return network, public_training.train_public_classifier(
    network, public, **settings
  )


def test_it_learns_and_its_file_is_the_network(public, tmp_path, capsys):
  path = str(tmp_path / "public.keras")
  network, result = _train(public, epochs=6, learning_rate=1e-2, path=path)
  assert result["test_accuracy"] > 0.8
  assert result["num_train"] == public.num_train
  assert "The public" in json.loads(json.dumps(result))["split"]
  assert "Training residual_mnist" in capsys.readouterr().err
  loaded = tf.keras.models.load_model(path)
  assert loaded.optimizer is None
  np.testing.assert_allclose(
    loaded(public.x_test[:9]), network(public.x_test[:9]), rtol=1e-3, atol=1e-3
  )
  predicted = models.load_classifier(path).predict(public.x_test, verbose=0)
  accuracy = (predicted.argmax(1) == public.y_test).mean()
  assert accuracy == pytest.approx(result["test_accuracy"], abs=1e-6)


@pytest.mark.slow
def test_the_seed_decides(public):
  def weights(seed):
    network, _ = _train(public, seed=seed, augmentation="shift")
    return np.concatenate([w.ravel() for w in network.get_weights()])

  first = weights(1)
  np.testing.assert_allclose(first, weights(1), rtol=0, atol=1e-6)
  assert np.abs(first - weights(2)).max() > 1e-3


def test_batches_hold_every_example_and_move_it_in_the_range(public):
  moved = public.rescaled((-1, 1)).take(64)
  plain, shifted = (
    list(public_training.batches(moved, 3, 0, 16, kind))
    for kind in ("none", "shift")
  )
  assert len(plain) == len(shifted) == 3 * 4
  for epoch in range(3):
    rows = np.concatenate([x for x, _ in plain[4 * epoch : 4 * epoch + 4]])
    order = np.lexsort(rows.reshape(64, -1).T)
    expected = moved.x_train[np.lexsort(moved.x_train.reshape(64, -1).T)]
    np.testing.assert_allclose(rows[order], expected, atol=1e-6)
  labels = [np.concatenate([y for _, y in b]) for b in (plain, shifted)]
  np.testing.assert_array_equal(*labels)
  assert not np.array_equal(labels[0][:64], labels[0][64:128])
  corners = np.concatenate([x for x, _ in shifted])
  assert corners.min() == -1  # what comes in is background
  assert np.abs(corners - np.concatenate([x for x, _ in plain])).max() > 0.5


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"epochs": 0}, "epochs=0"),
    ({"batch_size": 0}, "batch_size=0"),
    ({"learning_rate": 0.0}, r"learning_rate=0\.0 > 0"),
    ({"augmentation": "shfit"}, "Did you mean 'shift'"),
  ],
)
def test_bad_settings_are_refused(public, change, message):
  with pytest.raises(ValueError, match=message):
    _train(public, **change)


@pytest.mark.slow
def test_the_command_writes_the_file_and_prints_what_it_measured(
  tmp_path, command
):
  path = tmp_path / "public.keras"
  words = "--dataset=digits", "--epochs=1", f"--out={path}", "--share=.2"
  result = command("public_classifier", *words)
  assert result.code == 0, result.err
  assert json.loads(result.out)["epochs"] == 1
  assert models.load_classifier(path).output_shape == (None, 10)


def test_the_command_wants_a_file_name(command):
  result = command("public_classifier", "--dataset=digits", "--out=somewhere")
  assert result.code == 2
  assert "Expected --out=somewhere to be a .keras file" in result.err


# Whether a classifier has seen the private examples.

_TRAIN = (
  *("train", "--method=transdenoiser", "--preset=mnist_5k_sound"),
  *("--dataset=digits", "--config.epochs=0.1", "--config.batch_size=100"),
)


@pytest.fixture(scope="module")
def classifier(public, tmp_path_factory):
  path = tmp_path_factory.mktemp("public") / "public.keras"
  network = models.mlp(public.input_shape, 10, hidden=(4,), seed=0)
  public_training.train_public_classifier(
    network, public, epochs=1, augmentation="none", path=str(path)
  )
  return path


def test_training_on_what_the_classifier_has_seen_is_refused(
  classifier, tmp_path, command
):
  """Without --public_share the whole data set is private."""
  words = f"--classifier={classifier}", f"--run_dir={tmp_path / 'run'}"
  result = command(*_TRAIN, *words, "--public_classifier=because I say so")
  assert result.code == 2
  assert "private examples that the weights have not seen" in result.err
  assert len(result.err.strip().splitlines()) == 1
  assert not (tmp_path / "run").exists()


def test_a_file_that_tells_nothing_needs_a_reason(
  classifier, tmp_path, command
):
  silent = tmp_path / "silent.keras"
  models.load_model(classifier).save(silent)
  words = f"--classifier={silent}", f"--run_dir={tmp_path / 'run'}"
  result = command(*_TRAIN, *words)
  assert result.code == 2
  assert "--public_classifier='why" in result.err
  reason = "trained on another country"
  result = command(*_TRAIN, *words, f"--public_classifier={reason}")
  assert result.code == 0, result.err
  assert f"is declared public: {reason}" in result.out


@pytest.mark.slow
def test_a_classifier_of_the_public_share_is_taken(
  classifier, tmp_path, command
):
  words = f"--classifier={classifier}", f"--run_dir={tmp_path / 'run'}"
  result = command(*_TRAIN, *words, "--public_share=0.5")
  assert result.code == 0, result.err
  assert "compared by hash" in result.out


def test_a_private_method_compares_a_classifier_from_a_file(public, classifier):
  private = data.split_public(data.load("digits"), 0.5)[1]
  denoiser = models.denoiser_by_name("smooth_denoiser", (8, 8, 1))
  found = papers.SoundTransDenoiser(denoiser, classifier=classifier)
  found.check_data(private.x_train, private.y_train, (0.0, 1.0))
  with pytest.raises(ValueError, match="have not seen"):
    found.check_data(public.x_train, public.y_train, (0.0, 1.0))
  plain = papers.DenoisedSmoothing(denoiser, classifier=classifier)
  plain.check_data(public.x_train, public.y_train, (0.0, 1.0))
