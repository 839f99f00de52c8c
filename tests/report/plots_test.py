"""Plots: SVG that belongs to the page, from any names and any gaps."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.report import conftest
from tf_privrob import records
from tf_privrob.report import plots


def test_plot_follows_the_page_and_leaks_no_drawing_colour():
  rows = [records.Epoch(e, {"x": 0.5 * e}) for e in range(1, 4)]
  svg = plots.history(rows, "x", limit=2.0)
  assert "var(--c1)" in svg
  assert "var(--grid)" in svg
  assert "#0" not in svg.replace("href", "")
  assert "<metadata" not in svg
  assert "xmlns" not in svg
  assert ">proven at the end: 2<" in svg


def test_plot_takes_one_epoch_and_gaps():
  rows = [
    records.Epoch(1, {"x": None}),
    records.Epoch(2, {"x": 0.5}),
    records.Epoch(3),
  ]
  assert "<svg" in plots.history(rows, "x", share=True)
  assert plots.history_keys(rows, "x") == ["x"]
  assert plots.history_keys(rows[:1], "x") == []


def _attacks(*names):
  return [
    records.AttackResult.from_json(conftest.attack(name, "linf", size, 100))
    for name in names
    for size in (0.1, 0.2)
  ]


@pytest.mark.parametrize(
  "name", ["$\\frac{1$", "_hidden", "a" * 300, "\u6578\u5b57", "<b>&", ""]
)
def test_names_are_text_whatever_they_are(name):
  attacks = _attacks("pgd", name)
  svg = plots.attack_curves(attacks, "linf", ["pgd", name], None)
  assert "<b>" not in svg
  assert svg.count("stroke: var(--c2)") >= 1


def test_colours_agree_between_panels():
  attacks = [*_attacks("fgsm"), *_attacks("pgd")]
  both = plots.attack_curves(attacks, "linf", ["fgsm", "pgd"], None)
  one = plots.attack_curves(attacks[2:], "linf", ["fgsm", "pgd"], None)
  assert "stroke: var(--c1)" in both
  assert "stroke: var(--c1)" not in one
  assert "stroke: var(--c2)" in one


def test_certified_steps_show_the_safe_side():
  """Between 0 and r the curve is at the accuracy of r, the lower one."""
  smoothed = records.Radii.from_json(
    {
      "curve": [
        {"radius": 0.0, "accuracy": 1.0},
        {"radius": 1.0, "accuracy": 0.0},
      ]
    }
  )
  svg = plots.certified_curve(smoothed)
  line = re.search(r'<path d="([^"]*)"[^>]*stroke: var\(--c3\)', svg).group(1)
  points = np.array(re.findall(r"([\d.]+) ([\d.]+)", line), float)
  # Down at the left end, then along the bottom: y grows downwards in SVG.
  assert points[0, 0] == points[1, 0] < points[2, 0]
  assert points[0, 1] < points[1, 1] == points[2, 1]
