"""Law: a setting that cannot be meant is refused by name, in one sentence.

For every dataclass of settings and every field, wrong values follow from the
annotated type and from the documented range. A field that is not named below
has the range of its type: numbers are > 0, words come from a list.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil

import numpy as np
import pytest

import tf_privrob
from tf_privrob.records import schema

_WORDS = (1, 1.5, True, ["none"], "no such word")
_NUMBERS = (math.nan, math.inf, -math.inf, -1.0, True, "1", (1.0,))
_ZERO = (0, 0.0)
_FRACTIONS = (0.5, 1.5)
_PAIRS = (
  (math.nan, 1.0),
  (0.0, math.inf),
  (1.0, 0.0),
  (0.5, 0.5),
  (0.0, 0.5, 1.0),
  (0.0,),
  (0.0, None),
  0.5,
  "01",
)

# What is wrong, beside None, for a value of each kind.
_WRONG = {
  "bool": (0, 1, 0.5, "yes", "False", ()),
  "word": _WORDS,
  "text": (1, 1.5, True, ["none"]),
  "float > 0": (*_NUMBERS, *_ZERO),
  "float >= 0": _NUMBERS,
  "0 < float <= 1": (*_NUMBERS, *_ZERO, 1.1),
  "0 < float < 1": (*_NUMBERS, *_ZERO, 1, 1.0, 1.1),
  "0 <= float < 1": (*_NUMBERS, 1, 1.0, 1.1),
  "0 <= float <= 1": (*_NUMBERS, 1.1),
  "|float| <= 4": (math.nan, math.inf, -math.inf, True, "1", (1.0,), -5, 5),
  "int >= 1": (*_NUMBERS, *_ZERO, *_FRACTIONS),
  "int >= 0": (*_NUMBERS, *_FRACTIONS),
  "pair": _PAIRS,
  "moment": (-1, 1.5, True, "", "soon", "-3", "nan", ("1",)),
  "drops": (1, True, ("1:0.5",), "soon", "10", "10:", "10:0", "10:nan", "x:1"),
  "floats >= 0": (1.0, "1", (math.nan,), (math.inf,), (-1.0,), ("1",), (True,)),
  "floats > 0": (0.5, "1", (math.nan,), (math.inf,), (-1.0,), (0.0,), ()),
  "sizes": ((0, 1), (1,), (1, 2, 3), (1.5, 1), (True, 1), 3, "33"),
  "domain": ("interval", 1, True),
  "settings": ("trades", 1, True, {}, {"warmup": "0"}),
}

_OF_A_TYPE = {
  "bool": "bool",
  "float": "float > 0",
  "int": "int >= 1",
  "str": "word",
  "tuple[float, float]": "pair",
  "tuple[float, ...]": "floats > 0",
  "Sequence[float]": "floats > 0",
  "tuple[int, int]": "sizes",
  "bounds.Domain": "domain",
  "ramp_lib.Ramp": "settings",
  "objective_lib.Objective": "settings",
  "noise_layer.NoiseLayer": "settings",
  "Inference": "settings",
  "Moments": "settings",
  "Relevance": "settings",
  "Reading": "settings",
  "ClaimedRobustness": "settings",
  "MeasuredRedistribution": "settings",
  "ReleasedRedistribution": "settings",
}

# Fields with another range than that of their type: by name, or by class and
# name where two classes differ.
_RANGES = {
  "adversarial_ratio": "0 <= float <= 1",
  "adversarial_weight": "float >= 0",
  "attack_eps": "float >= 0",
  "attack_warmup": "int >= 0",
  "augmentation_stddev": "float >= 0",
  "beta": "float >= 0",
  "confidence": "0 < float < 1",
  "decay": "float >= 0",
  "domain_adaptation_weight": "float >= 0",
  "dp_delta": "0 < float < 1",
  "claimed_dp_delta": "0 < float < 1",
  "ema_decay": "0 <= float < 1",
  "entropy_weight": "float >= 0",
  "feature_error": "float >= 0",
  "first_eps": "float >= 0",
  "label_smoothing": "0 <= float <= 1",
  "learning_rate_drops": "drops",
  "margin_floor": "float >= 0",
  "momentum": "0 <= float < 1",
  "mse_share": "0 < float < 1",
  "natural_share": "0 <= float <= 1",
  "natural_term_weight": "float >= 0",
  "net_seed": "int >= 0",
  "noise_after": "int >= 0",
  "noise_multiplier": "float >= 0",
  "radii": "floats >= 0",
  "throwaway_steps": "int >= 0",
  "regularizer_weight": "float >= 0",
  "rho": "0 < float <= 1",
  "robust_dp_delta": "0 < float < 1",
  "sampling_prob": "0 < float <= 1",
  "score_dp_delta": "0 < float < 1",
  "seed": "int >= 0",
  "stddevs": "floats >= 0",
  "stop_risk": "0 < float < 1",
  "training_stddev": "float >= 0",
  "warmup": "moment",
  "weight_decay": "float >= 0",
  "weights": "text",
  "xi_low": "float >= 0",
  "APGD.momentum": "0 < float <= 1",
  "Budget.dp_delta": "0 <= float < 1",
  "Budget.dp_epsilon": "float >= 0",
  "CarliniWagnerL2.confidence": "float >= 0",
  "Ramp.length": "moment",
  "Ramp.start": "moment",
  "Smooth.attack_eps": "float > 0",
  "Smooth.attack_steps": "int >= 0",
  "Relevance.floor": "0 < float <= 1",
  "Release.description": "text",
  "Release.dp_epsilon": "float >= 0",
  "Release.name": "text",
  "ClaimedSizes.attack_eps": "float > 0",
  "SoundDPALConfig.max_attack_eps": "float >= 0",
  "ReleasedRedistribution.power": "|float| <= 4",
  "VerifiedBound.attack_eps": "float > 0",
  "ClaimedInference.attack_eps": "float > 0",
}

# What a class needs beside the field, to be built at all.
_ATTACK = {"attack_eps": 0.1}
_GIVEN = {
  "APGD": _ATTACK,
  "BIM": _ATTACK,
  "Budget": {"dp_epsilon": 1.0, "dp_delta": 1e-5},
  "ExponentialMechanism": {"sensitivity": 1.0, "dp_epsilon": 1.0},
  "FGSM": _ATTACK,
  "FixedBatchSampler": {"num_examples": 10, "batch_size": 2},
  "FullBatchSampler": {"num_examples": 10, "physical_batch_size": 2},
  "FunctionalNoise": {
    "reconstruction_sensitivity": 1.0,
    "label_sensitivity": 1.0,
    "batch_size": 10,
    "dp_epsilon_features": 1.0,
    "dp_epsilon_labels": 1.0,
  },
  "GaussianMechanism": {"l2_sensitivity": 1.0, "stddev": 1.0},
  "HeterogeneousGaussianMechanism": {
    "weighted_sensitivity": 1.0,
    "stddev": 1.0,
  },
  "LaplaceMechanism": {"l1_sensitivity": 1.0, "dp_epsilon": 1.0},
  "LinearMargin": {"lipschitz": 1.0},
  "MIM": _ATTACK,
  "PGD": _ATTACK,
  "PatchMoments": {
    "kernel_size": (3, 3),
    "strides": (1, 1),
    "value_range": (0.0, 1.0),
    "clip": 1.0,
    "mechanism": "gaussian",
    "dp_epsilon": 1.0,
    "dp_delta": 1e-5,
  },
  "PoissonSampler": {
    "num_examples": 10,
    "sampling_prob": 0.5,
    "physical_batch_size": 2,
  },
  "RandomizedSmoothing": {"smoothing_stddev": 0.5},
  "Release": {"name": "labels", "dp_epsilon": 1.0},
  "SPSA": _ATTACK,
  "ShuffleSampler": {
    "num_examples": 10,
    "batch_size": 2,
    "physical_batch_size": 2,
  },
  "SingleLayerCertificate": {
    "scale": 1.0,
    "position": "hidden",
    "operator_norm": 1.0,
  },
  "Trials": {
    "num_classes": 2,
    "batch_size": 5,
    "margins": (0.1,),
    "stddevs": (1.0,),
  },
  "VerifiedBound": _ATTACK,
  "ClaimedInference": {
    "input_scale": 1.0,
    "num_positions": 1,
    "hidden_sensitivity": 1.0,
  },
}

# Fields that are no plain settings; tests of their own try them.
_OTHERS = {
  "Dual.seed",
  "Release.event",
}

# Dataclasses with checks that are abstract, or hold data or results.
_NO_SETTINGS = {
  "GradientAttack",
  "IterativeAttack",
  "Certificate",
  "Dataset",
  "Ensemble",
  "EOT",
  "OperatorNorms",
  "Outputs",
  "PlantedSampler",
  "PresentSampler",
  "PrivacyStatement",
  "Request",
  "RunFacts",
  "Scores",
}


def _classes():
  """Every dataclass of the library that checks its fields, by name."""
  found = {}
  for module in pkgutil.walk_packages(tf_privrob.__path__, "tf_privrob."):
    for value in vars(importlib.import_module(module.name)).values():
      if (
        inspect.isclass(value)
        and value.__module__.startswith("tf_privrob")
        and dataclasses.is_dataclass(value)
        and hasattr(value, "__post_init__")
        and not issubclass(value, schema.Record)  # tests/records has their law
      ):
        found[value.__name__] = value
  return found


_CLASSES = _classes()
_SETTINGS = {
  name: cls
  for name, cls in _CLASSES.items()
  if name not in _NO_SETTINGS and not inspect.isabstract(cls)
}


def _kind(cls, field):
  """The kind of a field's values, and whether None is one of them."""
  annotation = field.type
  if annotation.startswith("Optional["):
    annotation = annotation[len("Optional[") : -1] + " | None"
  plain, *others = annotation.split(" | ")
  named = _RANGES.get(f"{cls.__name__}.{field.name}", _RANGES.get(field.name))
  return named or _OF_A_TYPE[plain], "None" in others


def _build(cls, **values):
  return cls(**{**_GIVEN.get(cls.__name__, {}), **values})


def _plain_fields(cls):
  for field in dataclasses.fields(cls):
    if f"{cls.__name__}.{field.name}" not in _OTHERS:
      yield field


def _complaint(cls, name, value):
  """What is wrong about the refusal of a wrong value; None: nothing."""
  try:
    _build(cls, **{name: value})
  except ValueError as error:
    message = str(error)
    said = message.startswith(("Expected ", "Unknown "))
    return None if said and name in message else f"says {message!r}"
  except Exception as error:
    return f"ends in {error!r}"
  return "is accepted"


@pytest.mark.parametrize("cls", _SETTINGS.values(), ids=_SETTINGS)
def test_wrong_values_are_refused_by_name(cls):
  found = []
  for field in _plain_fields(cls):
    kind, optional = _kind(cls, field)
    for value in (*_WRONG[kind], *(() if optional else (None,))):
      complaint = _complaint(cls, field.name, value)
      if complaint:
        found.append(f"{cls.__name__}({field.name}={value!r}) {complaint}")
  assert found == []


_EDGES = {
  "float >= 0": (0, 0.0),
  "0 < float <= 1": (1, 1.0),
  "0 <= float < 1": (0, 0.0),
  "0 <= float <= 1": (0, 1),
  "|float| <= 4": (-4, 4),
  "int >= 1": (1,),
  "int >= 0": (0,),
}

# Fields whose edges, or whose None, another field or the method rules out.
_RULED_OUT = {
  "noise_multiplier",
  "DPALConfig.batch_size",
  "FixedBatchSampler.num_examples",
  "RandomizedSmoothing.num_estimation",
  "Release.dp_epsilon",
  "SPSA.samples",
  "ShuffleSampler.num_examples",
  "SingleLayerCertificate.num_estimation",
  "SingleLayerCertificate.operator_norm",
}


def _of_numpy(value):
  """The same value as NumPy has it."""
  kinds = {bool: np.bool_, int: np.int64, float: np.float64}
  return kinds.get(type(value), lambda same: same)(value)


@pytest.mark.parametrize("cls", _SETTINGS.values(), ids=_SETTINGS)
def test_edges_and_numpy_scalars_are_accepted(cls):
  built = _build(cls)
  for field in _plain_fields(cls):
    _build(cls, **{field.name: _of_numpy(getattr(built, field.name))})
    if not {field.name, f"{cls.__name__}.{field.name}"} & _RULED_OUT:
      kind, optional = _kind(cls, field)
      for value in (*_EDGES.get(kind, ()), *((None,) if optional else ())):
        _build(cls, **{field.name: value})


def test_every_name_in_the_tables_is_a_field():
  """A field that goes takes its line with it."""
  fields = {
    name
    for cls in _SETTINGS.values()
    for field in dataclasses.fields(cls)
    for name in (field.name, f"{cls.__name__}.{field.name}")
  }
  named = {*_RANGES, *_RULED_OUT, *_OTHERS}
  assert named - fields == set()
  assert {*_GIVEN, *_NO_SETTINGS} - set(_CLASSES) == set()


def test_every_class_of_settings_is_frozen():
  loose = [
    name
    for name, cls in _SETTINGS.items()
    if not cls.__dataclass_params__.frozen
  ]
  assert loose == []
