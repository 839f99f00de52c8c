"""One seed in several processes; docs/notebook.md tells what may differ."""

import os
import subprocess
import sys

import pytest

_TRAIN = """
import dataclasses, hashlib
from tf_privrob import data, methods, models
dataset = data.load("mnist_5k")
config = dataclasses.replace(
  methods.DPSGDConfig.presets()["mnist_5k"], epochs=1, seed=0
)
network = models.by_name({network!r}, dataset.input_shape, 10)
methods.DPSGD(network, config).fit(dataset, verbose=0)
weights = b"".join(w.tobytes() for w in network.get_weights())
print(hashlib.sha256(weights).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
  ("network", "onednn"),
  # With oneDNN, TensorFlow takes one of two kernels for the gradient of a max
  # pooling, not the same one in every process: that pair is left out.
  [("tutorial_cnn_tanh", "0"), ("ibp_small", "0"), ("ibp_small", "1")],
)
def test_every_process_ends_with_the_same_bits(network, onednn):
  found = {
    subprocess.run(
      [sys.executable, "-c", _TRAIN.format(network=network)],
      env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn},
      capture_output=True,
      text=True,
      check=True,
    ).stdout.splitlines()[-1]
    for _ in range(6)
  }
  assert len(found) == 1
