"""Attacks by name, for flags and configuration files."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_privrob import validate
from tf_privrob.attacks import apgd
from tf_privrob.attacks import base
from tf_privrob.attacks import carlini_wagner
from tf_privrob.attacks import gradient
from tf_privrob.attacks import spsa

_CLASSES = {
  "apgd": apgd.APGD,
  "bim": gradient.BIM,
  "cw_l2": carlini_wagner.CarliniWagnerL2,
  "fgsm": gradient.FGSM,
  "ifgsm": gradient.BIM,
  "madry": gradient.PGD,
  "mim": gradient.MIM,
  "pgd": gradient.PGD,
  "spsa": spsa.SPSA,
}
NAMES = tuple(_CLASSES)


def by_name(name: str, **fields: Any) -> base.Attack:
  """Builds an attack: `by_name("pgd", attack_eps=0.3, steps=20)`.

  Args:
    name: One of `NAMES`; "ifgsm" is BIM and "madry" is PGD.
    **fields: Fields of that attack's dataclass.

  Raises:
    ValueError: For an unknown name or field, with the nearest known one.
  """
  validate.one_of(NAMES, attack=name)
  known = [field.name for field in dataclasses.fields(_CLASSES[name])]
  for field in fields:
    validate.one_of(known, **{f"field of {name}": field})
  if "attack_eps" not in fields and name != "cw_l2":
    raise ValueError(
      f"Expected attack_eps for {name}: the radius of the attack in units of"
      " the value range, e.g. attack_eps=0.3."
    )
  return _CLASSES[name](**fields)


def accepted(name: str, **fields: Any) -> dict[str, Any]:
  """Those of the fields that the attack has: `steps` is not one of FGSM's.

  Raises:
    ValueError: For an unknown name, and where the attack has another norm.
  """
  validate.one_of(NAMES, attack=name)
  known = {field.name for field in dataclasses.fields(_CLASSES[name])}
  norm = getattr(_CLASSES[name], "norm", None)
  if "norm" not in known and fields.get("norm", norm) != norm:
    raise ValueError(
      f"Expected norm={norm!r} for {name}, received {fields['norm']!r}: it has"
      " no other."
    )
  return {key: value for key, value in fields.items() if key in known}
