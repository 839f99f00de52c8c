"""Records: their round trip, what a study takes from them, what it writes."""

import dataclasses
import json

import pytest

from experiments.grid import engine as grid
from experiments.grid import page as grid_page
from experiments.grid import provenance
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

  def __init__(self, out_dir, data="Two rows.", code="", **settings):
    record = {"scale": "small", "dataset": "digits", "data": data}
    record["settings"] = {**SETTINGS, **settings}
    record["command"] = "python -m tiny --cells=a"
    super().__init__(str(out_dir), CELLS, record, ("dataset", "settings"))
    self.ran, self.code = [], code

  def measure(self, cell):
    self.ran.append(cell.name)
    if cell.part == "train":
      stated = {"claimed": BUDGET, "proven": BUDGET, "condition": "on Sundays"}
      weights = f"weights of {cell.model}{self.code}"
      self.folder.write_text(f"{cell.model}/weights", weights)
      return {**stated, "config": {"seed": 3}, "seconds": 1.0}
    curve = {"claimed": {"fallen": 2}, "interval": (0.25, 0.5)}
    return {**curve, "accuracy": 0.375, "seconds": 2.0}

  def weights(self, cell):
    path = self.folder.file(f"{cell.model}/weights")
    return path.read_text() if path.exists() else None

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


def _resumed(folder, store, keep=False, **settings):
  experiment = Tiny(folder, **settings)
  experiment.open(resume=True)
  found = store.matching(experiment).items()
  experiment.adopt({name: record.result for name, record in found})
  if keep:
    experiment.keep(store)
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


@pytest.fixture
def commit(monkeypatch):
  """Says at which commit what follows is done."""
  return lambda text: monkeypatch.setattr(provenance, "commit", lambda: text)


def _read(store, *names):
  return [store.read("tiny", "small-digits", name) for name in names]


def test_records_name_the_model_and_the_commit_of_its_training(
  tmp_path, store, commit
):
  commit("abc, with changes")
  first = _resumed(tmp_path / "first", store)
  first.run(CELLS[:1])
  commit("def")
  again = _resumed(tmp_path / "first", store, keep=True)
  again.run(CELLS[:2])
  assert again.ran == ["a/attack"]
  trained, attacked = _read(store, "a/train", "a/attack")
  assert (trained.commit, attacked.commit) == ("abc, with changes", "def")
  assert trained.weights == attacked.weights == "weights of a"
  origin = {"weights": "weights of a", "commit": "abc, with changes"}
  assert (trained.training, attacked.training) == (None, origin)


def test_work_in_two_sessions_names_the_commits_of_both(
  tmp_path, store, commit, monkeypatch
):
  def killed(self, cell):
    raise KeyboardInterrupt

  commit("abc, with changes")
  with monkeypatch.context() as patch:
    patch.setattr(Tiny, "measure", killed)
    first = _resumed(tmp_path / "first", store, keep=True)
    with pytest.raises(KeyboardInterrupt):
      first.run(CELLS[:1])
  for _ in range(2):
    commit("def")
    _resumed(tmp_path / "first", store, keep=True).run(CELLS[:1])
  (trained,) = _read(store, "a/train")
  assert trained.commit == "abc, with changes; def"


def test_a_result_without_a_provenance_is_measured_again_for_a_record(
  tmp_path, store
):
  done = Tiny(tmp_path)
  done.run(CELLS[:2])
  for name in ("a/train", "a/attack"):
    result = done.folder.read_json(f"{name}.json")
    del result["provenance"]
    done.folder.write_json(f"{name}.json", result)
  done.folder.file("a/commits.jsonl").unlink()
  done.folder.write_text("a/half-done", "")
  again = _resumed(tmp_path, store, keep=True)
  again.run(CELLS[:2])
  assert again.ran == ["a/train", "a/attack"]
  assert all(_read(store, "a/train", "a/attack"))
  # What it would have gone on with is out of its way, and kept.
  assert not done.folder.has("a/half-done")
  assert done.folder.has("a.before-1/half-done")


def test_what_an_earlier_version_began_is_of_an_unknown_commit(
  tmp_path, store, commit
):
  commit("def")
  (tmp_path / "a").mkdir()
  _resumed(tmp_path, store, keep=True).run(CELLS[:1])
  assert _read(store, "a/train")[0].commit == "unknown; def"


def test_two_trainings_never_stand_together(tmp_path, store, done):
  """Another folder and other code need the model, and train it again."""
  store.folder.file("tiny/small-digits/a/train.json").rename(
    tmp_path / "first.json"
  )
  other = _resumed(tmp_path / "other", store, keep=True, code=", other")
  other.run(CELLS[:1])
  trained, attacked = _read(store, "a/train", "a/attack")
  assert trained.weights == "weights of a, other"
  assert attacked.weights == "weights of a"  # which is gone
  shown = ["a/train", "b/train", "b/attack"]
  assert list(store.of(other)) == shown
  last = _resumed(tmp_path / "last", store, keep=True, code=", other")
  assert list(last.results()) == shown
  last.run(CELLS)
  assert last.ran == ["a/train", "a/attack"]
  assert list(store.of(last)) == [cell.name for cell in CELLS]


def test_measurements_of_this_run_are_repeated_with_their_training(
  tmp_path, store, done
):
  """What was recorded of the old weights is not left beside the new ones."""
  more = [*CELLS, Cell("b", "radii")]
  done.cells = more
  done.run(more)
  store.folder.file("tiny/small-digits/b/attack.json").unlink()
  other = _resumed(tmp_path / "x", store, keep=True, code="2")
  other.cells = more
  found = store.of(other)
  other.adopt({name: record.result for name, record in found.items()})
  other.run(more)
  assert other.ran == ["b/train", "b/attack", "b/radii"]


def test_a_model_that_was_exchanged_is_trained_again(done, store):
  done.folder.write_text("a/weights", "others")
  again = _resumed(done.folder.path, store, keep=True)
  again.adopt({})
  assert list(again.results()) == ["b/train", "b/attack"]
  again.run(CELLS)
  assert again.ran == ["a/train", "a/attack"]
  assert done.folder.has("a.before-1/attack.json")


def test_a_training_without_a_hash_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(Tiny, "weights", lambda self, cell: None)
  with pytest.raises(ValueError, match="Expected the training of a to name"):
    Tiny(tmp_path).run(CELLS)


def test_a_record_from_before_there_were_weights_is_read(done, store):
  payload = store.read("tiny", "small-digits", "a/train").to_json()
  del payload["weights"], payload["training"]
  record = grid_records.Record.from_json(payload)
  assert (record.weights, record.training) == (None, None)


def test_defaults_are_no_part_of_a_fingerprint():
  @dataclasses.dataclass(frozen=True)
  class Config:
    steps: int
    rate: float = 0.5

  assert grid_records.changed_fields(Config(3)) == {"steps": 3}
  assert grid_records.changed_fields(Config(3, 1.0)) == {"steps": 3, "rate": 1}
