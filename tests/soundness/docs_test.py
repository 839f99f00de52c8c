"""docs/soundness.md names tests: they must exist."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "soundness.md").read_text(encoding="utf-8")


def defined_tests(path):
  tree = ast.parse(path.read_text(encoding="utf-8"))
  return {
    node.name
    for node in ast.walk(tree)
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
  }


EVERY = set().union(
  *(defined_tests(path) for path in (ROOT / "tests").rglob("*_test.py"))
)


def test_every_path_exists():
  paths = set(re.findall(r"`(tests/[\w/.]+)`", PAGE))
  assert len(paths) > 10
  assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")))
def test_no_cell_of_a_table_is_a_paragraph(page):
  lines = page.read_text(encoding="utf-8").splitlines()
  rows = [re.sub(r"`[^`]*`", "", line) for line in lines if line[:1] == "|"]
  cells = [cell for row in rows for cell in row.split("|")]
  assert [cell for cell in cells if len(cell) > 200] == []


def test_every_named_test_exists():
  names = set(re.findall(r"`(test_\w+)`", PAGE))
  assert len(names) > 40
  assert sorted(names - EVERY) == []


@pytest.mark.parametrize(
  "module",
  [
    "dpal_claims",
    "dpal_audit",
    "halfspaces_claims",
    "pixeldp_claims",
    "secure_sgd",
    "transdenoiser_audit",
    "transdenoiser_claims",
  ],
)
def test_no_soundness_test_is_left_out_of_the_page(module):
  path = pathlib.Path(__file__).parent / f"{module}_test.py"
  assert sorted(name for name in defined_tests(path) if name not in PAGE) == []


@pytest.mark.parametrize(
  "claim",
  [
    *(f"Lemma {number}" for number in range(1, 8)),
    "Theorem 1",
    "Proposition 1",
    "Eq. 16",
    "appendix J",
    "parallel composition",
    "total budget",
  ],
)
def test_every_claim_of_the_paper_has_a_verdict(claim):
  rows = [row for row in PAGE.splitlines() if row.startswith(f"| {claim}")]
  assert len(rows) == 1
  assert re.search(r"holds|fails|changed", rows[0])


def section(title):
  """From its heading to the next one."""
  start = PAGE.index(f"\n## {title}")
  return re.split(r"^## ", PAGE[start + 4 :], flags=re.M)[0]


@pytest.mark.parametrize(
  ("title", "count"),
  [
    ("TransDenoiser", 11),
    ("Robust and private halfspaces", 7),
    ("Privacy risks of robust models", 6),
  ],
)
def test_all_claims_have_a_verdict_and_a_test(title, count):
  text = section(title)
  for number in range(1, count + 1):
    assert len(re.findall(rf"^\| {number} \|", text, re.MULTILINE)) == 1
    paragraph = re.search(
      rf"^\*\*{number}\. .*?(?=^\*\*|\Z)", text, re.M | re.S
    )
    assert re.search(r"`test(s/|_)", paragraph.group())
