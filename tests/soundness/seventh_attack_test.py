"""What the attacker of 19 November, evening, found, and what came of it.

He resumed runs with other public weights, made sizes of numbers that look like
shapes, asked for figures beyond what an exponential can hold, and put earlier
statements back.
"""

from __future__ import annotations

import json
import math
import warnings

import mpmath
import numpy as np
import pytest
import tensorflow as tf

from tests.papers.transdenoiser import transdenoiser_cases as denoising
from tests.soundness import small_runs
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob import run_folder
from tf_privrob.privacy import stated
from tf_privrob.report import counted

_layers = tf.keras.layers


# Weights that `fit` keeps are those of the first session, or none.


def _frozen(sign):
  """A linear classifier behind a frozen layer that turns the inputs or not."""
  network = tf.keras.Sequential(
    [
      _layers.Input((6,)),
      _layers.Dense(6, use_bias=False, trainable=False),
      _layers.Dense(3, kernel_initializer="ones"),
    ]
  )
  network.layers[0].set_weights([sign * np.eye(6, dtype="float32")])
  return small_runs.method(network, public_weights="of a textbook", seed=None)


def _interrupted(method, arrays, folder):
  with pytest.raises(KeyboardInterrupt):
    method.fit(
      *arrays, run_dir=folder, callbacks=[small_runs.Stop()], verbose=0
    )


def test_a_run_is_not_resumed_with_other_public_weights(tmp_path):
  arrays = small_runs.arrays()
  _interrupted(_frozen(1.0), arrays, tmp_path)
  with pytest.raises(privacy.LedgerError, match="kept_weights"):
    _frozen(-1.0).fit(*arrays, run_dir=tmp_path, resume=True, verbose=0)
  _frozen(1.0).fit(*arrays, run_dir=tmp_path, resume=True, verbose=0)


def _sound(sign=1.0, **given):
  classifier = denoising.classifier()
  classifier.set_weights([sign * w for w in classifier.get_weights()])
  config = denoising.SOUND.changed(seed=None)
  return papers.SoundTransDenoiser(
    denoising.denoiser(), config, classifier=classifier, **given
  )


@pytest.mark.parametrize(
  ("began", "other", "name"),
  [
    ({"sign": 1.0}, {"sign": -1.0}, "kept_weights"),
    (
      {"public_classifier": "scans of another hospital"},
      {"public_classifier": "ImageNet"},
      "public_classifier",
    ),
    (
      {"public_data": np.zeros((3, denoising.SIZE), "float32")},
      {},
      "public_data",
    ),
  ],
)
def test_a_denoiser_is_not_resumed_behind_another_classifier(
  tmp_path, began, other, name
):
  """Its weights came back from the first session, under the second's word."""
  arrays = denoising.arrays()
  _interrupted(_sound(**began), arrays, tmp_path)
  with pytest.raises(privacy.LedgerError, match=name):
    _sound(**other).fit(*arrays, run_dir=tmp_path, resume=True, verbose=0)


# Numbers of an example in the place of a shape.


class _Broadcast(_layers.Layer):
  """Axes along which a shape that the input gives would be broadcast."""

  def call(self, x):
    sizes = 2 * tf.cast(x[0, :1] >= 1, tf.int32) + 1
    axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=sizes, s1=[3])
    return x + tf.cast(tf.size(axes), x.dtype)


def test_numbers_in_the_place_of_a_shape_are_named():
  network = tf.keras.Sequential(
    [_layers.Input((6,)), _Broadcast(), _layers.Dense(3)]
  )
  method = small_runs.method(network, seed=None)
  x, y = small_runs.arrays()
  with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    method.fit(0.4 * x, y, verbose=0)
  said = " ".join(str(warning.message) for warning in told)
  assert "one after the other" in said
  assert "may end this training by the operation BroadcastGradientArgs" in said
  assert method.privacy_statement().proven is None


# Figures whose exponential is too large for a float.


def _removed(noise, prob, dp_epsilon):
  """The dp_delta of one use where an example is removed, to 60 digits."""
  with mpmath.workdps(60):
    z, q = mpmath.mpf(noise), mpmath.mpf(prob)
    loss = mpmath.log(1 + (mpmath.exp(dp_epsilon) - 1) / q)
    end = z * z * loss + mpmath.mpf(1) / 2
    root = mpmath.sqrt(2)
    above = [mpmath.erfc((end - mean) / z / root) / 2 for mean in (0, 1)]
    mixed = (1 - q) * above[0] + q * above[1]
    return mixed - mpmath.exp(dp_epsilon) * above[0]


@pytest.mark.parametrize(
  ("noise", "prob", "dp_delta", "least"),
  [
    (0.01, 0.5, 1e-5, 5409.0),
    (0.02, 0.1, 1e-5, 1432.6),
    (0.03, 0.5, 1e-9, 750.0),
    (0.03, 0.9, 1e-12, 788.5),
  ],
)
def test_no_figure_is_below_one_that_overflows(noise, prob, dp_delta, least):
  """PLD stated 707 to 709.7 for each."""
  assert _removed(noise, prob, least) > dp_delta
  found = privacy.figures([privacy.poisson_sgd(noise, prob, 1)], dp_delta)
  assert min(found.pld, found.rdp) >= least


def test_large_losses_below_that_are_those_of_an_integral():
  found = privacy.figures([privacy.poisson_sgd(0.04, 0.5, 1)], 1e-5).pld
  assert _removed(0.04, 0.5, found) <= 1e-5
  assert _removed(0.04, 0.5, 0.995 * found) > 1e-5


@pytest.mark.parametrize("noise", [0.01, 0.02])
def test_many_uses_of_almost_no_noise_have_no_figure(noise):
  """The sum of squares raised OverflowError."""
  found = privacy.figures([privacy.poisson_sgd(noise, 0.5, 1000)], 1e-5)
  assert found.pld == math.inf


@pytest.mark.parametrize("scale", [0.001, 0.0014, 0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("prob", [1e-9, 0.1, 1 - 1e-12])
def test_sampled_laplace_noise_of_any_scale_has_a_figure(scale, prob):
  """Some raised OverflowError, MemoryError for 591 GiB, or ValueError."""
  import dp_accounting

  event = dp_accounting.PoissonSampledDpEvent(
    prob, dp_accounting.LaplaceDpEvent(scale)
  )
  found = privacy.figures(event, 1e-5)
  amplified = math.log1p(prob * math.expm1(1 / scale)) if scale > 0.01 else None
  for figure in (found.pld, found.rdp):
    assert 0 <= figure <= 1 / scale * (1 + 1e-9)
    if amplified is not None:
      assert figure <= amplified * (1 + 1e-9) + 1e-15


# An earlier statement is another text.


def test_an_earlier_statement_that_is_put_back_proves_nothing(tmp_path):
  small_runs.fit(small_runs.method(seed=None), run_dir=tmp_path)
  folder = run_folder.RunFolder(tmp_path)
  path = tmp_path / "privacy.json"
  before = path.read_bytes()
  stated.caution(folder, stated.REFERENCES)
  assert stated.REFERENCES in counted.read(folder).caveats
  path.write_bytes(before)
  assert counted.read(folder).proven is None
  stated.caution(folder, stated.BEGUN)  # does not make it the run's own
  assert counted.read(folder).proven is None


def _killed(path, text):
  raise KeyboardInterrupt


def test_who_is_killed_between_note_and_file_loses_nothing(
  tmp_path, monkeypatch
):
  small_runs.fit(small_runs.method(seed=None), run_dir=tmp_path)
  folder = run_folder.RunFolder(tmp_path)
  with monkeypatch.context() as patched:
    patched.setattr(stated.files, "write_text", _killed)
    with pytest.raises(KeyboardInterrupt):
      stated.caution(folder, stated.REFERENCES)
  assert counted.read(folder).proven is not None
  stated.caution(folder, stated.REFERENCES)
  assert counted.read(folder).proven is not None
  lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
  assert json.loads(lines[-1])["before"] is None


# Before the first step, too, an error is remembered.


def test_an_error_of_what_is_released_before_the_steps_is_remembered(tmp_path):
  class Fails(methods.DPSGD):
    def begin(self, x, y, value_range):
      raise FloatingPointError("an example may have caused it")

  network = models.mlp((6,), 3, hidden=())
  method = Fails(network, small_runs.CONFIG)
  with pytest.raises(FloatingPointError):
    small_runs.fit(method, run_dir=tmp_path)
  facts = privacy.read_ledger(tmp_path / "ledger.jsonl").facts
  assert "ended_by_error" in facts
