"""Builds a method and trains it into a run folder: no flags."""

from __future__ import annotations

import dataclasses

RUN = "run"  # the run folder inside a model's folder
IMPORTED = "imported model"  # in place of a method, for a model from elsewhere
_TRACES = ("ledger.jsonl", "model.keras", "privacy.json", "run.json")
_PUBLIC_CLASSIFIER = (
  "the classifier was trained on examples that are declared public, and the"
  " denoiser before it is new"
)
_UNSEEN = (
  "its file tells hashes of the examples that it was trained on, which is"
  " believed, and none of the private ones is among them"
)


def load_data(described, data_dir: str | None, name: str | None = None):
  """The data set of a run, in the range that it was trained on.

  Args:
    described: config.json of the run.
    data_dir: folder with <name>.npz, or None.
    name: another data set than the run's.
  """
  from tf_privrob import data

  value_range = flags_of(described).get("value_range")
  name = name or described.get("dataset")
  for received in (name, value_range or ""):
    if not isinstance(received, str):
      raise ValueError(
        "Expected the name and the range of a data set in config.json, received"
        f" {received!r}. Restore config.json."
      )
  return data.load(
    name, data_dir, value_range and data.parse_range(value_range)
  )


def flags_of(described) -> dict:
  """The flags that config.json tells of, which may be none."""
  found = described.get("flags") or {}
  if not isinstance(found, dict):
    raise ValueError(
      f"Expected an object under flags, received {found!r}. Restore"
      " config.json."
    )
  return found


def repeatable(config):
  """The settings with a seed: studies are repeated, their models not released.

  The seed is public: a study writes it down, and its proven figures have the
  condition of `stated` beside them.
  """
  if config.seed is not None:
    return config
  return dataclasses.replace(config, seed=0)


def stated(statement) -> dict:
  """What a result says of privacy; proven and its condition are never apart."""
  return {
    "claimed": statement.claimed and dataclasses.asdict(statement.claimed),
    "proven": statement.proven and dataclasses.asdict(statement.proven),
    "condition": statement.condition,
    "audited": statement.audited,
  }


def network_seed(config) -> int | None:
  """The seed of a network's initial weights, which every model file tells.

  None for a private method, which draws them itself from the secret of its run.
  Training without privacy has no noise that its seed could reveal, and repeats
  its initial weights by one that follows from it.
  """
  from tf_privrob import randomness

  if is_private(config) or config.seed is None:
    return None
  return randomness.Key.of(config.seed).child("network").integer()


def is_private(config) -> bool:
  """Whether a method with these settings draws its initial weights itself."""
  from tf_privrob.methods import trainer

  return not isinstance(config, trainer.PlainConfig)


def load_network(name: str, dataset, seed: int | None):
  """A network by name, or a user's Keras classifier from a file."""
  from tf_privrob import models

  if not isinstance(name, str):  # as a changed config.json may have it
    raise ValueError(
      f"Expected the name or file of a network, received {name!r}. Restore"
      " config.json."
    )
  if not name.endswith(".keras"):
    return models.by_name(name, dataset.input_shape, dataset.num_classes, seed)
  network = models.load_classifier(name)
  if tuple(network.input_shape[1:]) != dataset.input_shape:
    raise ValueError(
      f"Expected a network for inputs {dataset.input_shape}, received one for"
      f" {tuple(network.input_shape[1:])} in {name}."
    )
  return network


def require_partner(network: str, classifier: str | None) -> None:
  """Refuses a denoiser without a classifier, or a classifier as denoiser."""
  from tf_privrob import models

  if classifier is None and network in models.DENOISERS:
    raise ValueError(
      f"--network={network} needs --classifier, the Keras file of what stands"
      " behind the denoiser. Train one: python -m tf_privrob public_classifier"
      " --out=runs/public.keras"
    )
  if classifier is not None and network in models.NAMES:
    raise ValueError(
      f"Expected a denoiser with --classifier, received --network={network},"
      f" a classifier. Pass one of {', '.join(models.DENOISERS)}."
    )


def known_public(
  classifier: str,
  dataset,
  public=None,
  declared: str | None = None,
) -> str | None:
  """Why the training data of a frozen classifier are no private examples.

  Args:
    classifier: its file, which may tell what it was trained on.
    dataset: the private one.
    public: what it was trained on, if the caller has it.
    declared: the caller's reason, for a file that tells nothing.

  Returns:
    The reason, for the statement; None where `public` says it.

  Raises:
    ValueError: If it has seen a private example, or nobody knows.
  """
  from tf_privrob import data
  from tf_privrob import models

  seen = models.trained_on(classifier)
  if seen is not None:
    data.require_unseen(seen, dataset.x_train, dataset.value_range)
    return declared or _UNSEEN
  if public is None and not declared:
    raise ValueError(
      f"Expected {classifier} to tell which examples it was trained on, as"
      " files of `tf-privrob public_classifier` do, found nothing: if private"
      " ones were among them, it has released them. Pass --public_share, or"
      " --public_classifier='why they are not private'."
    )
  return declared


def build(
  method: str,
  config,
  dataset,
  network: str,
  classifier=None,
  public=None,
  seed: int | None = None,
  public_weights: str | None = None,
  public_classifier: str | None = None,
):
  """The method around its network.

  Args:
    method: name of the method.
    config: its settings.
    dataset: what it will be trained on.
    network: name or file of a network, or of a denoiser.
    classifier: file of the classifier behind a denoiser, if it is one.
    public: the data set that the classifier was trained on, if known.
    seed: a public one of the initial weights, for what is done with them before
      a training; None: `network_seed`.
    public_weights: why the weights of a network from a file are public; a
      private method then keeps them. A new denoiser before a classifier that
      was trained on `public` needs no word.
    public_classifier: why the training data of the classifier are not private,
      see `known_public`.
  """
  from tf_privrob import methods
  from tf_privrob import models

  seed = network_seed(config) if seed is None else seed
  kwargs = {"public_weights": public_weights} if public_weights else {}
  if classifier is None:
    loaded = load_network(network, dataset, seed)
    return methods.build(method, loaded, config, **kwargs)
  denoiser = (
    models.load_model(network)
    if network.endswith(".keras")
    else models.denoiser_by_name(network, dataset.input_shape, seed)
  )
  joined = models.denoised_classifier(
    denoiser, models.load_classifier(classifier)
  )
  if method != "transdenoiser":
    reason = public_classifier or (public and _PUBLIC_CLASSIFIER)
    if reason and not network.endswith(".keras"):
      kwargs.setdefault("public_weights", reason)
    return methods.build(method, joined, config, **kwargs)
  if public is not None:
    kwargs["classifier_range"] = public.value_range
    kwargs["public_data"] = public.x_train
  return methods.class_of(method, config)(
    joined, config, public_classifier=public_classifier, **kwargs
  )


def load_run(folder):
  """The trained model of a model's folder, whose run folder is inside."""
  from tf_privrob import run_folder

  return load_model(run_folder.RunFolder(folder.file(RUN)))


def load_model(folder):
  """The model of a run folder, and of no other run.

  Raises:
    ValueError: run.json names another run or other weights than the model,
      whose figures would then stand beside a statement that is not its own.
      Folders of earlier versions name neither.
  """
  from tf_privrob import methods  # noqa: F401  (Keras must know what it loads)
  from tf_privrob import models

  path = folder.file("model.keras")
  model = models.load_model(path)
  record, described = getattr(model, "run_record", {}), folder.run or {}
  found = {"run_id": record.get("run"), "weights": models.fingerprint(model)}
  for field, received in found.items():
    expected = described.get(field)
    if expected is not None and received != expected:
      raise ValueError(
        f"Expected the model of the run that run.json describes ({field}"
        f" {expected}), received one of another ({field} {received}) in {path}."
        " Put the run's own model back, or evaluate this one in a folder of"
        " its own: --model=<file> with another --run_dir."
      )
  return model


def require_no_run(folder, model: str) -> None:
  """Refuses a folder with a training of its own to a model from elsewhere.

  Args:
    folder: the `RunFolder` that results would be written to.
    model: its file, for the error.
  """
  found = [name for name in _TRACES if folder.has(name)]
  if (folder.config or {}).get("method", IMPORTED) != IMPORTED:
    found.append("config.json")
  if found:
    raise ValueError(
      f"Expected a folder without a run of its own for {model}, received"
      f" {folder.path} with {', '.join(found)}: results would stand beside the"
      " privacy statement of another model. Leave --model out to evaluate the"
      " run, or choose another --run_dir."
    )


def fit(model, dataset, network, folder, resume, flag_values) -> None:
  """Trains and writes config, run, privacy and the model.

  Args:
    model: the method around its network.
    dataset: training and test data.
    network: name or file of the network.
    folder: the `RunFolder`.
    resume: go on with the run in it; None: if one was begun there.
    flag_values: of the binary, for config.json.
  """
  if resume is None:
    resume = folder.has("ledger.jsonl")
  about = {"network": network, "flags": flag_values}
  model.fit(dataset, run_dir=folder.path, resume=resume, about=about)


def run(
  method: str,
  config,
  dataset,
  network: str,
  run_dir: str,
  resume: bool = False,
  flag_values: dict | None = None,
  classifier: str | None = None,
  public=None,
  public_weights: str | None = None,
  public_classifier: str | None = None,
):
  """Trains by names and files into a run folder; returns the trained model.

  A run that was killed at any moment, also while its model was saved, goes on
  with `resume` and is finished from its last checkpoint.

  Args:
    method: Name of the method.
    config: Its settings.
    dataset: Training and test data.
    network: Name or file of a network, or of a denoiser.
    run_dir: The run folder to write.
    resume: Go on with the run in it.
    flag_values: For config.json; what `load_data` needs, if it is None.
    classifier: See `build`.
    public: See `build`.
    public_weights: See `build`.
    public_classifier: Why the training data of the classifier are not private,
      where its file does not tell of them.

  Raises:
    ValueError: If the run to resume is complete, or the classifier has seen
      private examples.
  """
  from tf_privrob import run_folder

  folder = run_folder.RunFolder(run_dir)
  if resume and is_complete(folder):
    raise ValueError(
      f"The run in {run_dir} is complete: there is nothing to resume. Evaluate"
      f" it, python -m tf_privrob evaluate --run_dir={run_dir}, or choose"
      " another run_dir."
    )
  reason = None
  if classifier is not None and is_private(config):
    declared = public_classifier
    if method != "transdenoiser":  # of the others all weights are declared
      declared = declared or public_weights
    reason = known_public(classifier, dataset, public, declared)
  model = build(
    method,
    config,
    dataset,
    network,
    classifier,
    public,
    public_weights=public_weights,
    public_classifier=reason,
  )
  if flag_values is None:
    flag_values = {
      "value_range": "{},{}".format(*dataset.value_range),
      "classifier": classifier,
      "public_weights": public_weights,
      "public_classifier": public_classifier,
    }
  fit(model, dataset, network, folder, resume, flag_values)
  return model


def is_complete(folder) -> bool:
  """Whether a training ended here and left all its files whole.

  A ledger of another run, or with more steps, is of one that has not ended.
  """
  from tf_privrob.privacy import ledger_format
  from tf_privrob.records import schema

  try:
    run = folder.run
    if run is None or folder.privacy is None:
      return False
    load_model(folder)
    if not folder.has("ledger.jsonl"):
      return True
    ledger = ledger_format.read(folder.file("ledger.jsonl"))
  except ValueError:
    return False
  steps = schema.as_number(run.get("steps"))
  own = run.get("run_id") in (None, ledger.run)
  return own and steps is not None and ledger.steps <= steps


def open_run(run_dir, name: str | None = None, data_dir: str | None = None):
  """The folder, data and model of a trained run, for the steps that follow.

  Args:
    run_dir: The run folder.
    name: Another data set than the run's.
    data_dir: The folder with <name>.npz, or None.

  Returns:
    The `RunFolder`, the `Dataset`, and the model as it was saved.

  Raises:
    ValueError: If nothing was trained there, or it is not known on what.
  """
  from tf_privrob import run_folder

  folder = run_folder.RunFolder(run_dir)
  if not folder.has("model.keras"):
    raise ValueError(
      f"Expected a trained model at {folder.file('model.keras')}, found none."
      " Train one first: python -m tf_privrob train"
      f" --run_dir={folder.path}, or go on with a killed run by --resume."
    )
  described = folder.config or {}
  if not (name or described.get("dataset")):
    raise ValueError(
      f"Expected --dataset, since {folder.file('config.json')} does not name"
      " the data set of the run."
    )
  dataset, model = load_data(described, data_dir, name), load_model(folder)
  require_inputs(model, dataset)
  return folder, dataset, model


def require_inputs(model, dataset) -> None:
  """Refuses a data set whose inputs the model cannot take."""
  from tf_privrob.methods import checks

  shape = checks.input_shape(getattr(model, "network", model))
  if shape not in (None, dataset.input_shape):
    raise ValueError(
      f"Expected a data set with inputs of shape {shape}, which the model"
      f" takes, received {dataset.name} with {dataset.input_shape}. Pass"
      " another --dataset."
    )


def test_hash(dataset) -> str:
  """A hash of the test part, which is public, for results to name."""
  from tf_privrob.methods import identity

  return identity.public_hash(dataset.x_test, dataset.y_test)
