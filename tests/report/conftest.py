"""A synthetic run folder, small and complete."""

from __future__ import annotations

import json
from html import parser

import numpy as np
import pytest

from tf_privrob.report import plots

PRIVACY = {
  "claimed": {"dp_epsilon": 3.0, "dp_delta": 1e-5},
  "proven": {"dp_epsilon": 2.987, "dp_delta": 1e-5},
  "audited": None,
  "audit_note": "",
  "neighbouring": "add_or_remove_one",
  "sampler": "poisson",
  "accountant": {
    "name": "pld",
    "library": "dp_accounting",
    "version": "0.4.3",
    "rdp": 3.2714,
    "pld": 2.987,
  },
  "releases": [
    {
      "name": "gradient",
      "description": "noisy sum of clipped gradients",
      "count": 640,
      "parameters": {"noise_multiplier": 1.2207, "sampling_prob": 0.064},
    }
  ],
  "assumptions": [
    {
      "text": "every example is clipped to l2_clip_norm",
      "enforced_by": "tf_privrob/gradients/clipping.py",
    }
  ],
  "caveats": ["the test accuracy of each epoch was looked at"],
}


def attack(name, norm, attack_eps, correct, steps=10, count=200, warnings=()):
  return {
    "name": name,
    "norm": norm,
    "attack_eps": attack_eps,
    "steps": steps,
    "restarts": 1,
    "accuracy": correct / count,
    "count": count,
    "warnings": list(warnings),
    "seconds": 1.5,
  }


def contents():
  """Every JSON file of the run, by name."""
  return {
    "config.json": {
      "method": "dp_sgd",
      "dataset": "mnist_5k",
      "network": "tutorial_cnn",
      "config": {
        "l2_clip_norm": 1.5,
        "epochs": 3,
        "sampler": "poisson",
        "momentum": None,
        "seed": "kept out of the run folder",
      },
      "flags": {"preset": "demo one", "value_range": None},
    },
    "run.json": {
      "created": "2025-11-16T02:41:09+00:00",
      "train_seconds": 118.4,
      "sessions": 2,
      "steps": 640,
      "parameters": 26010,
      "versions": {"python": "3.11.7", "tf_privrob": "0.1.0"},
      "device": "CPU x2",
      "dataset": {
        "name": "mnist_5k",
        "num_train": 4000,
        "num_test": 1000,
        "num_classes": 10,
        "value_range": [0, 1],
      },
    },
    "privacy.json": json.loads(json.dumps(PRIVACY)),
    "metrics.json": {
      "clean": {"accuracy": 0.934, "count": 1000, "interval": [0.917, 0.948]},
      "attacks": [
        attack("fgsm", "linf", 0.05, 170, steps=1),
        attack("fgsm", "linf", 0.1, 130, steps=1),
        attack("pgd", "linf", 0.05, 161),
        attack("pgd", "linf", 0.1, 101, warnings=["saturated softmax"]),
        attack("pgd", "l2", 0.5, 150),
      ],
      "certified": {
        "kind": "proven",
        "smoothing_stddev": 0.25,
        "num_selection": 100,
        "num_estimation": 10000,
        "confidence": 0.999,
        "count": 100,
        "abstained": 7,
        "curve": [
          {"radius": 0.0, "accuracy": 0.89},
          {"radius": 0.25, "accuracy": 0.71},
          {"radius": 0.5, "accuracy": 0.33},
        ],
        "mean_radius": 0.4713,
        "seconds": 64.2,
      },
      "commands": ["python -m experiments.evaluate --run_dir=runs/x"],
    },
  }


def prove(files, dp_epsilon, dp_delta=1e-5):
  """States another proven figure, which the accountant has found as well."""
  stated = files["privacy.json"]
  stated["proven"] = {"dp_epsilon": dp_epsilon, "dp_delta": dp_delta}
  stated["accountant"]["pld"] = dp_epsilon


def write_run(path, files):
  """Writes the folder: its JSON files, a history and example pictures."""
  path.mkdir(parents=True, exist_ok=True)
  for name, payload in files.items():
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(json.dumps(payload), encoding="utf-8")
  rows = [
    {
      "epoch": epoch,
      "step": 213 * epoch,
      "dp_epsilon": epoch * 0.99,
      "eval_accuracy": 0.6 + 0.1 * epoch,
      "nonprivate/loss": 1.0 / epoch,
      "nonprivate/clipped_fraction": 0.9,
    }
    for epoch in (1, 2, 3)
  ]
  text = "".join(json.dumps(row) + "\n" for row in rows)
  (path / "history.jsonl").write_text(text, encoding="utf-8")
  rng = np.random.default_rng(0)
  clean = rng.uniform(size=(3, 6, 5, 1)).astype(np.float32)
  np.savez(
    path / "examples.npz",
    clean=clean,
    adversarial=np.clip(clean[None] + 0.1, 0, 1),
    attack_names=np.array(["pgd"]),
    labels=np.array([1, 2, 3]),
    clean_predictions=np.array([1, 2, 3]),
    adversarial_predictions=np.array([[1, 7, 8]]),
  )
  return path


@pytest.fixture
def files():
  return contents()


@pytest.fixture
def run_dir(tmp_path, files):
  return write_run(tmp_path / "run", files)


@pytest.fixture
def no_plots(monkeypatch):
  """Spares drawing where a test does not look at the plots."""
  drawn = "history attack_curves certified_curve roc_curves compared"
  for name in drawn.split():
    monkeypatch.setattr(plots, name, lambda *_, **__: "<svg></svg>")


_VOID = {"meta", "link", "img", "br"}


class Page(parser.HTMLParser):
  """Checks nesting and collects text, values, attributes and ids."""

  def __init__(self, text):
    super().__init__(convert_charrefs=True)
    self.open, self.ids, self.attributes = [], [], []
    self.tags, self.data, self.chunks = [], [], []
    self.feed(text)
    self.close()
    assert not self.open, f"unclosed: {self.open}"
    self.text = " ".join(" ".join(self.chunks).split())

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    if tag not in _VOID:
      self.open.append(tag)
    for name, value in attrs:
      self.attributes.append((tag, name, value))
      if name == "id":
        self.ids.append(value)
      if tag == "data" and name == "value":
        self.data.append(value)

  def handle_startendtag(self, tag, attrs):
    self.handle_starttag(tag, attrs)
    if tag not in _VOID:
      self.open.pop()

  def handle_endtag(self, tag):
    assert self.open[-1:] == [tag], f"</{tag}> in {self.open}"
    self.open.pop()

  def handle_data(self, data):
    if self.open and self.open[-1] != "style":
      self.chunks.append(data)


def part(page_text, anchor):
  """The HTML of one section."""
  start = page_text.index(f'id="{anchor}"')
  return page_text[start : page_text.index("</section>", start)]
