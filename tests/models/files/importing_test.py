"""Weights of checkpoints and npz files, by name or by shape."""

import numpy as np
import pytest
import tensorflow as tf

from tf_privrob import models

_SHAPE = (16, 16, 1)


def _network(seed=0, **changes):
  return models.yale_cnn(_SHAPE, 5, scale=2, seed=seed, **changes)


def _arrays(seed=1):
  """As the authors' code names them, with what Adam keeps."""
  network = _network(seed)
  names = models.names_of_ccs_2019(network)
  values = dict(zip(names, (w.numpy() for w in network.weights)))
  slots = {f"{n}/Adam": np.zeros_like(v) for n, v in values.items()}
  return network, {**values, **slots, "beta1_power": np.float32(0.1)}


def _checkpoint(path, arrays, **more):
  tensors = {**arrays, "global_step": np.int64(7), **more}
  tf.raw_ops.SaveV2(
    prefix=str(path),
    tensor_names=list(tensors),
    shape_and_slices=[""] * len(tensors),
    tensors=list(tensors.values()),
  )
  return path


def test_names_are_those_of_the_released_checkpoints():
  """Read from the index of the published checkpoint for faces."""
  network = models.yale_cnn()
  shapes = dict(
    zip(
      models.names_of_ccs_2019(network),
      (tuple(weight.shape) for weight in network.weights),
    )
  )
  assert len(shapes) == len(network.weights) == 12
  assert shapes["conv_0/DW"] == (3, 3, 1, 8)
  assert shapes["conv_7/DW"] == (3, 3, 64, 64)
  assert shapes["logit/DW_0"] == (8448, 200)
  assert shapes["logit/biases_1"] == (38,)


@pytest.mark.parametrize("kind", ["checkpoint", "npz"])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_network_gets_the_weights_of_a_file(tmp_path, kind, by_name):
  """All shapes of this network differ, so that names are not needed."""
  trained, arrays = _arrays()
  if kind == "npz":
    names = models.names_of_ccs_2019(trained)
    path = tmp_path / "weights.npz"
    np.savez(path, **{name: arrays[name] for name in names})
  else:
    path = _checkpoint(tmp_path / "checkpoint", arrays)
  network = _network(seed=2)
  x = np.random.default_rng(0).random((3, *_SHAPE), "float32")
  assert not np.allclose(network(x), trained(x))
  names = models.names_of_ccs_2019(network) if by_name else None
  models.import_weights(network, path, names)
  np.testing.assert_array_equal(network(x), trained(x))


def _refused(path, network=None, names=None):
  network = network or _network(seed=2)
  before = [w.numpy() for w in network.weights]
  with pytest.raises(ValueError, match="file") as caught:
    models.import_weights(network, path, names)
  for weight, value in zip(network.weights, before):
    np.testing.assert_array_equal(weight, value)
  return str(caught.value)


@pytest.mark.parametrize("ending", ["pt", "pth", "net"])
def test_pickles_are_not_opened(tmp_path, ending):
  path = tmp_path / f"model_robust.{ending}"  # which is not even there
  assert "to read it is to run it" in _refused(path)


def test_what_does_not_fit_is_refused_and_nothing_is_changed(tmp_path):
  _, arrays = _arrays()
  names = models.names_of_ccs_2019(_network())
  path = _checkpoint(tmp_path / "twice", arrays, other=arrays["conv_3/DW"])
  assert "has 2 arrays of shape (3, 3, 4, 4)" in _refused(path)
  renamed = {k.replace("logit", "head"): v for k, v in arrays.items()}
  path = _checkpoint(tmp_path / "renamed", renamed)
  assert "has no array 'logit/DW_0'" in _refused(path, names=names)
  wide = models.yale_cnn(_SHAPE, 5, scale=4)
  path = _checkpoint(tmp_path / "small", arrays)
  assert "of shape (3, 3, 1, 2), expected (3, 3, 1, 4)" in _refused(
    path, wide, names
  )
  assert "was asked for 2 names" in _refused(path, names=names[:2])
  arrays["conv_0/DW"] = arrays["conv_0/DW"] * np.nan
  path = _checkpoint(tmp_path / "nan", arrays)
  assert "NaN or infinity in 'conv_0/DW'" in _refused(path, names=names)


def test_files_that_are_none_of_these(tmp_path):
  assert "there is no nothing.index" in _refused(tmp_path / "nothing")
  path = _checkpoint(tmp_path / "broken", _arrays()[1])
  (data,) = tmp_path.glob("broken.data-*")
  data.write_bytes(data.read_bytes()[:500])
  assert "describes" in _refused(path)
  (tmp_path / "broken.index").write_bytes(b"hello")
  assert "cannot be read" in _refused(path)
  (tmp_path / "text.npz").write_text("hello")
  assert "npz file of plain arrays" in _refused(tmp_path / "text.npz")
