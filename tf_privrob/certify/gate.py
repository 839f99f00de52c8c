"""The one way from a model to its certificates.

A certificate is about a function: of one input alone, the same at every call,
and the very function whose layers were read or whose votes were counted. Here
it is seen to that the model is one, and the rows are given its name.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_privrob import models
from tf_privrob.certify import ahead
from tf_privrob.certify import alone
from tf_privrob.certify import certificate
from tf_privrob.certify import rounding
from tf_privrob.models import graph as graph_lib
from tf_privrob.models import operations
from tf_privrob.models import precision

SHORT = 16  # hexadecimal digits of the model's hash in a row
_PASSES = 16  # of the whole batch
_SHARE = 1e-3  # of a class's spread that a row's logits may differ by
_ALONE = (1, 3)  # sizes of small batches
_FAR = 100.0
_WATCHING = 0.02  # of the time may go into looking whether the model changed
_HARMLESS = ("Assert", "Print", "PrintV2")
_REMEDY = (
  "Turn dropout and noise layers off at inference, or certify a model with"
  " noise inside by its own certifier()."
)


class Gate:
  """What a certifier sees of a model, and what its rows go through.

  Guarantee: a proven row comes out only if the certifier has passed the gate,
  by `network` or by `rows`, and if class, configuration and weights of the
  model were the same before the row was computed and afterwards. Another thread
  that puts other weights in and the old ones back in between is not seen.

  Attributes:
    model: What is certified.
    identity: `models.model_hash` of it; "" for code that nobody named.
  """

  def __init__(self, model: Any, model_id: str = ""):
    precision.require_whole_products(
      "a model may return another class than it was certified for"
    )
    precision.require_inference()
    self.model = model
    self._model_id = model_id
    self._passed = False
    started = time.perf_counter()
    self.identity = models.model_hash(model, model_id)
    self._pause = (time.perf_counter() - started) / _WATCHING

  def network(self) -> tf.keras.Model:
    """The graph that the model is, for certifiers that read layers."""
    found = graph_lib.network_of(self.model)
    self._passed = True
    return found

  def rows(
    self,
    function: Callable[..., tf.Tensor],
    batch: Sequence[np.ndarray],
    remedy: str = "They leave no certificate for a single input.",
    noise: bool = False,
  ) -> Callable[..., tf.Tensor]:
    """The function of each row alone, that of a model which passes.

    That is the function itself where the model is known to act row by row, be
    it with noise inside (`alone.not_row_wise`). Any other one is shown one row
    at a time, so that no company can have a part in what is certified; passes
    with others look for one that does all the same, see `check_rows`.

    Args:
      function: From tensors, each with a row an input, to the model's logits.
      batch: Such tensors, of the size and kind of those that are certified.
      remedy: What to do about logits that depend on other rows.
      noise: Whether it runs the model with noise inside.

    Returns:
      The function; its graph for batches of this size, where the model is made
      of Keras' own layers.
    """
    single = None
    if alone.not_row_wise(self.model, noise) is not None:
      single = alone.OneByOne(function)
    graph = check_rows(function, batch, remedy, self._is_plain(), single)
    self._passed = True
    return single or graph or function

  def _is_plain(self) -> bool:
    model = self.model
    return isinstance(model, tf.keras.Model) and graph_lib.is_plain(model)

  def stamped(
    self, rows: Iterable[certificate.Certificate]
  ) -> Iterator[certificate.Certificate]:
    """The rows with the name of the model, which did not change meanwhile.

    Rows are held back until the model was looked at again, for which a fiftieth
    of the time is spent.
    """
    held, looked = [], time.perf_counter()
    for row in rows:
      if row.kind == "proven" and not self._passed:
        raise AssertionError("a certifier proves nothing beside the gate")
      held.append(dataclasses.replace(row, model=self.identity[:SHORT]))
      if time.perf_counter() - looked >= self._pause:
        self._require_unchanged()
        yield from held
        held, looked = [], time.perf_counter()
    self._require_unchanged()
    yield from held

  def _require_unchanged(self) -> None:
    if models.model_hash(self.model, self._model_id) != self.identity:
      raise ValueError(
        "Expected a model that stays as it is while it is certified, received"
        " other weights or settings than at the beginning. Certify a copy, or"
        " train afterwards."
      )


def check_rows(
  function: Callable[..., tf.Tensor],
  batch: Sequence[np.ndarray],
  remedy: str,
  plain: bool = False,
  single: alone.OneByOne | None = None,
) -> Callable[..., tf.Tensor] | None:
  """Looks for logits that are no function of their own row alone.

  Votes are independent draws of one classifier, and a radius is about a single
  input, only if no random number, no variable that is written and no other row
  has a part in them. Two things are looked at:

  * the operations of the traced function: one that draws random numbers, writes
    or calls Python is refused by its name, however rarely it matters. What
    cannot be traced is judged by its passes;
  * 16 passes at the size of the batch that is certified. All rows stand at
    other places in each, among others, far away ones and copies of one among
    them; then a few rows stand alone. No logit may differ from that of the
    first pass by more than 0.1 % of its spread, over the rows and within its
    row, and 8 units in the last place of its row, and no class at all, unless
    two are as close as the latter. Such a row is no vote for any class either
    (`rounding.decided`).

  So most batch statistics are found, whatever the scale of the logits. What
  shows itself rarely, or in other company than this, need not be found: where
  the model is not known to act row by row, nothing rests on it, since votes are
  those of `single`, in whose graph these operations are refused too.

  Args:
    function: A function from tensors, each with a row an input, to logits.
    batch: Such tensors, of the size and kind of those that are certified.
    remedy: What to do about logits that depend on other rows.
    plain: No Python of the caller's runs in the function, so that its graph is
      all of it: the passes are those of the graph, which are faster, but for
      one that is run without it.
    single: What shows each row to the function alone, if that is certified.

  Returns:
    The graph of a plain function.

  Raises:
    ValueError: Says what was found.
  """
  traced = _traced(function, batch)
  graph = traced if plain else None
  whole = graph or function
  first = _passed(whole, batch)
  same = _passed(function, batch)
  size = first.difference(same, np.arange(len(batch[0])))
  if size:
    raise ValueError(
      "Expected a model that is deterministic once the noise is fixed, received"
      f" logits that differ by {size:.3g} for equal inputs. {_REMEDY}"
    )

  if single is not None:
    _refuse_operations(single.traced(batch))

  def passed(item):
    order, among = item
    run = whole if len(order) == len(batch[0]) else function
    return order, _passed(run, among)

  # Python of the caller's own stays in this thread.
  passes = _passes(batch)
  runs = ahead.results(passed, passes) if graph else map(passed, passes)
  for order, logits in runs:
    size = first.difference(logits, order)
    if size:
      raise ValueError(
        "Expected logits that depend on their own input alone, received others"
        f" (by {size:.3g}) when further inputs were in the batch: batch"
        f" statistics at inference, or noise of the model's own. {remedy}"
      )
  return graph


def _passed(run, batch: Sequence[np.ndarray]) -> _Logits:
  with precision.as_written():
    return _Logits(run(*map(tf.constant, batch)))


class _Logits:
  """Logits of a batch, and what may be rounding in them."""

  def __init__(self, logits: tf.Tensor):
    values = np.asarray(logits)
    kind = values.dtype if values.dtype.kind == "f" else np.float32
    self._values = values.astype(np.float64)
    finite = np.where(np.isfinite(self._values), self._values, 0.0)
    largest = np.abs(finite).max(axis=1, initial=0.0)
    off = rounding.by_place(kind) * largest
    spread = np.minimum(
      np.ptp(finite, axis=0), np.ptp(finite, axis=1)[:, np.newaxis]
    )
    self._allowed = _SHARE * spread + off[:, np.newaxis]
    top = np.sort(finite, axis=1)[:, -2:]
    self._decided = np.ptp(top, axis=1) > 2 * off

  def difference(self, other: _Logits, order: np.ndarray) -> float:
    """The largest that is no rounding; 0: there is none.

    Args:
      other: Logits of a pass in which row i was row order[i] of this one.
      order: -1 for a row that this one does not have.
    """
    rows = np.flatnonzero(order >= 0)
    before, now = self._values[order[rows]], other._values[rows]
    same = (before == now) | (np.isnan(before) & np.isnan(now))
    with np.errstate(invalid="ignore"):
      apart = np.where(same, 0.0, np.abs(before - now))
    apart = np.where(np.isnan(apart), np.inf, apart)
    turned = before.argmax(axis=1) != now.argmax(axis=1)
    wrong = (apart > self._allowed[order[rows]]).any(axis=1)
    wrong |= turned & self._decided[order[rows]]
    return float(apart[wrong].max(initial=0.0))


def _passes(
  batch: Sequence[np.ndarray],
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
  """Batches, and which row stands where: -1 for a stranger."""
  rng, size = np.random.default_rng(0), len(batch[0])
  for number in range(_PASSES - 2):  # the first one and its repetition
    order, others = rng.permutation(size), rng.permutation(size)
    others = others[: (0, size // 2, size // 2, size - 1)[number % 4]]
    among = [_among(part[order], others, number, rng) for part in batch]
    order[others] = -1
    yield order, among
  for count in _ALONE:
    yield np.arange(size)[:count], [part[:count] for part in batch]


def _among(
  rows: np.ndarray,
  company: np.ndarray,
  number: int,
  rng: np.random.Generator,
) -> np.ndarray:
  """The rows with strangers in these places; `rows` is the caller's to lose."""
  shape = rows[company].shape
  far = _FAR * (1 + np.abs(rows).max(initial=0.0))
  kind = number // 4 % 4
  if kind == 0:
    rows[company] = rng.standard_normal(shape, np.float32)
  elif kind == 1:
    rows[company] = far * (1 - 2 * rng.integers(0, 2, shape, np.int8))
  else:
    rows[company] = far if kind == 2 else rows[:1]
  return rows


def _traced(function, batch: Sequence[np.ndarray]):
  """The function as a graph in which nothing draws, writes or leaves it.

  None where it cannot be traced.
  """
  specs = [tf.TensorSpec(part.shape, part.dtype) for part in batch]
  try:
    traced = tf.function(function, autograph=False).get_concrete_function(
      *specs
    )
  except Exception:  # whatever it is that cannot be traced: passes tell
    return None
  _refuse_operations(traced)
  return traced


def _refuse_operations(traced) -> None:
  """Refuses a graph that draws, writes or calls Python; None passes."""
  if traced is None:
    return
  graph = traced.graph
  for kind, name in operations.drawing(graph):
    raise ValueError(
      "Expected a model that is deterministic once the noise is fixed, received"
      f" the operation {kind} {name!r}, which draws random numbers. {_REMEDY}"
    )
  for kind, name in operations.stateful(graph):
    if kind not in _HARMLESS:
      raise ValueError(
        "Expected a model that only reads its variables, received the operation"
        f" {kind} {name!r}: what it writes, or does outside of the graph, may"
        " change the next logits. Remove what assigns or calls Python there."
      )
