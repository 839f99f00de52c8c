"""Batches that are worked on at the same time."""

from __future__ import annotations

import collections
import concurrent.futures
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import TypeVar

_AT_WORK = 3
_In, _Out = TypeVar("_In"), TypeVar("_Out")


def results(
  make: Callable[[_In], _Out], items: Iterable[_In]
) -> Iterator[_Out]:
  """`make` of each item in their order, a few of them at work at a time.

  So no processor waits while another draws noise, as it does when batches take
  turns.
  """
  with concurrent.futures.ThreadPoolExecutor(_AT_WORK) as threads:
    made: collections.deque = collections.deque()
    for item in items:
      made.append(threads.submit(make, item))
      if len(made) > _AT_WORK:
        yield made.popleft().result()
    while made:
      yield made.popleft().result()
