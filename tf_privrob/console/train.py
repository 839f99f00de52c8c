"""Trains a model into a run folder.

python -m tf_privrob train --dataset=mnist_5k --preset=mnist_5k \
  --run_dir=runs/first --config.dp_epsilon=3

--method=sgd trains without privacy, dp_sgd within a budget, both for the loss
of --objective, whose settings are --objective.<field>. The name of an objective
as a method is short for sgd with it, and dp_smooth for dp_sgd with smooth.

A killed run goes on with the same command and --resume.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tf_privrob.console import command
from tf_privrob.runs import recipes
from tf_privrob.runs import train as training


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of the command.

  Attributes:
    method: Training method.
    objective: What sgd or dp_sgd minimises; default that of the preset.
    preset: Settings to start from, with their network, data set and value
      range; a flag overrides any of them, --config.<field> a setting.
    dataset: Name of a data set; default that of the preset, or mnist_5k.
    data_dir: Folder with <name>.npz; default $TF_PRIVROB_DATA.
    value_range: Rescale inputs to this range, e.g. -1,1; default that of the
      method, or of the data set.
    network: Network by name, or the path of a .keras; with --classifier a
      denoiser. Default that of the preset, or tutorial_cnn_tanh.
    classifier: Keras file of a classifier to stay as it is: --network is
      trained as a denoiser in front of it (transdenoiser, secure_sgd).
    public_share: Share of the training data that the classifier was trained on
      and that is declared public; training uses the rest.
    public_classifier: Why the training data of --classifier=<file> are not
      private, where the file does not tell which they are.
    public_weights: Why the weights of --network=<file> do not depend on the
      private data; a private method then starts from them instead of drawing
      its own.
    run_dir: Run folder to write.
    resume: Go on with the run in run_dir.
  """

  method: str = "dp_sgd"
  objective: Optional[str] = None
  preset: Optional[str] = None
  dataset: Optional[str] = None
  data_dir: Optional[str] = None
  value_range: Optional[str] = None
  network: Optional[str] = None
  classifier: Optional[str] = None
  public_share: Optional[float] = None
  public_classifier: Optional[str] = None
  public_weights: Optional[str] = None
  run_dir: Optional[str] = None
  resume: bool = False


def about() -> str:
  """The names of methods and objectives."""
  from tf_privrob.methods import registry

  return (
    f"Methods: {', '.join(registry.NAMES)}.\n"
    f"Objectives of sgd and dp_sgd: {', '.join(registry.OBJECTIVES)}."
  )


def settings(options: Options):
  """The settings that the method and its preset begin with."""
  from tf_privrob import methods

  return methods.preset(options.method, options.preset, options.objective)


def main(options: Options, call: command.Call) -> None:
  """Trains as the flags say and prints the privacy statement."""
  from tf_privrob import data

  command.folder(options.run_dir, trained=False)
  brought = recipes.recipe(options.method, options.preset)
  options = dataclasses.replace(
    options,
    **{
      field.name: getattr(brought, field.name)
      for field in dataclasses.fields(brought)
      if getattr(options, field.name) is None
    },
  )
  training.require_partner(options.network, options.classifier)
  if options.public_share is not None and not options.classifier:
    raise ValueError(
      "Expected --classifier with --public_share: the public part is what a"
      " frozen classifier was trained on."
    )
  value_range = options.value_range and data.parse_range(options.value_range)
  dataset = data.load(options.dataset, options.data_dir, value_range)
  public = None
  if options.public_share is not None:
    public, dataset = data.split_public(dataset, options.public_share)
  model = training.run(
    options.method,
    call.settings,
    dataset,
    options.network,
    options.run_dir,
    options.resume,
    {
      "preset": options.preset,
      "objective": options.objective,
      "value_range": options.value_range,
      "classifier": options.classifier,
      "public_share": options.public_share,
      "public_classifier": options.public_classifier,
      "public_weights": options.public_weights,
    },
    options.classifier,
    public,
    options.public_weights,
    options.public_classifier,
  )
  print(model.privacy_statement().text())
  print(command.next_steps(options.run_dir, "evaluate", "report"))
