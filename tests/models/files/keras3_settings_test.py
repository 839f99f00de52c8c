"""Settings of Keras 3 are taken where Keras 2 has built in the same."""

import pytest

from tf_privrob.models.files import keras3_settings
from tf_privrob.models.files import known


def _translated(name, **config):
  return keras3_settings.translated(name, config, lambda value: value)


@pytest.mark.parametrize(
  ("name", "key", "same", "other"),
  [
    ("Dense", "quantization_config", None, {"class_name": "Int8"}),
    ("EinsumDense", "lora_rank", None, 4),
    ("Embedding", "mask_zero", False, True),
    ("InputLayer", "optional", False, True),
    ("LayerNormalization", "rms_scaling", False, True),
    ("BatchNormalization", "renorm", False, True),
    ("MultiHeadAttention", "use_gate", False, True),
    ("MultiHeadAttention", "sliding_window", None, 3),
    ("MultiHeadAttention", "flash_attention", None, True),
    ("Resizing", "antialias", False, True),
    ("Resizing", "pad_to_aspect_ratio", False, True),
    ("Resizing", "data_format", "channels_last", "channels_first"),
    ("ZeroPadding1D", "data_format", "channels_last", "channels_first"),
    ("RandomFlip", "data_format", "channels_last", "channels_first"),
  ],
)
def test_a_new_setting_has_the_value_that_keras_2_built_in(
  name, key, same, other
):
  _translated(name, **{key: same})
  with pytest.raises(known.RefusedError, match=f"{name} of Keras 3 with {key}"):
    _translated(name, **{key: other})


@pytest.mark.parametrize("value", [0, 0.0, "", [], "False", None])
def test_what_only_looks_like_false_is_refused(value):
  with pytest.raises(known.RefusedError, match="rms_scaling"):
    _translated("LayerNormalization", rms_scaling=value)


def test_output_padding_means_another_thing_in_each_version():
  """In 3.3 to 3.10 an output of 12 places, in 3.15 and Keras 2 one of 11."""
  found = {"filters": 3, "data_format": "channels_last", "output_padding": None}
  assert _translated("Conv2DTranspose", **found) == found
  with pytest.raises(known.RefusedError, match="output_padding"):
    _translated("Conv2DTranspose", **{**found, "output_padding": [1, 1]})


@pytest.mark.parametrize("value", [[1, 2, 1], 2, "same", [True, 1, 1]])
def test_a_dilation_that_keras_2_passes_over_is_refused(value):
  found = {"data_format": "channels_last", "dilation_rate": [1, 1, 1]}
  assert _translated("Conv3DTranspose", **found) == found
  with pytest.raises(known.RefusedError, match="with dilation_rate"):
    _translated("Conv3DTranspose", **{**found, "dilation_rate": value})


@pytest.mark.parametrize("name", ["int32", "bool", "uint8"])
def test_a_layer_of_whole_numbers_is_refused(name):
  """Keras 3 casts what such a layer is called on, Keras 2 does not."""
  _translated("InputLayer", dtype=name)
  with pytest.raises(known.RefusedError, match=f"Add .* with dtype={name}"):
    _translated("Add", dtype=name)
  for same in ("float16", "bfloat16", "mixed_bfloat16", "float64"):
    _translated("Add", dtype=same)


def test_settings_have_other_names():
  assert _translated("LeakyReLU", negative_slope=0.1) == {"alpha": 0.1}
  assert _translated("InputLayer", batch_shape=[None, 4]) == {
    "batch_input_shape": [None, 4]
  }
  with pytest.raises(known.RefusedError, match="LeakyReLU with alpha"):
    _translated("LeakyReLU", negative_slope=0.1, alpha=0.3)


@pytest.mark.parametrize(
  ("name", "found"),
  [
    ("relu", "relu"),
    ("silu", "swish"),
    ("relu6", {"class_name": "ReLU", "config": {"max_value": 6.0}}),
    ("leaky_relu", {"class_name": "LeakyReLU", "config": {"alpha": 0.2}}),
  ],
)
def test_activations(name, found):
  assert _translated("Activation", activation=name) == {"activation": found}


@pytest.mark.parametrize(
  ("name", "key"),
  [
    ("ConvLSTM2D", "recurrent_activation"),
    ("Conv1D", "data_format"),
    ("MaxPooling2D", "pool_size"),
  ],
)
def test_no_default_takes_the_place_of_a_missing_setting(name, key):
  with pytest.raises(known.RefusedError, match=f"{name} without .*{key}"):
    _translated(name)


@pytest.mark.parametrize("name", ["Dropout", "LSTM", "MultiHeadAttention"])
def test_a_seed_is_a_number(name):
  with pytest.raises(known.RefusedError, match="a seed"):
    _translated(name, seed={"class_name": "SeedGenerator", "config": {}})


def test_types_are_names():
  policy = {
    "module": "keras",
    "class_name": "DTypePolicy",
    "config": {"name": "mixed_bfloat16"},
    "registered_name": None,
    "shared_object_id": 7,
  }
  assert keras3_settings.dtype(policy) == "mixed_bfloat16"
  assert keras3_settings.dtype("float64") == "float64"
  for wrong in ("object", 3, None, ["float32"]):
    with pytest.raises(known.RefusedError, match="a dtype"):
      keras3_settings.dtype(wrong)
