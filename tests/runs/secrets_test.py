"""What a run folder tells of the secrets of its run: nothing.

Whoever knows a run's seed can subtract the noise from what it released. So no
file of the folder may hold it, as it is or as a number that it follows from.
The second training of an audit has no seed, and leaves nothing behind.
"""

import dataclasses
import io
import struct
import zipfile

import pytest

from tf_privrob import data
from tf_privrob import methods
from tf_privrob import models
from tf_privrob import papers
from tf_privrob import run_folder
from tf_privrob.runs import train as training
from tf_privrob.runs.audit import one_run as audit_one_run
from tf_privrob.runs.audit import perform as auditing
from tf_privrob.runs.audit import source as audit_source

pytestmark = pytest.mark.usefixtures("checked_once")

SEED = 987_654_321
_LAYERS = 20


def forms(seed):
  """The seed as text and as bytes, also times 1000 with a layer's number.

  And the seeds that a network built with this one would have: they would
  confirm a guess.
  """
  network = models.mlp((8, 8, 1), 10, seed=seed)
  followed = [
    layer.kernel_initializer.seed
    for layer in network.layers
    if hasattr(layer, "kernel_initializer")
  ]
  assert None not in followed
  found = {str(number).encode() for number in followed}
  for number in (seed, *(1000 * seed + layer for layer in range(_LAYERS))):
    texts = (str(number), f"{number:x}", f"{number:X}", f"{number:_}")
    found.update(text.encode() for text in texts)
    for order in "<>":
      found.add(struct.pack(f"{order}q", number))
      found.add(struct.pack(f"{order}d", number))
  return found


def pieces(path):
  """(name, bytes) of a file, and of all that is packed into it."""
  content = path.read_bytes()
  yield str(path), content
  if zipfile.is_zipfile(io.BytesIO(content)):
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
      for name in packed.namelist():
        yield f"{path}/{name}", packed.read(name)


def places_of(seed, folder):
  """Where the seed can be read."""
  wanted = forms(seed)
  return [
    name
    for path in folder.rglob("*")
    if path.is_file()
    for name, content in pieces(path)
    if any(form in content or form in name.encode() for form in wanted)
  ]


def make_run(folder, method, config, network="mlp"):
  dataset = data.load("digits").rescaled((-1.0, 1.0))
  made = run_folder.RunFolder(folder)
  config = dataclasses.replace(config, seed=SEED)
  model = training.build(method, config, dataset, network)
  flags = {"value_range": "-1,1"}  # by which it is loaded again
  training.fit(model, dataset, network, made, False, flags)
  return made


def test_a_seed_in_the_open_is_found(tmp_path):
  """The search itself: it finds what earlier versions wrote."""
  (tmp_path / "config.json").write_text(f'{{"seed": {SEED}}}')
  with zipfile.ZipFile(tmp_path / "model.keras", "w") as packed:
    seed = 1000 * SEED + 2
    packed.writestr("config.json", f'{{"seed": {seed}}}', zipfile.ZIP_DEFLATED)
  (tmp_path / "state.npy").write_bytes(struct.pack("<q", SEED))
  (tmp_path / "innocent.json").write_text('{"seed": null}')
  found = {
    name.removeprefix(f"{tmp_path}/") for name in places_of(SEED, tmp_path)
  }
  assert found == {"config.json", "model.keras/config.json", "state.npy"}


_SHORT = {
  "dp_epsilon": 1.0,
  "dp_delta": 1e-4,
  "accountant": "rdp",  # calibrates four times faster than "pld"
  "batch_size": 400,
  "epochs": 0.6,
}
_RUNS = {
  "dp_sgd": ("dp_sgd", methods.DPSGDConfig(**_SHORT)),
  "sound_dpal": ("dpal", papers.SoundDPALConfig(**_SHORT)),
  "sound_adlm": ("adlm", papers.SoundAdLMConfig(**_SHORT)),
  "secure_sgd": ("secure_sgd", papers.SoundSecureSGDConfig(**_SHORT)),
  "halfspaces": (
    "halfspaces",
    papers.HalfspacesConfig(**_SHORT),
    "random_features_linear",
  ),
}


@pytest.mark.parametrize("name", _RUNS)
def test_no_file_of_a_run_tells_its_seed(tmp_path, name):
  folder = make_run(tmp_path / "run", *_RUNS[name])
  assert folder.has("model.keras")
  assert folder.has("checkpoints")
  assert places_of(SEED, folder.path) == []


# The second training of an audit.


@pytest.fixture
def audited(tmp_path):
  """A run with full batches, which one-run audits show most about."""
  settings = {**_SHORT, "sampler": "full_batch", "epochs": 2}
  return make_run(tmp_path / "run", "dp_sgd", methods.DPSGDConfig(**settings))


def files(folder):
  return {
    str(path.relative_to(folder.path)): path.read_bytes()
    for path in folder.path.rglob("*")
    if path.is_file()
  }


def audit(folder, **changes):
  return auditing.one_run_audit(
    folder, audit_source.load(folder), 120, **{"seed": 2, **changes}
  )


def test_the_second_training_has_no_seed_and_leaves_nothing(
  audited, monkeypatch
):
  before, seeds, fit = files(audited), [], methods.DPSGD.fit

  def watched(self, *args, **kwargs):
    seeds.append(self.config.seed)
    return fit(self, *args, **kwargs)

  monkeypatch.setattr(methods.DPSGD, "fit", watched)
  audit(audited)
  assert seeds == [None]
  after = files(audited)
  changed = {name for name in after if after[name] != before.get(name)}
  assert changed == {"audit.json", "privacy.json", "ledger.jsonl"}
  assert set(before) <= set(after)
  assert not audited.has(audit_one_run.TRAINING)
  assert places_of(SEED, audited.path) == []


def test_the_statement_counts_second_trainings(audited):
  """Each is named in audit.json and among the caveats, whatever it audits."""
  before = audited.privacy
  audit(audited)
  audit(audited, dp_delta=1e-5)  # not set beside the figures of the run
  audits = audited.read_json("audit.json")["audits"]
  texts = [found["second_training"] for found in audits]
  assert all("trained a second model on the private" in t for t in texts)
  assert all("dp_epsilon=" in text for text in texts)
  assert audited.privacy["caveats"] == [*before["caveats"], *texts]
  assert len(set(texts)) == 2
  assert texts[0] in audited.privacy["text"]


@pytest.mark.slow
def test_a_killed_second_training_is_named_too(audited, monkeypatch):
  """Its weights are still there, in the part that is not to be published."""
  after_step, taken = audit_one_run.WhiteBoxScore.after_step, []

  def killed(self):
    after_step(self)
    taken.append(1)
    if len(taken) == 1:
      raise KeyboardInterrupt

  monkeypatch.setattr(audit_one_run.WhiteBoxScore, "after_step", killed)
  before = audited.privacy["caveats"]
  with pytest.raises(KeyboardInterrupt):
    audit(audited)
  assert audited.has(f"{audit_one_run.TRAINING}/checkpoints")
  (begun,) = set(audited.privacy["caveats"]) - set(before)
  assert "second model" in begun
  found = audit(audited)
  assert len(taken) == 2
  assert audited.privacy["caveats"] == [*before, found["second_training"]]
  assert not audited.has(audit_one_run.TRAINING)
