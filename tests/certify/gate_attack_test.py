"""What an attacker of the gate found: false rows, and files of other models."""

import numpy as np
import pytest
import tensorflow as tf

from tests import foreign
from tf_privrob import bounds
from tf_privrob import certify
from tf_privrob import layers as privrob_layers
from tf_privrob import models
from tf_privrob import papers

_layers = tf.keras.layers
X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


def dense(*before, units=2, shape=(4,), kernel=None):
  model = tf.keras.Sequential(
    [_layers.Input(shape), *before, _layers.Dense(units)]
  )
  if kernel is not None:
    model.layers[-1].kernel.assign(kernel)
  return model


# Linear models.


def test_a_scale_of_another_shape_belongs_to_the_features():
  """Radius 999.999 was proven where the class turned at 0.01."""
  rescaling = _layers.Rescaling(np.array([[1000.0, 0.001]]))
  model = dense(rescaling, shape=(2,), kernel=[[-1.0, 1.0], [0.0, 0.0]])
  model.layers[-1].bias.assign([1.0, 0.0])
  row = certify.LinearMargin().certify(model, np.zeros([1, 2], np.float32))[0]
  assert row.radius == pytest.approx(1 / 2000 / np.sqrt(1), rel=1e-3)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_sum_that_may_overflow_has_no_radius(norm):
  """The class turned at 0.052 of 0.1275: minus infinity was a logit."""
  kernel = np.zeros([4, 2])
  kernel[:, 0] = 3.4e38
  model = dense(kernel=kernel)
  x = np.array([[-0.99, 0.5, 0.5, 0.5]], np.float32)
  assert certify.LinearMargin(norm).certify(model, x)[0].radius == 0


def test_a_value_that_may_overflow_on_the_way_ends_the_radius():
  """99.99 was proven; the model returned NaN at a distance of 5."""
  kernel = [[2e-38, 0.0], [0.0, 2e-38]]
  model = dense(_layers.Rescaling(1e38), shape=(2,), kernel=kernel)
  row = certify.LinearMargin("linf").certify(model, np.float32([[0.05, -1e-3]]))
  assert row[0].radius < 1


def test_logits_that_are_no_numbers_are_refused():
  kernel = [[2e-38, 0.0], [0.0, 2e-38]]
  model = dense(_layers.Rescaling(1e38), shape=(2,), kernel=kernel)
  with pytest.raises(ValueError, match="within rounding of those"):
    certify.LinearMargin().certify(model, np.float32([[1.0, 5.0]]))


def test_moderate_linear_models_lose_nothing():
  kernel = np.random.default_rng(1).normal(size=(4, 2))
  rows = certify.LinearMargin().certify(dense(kernel=kernel), X)
  gap = kernel[:, 0] - kernel[:, 1]
  exact = np.abs(X @ gap) / np.linalg.norm(gap)
  np.testing.assert_allclose([row.radius for row in rows], exact, rtol=1e-3)


# Objects and switches.


def pooled():
  model = tf.keras.Sequential(
    [
      _layers.Input((4, 4, 1)),
      _layers.AveragePooling2D(),
      _layers.Flatten(),
      _layers.Dense(2),
    ]
  )
  return model, np.ones([1, 4, 4, 1], np.float32)


@pytest.mark.parametrize(
  "function", [lambda *a, **k: tf.nn.max_pool(*a, **k), tf.nn.max_pool]
)
def test_a_function_that_a_layer_was_given_is_refused(function):
  model, x = pooled()
  before = models.model_hash(model)
  model.layers[0].pool_function = function
  with pytest.raises(ValueError, match="pool_function was replaced"):
    certify.VerifiedBound(0.1).certify(model, x)
  assert models.model_hash(model) != before


def test_a_history_that_was_changed_is_refused():
  model = dense(_layers.Dense(3))
  foreign.give_history(model.outputs[0], dense().outputs[0])
  with pytest.raises(ValueError, match="as Keras made it"):
    certify.VerifiedBound(0.1).certify(model, X)


def test_shorter_products_by_a_switch_are_refused():
  """5 of 64 radii fell in a graph, none in the eager passes looked at."""
  name = "auto_mixed_precision_onednn_bfloat16"
  tf.config.optimizer.set_experimental_options({name: True})
  try:
    for certifier in (
      certify.VerifiedBound(0.1),
      certify.RandomizedSmoothing(0.5, num_estimation=100),
    ):
      with pytest.raises(ValueError, match=name):
        certifier.certify(dense(), X)
  finally:
    tf.config.optimizer.set_experimental_options({name: False})


def test_a_network_put_in_the_place_of_another_is_refused():
  config = papers.PixelDPConfig()
  first, second = (
    tf.keras.Sequential(
      [_layers.Input((4,)), _layers.Dense(5, "relu"), _layers.Dense(2)]
    )
    for _ in range(2)
  )
  method = papers.PixelDP(first, config)
  method.network = second
  with pytest.raises(ValueError, match="the network that this model was made"):
    method.certifier(num_estimation=100).certify(method, X)


# Names of models.


def changed_kernel(model):
  layer = model.layers[-1]
  kernel = layer.kernel.numpy()
  object.__setattr__(layer, "kernel", None)
  layer.__dict__["kernel"] = -kernel


def unmasked(model):
  model.layers[0].supports_masking = not model.layers[0].supports_masking


def thawed(model):
  model.layers[0].trainable = False


@pytest.mark.parametrize(
  ("build", "change"),
  [
    (dense, changed_kernel),
    (lambda: dense(_layers.Masking(), shape=(3, 4)), unmasked),
    (lambda: dense(_layers.BatchNormalization()), thawed),
  ],
)
def test_what_computes_otherwise_has_another_name(build, change):
  model = build()
  before = models.model_hash(model)
  assert before
  change(model)
  assert models.model_hash(model) != before


def test_filters_beside_the_weights_count():
  model = models.scattering_linear((28, 28, 1), 3)
  before = models.model_hash(model)
  layer = next(
    part for part in model.layers if type(part) is privrob_layers.Scattering
  )
  waves, _ = layer.filters
  waves *= 10
  assert models.model_hash(model) != before


@pytest.mark.parametrize("rows", [1, 4, 12])
def test_a_model_that_was_called_once_can_be_certified(rows):
  """9 of 9 were refused: Keras forgets the size of the first batch."""
  model = tf.keras.Sequential([_layers.Dense(3, "relu"), _layers.Dense(2)])
  model(X[:rows])
  for certifier in (
    certify.VerifiedBound(0.1),
    certify.RandomizedSmoothing(0.5, num_estimation=100),
  ):
    assert len(certifier.certify(model, X)) == len(X)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_loaded_model_has_the_name_that_it_had(tmp_path, suffix):
  model = dense(_layers.Rescaling(0.5), _layers.BatchNormalization())
  model.save(tmp_path / f"model{suffix}")
  loaded = models.load_model(tmp_path / f"model{suffix}")
  assert models.model_hash(loaded) == models.model_hash(model)


# Files.


def certified(model, path, x=X):
  return certify.run(
    certify.VerifiedBound(0.05, bounds.Interval()),
    model,
    x,
    csv_path=path,
    progress=False,
  )


def audited(model, x, rows, **changes):
  return certify.audit_certificates(
    certify.VerifiedBound(0.05, bounds.Interval()),
    model,
    x,
    rows,
    steps=2,
    num_random=2,
    progress=False,
    **changes,
  )


def verifiable():
  kernel = np.zeros([4, 2])
  kernel[:, 0] = 1
  return dense(kernel=kernel)


def test_rows_of_one_model_are_not_audited_on_another(tmp_path):
  rows = certified(verifiable(), tmp_path / "a.csv")
  with pytest.raises(ValueError, match="Expected rows of model"):
    audited(dense(), X, rows)


def test_an_audit_of_other_inputs_is_not_resumed(tmp_path):
  """Shifted inputs got the "no violation" of those before."""
  model = verifiable()
  rows = certified(model, tmp_path / "a.csv")
  audited(model, X, rows, csv_path=tmp_path / "audit.csv")
  with pytest.raises(ValueError, match="inputs_sha256"):
    audited(model, X + 0.3, rows, csv_path=tmp_path / "audit.csv")


def test_a_row_of_no_input_is_refused(tmp_path):
  model, path = verifiable(), tmp_path / "a.csv"
  certified(model, path)
  lines = path.read_text().splitlines()
  for line in (lines[1], "99" + lines[1][1:]):
    path.write_text("\n".join([*lines, line]) + "\n")
    with pytest.raises(ValueError, match="a row twice or of no input"):
      certified(model, path)


@pytest.mark.parametrize("content", ["", '{"settings": ', "[1]", "{}"])
def test_a_side_file_that_is_cut_off_is_named(tmp_path, content):
  model, path = verifiable(), tmp_path / "a.csv"
  certified(model, path)
  (tmp_path / "a.csv.json").write_text(content)
  for call in (lambda: certified(model, path), lambda: certify.read(path)):
    with pytest.raises(ValueError, match="cut off or of something else"):
      call()
