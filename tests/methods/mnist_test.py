"""The first section of docs/notebook.md, on the full data set."""

import pytest

from tf_privrob import methods
from tf_privrob import models


@pytest.mark.slow
def test_mnist_at_epsilon_three(real_data):
  dataset = real_data("mnist")
  network = models.by_name(
    "tutorial_cnn_tanh", dataset.input_shape, dataset.num_classes
  )
  model = methods.DPSGD(network, methods.preset("dp_sgd", "mnist"))
  model.fit(dataset, verbose=0)
  _, accuracy = model.evaluate(dataset.x_test, dataset.y_test, verbose=0)
  assert accuracy >= 0.97
  proven = model.privacy_statement().proven
  assert proven.dp_epsilon <= 3.0
  assert proven.dp_delta == 1e-5
