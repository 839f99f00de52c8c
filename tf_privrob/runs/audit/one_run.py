"""A run trained again with canaries, each in it by a coin of its own."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_privrob import data
from tf_privrob import validate
from tf_privrob.runs.audit import source as audit_source

TRAINING = "nonprivate/audit_one_run"


@dataclasses.dataclass(frozen=True)
class PresentSampler(data.PoissonSampler):
  """Poisson batches over slots, of which some are empty.

  Attributes:
    absent: rows that are never drawn: their coin said no. The others are drawn
      as ever, and the divisor stays q n.
  """

  absent: tuple[int, ...] = ()

  def indices(self, key, step: int) -> np.ndarray:
    """The rows of a step without the absent ones."""
    drawn = super().indices(key, step)
    return np.setdiff1d(drawn, np.array(self.absent, int), assume_unique=True)


def check(source: audit_source.Source, num_canaries: int) -> None:
  """Refuses what a one-run audit cannot be made of."""
  from tf_privrob import methods

  names = {field.name for field in dataclasses.fields(source.config)}
  sampler = source.record.get("sampler")
  kind = methods.class_of(source.method, source.config)
  if not issubclass(kind, methods.DPSGD) or sampler not in (
    "poisson",
    "full_batch",
  ):
    raise ValueError(
      f"Expected a run of DP-SGD or an heir, with Poisson or full batches, for"
      f" --kind=one_run: each canary must come and go alone. Received"
      f" {source.method} with sampler {sampler!r}. Use --kind=step."
    )
  if not source.noise_multiplier:
    raise ValueError(
      "Expected a run with noise for --kind=one_run, received one without: it"
      " states no figure that one training could refute. Use --kind=step."
    )
  if "xi_up" in names or type(source.config).__name__ == "SecureSGDConfig":
    raise ValueError(
      f"Expected a method whose noise is set by noise_multiplier, received"
      f" {source.method} ({source.config.variant}). Use --kind=step."
    )
  if num_canaries > source.dataset.num_train // 2:
    raise ValueError(
      f"Expected num_canaries={num_canaries} <= half of the"
      f" {source.dataset.num_train} training records, whose places they take."
    )


def train(
  folder,
  source: audit_source.Source,
  canary: str,
  num_canaries: int,
  score: str,
  seed: int,
):
  """Trains with the run's settings; scores and coins of the canaries.

  m of the n training records make room for m slots, and a slot is filled by a
  fair coin: noise, sampling probability, divisor and steps are the run's. Its
  randomness is drawn from the operating system and kept nowhere; `seed` is that
  of coins and canaries. A killed training goes on.

  Returns:
    scores [m], coins [m], and the statement of this training.
  """
  import tensorflow as tf

  from tf_privrob import run_folder

  validate.one_of(_SCORERS, score=score)
  place = run_folder.RunFolder(folder.file(TRAINING))
  settings = {"canary": canary, "num_canaries": num_canaries, "score": score}
  known = place.read_json("coins.json")
  if known is not None and known["settings"] != settings:
    raise ValueError(
      f"Expected the settings of the audit that was begun in {place.path},"
      f" {known['settings']}, received {settings}. Finish it, or delete it."
    )
  if known is None:
    coins = np.random.default_rng([7, seed]).random(num_canaries) < 0.5
    known = {"settings": settings, "coins": coins.tolist(), "seed": seed}
    place.write_json("coins.json", known)
  coins, seed = np.array(known["coins"]), known["seed"]
  x, y = audit_source.make_canaries(source, canary, num_canaries, seed)
  dataset = source.dataset
  count = dataset.num_train
  images, labels = dataset.x_train.copy(), dataset.y_train.copy()
  images[count - num_canaries :], labels[count - num_canaries :] = x, y
  absent = tuple((count - num_canaries + np.flatnonzero(~coins)).tolist())
  stated = source.statement.proven or source.statement.claimed
  method = source.build(
    seed=None,
    noise_multiplier=source.noise_multiplier,
    dp_epsilon=1.01 * stated.dp_epsilon,
  )
  planned = method.plan

  def plan(num_examples, input_shape=None):
    found = planned(num_examples, input_shape)
    sampler = PresentSampler(
      num_examples,
      getattr(found.sampler, "sampling_prob", 1.0),
      found.sampler.physical_batch_size,
      absent,
    )
    steps = min(found.steps, source.record["steps"])
    return dataclasses.replace(found, sampler=sampler, steps=steps)

  method.plan = plan
  steps = plan(count, dataset.input_shape).steps
  method.compile(method.make_optimizer(steps))
  scorer = _SCORERS[score](method, place, (images, labels), (x, y))
  callback = tf.keras.callbacks.LambdaCallback(
    on_train_batch_begin=lambda batch, logs: scorer.before_step(),
    on_train_batch_end=lambda batch, logs: scorer.after_step(),
    on_epoch_end=lambda epoch, logs: scorer.write(),
  )
  method.fit(
    images,
    labels,
    value_range=dataset.value_range,
    run_dir=place.path,
    resume=place.has("ledger.jsonl"),
    callbacks=[callback],
  )
  return scorer.result(), coins, method.privacy_statement()


class LossScore:
  """How far the loss of each canary fell, from first to last weights."""

  def __init__(self, method, folder, records, canaries):
    del records
    self._network, self._folder = method.network, folder
    self._x, self._y = canaries
    before = folder.read_json("scores.json")
    self._total = np.array(before["scores"]) if before else None

  def before_step(self) -> None:
    """The losses under the first weights, which `fit` has drawn by now."""
    if self._total is None:
      self._total = self._losses()
      self.write()

  def after_step(self) -> None:
    """Nothing."""

  def write(self) -> None:
    """Keeps what there is, for a resumed training."""
    self._folder.write_json("scores.json", {"scores": self._total})

  def result(self) -> np.ndarray:
    """[m], higher: more likely included."""
    return self._total - self._losses()

  def _losses(self) -> np.ndarray:
    logits = self._network.predict(self._x, 500, verbose=0).astype(float)
    logits -= logits.max(axis=1, keepdims=True)
    own = logits[np.arange(len(logits)), self._y]
    return np.log(np.exp(logits).sum(axis=1)) - own


class WhiteBoxScore:
  """How much of each canary's gradient the steps contain.

  The adversary sees what every step applies, and knows all records that are no
  canaries and when they took part: DP holds given all that. With r_t what a
  step applied minus what those records add, in units of a sum over the batch,
  and G the clipped gradients of the canaries at the step's weights, a canary's
  score is the sum over steps of its part in the linear estimate

    (G G^T + (s^2 / v) I)^-1 G r_t

  of who took part, for noise of standard deviation s and variance v = q / 2 of
  taking part. s is measured on what no canary's gradient explains of r_t, so
  that too little noise is made use of. What a killed session had is kept by
  the epoch.
  """

  def __init__(self, method, folder, records, canaries):
    import tensorflow as tf

    self._tf, self._method, self._folder = tf, method, folder
    self._records = records
    self._x = tf.constant(canaries[0], tf.float32)
    self._y = tf.constant(canaries[1], tf.int64)
    before = folder.read_json("scores.json")
    count = len(canaries[0])
    self._total = np.array(before["scores"]) if before else np.zeros(count)
    variables = method.network.trainable_variables
    self._applied = [tf.Variable(tf.zeros_like(v)) for v in variables]
    self._watch(method.optimizer)
    self._gradients = tf.function(self._one_by_one, autograph=False)
    self._sum = tf.function(self._clipped_sum, autograph=False)
    self._known = None

  def _watch(self, optimizer) -> None:
    """Notes what is applied to the weights, step by step."""
    apply = optimizer.apply_gradients

    def applied(pairs, *args, **kwargs):
      pairs = list(pairs)
      for place, (gradient, _) in zip(self._applied, pairs):
        place.assign(gradient)
      return apply(pairs, *args, **kwargs)

    optimizer.apply_gradients = applied

  def before_step(self) -> None:
    """Gradients of the canaries, and what the other records will add."""
    from tf_privrob.methods import updates

    method, tf = self._method, self._tf
    rows, sampler = method.session.nonprivate_rows(), method.sampler
    images, labels = self._records
    rows = rows[rows < len(images) - len(self._total)]
    size = min(sampler.physical_batch_size, len(images))
    others = 0.0
    for first in range(0, len(rows), size):
      block = np.resize(rows[first : first + size], size)
      mask = np.arange(size) < len(rows) - first
      others = others + self._sum(
        tf.constant(images[block], tf.float32),
        tf.constant(labels[block], tf.int64),
        tf.constant(mask, tf.float32),
      )
    public = updates.regularization_gradients(
      method.network, method.network.trainable_variables
    )
    batch_size = sampler.expected_batch_size
    others = others + batch_size * _flat(public)
    self._known = self._gradients().numpy(), others.numpy()

  def after_step(self) -> None:
    """Adds the estimate of who took part."""
    canaries, others = self._known
    sampler, record = self._method.sampler, self._method.run_record
    left = sampler.expected_batch_size * _flat(self._applied) - others
    stddev = record["noise_multiplier"] * self._method.config.l2_clip_norm
    self._total = self._total + took_part(
      canaries, left.numpy(), stddev, sampler.sampling_prob / 2
    )

  def write(self) -> None:
    """Keeps what there is, for a resumed training."""
    self._folder.write_json("scores.json", {"scores": self._total})

  def result(self) -> np.ndarray:
    """[m], higher: more likely included."""
    self.write()
    return self._total

  def _clipped_sum(self, images, labels, mask):
    return _flat(
      self._method.clipped_gradients((images, labels), mask).gradients
    )

  def _one_by_one(self):
    """Clipped gradients of the canaries, [m, parameters]."""
    tf, clipped = self._tf, self._method.clipped_gradients
    return tf.map_fn(
      lambda one: _flat(
        clipped((one[0][tf.newaxis], one[1][tf.newaxis])).gradients
      ),
      (self._x, self._y),
      fn_output_signature=tf.float32,
    )


def took_part(
  canaries: np.ndarray, left: np.ndarray, stddev: float, variance: float
) -> np.ndarray:
  """Linear estimate of who took part in a step.

  Args:
    canaries: G, their gradients [m, d].
    left: r [d], noise and the gradients of those who took part.
    stddev: of the noise, where m >= d and it cannot be measured.
    variance: v, of taking part.
  """
  canaries, left = np.asarray(canaries, float), np.asarray(left, float)
  values, vectors = np.linalg.eigh(canaries @ canaries.T)
  inner = vectors.T @ (canaries @ left)
  good = values > 1e-9 * max(values.max(), 1e-30)
  freedom = len(left) - int(good.sum())
  if freedom > 0:
    explained = (inner[good] ** 2 / values[good]).sum()
    stddev = np.sqrt(max(0.0, left @ left - explained) / freedom)
  ridge = stddev**2 / variance + 1e-6 * max(values.max(), 1e-30)
  return vectors @ (inner / (np.maximum(values, 0.0) + ridge))


def _flat(tensors):
  import tensorflow as tf

  return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


_SCORERS = {"white_box": WhiteBoxScore, "loss": LossScore}
