"""Commands of the console, run inside of the test's own process."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tf_privrob import console


class Done(NamedTuple):
  """How a command ended, and what it said."""

  code: int
  out: str
  err: str


@pytest.fixture
def command(capsys):
  """Runs a command by its words: no process begins, which costs seconds.

  The binaries as processes of their own are in `binaries_test`.
  """

  def run(*words):
    capsys.readouterr()
    code = 0
    try:
      console.main([str(word) for word in words])
    except SystemExit as error:
      code = error.code
    return Done(code, *capsys.readouterr())

  return run
