"""Records: their round trip, what a study takes from them, what it writes."""

import dataclasses
import json

import pytest

from experiments.grid import engine as grid
from experiments.grid import page as grid_page
from experiments.grid import records as grid_records


@dataclasses.dataclass(frozen=True)
class Cell:
  recipe: str
  part: str

  @property
  def model(self):
    return self.recipe

  @property
  def name(self):
    return f"{self.recipe}/{self.part}"

  @property
  def training(self):
    return dataclasses.replace(self, part="train")


CELLS = [Cell(name, part) for name in "ab" for part in ("train", "attack")]
SETTINGS = {"steps": 3, "recipes": {"a": [1, 2], "b": [3]}, "budgets": [1, 2]}
BUDGET = {"dp_epsilon": 1.5, "dp_delta": 1e-5}


class Tiny(grid.Experiment):
  """Counts what it measures."""

  study = "tiny"
  title = "Tiny"
  axes = ("budgets",)
  choices = ("recipes",)

  def __init__(self, out_dir, data="Two rows.", **settings):
    record = {"scale": "small", "dataset": "digits", "data": data}
    record["settings"] = {**SETTINGS, **settings}
    record["command"] = "python -m tiny --cells=a"
    super().__init__(str(out_dir), CELLS, record, ("dataset", "settings"))
    self.ran = []

  def measure(self, cell):
    self.ran.append(cell.name)
    if cell.part == "train":
      stated = {"claimed": BUDGET, "proven": BUDGET, "condition": "on Sundays"}
      return {**stated, "config": {"seed": 3}, "seconds": 1.0}
    curve = {"claimed": {"fallen": 2}, "interval": (0.25, 0.5)}
    return {**curve, "accuracy": 0.375, "seconds": 2.0}

  def tables(self, results):
    rows = [[name, str(r["seconds"])] for name, r in results.items()]
    return [grid_page.Table("Seconds", ["cell", "seconds"], rows)]

  def notes(self):
    return ["A note."]


@pytest.fixture
def store(tmp_path):
  return grid_records.Store(tmp_path / "records")


@pytest.fixture
def done(tmp_path, store):
  experiment = Tiny(tmp_path / "first")
  experiment.open(resume=False)
  experiment.keep(store)
  experiment.run(CELLS)
  return experiment


def _resumed(folder, store, **settings):
  experiment = Tiny(folder, **settings)
  experiment.open(resume=True)
  found = store.matching(experiment).items()
  experiment.adopt({name: record.figures for name, record in found})
  return experiment


def test_a_record_survives_its_file(done, store):
  record = store.read("tiny", "small-digits", "a/attack")
  again = json.loads(json.dumps(record.to_json()))
  assert grid_records.Record.from_json(again) == record
  assert record.figures["interval"] == [0.25, 0.5]
  assert record.cell == "a/attack"
  assert record.command == "python -m tiny --cells=a"
  assert record.machine["cores"] > 0
  assert record.versions["tensorflow"].startswith("2.")
  assert len(record.commit) >= 7
  assert record.date.startswith("20")


def test_the_budget_is_that_of_the_trained_model(done, store):
  record = store.read("tiny", "small-digits", "a/attack")
  assert (record.claimed, record.proven) == (BUDGET, BUDGET)
  assert record.condition == "on Sundays"
  assert record.audited is None
  trained = store.read("tiny", "small-digits", "a/train")
  assert trained.seeds == {"measurement": 0, "training": 3}


@pytest.mark.parametrize(
  ("name", "value"),
  [("cell", 3), ("figures", []), ("proven", "none"), ("audited", True)],
)
def test_a_wrong_value_is_refused(done, store, name, value):
  payload = store.read("tiny", "small-digits", "a/train").to_json()
  with pytest.raises(ValueError, match=f"Expected {name} of a record"):
    grid_records.Record.from_json({**payload, name: value})


def test_a_missing_field_is_refused(done, store):
  payload = store.read("tiny", "small-digits", "a/train").to_json()
  del payload["commit"]
  with pytest.raises(ValueError, match="differs in commit"):
    grid_records.Record.from_json(payload)


def test_a_study_goes_on_from_its_records_on_another_machine(
  done, store, tmp_path
):
  other = _resumed(tmp_path / "other", store)
  other.run(CELLS)
  assert other.ran == []
  assert other.results() == done.results()
  other.write()
  assert "b/attack" in (tmp_path / "other" / "table.md").read_text()


def test_a_training_is_repeated_where_its_model_is_needed(
  done, store, tmp_path
):
  store.folder.file("tiny/small-digits/b/attack.json").unlink()
  other = _resumed(tmp_path / "other", store)
  other.run(CELLS)
  assert other.ran == ["b/train", "b/attack"]


def test_other_settings_or_data_are_not_taken(done, store, tmp_path):
  assert _resumed(tmp_path / "a", store, steps=4).left(CELLS) == CELLS
  assert _resumed(tmp_path / "b", store, data="Three.").left(CELLS) == CELLS
  changed = {"a": [1, 2], "b": [4]}
  other = _resumed(tmp_path / "c", store, recipes=changed)
  assert other.left(CELLS) == CELLS[2:]
  more = {**SETTINGS["recipes"], "c": [5]}
  assert not _resumed(tmp_path / "d", store, recipes=more).left(CELLS)
  assert not _resumed(tmp_path / "e", store, budgets=[7]).left(CELLS)


def test_a_folder_takes_new_recipes_but_no_changed_ones(done):
  more = {**SETTINGS["recipes"], "c": [5]}
  Tiny(done.folder.path, recipes=more).open(resume=True)
  with pytest.raises(ValueError, match="same settings of b/train as in"):
    Tiny(done.folder.path, recipes={"a": [1, 2], "b": [4]}).open(resume=True)


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path, store):
  experiment = Tiny(tmp_path / "first")
  experiment.open(resume=False)
  experiment.run(CELLS)
  assert store.files("tiny") == []


def test_defaults_are_no_part_of_a_fingerprint():
  @dataclasses.dataclass(frozen=True)
  class Config:
    steps: int
    rate: float = 0.5

  assert grid_records.changed_fields(Config(3)) == {"steps": 3}
  assert grid_records.changed_fields(Config(3, 1.0)) == {"steps": 3, "rate": 1}
