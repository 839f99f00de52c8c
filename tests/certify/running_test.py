"""Files of certificates: crash, resume, refusal."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import certify
from tf_privrob.certify import certificate

ROOT = pathlib.Path(__file__).parents[2]
WEIGHTS = np.random.RandomState(0).randn(6, 3).astype(np.float32)
X = np.random.RandomState(1).randn(12, 6).astype(np.float32)
Y = np.arange(12) % 3
SMOOTHING = certify.RandomizedSmoothing(0.7, num_estimation=500)


def linear(x):
  return tf.matmul(x, WEIGHTS)


def run(path=None, certifier=SMOOTHING, logits_fn=linear, x=X, y=Y, **kwargs):
  kwargs = {"seed": 3, "progress": False, "model_id": "linear", **kwargs}
  return certify.run(certifier, logits_fn, x, y, csv_path=path, **kwargs)


def certified():
  return SMOOTHING.certify(linear, X, Y, seed=3, model_id="linear")


def content(rows):
  return [dataclasses.replace(row, seconds=0.0, stamp="") for row in rows]


def read(path):
  lines = pathlib.Path(path).read_text().splitlines()
  assert lines[0].split(",") == list(certificate.csv_fields())
  return [
    certify.Certificate.from_csv_row(line.split(",")) for line in lines[1:]
  ]


def test_the_file_holds_what_is_returned(tmp_path):
  path = tmp_path / "deep" / "certificates.csv"
  rows = run(path)
  assert read(path) == rows
  assert content(rows) == content(certified())
  assert content(run()) == content(rows)


def test_a_complete_file_is_returned_without_work(tmp_path):
  path = tmp_path / "c.csv"
  rows = run(path)
  before = path.read_bytes()
  assert run(path) == rows
  assert path.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 10, 45])
def test_a_torn_last_row_is_dropped_and_done_again(tmp_path, cut):
  path = tmp_path / "c.csv"
  rows = run(path)
  whole = path.read_bytes()
  path.write_bytes(whole[:-cut])
  assert content(run(path)) == content(rows)
  assert content(read(path)) == content(rows)


@pytest.mark.parametrize("keep", [0, 10])
def test_a_torn_header_is_written_again(tmp_path, keep):
  path = tmp_path / "c.csv"
  rows = run(path)
  path.write_bytes(path.read_bytes()[:keep])
  assert content(run(path)) == content(rows)
  assert content(read(path)) == content(rows)


_PROGRAM = """
from tests.certify import running_test as this
this.run({path!r}, this.LONG, this.slow, radii={radii!r})
"""
LONG = certify.RandomizedSmoothing(0.7, num_estimation=4_000)


def slow(x):
  """`linear`, with enough work beside it to be killed in time."""
  waste = tf.fill([500, 500], 0.1 * tf.cast(tf.shape(x)[0], tf.float32))
  return linear(x) + 0.0 * tf.reduce_mean(tf.matmul(waste, waste))


def count_lines(path):
  return pathlib.Path(path).read_bytes().count(b"\n")


@pytest.mark.parametrize(
  "radii", [None, pytest.param((0.1, 0.5), marks=pytest.mark.slow)]
)
def test_killed_and_resumed_equals_uninterrupted(tmp_path, radii):
  path = str(tmp_path / "c.csv")
  environment = {**os.environ, "PYTHONPATH": str(ROOT)}
  process = subprocess.Popen(
    [sys.executable, "-c", _PROGRAM.format(path=path, radii=radii)],
    cwd=ROOT,
    env=environment,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  deadline = time.monotonic() + 120
  while time.monotonic() < deadline and process.poll() is None:
    if os.path.exists(path) and count_lines(path) > 3:
      break
    time.sleep(0.001)
  process.send_signal(signal.SIGKILL)
  assert process.wait() == -signal.SIGKILL
  kept = pathlib.Path(path).read_bytes()
  kept = kept[: kept.rfind(b"\n") + 1]
  assert 3 < kept.count(b"\n") < 1 + len(X)
  wanted = run(None, LONG, slow, radii=radii)
  assert content(run(path, LONG, slow, radii=radii)) == content(wanted)
  assert content(read(path)) == content(wanted)
  assert pathlib.Path(path).read_bytes().startswith(kept)


def test_ctrl_c_leaves_a_valid_file(tmp_path):
  path = tmp_path / "c.csv"

  class Interrupted(certify.RandomizedSmoothing):
    def _stream(self, *args):
      for number, row in enumerate(super()._stream(*args)):
        if number == 5:
          raise KeyboardInterrupt
        time.sleep(0.1)  # longer than rows are held back
        yield row

    def settings(self):
      return SMOOTHING.settings()

  with pytest.raises(KeyboardInterrupt):
    run(path, certifier=Interrupted(0.7, num_estimation=500))
  assert len(read(path)) == 5
  assert content(run(path)) == content(certified())


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"seed": 4}, r"seed = \[3\] in the file, \[4\] now"),
    (
      {"certifier": dataclasses.replace(SMOOTHING, smoothing_stddev=0.6)},
      "smoothing_stddev = 0.7 in the file, 0.6 now",
    ),
    ({"radii": [0.1]}, r"radii = \[\] in the file, \[0.1\] now"),
    ({"x": X + 0.01}, "inputs_sha256"),
    ({"y": (Y + 1) % 3}, "inputs_sha256"),
    ({"x": X[:5], "y": Y[:5]}, "num_inputs = 12 in the file, 5 now"),
    ({"model_id": "other"}, "model [0-9a-f]{16} in the file, [0-9a-f]{16} now"),
  ],
)
def test_another_file_is_refused_and_kept(tmp_path, change, message):
  path = tmp_path / "c.csv"
  run(path)
  before = path.read_bytes()
  with pytest.raises(ValueError, match=f"Cannot resume .*{message}"):
    run(path, **change)
  assert path.read_bytes() == before
  rows = run(path, resume=False, **change)
  assert read(path) == rows
  assert run(path, **change) == rows


def test_batch_size_may_change_on_resume(tmp_path):
  path = tmp_path / "c.csv"
  rows = run(path)
  other = dataclasses.replace(SMOOTHING, batch_size=50, num_classes=3)
  assert run(path, certifier=other) == rows


def test_a_file_without_its_sidecar_is_refused(tmp_path):
  path = tmp_path / "c.csv"
  run(path)
  os.remove(tmp_path / "c.csv.json")
  with pytest.raises(ValueError, match="nobody knows what made the rows"):
    run(path)


def test_a_damaged_row_is_named(tmp_path):
  path = tmp_path / "c.csv"
  run(path)
  lines = path.read_text().splitlines()
  lines[4] = lines[4].replace("l2", "l7")
  path.write_text("\n".join(lines) + "\n")
  with pytest.raises(ValueError, match=r"Cannot read line 5 .*Unknown norm"):
    run(path)


def test_progress_reports_eta_and_accuracy(tmp_path, capsys):
  run(tmp_path / "c.csv", progress=True)
  error = capsys.readouterr().err
  assert "certify: 12/12 (100%)" in error
  assert "ETA" in error
  assert "mean certified radius" in error
  run(progress=False)
  assert capsys.readouterr().err == ""


def test_a_deterministic_certifier_fits(tmp_path):
  @dataclasses.dataclass(frozen=True)
  class Margin(certify.Certifier):
    """Half the gap of two logits over a Lipschitz constant: a toy."""

    lipschitz: float = 5.0

    def _stream(self, door, x, y, seed, indices):
      logits_fn = door.model
      door.rows(logits_fn, [x])
      logits = np.sort(logits_fn(x).numpy(), axis=1)
      classes = logits_fn(x).numpy().argmax(1)
      for number, index in enumerate(indices):
        gap = logits[number, -1] - logits[number, -2]
        yield certify.Certificate(
          index=index,
          label=int(y[number]),
          prediction=int(classes[number]),
          radius=float(gap / self.lipschitz / 2),
          norm="l2",
          abstained=False,
          confidence=1.0,
          kind="proven",
          method="margin",
        )

  path = tmp_path / "c.csv"
  rows = run(path, certifier=Margin(), radii=[0.1])
  assert run(path, certifier=Margin()) == rows
  assert certify.certified_accuracy(rows, [0.0], 0.1)[0]["radius"] == 0.0
  with pytest.raises(ValueError, match=r"lipschitz = 5.0 in the file"):
    run(path, certifier=Margin(6.0))
