"""The method, network and data of a run folder, to be trained again."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tf_privrob.runs import infer as inferring
from tf_privrob.runs import train as training
from tf_privrob.runs.audit import steps as audit_steps

_EXAMPLES = 32  # other records in an audited step
_CANDIDATES = 64  # for a canary with a direction of its own
_NETWORK_SEED = 0  # public: no audited step depends on it being secret


@dataclasses.dataclass(frozen=True)
class Source:
  """What a run was made of.

  Attributes:
    method: its registered name.
    config: its settings, without the seed.
    record: what the training released.
    statement: of the run's privacy.json, as `report.counted` reads it.
    dataset: the examples it was trained on, and its test part.
    network: name or file.
    classifier: file of a classifier behind a denoiser, or None.
    public: what that was trained on, or None.
    public_weights: why the network began with the weights of its file, or None.
    public_classifier: why the training data of the classifier are not private.
    made_of: hashes of the network in model.keras, which files are held against;
      empty: they are not.
  """

  method: str
  config: Any
  record: dict
  statement: Any
  dataset: Any
  network: str
  classifier: str | None
  public: Any
  public_weights: str | None = None
  public_classifier: str | None = None
  made_of: tuple[str, ...] = ()

  def build(self, network_seed: int | None = None, **changes):
    """A method that is not trained, with some settings changed.

    Args:
      network_seed: of its initial weights, see `training.build`.
      **changes: of the settings.

    Raises:
      ValueError: if the files give another network than the run's.
    """
    method = training.build(
      self.method,
      dataclasses.replace(self.config, **changes),
      self.dataset,
      self.network,
      self.classifier,
      self.public,
      network_seed,
      self.public_weights,
      self.public_classifier,
    )
    made_of = _made_of(method.network, self.classifier)
    if self.made_of and self.made_of != made_of:
      names = filter(None, (self.network, self.classifier))
      raise ValueError(
        "Expected the network of the run's model.keras in"
        f" {' and '.join(names)}, received another, which nothing that is found"
        " would tell of. Put the network back that it was trained with."
      )
    return method

  @property
  def noise_multiplier(self) -> float:
    """Of the run, calibrated or given."""
    return self.record.get("noise_multiplier", 0.0)

  @property
  def sampling_prob(self) -> float:
    """Of the run."""
    return self.record.get("sampling_prob", 1.0)


def _made_of(network, classifier: str | None) -> tuple[str, ...]:
  """Hashes of a network; the classifier behind a denoiser is fixed."""
  from tf_privrob import models
  from tf_privrob.methods import identity

  layers = identity.network_hash(network)
  if classifier is None:
    return (layers,)
  return layers, models.fingerprint(network.layers[-1])


def load(folder, data_dir: str | None = None) -> Source:
  """Reads a run folder; nothing is trained.

  Raises:
    ValueError: if the run, its data or its network cannot be had again.
  """
  from tf_privrob import data
  from tf_privrob import methods
  from tf_privrob.report import counted

  described = folder.config
  if not described or not folder.has("model.keras") or not folder.privacy:
    raise ValueError(
      f"Expected a trained run in {folder.path}, with config.json, model.keras"
      " and privacy.json. Train one first: python -m tf_privrob train"
      f" --run_dir={folder.path}."
    )
  model = training.load_model(folder)
  if not isinstance(model, methods.Method):
    raise ValueError(
      f"Expected a model that a method of tf_privrob trained, received"
      f" {type(model).__name__} in {folder.path}: its training is not known, so"
      " it cannot be run again."
    )
  flags = training.flags_of(described)
  whole = training.load_data(described, data_dir)
  public = None
  if flags.get("public_share") is not None:
    public, _ = data.split_public(whole, flags["public_share"])
  dataset = inferring.training_data(folder, whole)
  inferring.unchecked(folder, dataset)  # refuses others
  source = Source(
    method=described["method"].split(" (")[0],
    config=model.config,
    record=model.run_record,
    statement=counted.read(folder),
    dataset=dataset,
    network=described["network"],
    classifier=flags.get("classifier"),
    public=public,
    public_weights=flags.get("public_weights"),
    public_classifier=model.run_record.get("public_classifier")
    or flags.get("public_classifier"),
    made_of=_made_of(model.network, flags.get("classifier")),
  )
  source.build()  # refuses another network before any work
  return source


def short_runs(
  source: Source, steps: int | None, canary: str, seed: int = 0
) -> audit_steps.Runs:
  """One step that the canary is in, or a short training of `steps` steps.

  Noise, clip norm and, in a training, the sampling probability are the run's;
  the number of records is not, and what is stated is for exactly these steps.

  Args:
    source: the run.
    steps: None: one step on all records, sampling probability 1.
    canary: a kind from `privacy.canaries`.
    seed: of canary and other records.
  """
  changes, count = _changes(source, steps)

  def build():  # both times the same: the canary is made for these weights
    return source.build(_NETWORK_SEED, **changes)

  method = build()
  if steps is None:
    steps = _steps_of_one_pass(method)
  rng = np.random.default_rng([5, seed])
  data = source.dataset
  rows = rng.permutation(len(data.x_train))[: count - 1]
  others = data.x_train[rows], data.y_train[rows]
  instead = None
  if _fixed(source):
    row = seed % data.num_test
    instead = data.x_test[row], data.y_test[row]
  x, y = _canary(source, canary, others, seed, build)
  worlds = audit_steps.Worlds(
    np.concatenate([others[0], x[np.newaxis]]).astype(np.float32),
    np.append(others[1], y).astype(np.int64),
    instead,
  )
  return audit_steps.Runs(method, worlds, steps, data.value_range)


def _fixed(source: Source) -> bool:
  """Whether batches have a fixed size, so that records can only be replaced."""
  from tf_privrob import methods

  kind = methods.class_of(source.method, source.config)
  return kind.has_fixed_batches(source.config)


def _changes(source: Source, steps: int | None) -> tuple[dict[str, Any], int]:
  """Settings of the short training, and its number of records."""
  from tf_privrob import privacy

  config, record = source.config, source.record
  names = {field.name for field in dataclasses.fields(config)}
  seed = {"seed": 0} if "seed" in names else {}  # keys are set by the audit
  if _fixed(source):
    if source.method == "secure_sgd":  # every step at sampling probability 1
      release = privacy.poisson_sgd(config.noise_multiplier, 1.0, steps or 1)
      needed = privacy.dp_epsilon([release], config.dp_delta, "rdp")
      changes = {**seed, "dp_epsilon": 1.05 * needed, "epochs": steps or 1}
      return changes, config.batch_size
    paired = source.method == "dpal"
    return seed, config.batch_size * (2 if paired else 1)
  if "noise_multiplier" not in names:
    raise ValueError(
      f"Expected a method whose steps add noise to sums, received"
      f" {source.method} ({type(config).__name__}). Audit its mechanism in"
      " code, with privacy.refute."
    )
  if record.get("sampler") == "shuffle" and steps is not None:
    raise ValueError(
      "Expected a run with Poisson or full batches for --kind=two_world or"
      " one_run, received sampler 'shuffle', which cannot leave one record out."
      " Use --kind=step."
    )
  noise = source.noise_multiplier
  prob = 1.0
  if steps is not None and record.get("sampler") == "poisson":
    prob = source.sampling_prob
  count = max(_EXAMPLES + 1, math.ceil(1 / prob))
  batch_size = max(1, round(prob * count))
  count = max(count, round(batch_size / prob))
  changes = {**seed, "batch_size": batch_size}
  changes["epochs"] = (steps or 1) * batch_size / count
  if "sampler" in names:
    changes["sampler"] = "poisson" if prob < 1 else "full_batch"
    if prob == 1:
      changes["epochs"] = steps or 1
  if "physical_batch_size" in names:
    changes["physical_batch_size"] = None
  if noise:
    if "xi_up" not in names:
      changes["noise_multiplier"] = noise
    release = privacy.poisson_sgd(noise, batch_size / count, steps or 1)
    needed = privacy.dp_epsilon([release], config.dp_delta, "rdp")
    stated = source.statement.proven or source.statement.claimed
    changes["dp_epsilon"] = 1.05 * needed + (
      stated.dp_epsilon if stated and source.statement.releases[1:] else 0.01
    )
  return changes, count


def _steps_of_one_pass(method) -> int:
  """One; of halfspaces that take turns, one for each."""
  return method.num_classes if getattr(method, "_by_class", False) else 1


def _canary(source: Source, kind: str, others, seed: int, build):
  """One input and its label."""
  from tf_privrob import methods
  from tf_privrob import validate
  from tf_privrob.privacy.audit import canaries

  validate.one_of(canaries.KINDS, canary=kind)
  if kind != "own_direction":
    x, y = make_canaries(source, kind, 1, seed)
    return x[0], y[0]
  method = build()
  if not isinstance(method, methods.DPSGD):
    raise ValueError(
      f"Expected a method that clips gradients for canary 'own_direction',"
      f" received {source.method}. Use --canary=mislabelled."
    )
  found = make_canaries(source, "out_of_distribution", _CANDIDATES, seed)
  worlds = audit_steps.Worlds(others[0].astype(np.float32), others[1])
  audit_steps.Runs(method, worlds, 1, source.dataset.value_range)

  def gradients_of(x, y):
    import tensorflow as tf

    rows = []
    for image, label in zip(x, y):
      total = method.clipped_gradients(
        (
          tf.constant(image[np.newaxis], tf.float32),
          tf.constant([label], tf.int64),
        )
      )
      rows.append(np.concatenate([np.ravel(g) for g in total.gradients]))
    return np.stack(rows)

  row = canaries.own_direction(found, others, gradients_of)[0]
  return found[0][row], found[1][row]


def make_canaries(source: Source, kind: str, count: int, seed: int):
  """Inputs and labels of canaries; mislabelled ones are test images."""
  from tf_privrob.privacy.audit import canaries

  data = source.dataset
  if kind == "mislabelled":  # of the test part, so that none has a twin
    x, y, _ = canaries.mislabelled(
      data.x_test, data.y_test, count, data.num_classes, seed
    )
    return x, y
  make = {
    "blank": canaries.blank,
    "out_of_distribution": canaries.out_of_distribution,
  }[kind]
  return make(count, data.input_shape, data.value_range, data.num_classes, seed)
