"""Attacks and certifies a model into a run folder; no flags."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_privrob import records
from tf_privrob import run_folder
from tf_privrob.runs import train as training

DEFAULT_STDDEV = 0.25
_RADII = [round(0.05 * i, 2) for i in range(41)]
_SHOWN = 8  # pictures of adversarial examples
_LOCK = ".evaluate.lock"
_GATE_BATCH = 200  # rows in which a network must not mix them
_PREDICTED = 500  # rows at a time


class Subject:
  """What is attacked and judged: the classifier that is deployed.

  A model with noise inside is deployed as the classifier that its certificate
  is about: attacks climb the mean over `eot_draws` draws of its noise, and the
  majority of `verdict_draws` fresh ones is its answer. With noise at the input
  only, by smoothing, and without any, it is the network itself.

  Args:
    model: Keras classifier that returns logits.
    certifier: Of `choose_certifier`, or None.
    x: Inputs, for their shape.
    eot_draws: Draws of the noise at every step of an attack.
    verdict_draws: Draws whose majority is the answer.
  """

  def __init__(self, model, certifier, x, eot_draws: int, verdict_draws: int):
    from tf_privrob import attacks
    from tf_privrob import certify

    self.network = model
    self.attacked, self.eot_draws, self.verdict_draws = model, None, None
    inside = hasattr(model, "noisy_logits") and certifier is not None
    if inside and not isinstance(certifier, certify.RandomizedSmoothing):
      one_draw = model.noisy_logits  # what the claims are about
      if certifier.kind == "proven":
        one_draw = certifier.target(model, x[:1]).logits
      self.attacked = attacks.eot(one_draw, eot_draws)
      self.eot_draws, self.verdict_draws = eot_draws, verdict_draws

  def predictions(self, x: np.ndarray, seed: int) -> np.ndarray:
    """The class of each input."""
    if self.verdict_draws is None:
      return np.argmax(self.network.predict(x, _PREDICTED, verbose=0), 1)
    import tensorflow as tf

    from tf_privrob import attacks

    votes = tf.function(
      lambda rows, seed: attacks.verdict.count_votes(
        self.attacked, rows, seed, self.verdict_draws
      ),
      reduce_retracing=True,
    )
    key = attacks.randomness.as_seed(seed)
    found = [
      np.argmax(
        votes(
          x[start : start + _PREDICTED], attacks.randomness.fold(key, start)
        ),
        axis=1,
      )
      for start in range(0, len(x), _PREDICTED)
    ]
    return np.concatenate(found)


def asked_for(dataset, subject, attacks, count, steps, seed) -> list:
  """The attacks with their settings, as metrics.json names them.

  Args:
    dataset: whose test part is attacked.
    subject: what is attacked, a `Subject`.
    attacks: triples (name, norm, attack_eps).
    count: number of test examples, the first ones.
    steps: of iterative attacks.
    seed: of random starts.
  """
  return [
    records.evaluation.Asked(
      name=name,
      norm=norm,
      attack_eps=size,
      steps=getattr(_attack(dataset, name, norm, size, steps), "steps", None),
      count=min(count, dataset.num_test),
      seed=seed,
      eot_draws=subject.eot_draws,
      verdict_draws=subject.verdict_draws,
    )
    for name, norm, size in attacks
  ]


def attack_rows(subject, dataset, asked):
  """Yields (record for metrics.json, result) for each attack and size.

  Args:
    subject: what is attacked, a `Subject`.
    dataset: whose test part is attacked.
    asked: the attacks, see `asked_for`.
  """
  for item in asked:
    x, y = dataset.x_test[: item.count], dataset.y_test[: item.count]
    attack = _attack(dataset, *item.triple, item.steps)
    result = _evaluated(attack, subject, x, y, item.seed)
    row = records.AttackResult(
      **item.to_json(),
      restarts=getattr(attack, "restarts", 1),
      accuracy=result.accuracy,
      interval=tuple(result.interval),
      warnings=tuple(result.warnings),
      seconds=round(result.seconds, 2),
    )
    yield row, result


def _evaluated(attack, subject, x, y, seed):
  from tf_privrob import attacks as attacks_lib

  return attacks_lib.evaluate(
    attack,
    subject.attacked,
    x,
    y,
    seed,
    verdict_draws=subject.verdict_draws or 1,
  )


def _attack(dataset, name, norm, size, steps):
  from tf_privrob import attacks as attacks_lib

  return attacks_lib.by_name(
    name,
    value_range=dataset.value_range,
    **attacks_lib.accepted(name, attack_eps=size, norm=norm, steps=steps),
  )


def chosen_inputs(num_inputs: int, count: int) -> np.ndarray:
  """The indices of `count` inputs, evenly spread over a data set."""
  return np.linspace(0, num_inputs - 1, count).round().astype(int)


def certify_rows(model, dataset, certifier, count, seed, csv_path, resume):
  """Certifies evenly spread test examples; the "certified" part of metrics."""
  from tf_privrob import certify

  chosen = chosen_inputs(len(dataset.x_test), count)
  rows = certify.run(
    certifier,
    model,
    dataset.x_test[chosen],
    dataset.y_test[chosen],
    csv_path=csv_path,
    resume=resume,
    seed=seed,
    indices=chosen,
  )
  reach = max(*(row.radius for row in rows), 0.05)
  proven = all(row.kind == "proven" for row in rows)
  if isinstance(certifier, certify.RandomizedSmoothing):
    reach = max(certifier.largest_radius, 0.05)
  radii = [radius for radius in _RADII if radius <= reach + 0.05]
  if proven:
    curve = certify.certified_accuracy(rows, radii)
  else:
    curve = certify.claimed_accuracy(rows, radii)
  return records.Radii(
    kind="proven" if proven else "claimed",
    smoothing_stddev=getattr(certifier, "smoothing_stddev", None),
    norm=rows[0].norm,
    method=rows[0].method,
    model=rows[0].model,
    num_selection=getattr(certifier, "num_selection", None),
    num_estimation=getattr(
      certifier, "num_estimation", getattr(certifier, "num_draws", None)
    ),
    confidence=rows[0].confidence,
    condition=rows[0].condition,
    count=len(rows),
    abstained=sum(row.abstained for row in rows),
    curve=tuple(map(records.evaluation.CurvePoint.from_json, curve)),
    mean_radius=certify.mean_certified_radius(rows) if proven else None,
    seconds=round(sum(row.seconds for row in rows), 2),
  )


def choose_certifier(
  model,
  stddev: float | None,
  claimed: bool = False,
  claimed_attack_eps: float | None = None,
  **settings,
):
  """Smoothing with the noise asked for; without, the method's own certificate.

  Args:
    model: Keras classifier, or a method, whose `certifier()` counts if what it
      gives is proven, else its `proven_certifier()`.
    stddev: of the noise at the input, or None.
    claimed: take the sizes that the method's authors claim and nobody proved.
    claimed_attack_eps: mu, the attack that the claims are about; None: as the
      method has it.
    **settings: num_selection, num_estimation, confidence.

  Raises:
    ValueError: if `claimed` sizes are asked of a method that claims none.
  """
  from tf_privrob import certify

  if claimed:
    return _claimed_certifier(model, stddev, claimed_attack_eps)
  if claimed_attack_eps is not None:
    raise ValueError(
      "Expected --claimed with --claimed_attack_eps, which is about claims."
    )
  for found in own_certifiers(model) if stddev is None else ():
    if found.kind == "proven":
      return found.with_draws(**settings)
  stddev = DEFAULT_STDDEV if stddev is None else stddev
  return certify.RandomizedSmoothing(stddev, **settings)


def own_certifiers(model) -> list:
  """What a method says of itself: its certificate, and what is proven of it."""
  makers = (
    getattr(model, name, None) for name in ("certifier", "proven_certifier")
  )
  found = [maker() for maker in makers if maker is not None]
  return [certifier for certifier in found if certifier is not None]


def _claimed_certifier(model, stddev: float | None, attack_eps: float | None):
  """As the method sets it: draws and confidence are part of the claim."""
  if stddev is not None:
    raise ValueError(
      "Expected claimed sizes or smoothing_stddev, received both: claims are"
      " about the method's own noise."
    )
  own = next(iter(own_certifiers(model)), None)
  if own is None or own.kind != "claimed":
    raise ValueError(
      "Expected a method that claims sizes without a proof (dpal, secure_sgd),"
      f" received one whose own certificate is {type(own).__name__}. Leave"
      " --claimed out."
    )
  return own if attack_eps is None else model.certifier(attack_eps=attack_eps)


@run_folder.alone(_LOCK, "the evaluation in")
def evaluate(
  folder,
  model,
  dataset,
  attacks,
  certifier,
  *,
  num_attacked=500,
  num_certified,
  steps=40,
  eot_draws=10,
  verdict_draws=100,
  seed=None,
  resume=False,
  command_line="",
) -> dict:
  """Attacks, certifies and writes metrics.json after each result.

  What is attacked and counted as clean is a `Subject`. Without a seed attacks
  begin as with 0, since nothing rests on their draws, and certificates draw
  from the operating system.

  Without attacks, results of earlier ones on the same weights and test data
  stay.

  Raises:
    ValueError: If another process evaluates in this folder, or if the results
      to go on with are of another model or of other test data.
  """
  from tf_privrob import binomial
  from tf_privrob import certify
  from tf_privrob import models
  from tf_privrob import validate
  from tf_privrob.certify import alone
  from tf_privrob.certify import gate
  from tf_privrob.methods import checks

  attacks = list(attacks)
  validate.positive_int(
    num_attacked=num_attacked,
    steps=steps,
    eot_draws=eot_draws,
    verdict_draws=verdict_draws,
  )
  for _, _, size in attacks:
    validate.positive(attack_eps=size)
  if num_certified and isinstance(certifier, certify.RandomizedSmoothing):
    gate.check_rows(  # before the attacks, which take long
      alone.as_logits_fn(model),
      [certifier.noisy_batch(dataset.x_test[:8], _GATE_BATCH)],
      "They leave no certificate for a single input: pass --num_certified=0.",
    )
  subject = Subject(model, certifier, dataset.x_test, eot_draws, verdict_draws)
  if num_certified and subject.verdict_draws:  # refuses before the attacks
    certifier.certify(model, dataset.x_test[:1], seed=seed)
  weights = models.fingerprint(model)
  before = _kept(folder, weights, dataset, resume, attacks)
  start = 0 if seed is None else seed
  asked = asked_for(dataset, subject, attacks, num_attacked, steps, start)
  newest = {item.triple: item for item in (*before.asked, *asked)}
  checks.num_classes(model, dataset.input_shape)
  predictions = subject.predictions(dataset.x_test, start)
  correct = int((predictions == dataset.y_test).sum())
  metrics = records.Metrics(
    weights=weights,
    dataset=dataset.name,
    data=training.test_hash(dataset),
    clean=records.Accuracy(
      accuracy=correct / len(predictions),
      count=len(predictions),
      interval=binomial.interval(correct, len(predictions)),
    ),
    attacks=before.attacks,
    certified=before.certified,
    commands=tuple(sorted({*before.commands, command_line} - {""})),
    asked=tuple(newest.values()),
    certifying=num_certified or before.certifying,
    attacked=not attacks and before.attacked,
    complete=False,
  )

  def write(changed):
    nonlocal metrics
    metrics = changed
    folder.write_json("metrics.json", metrics.to_json())

  write(metrics)
  pictures, missing = {}, metrics.missing
  for row, result in attack_rows(
    subject, dataset, [item for item in asked if item in missing]
  ):
    write(metrics.with_result(row))
    pictures[row.name, row.norm, row.attack_eps] = result.x_adv
  save_pictures(
    folder,
    subject,
    dataset,
    predictions[:num_attacked],
    attacks,
    pictures,
    steps,
    start,
  )
  done = metrics.attacked or bool(attacks)
  changes = {"attacked": done and not metrics.missing}
  if num_certified:
    validate.positive_int(num_certified=num_certified)
    changes["certifying"] = None
    changes["certified"] = certify_rows(
      model,
      dataset,
      certifier,
      min(num_certified, len(dataset.x_test)),
      seed,
      folder.file("certificates.csv"),
      resume,
    )
  metrics = dataclasses.replace(metrics, **changes)
  # By this evaluation or before it.
  complete = metrics.attacked and not metrics.certifying
  write(dataclasses.replace(metrics, complete=complete))
  return metrics.to_json()


def _kept(folder, weights: str, dataset, resume: bool, attacks):
  """The results that stay: all to resume, else those beside a certification."""
  if resume:
    return _before(folder, weights, dataset)
  nothing = records.Metrics()
  if attacks:
    return nothing
  try:
    return _before(folder, weights, dataset)
  except ValueError:  # of another model, which this evaluation replaces
    return nothing


def _before(folder, weights: str, dataset):
  """The results to go on with, of these weights and these test data."""
  found = folder.metrics or {}
  trained = (folder.config or {}).get("dataset") or dataset.name
  data = training.test_hash(dataset)
  name = found.get("dataset", trained)
  if found and (name, found.get("data", data)) != (dataset.name, data):
    raise ValueError(
      f"Expected results on the test data of {dataset.name} to go on with,"
      f" received those on other data, of {name}, in"
      f" {folder.file('metrics.json')}. Leave --resume out to replace them."
    )
  named = found.get("weights", weights)
  if named != weights:
    raise ValueError(
      f"Expected results of this model to go on with, weights {weights[:8]},"
      f" received those of weights {str(named)[:8]} in"
      f" {folder.file('metrics.json')}. Leave --resume out to replace them."
    )
  try:
    return records.Metrics.from_json(found)
  except ValueError as error:
    raise ValueError(
      "Expected results of an evaluation to go on with, received something else"
      f" in {folder.file('metrics.json')} ({error}). Leave --resume out to"
      " replace it."
    ) from error


def save_pictures(
  folder, subject, dataset, predictions, attacks, found, steps, seed
) -> None:
  """Adversarial examples of each attack at its middle size, in examples.npz.

  What an earlier, killed evaluation had found is attacked again, for the few
  pictures that are shown.

  Args:
    folder: The run folder.
    subject: What is attacked, a `Subject`.
    dataset: Whose first test examples were attacked.
    predictions: Of the model on these.
    attacks: Triples (name, norm, attack_eps) that were asked for.
    found: Adversarial examples by triple, of the attacks that were run.
    steps: Of iterative attacks.
    seed: Of random starts.
  """
  from tf_privrob import files
  from tf_privrob import models

  by_attack = {}
  for triple in attacks:
    by_attack.setdefault(triple[:2], []).append(triple)
  shown = [sizes[len(sizes) // 2] for sizes in by_attack.values()]
  if not shown or len(dataset.input_shape) != 3:
    return
  names = [f"{name} {norm} {size:g}" for name, norm, size in shown]
  of = {
    "weights": models.fingerprint(subject.network),
    "dataset": dataset.name,
    "data": training.test_hash(dataset),
  }
  if not found and _has_pictures(folder, names, of):
    return
  count = len(predictions)
  chosen = np.flatnonzero(predictions == dataset.y_test[:count])[:_SHOWN]
  if not len(chosen):
    return
  x, y = dataset.x_test[chosen], dataset.y_test[chosen]
  adversarial = np.stack(
    [
      found[triple][chosen]
      if triple in found
      else _evaluated(
        _attack(dataset, *triple, steps), subject, x, y, seed
      ).x_adv
      for triple in shown
    ]
  )
  flat = adversarial.reshape(-1, *dataset.input_shape)
  after = subject.predictions(flat, seed)
  files.write_arrays(
    folder.file("examples.npz"),
    {
      "clean": x,
      "adversarial": adversarial,
      "attack_names": np.array(names),
      "labels": y,
      "clean_predictions": predictions[chosen],
      "adversarial_predictions": after.reshape(len(names), -1),
      **{name: np.array(text) for name, text in of.items()},
    },
  )


def _has_pictures(folder, names: list[str], of: dict[str, str]) -> bool:
  """Whether examples.npz is whole and of these attacks, weights and data."""
  try:
    arrays = folder.examples or {}
  except ValueError:
    return False
  return (
    all(str(arrays.get(name)) == text for name, text in of.items())
    and np.asarray(arrays.get("attack_names", ())).tolist() == names
  )


def run(
  run_dir,
  attacks=(("pgd", "linf", 0.1),),
  *,
  num_attacked: int = 500,
  num_certified: int = 200,
  smoothing_stddev: float | None = None,
  claimed: bool = False,
  claimed_attack_eps: float | None = None,
  num_selection: int = 100,
  num_estimation: int = 10_000,
  confidence: float = 0.999,
  steps: int = 40,
  eot_draws: int = 10,
  verdict_draws: int = 100,
  seed: int | None = None,
  resume: bool = False,
  dataset: str | None = None,
  data_dir: str | None = None,
  model: str | None = None,
  command_line: str = "",
) -> dict:
  """Attacks and certifies the model of a run folder; returns metrics.json.

  Args:
    run_dir: The run folder.
    attacks: Triples (name, norm, attack_eps).
    num_attacked: Test examples attacked, the first ones.
    num_certified: Test examples certified, evenly spread; 0: none.
    smoothing_stddev: See `choose_certifier`.
    claimed: See `choose_certifier`.
    claimed_attack_eps: See `choose_certifier`.
    num_selection: Draws to pick a class.
    num_estimation: Draws to bound its probability.
    confidence: Of each certificate.
    steps: Of iterative attacks.
    eot_draws: Of the noise inside a model, at every step; see `Subject`.
    verdict_draws: Of that noise, whose majority is the answer.
    seed: Of attacks, and of the noise of certificates, which then hold only
      for models made without knowledge of it; see `evaluate`.
    resume: Keep the results that are there.
    dataset: Another data set than the run's.
    data_dir: The folder with <name>.npz, or None.
    model: A Keras file in place of the run's own model.
    command_line: For metrics.json.
  """
  from tf_privrob import models

  if model:
    folder, data, loaded = _imported(run_dir, model, dataset, data_dir)
  else:
    folder, data, loaded = training.open_run(run_dir, dataset, data_dir)
  loaded = models.as_logits(loaded)
  certifier = choose_certifier(
    loaded,
    smoothing_stddev,
    claimed,
    claimed_attack_eps,
    num_selection=num_selection,
    num_estimation=num_estimation,
    confidence=confidence,
  )
  return evaluate(
    folder,
    loaded,
    data,
    attacks,
    certifier,
    num_attacked=num_attacked,
    num_certified=num_certified,
    steps=steps,
    eot_draws=eot_draws,
    verdict_draws=verdict_draws,
    seed=seed,
    resume=resume,
    command_line=command_line,
  )


def _imported(run_dir, model: str, dataset, data_dir):
  """The folder, data and model of a file from elsewhere."""
  import tf_privrob.methods  # noqa: F401  (Keras must know what it loads)
  from tf_privrob import models

  folder = run_folder.RunFolder(run_dir)
  training.require_no_run(folder, model)
  described = folder.config or {}
  name = dataset or described.get("dataset")
  if not name:
    raise ValueError("Expected --dataset for a model without a run folder.")
  loaded_data = training.load_data(described, data_dir, name)
  loaded = models.load_model(model)
  training.require_inputs(loaded, loaded_data)
  about = {
    "method": training.IMPORTED,
    "dataset": name,
    "network": model,
    "weights": models.fingerprint(loaded),
  }
  for own in ("weights" if "weights" in described else "network", "dataset"):
    if described and described.get(own) != about[own]:
      raise ValueError(
        f"Expected the model and data set that the results in {folder.path} are"
        f" about, {described.get('network')} on {described.get('dataset')},"
        f" received {model} on {name} with another {own}. Choose another"
        " --run_dir."
      )
  if not described:
    folder.write_json("config.json", about)
  return folder, loaded_data, loaded
