"""Published figures: csv files that say where they are from."""

import pathlib

import pytest

from experiments.grid import sheets

_EXPERIMENTS = pathlib.Path(__file__).parents[3] / "experiments"
FILES = sorted(_EXPERIMENTS.rglob("published.csv"))


def _write(tmp_path, *lines):
  (tmp_path / "published.csv").write_text("\n".join(lines))
  return sheets.published(tmp_path / "page.py")


def test_empty_fields_are_not_published(tmp_path):
  rows = _write(
    tmp_path,
    "# A paper.",
    "table,dataset,model,study,value,clean,attacked,estimated,remark",
    '2,mnist,pgd,radius,0.1,98.5,,yes,"a, b"',
    ",mnist,natural,,,,0.0,,",
  )
  first, second = rows
  assert first.figures == {"clean": 98.5}
  assert (first.table, first.value, first.remark) == ("2", 0.1, "a, b")
  assert first.estimated
  assert second.figures == {"attacked": 0.0}
  assert second.value is None
  assert not second.estimated
  assert sheets.by_value(rows, "mnist", "radius") == {0.1: first}
  assert sheets.by_value(rows, "usps", "radius") == {}


def test_a_file_that_lacks_a_column_is_noticed(tmp_path):
  with pytest.raises(KeyError, match="dataset"):
    _write(tmp_path, "table,model,study,value,clean", "2,pgd,,,98.5")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_file_says_where_its_figures_are_from(path):
  assert path.read_text(encoding="utf-8").startswith("# ")
  rows = sheets.published(path)
  assert rows
  for row in rows:
    assert row.figures, row
    assert row.dataset
    assert row.model
  keys = [(r.table, r.dataset, r.model, r.study, r.value) for r in rows]
  assert len(set(keys)) == len(keys)


def test_the_studies_with_published_figures_are_known():
  assert [path.parent.name for path in FILES] == [
    "dpal",
    "membership",
    "training",
    "smoothing",
    "transdenoiser",
  ]
