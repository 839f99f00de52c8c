"""A run trained again with canaries, each in it by a coin of its own."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments import audit_source
from tf_privrob import data
from tf_privrob import validate

SCORES = ("white_box", "loss")
_TRAINING = "audit/one_run"


@dataclasses.dataclass(frozen=True)
class PresentSampler(data.PoissonSampler):
  """Poisson batches over slots, of which some are empty.

  Attributes:
    absent: rows that are never drawn: their coin said no. The others are drawn
      as ever, and the divisor stays q n.
  """

  absent: tuple[int, ...] = ()

  def indices(self, seed: int, session: int, step: int) -> np.ndarray:
    """The rows of a step without the absent ones."""
    drawn = super().indices(seed, session, step)
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
  fair coin: noise, sampling probability, divisor and steps are the run's. A
  killed training goes on.

  Returns:
    scores [m], coins [m], and the statement of this training.
  """
  import tensorflow as tf

  from tf_privrob import run_folder

  validate.one_of(SCORES, score=score)
  place = run_folder.RunFolder(folder.file(_TRAINING))
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
    seed=int(np.random.SeedSequence([11, seed]).generate_state(1)[0]),
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
  scorer = _Scorer(method, place, x, y, score)
  callback = tf.keras.callbacks.LambdaCallback(
    on_train_begin=lambda logs: scorer.begin(),
    on_train_batch_end=lambda batch, logs: scorer.step(),
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


class _Scorer:
  """Scores of canaries, from what a training shows.

  "loss": how far the loss of a canary fell. "white_box": the sum over steps of
  <w_t - w_(t+1), g / |g|>, g the canary's gradient at w_(t+1): by how much each
  step moved the weights the canary's way. What a killed session had is kept by
  the epoch.
  """

  def __init__(self, method, folder, x, y, score: str):
    import tensorflow as tf

    self._tf, self._method, self._folder = tf, method, folder
    self._x = tf.constant(x, tf.float32)
    self._y = tf.constant(y, tf.int64)
    self._score = score
    self._before = None
    before = folder.read_json("scores.json")
    self._total = np.array(before["scores"]) if before else np.zeros(len(x))
    if score == "loss" and before is None:
      self._total = self._losses(method.network).numpy().astype(float)
      self.write()
    self._jvp = tf.function(self._directional, autograph=False)

  def begin(self) -> None:
    """The weights that the session starts from."""
    variables = self._method.network.trainable_variables
    self._before = [self._tf.identity(v) for v in variables]

  def step(self) -> None:
    """After a step."""
    if self._score == "white_box":
      self._total = self._total - self._jvp(self._before).numpy()
      self.begin()

  def write(self) -> None:
    """Keeps what there is."""
    self._folder.write_json("scores.json", {"scores": self._total})

  def result(self) -> np.ndarray:
    """Higher: more likely included."""
    self.write()
    if self._score == "white_box":
      return self._total
    return self._total - self._losses(self._method.network).numpy()

  def _losses(self, network):
    return self._tf.nn.sparse_softmax_cross_entropy_with_logits(
      self._y, network(self._x, training=False)
    )

  def _directional(self, before):
    """d/dt loss_i(w + t (w - before)), over |gradient of loss_i|."""
    tf, method = self._tf, self._method
    variables = method.network.trainable_variables
    moved = [v - b for v, b in zip(variables, before)]
    with tf.autodiff.ForwardAccumulator(variables, moved) as accumulator:
      losses = self._losses(method.network)
    norms = method._clipped.norms((self._x, self._y))
    return accumulator.jvp(losses) / tf.maximum(norms, 1e-12)
