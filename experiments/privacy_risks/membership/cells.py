"""What `privacy_risks.membership` runs: models, their studies, and cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

from experiments.grid import engine as grid
from experiments.privacy_risks.training import cells as robust_training_cells

# What is done with a trained model, in the order that it is done.
PARTS = (
  "infer",  # Tables 2 to 6 and 8 to 12, Figures 3 and 4
  "losses",  # Figures 1 and 7
  "radii",  # Figures 5, 8 and 9
  "temperatures",  # Figure 6
  "classes",  # Table 7
  "left_out",  # Figure 2
)
# What a model is compared by: the number beside the name is its parameter.
STUDIES = (
  "main",
  "share",  # Table 5: of the training set with an adversarial loss
  "radius",  # Table 6: of training and inference
  "capacity",  # Figure 3: width, in the usual one
  "verified_capacity",  # Figure 4
  "subset",  # Table 10: radius of dual training; 0 is natural
  "adaptation",  # Table 11: 0 without, 1 with
  "noise_layer",  # Appendix E: 0 without, 1 with
  "private",  # dp_epsilon; 0 is a model without privacy
  "left_out",  # Figure 2: number of the retraining
)


@dataclasses.dataclass(frozen=True)
class Model:
  """A model that is attacked.

  Attributes:
    recipe: how it is trained, and at which radius it is attacked.
    studies: names of STUDIES with the model's parameter in each.
    parts: what is done with it.
    own: trained here; False: by `privacy_risks.training`.
    original: of a retraining: the model that was trained with all examples.
  """

  recipe: robust_training_cells.Recipe
  studies: Mapping[str, float]
  parts: tuple[str, ...] = ("infer",)
  own: bool = True
  original: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Scale:
  """How much is done.

  Attributes:
    models: by the name of their folder.
    robust: the scale of `privacy_risks.training` whose models are used;
      None: every model is trained here.
    num_points: members, and non-members, at most, drawn with a fixed seed;
      None: all training and all test examples.
    num_dual: of each, whose worst case is bounded by the exact dual; 0: none.
    num_swept: of each, for radii and for targeted attacks.
    num_fit: members of a class, and as many non-members, that a threshold or an
      inference model of Table 7 is fitted to; at most half of those there are.
    radii: of inference, in the radius of training.
    temperatures: of the softmax.
    rows_at_once: units that the exact dual bounds together, for memory.
  """

  models: Mapping[str, Model]
  robust: Optional[str]
  num_points: Optional[int]
  num_dual: int
  num_swept: Optional[int]
  num_fit: int = 500
  radii: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
  temperatures: Sequence[float] = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
  rows_at_once: int = 64

  @property
  def datasets(self) -> list[str]:
    """Names, each once."""
    names = (model.recipe.dataset for model in self.models.values())
    return list(dict.fromkeys(names))


@dataclasses.dataclass(frozen=True)
class Cell(grid.Cell):
  """One model and what is done with it: "train" or one of PARTS.

  Attributes:
    model: the sub-folder that the cells of one model share.
    part: what is done.
    original: of a retraining: the model that must be there before it.
  """

  model: str
  part: str
  original: Optional[str] = None

  @property
  def training(self) -> Cell:
    """What must be done before."""
    if self.part == "train" and self.original:
      return Cell(self.original, "train")
    return super().training


def cells(scale: Scale, dataset: Optional[str] = None) -> list[Cell]:
  """All cells, model by model; of one data set, if there is one."""
  return [
    Cell(name, part, model.original)
    for name, model in scale.models.items()
    if dataset in (None, model.recipe.dataset)
    for part in ("train", *(part for part in PARTS if part in model.parts))
  ]


def training_command(scale: Scale, dataset: str, robust_dir: str) -> str:
  """What trains the models of a data set that are not trained here."""
  return (
    f"python -m experiments.privacy_risks.training --scale={scale.robust}"
    f" --dataset={dataset} --out_dir={robust_dir} --resume"
  )


def available(
  scale: Scale,
  wanted: Sequence[Cell],
  robust_dir: Optional[str],
  skip_missing: bool = False,
) -> list[Cell]:
  """The wanted cells, once the models that they need are known to be there.

  Args:
    scale: of the cells.
    wanted: which cells.
    robust_dir: the folder of the models that are not trained here.
    skip_missing: leave out cells of models that are not there, rather than
      refuse them all.

  Raises:
    ValueError: a model is missing, with the command that trains it, or the
      folder is of another scale.
  """
  if scale.robust is None:
    if robust_dir:
      raise ValueError(
        f"Expected no --robust_dir at this scale, received {robust_dir!r}: it"
        " trains all of its models itself, on fewer examples."
      )
    return list(wanted)
  missing = _missing(scale, wanted, robust_dir)
  kept = [c for c in wanted if not {c.model, c.original} & set(missing)]
  if missing and not (skip_missing and kept):
    raise ValueError(_train_first(scale, missing, robust_dir))
  return kept


def _missing(scale, wanted, robust_dir: Optional[str]) -> list[str]:
  """Models that should be in the folder and are not."""
  from tf_privrob import run_folder

  names = [
    cell.model
    for cell in wanted
    if cell.part == "train" and not scale.models[cell.model].own
  ]
  if not (names and robust_dir):
    return names
  folder = run_folder.RunFolder(robust_dir)
  record = folder.read_json("experiment.json")
  if record is not None and record.get("scale") != scale.robust:
    raise ValueError(
      f"Expected models of scale {scale.robust!r} in --robust_dir, found scale"
      f" {record.get('scale')!r} in {folder.file('experiment.json')}. Pass its"
      " scale to --scale, or another folder."
    )
  files = ("train.json", "run/model.keras")
  return [
    name
    for name in names
    if not all(folder.has(f"{name}/{file}") for file in files)
  ]


def _train_first(scale, missing, robust_dir: Optional[str]) -> str:
  names = dict.fromkeys(scale.models[name].recipe.dataset for name in missing)
  where = robust_dir or "runs/robust"
  commands = "\n".join(training_command(scale, name, where) for name in names)
  if not robust_dir:
    return (
      "Expected --robust_dir, the out_dir of privacy_risks.training, whose"
      f" models are attacked. Train them first:\n{commands}"
    )
  return (
    f"Expected trained models in {robust_dir}, found none of"
    f" {', '.join(missing)}. Train them, or leave them out with --skip_missing:"
    f"\n{commands}"
  )
