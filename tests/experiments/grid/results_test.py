"""The pages of docs/ are what the records say."""

import pathlib
import re
import shutil

import pytest

from experiments.grid import headlines
from experiments.grid import provenance
from experiments.grid import records as grid_records
from experiments.grid import results as grid_results
from experiments.grid import studies

_DOCS = grid_records.ROOT / "docs"
_WITH_PARTS = ("results.md", "soundness.md")  # besides what is typed by hand


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  """All pages, made anew from the committed records."""
  folder = tmp_path_factory.mktemp("docs")
  for name in _WITH_PARTS:
    shutil.copy(_DOCS / name, folder)
  paths = grid_results.write(folder, grid_records.Store())
  return folder, [path.relative_to(folder) for path in paths]


def _version(path):
  return re.search(r"Matplotlib v[\d.]+", path.read_text(encoding="utf-8"))


def _without_ids(path):
  """The text without ids of drawings: hashes of how NumPy writes numbers."""
  text = path.read_text(encoding="utf-8")
  return re.sub(r"\b[a-z][0-9a-f]{10}\b", "id", text)


def test_pages_and_records_are_the_same(written):
  folder, paths = written
  for path in paths:
    made, kept = folder / path, _DOCS / path
    assert kept.is_file(), f"{path} is missing: run make results"
    if path.suffix == ".svg" and _version(made)[0] != _version(kept)[0]:
      continue  # another matplotlib draws the same in other words
    same = _without_ids(made) == _without_ids(kept)
    assert same, f"{path} differs from the records: run make results"


def test_every_page_has_records(written):
  _, paths = written
  kept = (_DOCS / "results").glob("*")
  extra = {path.relative_to(_DOCS) for path in kept} - set(paths)
  assert not extra, "these have no records: delete them"


def test_every_record_is_in_its_place_and_of_a_cell():
  store = grid_records.Store()
  for study in studies.STUDIES:
    for path in store.files(study):
      place = path.relative_to(store.folder.file(study)).with_suffix("")
      group, name = place.parts[0], str(pathlib.Path(*place.parts[1:]))
      record = store.read(study, group, name)
      experiment = studies.described(
        study, record.scale, record.dataset, "runs"
      )
      assert (record.study, record.cell) == (study, name)
      assert experiment.group == group
      assert name in [cell.name for cell in experiment.cells]
      assert path.stat().st_size < 40_000


def test_a_changed_record_changes_the_page(tmp_path):
  store = grid_records.Store(tmp_path / "records")
  first = next(h for h in headlines.HEADLINES if h.study == "audits")
  shutil.copytree(
    grid_records.COMMITTED / "audits", tmp_path / "records" / "audits"
  )
  record = store.read("audits", "full", first.cell)
  changed = {**record.figures, "verdict": "sees nothing"}
  payload = {**record.to_json(), "figures": changed, "audited": 0.125}
  store.write(grid_records.Record.from_json(payload), "full")
  for name in _WITH_PARTS:
    shutil.copy(_DOCS / name, tmp_path)
  grid_results.write(tmp_path, store)
  for name in ("results.md", "results/audits.md", "soundness.md"):
    assert "sees nothing" in (tmp_path / name).read_text()
  assert ">= 0.12" in (tmp_path / "results.md").read_text()


def _of_smoothing(cell, weights, training, **figures):
  """A record of the study of smoothing, whose figures are made up."""
  place = ("smoothing", "small", "mnist")
  experiment = studies.described(*place, "runs")
  result = {"part": cell.split("/")[1], "model": cell.split("/")[0], **figures}
  origin = provenance.of_today("python", "abc", weights, training)
  result = {**result, provenance.KEY: origin.to_json()}
  cells = {cell.name: cell for cell in experiment.cells}
  return grid_records.make(experiment, cells[cell], result)


@pytest.mark.parametrize("weights", ["those", "others"])
def test_records_of_two_trainings_are_not_shown_together(tmp_path, weights):
  store = grid_records.Store(tmp_path / "records")
  model = "dp_smooth-3-0.5"
  budget = {"dp_epsilon": 3.0, "dp_delta": 1e-6}
  trained = {"weights": weights, "commit": "fed"}
  figures = {"stddev": 0.5, "attacked": 7, "fallen": 5, "expected_at_most": 1}
  records = [
    _of_smoothing(f"{model}/train", "those", None, proven=budget),
    _of_smoothing(f"{model}/attack-0.5", weights, trained, **figures),
  ]
  for record in records:
    store.write(record, "small-mnist")
  experiment = studies.described("smoothing", "small", "mnist", "runs")
  same = weights == "those"
  assert len(store.of(experiment)) == (2 if same else 1)
  headline = headlines.Headline(
    "attacks", "smoothing", "small", "mnist", records[1].cell, "fallen"
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(headlines, "HEADLINES", (headline,))
    row = headlines.markdown(store).splitlines()[4]
  assert ("5 of 7 changed class" in row) == same
  assert ("not yet recorded: `python -m experiments.smoothing" in row) != same
  found = store.of(experiment)
  shown = grid_results.origins(experiment, found).rows
  assert [row[2] for row in shown] == [
    "abc; model those",
    "abc; model those, trained at fed",
  ][: len(found)]


def test_a_study_whose_models_are_gone_has_no_page(tmp_path):
  store = grid_records.Store(tmp_path / "records")
  trained = {"weights": "gone", "commit": "fed"}
  cell = "dp_smooth-3-0.5/attack-0.5"
  store.write(_of_smoothing(cell, "gone", trained), "small-mnist")
  for name in _WITH_PARTS:
    shutil.copy(_DOCS / name, tmp_path)
  grid_results.write(tmp_path, store)
  assert not (tmp_path / "results" / "smoothing.md").exists()


def test_without_a_record_there_is_a_command_and_no_figure(tmp_path):
  store = grid_records.Store(tmp_path / "none")
  rows = headlines.markdown(store).split("## Six")[0].strip().splitlines()[4:]
  assert len(rows) == len(headlines.HEADLINES)
  for row in rows:
    assert "not yet recorded: `python -m experiments." in row
    assert row.endswith("|  |  |")  # neither a budget nor a date


def test_headlines_name_cells_that_exist():
  for headline in headlines.HEADLINES:
    experiment = studies.described(
      headline.study, headline.scale, headline.dataset, "runs"
    )
    names = [cell.name for cell in experiment.cells]
    assert headline.cell in names, headline.title


def test_the_page_of_results_is_short_and_has_its_marks():
  text = (_DOCS / "results.md").read_text(encoding="utf-8")
  assert len(text.splitlines()) <= 150
  with pytest.raises(ValueError, match="Put them back"):
    grid_results.with_part("results.md", "# Results\n", "a table")


def test_the_notebook_says_what_it_is():
  text = (_DOCS / "notebook.md").read_text(encoding="utf-8")
  assert "typed by hand, without records" in " ".join(text.split()[:40])


def test_the_headline_of_halfspaces_is_at_one_budget():
  row = {"dp_epsilon": 1.0, "dp_delta": 1e-4, "claimed": 1.0, "proven": 1.7701}
  row.update(condition="on Sundays", accuracy=0.8, standard_error=0.01)
  more = {**row, "dp_delta": 1e-2, "accuracy": 0.9}
  worse = {**row, "accuracy": 0.7}
  headline = next(h for h in headlines.HEADLINES if h.study == "halfspaces")
  show = headlines.SHOWN[headline.show]
  assert show({"rows": [worse, row, more]}) == (
    "80.00 +- 1.00 %, claimed (1, 0.0001) / proven (1.78, 0.0001)"
    " (on Sundays) / audited: not run"
  )


def test_published_figures_are_those_of_the_studies():
  found = {h.title: headlines.published(h) for h in headlines.HEADLINES}
  title = "flagship on MNIST, noise 0.5, 10,000 draws"
  assert found[f"{title}: average certified l_2 radius"] == "1.296"
  assert found["PGD training on UCI HAR, attacked test accuracy"] == "73.84"
  title = "PGD training with a budget on UCI HAR, attacked test accuracy"
  assert found[title] == "-"
  assert found["audit of DPAL as published, one step"] == "-"


def test_a_model_and_an_audit_that_were_not_run_are_called_so(tmp_path):
  store = grid_records.Store(tmp_path / "none")
  six = headlines.six_models(store)
  assert len(six.rows) == 6
  for row in six.rows:
    assert row[1] == "not run / not run / not run"
    assert set(row[2:-1]) <= {"not run", "-"}
  for line in headlines.audits(store).splitlines()[2:]:
    assert line.count("| not run ") == 5
  committed = headlines.audits(grid_records.Store())
  assert "| DPAL as published |" in committed
  assert "refutes claimed" in committed


@pytest.mark.parametrize("name", ["results.md", "soundness.md"])
def test_no_cell_of_a_table_is_long(name):
  text = (_DOCS / name).read_text(encoding="utf-8")
  rows = [line for line in text.splitlines() if line.startswith("|")]
  cells = [c for row in rows for c in row.split("|") if "not yet rec" not in c]
  assert max(len(cell.strip()) for cell in cells) <= 200
