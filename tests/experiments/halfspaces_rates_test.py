"""Sample sizes of halfspaces: instances, search, fits, one small run."""

from __future__ import annotations

import dataclasses
import io
import math
import xml.etree.ElementTree

import numpy as np
import pytest

from experiments.grid import plots as grid_plots
from experiments.halfspaces import fit as fits
from experiments.halfspaces import ideal as halfspaces_ideal
from experiments.halfspaces import instances
from experiments.halfspaces import pure as halfspaces_pure
from experiments.halfspaces import rates as halfspaces_rates
from experiments.halfspaces import rates_page as halfspaces_rates_page
from experiments.halfspaces import search
from tf_privrob import papers
from tf_privrob import privacy
from tf_privrob.privacy import run_facts

_ALL = [
  instances.Easy(12, 0.3),
  instances.Blocks(64, 0.25),
  instances.Blocks(64, 0.4, 0.8),
  instances.Packing(5, 0.3),
]
_TINY = halfspaces_rates.Scale(
  dimensions={"easy": (16, 32, 64), "blocks": (16,)},
  learners={"easy": ("dp", "free"), "blocks": ("free",)},
  gammas={"easy": 0.5, "blocks": 0.4, "packing": 0.25},
  dp_epsilon=4.0,
  seeds=2,
  factor=1.5,
  num_fresh=200,
  first=16,
  cap=2**12,
  pure_dimensions=(2, 3, 4),
  pure_dp_epsilons=(0.5, 2.0),
  pure_seeds=10,
  pure_factor=1.19,
)


# Instances.


@pytest.mark.parametrize("instance", _ALL, ids=repr)
def test_instance_has_its_margin(instance):
  x, y = instance.draw(700, seed=3)
  direction = instance.direction(3)
  assert set(y) == {-1.0, 1.0}
  assert abs(np.mean(y)) < 0.2
  assert np.linalg.norm(direction) == pytest.approx(1)
  assert np.linalg.norm(x, axis=1).max() <= 1 + 1e-6
  margins = y * (x @ direction)
  assert margins.min() >= instance.gamma - 1e-6
  assert margins.min() < 1.2 * instance.gamma  # the margin is not idle
  assert instances.robust_risk(direction, x, y, 0.99 * instance.gamma) == 0


@pytest.mark.parametrize("instance", _ALL, ids=repr)
def test_larger_data_contain_the_smaller(instance):
  few, many = (instance.draw(count, seed=4) for count in (300, 900))
  np.testing.assert_array_equal(many[0][:300], few[0])
  np.testing.assert_array_equal(many[1][:300], few[1])
  fresh = instance.draw(300, seed=4, stream=instances.FRESH)
  other = instance.draw(300, seed=5)
  assert not np.array_equal(few[1], fresh[1])
  assert not np.array_equal(few[1], other[1])


def test_easy_by_hand():
  x, y = instances.Easy(6, 0.6).draw(4000, seed=0)
  np.testing.assert_allclose(x[:, 0], 0.6 * y, rtol=1e-6)
  np.testing.assert_allclose(np.linalg.norm(x[:, 1:], axis=1), 0.8, rtol=1e-5)
  # u is uniform: each coordinate has mean 0 and variance 1 / (d - 1).
  np.testing.assert_allclose(x[:, 1:].mean(axis=0), 0, atol=0.03)
  np.testing.assert_allclose(
    np.mean((x[:, 1:] / 0.8) ** 2, axis=0), 1 / 5, atol=0.015
  )


def test_blocks_by_hand():
  instance = instances.Blocks(64, 0.125)
  assert instance.num_blocks == 16
  x, _ = instance.draw(2000, seed=1)
  blocks = x.reshape(-1, 16, 4)
  filled = np.abs(blocks).sum(axis=2) > 0
  assert (filled.sum(axis=1) == 1).all()
  np.testing.assert_array_equal(np.abs(blocks[filled]), 0.5)  # 1 / sqrt(4)
  counts = filled.sum(axis=0)  # binomial, 125 on average
  assert counts.min() > 80
  assert counts.max() < 175


@pytest.mark.parametrize("margin", [0.5, 0.8])
def test_blocks_have_their_margin_from_the_condition(margin):
  instance = instances.Blocks(256, margin / 2, margin)
  means = instance.means(2)[0]
  np.testing.assert_allclose(np.sqrt(np.mean(means**2)), margin, rtol=1e-6)
  assert abs(np.mean(np.sign(means))) < 0.5  # of random signs
  rng = np.random.default_rng(0)
  free = np.where(rng.random((4000, 64)) < (1 + means) / 2, 1, -1)
  found = free @ means / (8 * np.linalg.norm(means))
  assert 0.35 < np.mean(found < margin) < 0.65


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: instances.Easy(8, 1.0), "margin in"),
    (lambda: instances.Easy(1, 0.5), "at least 2 dimensions"),
    (lambda: instances.Blocks(64, 0.3), "whole multiple"),
    (lambda: instances.Blocks(66, 0.25), "multiple of"),
    (lambda: instances.Packing(3, 0.995), "margin in"),
  ],
)
def test_instance_says_what_is_wrong(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_robust_risk_is_what_perturbations_can_do():
  rng = np.random.default_rng(7)
  x, y = rng.normal(size=(150, 2)), rng.choice([-1.0, 1.0], 150)
  w, radius = np.array([1.5, -0.7]), 0.4
  angles = np.linspace(0, 2 * np.pi, 2000)
  ring = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
  scores = (x[:, None] + ring) @ w
  turned = (np.sign(scores) != y[:, None]).any(axis=1)
  assert 0.3 < turned.mean() < 0.9
  assert instances.robust_risk(w, x, y, radius) == turned.mean()
  assert instances.robust_risk(5 * w, x, y, radius) == turned.mean()
  clean = np.mean(np.sign(x @ w) != y)
  assert instances.robust_risk(w, x, y, 0.0) == clean < turned.mean()
  assert instances.robust_risk(0 * w, x, y, 0.0) == 1


# Search.


def test_sizes():
  found = search.sizes(3, 1000, 1.19)
  assert found[0] == 3
  assert found[-1] == 1000
  steps = np.diff(found)
  assert (steps >= 1).all()
  ratios = np.divide(found[1:], found[:-1])
  assert (ratios[steps > 1] <= 1.19).all()
  with pytest.raises(ValueError, match="first <= last"):
    search.sizes(5, 4, 1.1)


@pytest.mark.parametrize("start", [None, 1, 40, 2000])
def test_smallest_n_finds_known_thresholds(start):
  wanted = [90, 10, 30, 60, 70, 20, 80, 50, 40]
  grid, tried = list(range(1, 2001)), []

  def risk(n, seed):
    tried.append(n)
    return 0.1 if n >= wanted[seed] else 0.11

  found = search.smallest_n(risk, range(9), grid, start=start)
  assert [high for _, high in found.brackets] == wanted
  assert [low for low, _ in found.brackets] == [n - 1 for n in wanted]
  assert found.n == 60  # 6 of 9
  assert not found.censored
  assert found.evaluations == len(tried) <= 9 * 24
  assert max(tried) < max(2 * max(wanted), (start or 0) + 1)


def test_smallest_n_at_the_ends_of_the_grid():
  grid = [4, 8, 16, 32]
  never = search.smallest_n(lambda n, s: 1.0, range(3), grid)
  assert never.censored
  assert never.n is None
  assert never.cap == 32
  assert never.brackets == [(32, None)] * 3
  always = search.smallest_n(lambda n, s: 0.0, range(3), grid, start=32)
  assert always.n == 4
  assert always.brackets == [(0, 4)] * 3
  # 1 of 3 seeds fails everywhere: two thirds succeed. 2 of 3 is too many.
  one = search.smallest_n(lambda n, s: float(s < 1), range(3), grid)
  two = search.smallest_n(lambda n, s: float(s < 2), range(3), grid)
  assert one.n == 4
  assert two.censored


def _law(size, dimensions, spread=0.08, factor=1.19, seed=0, count=12):
  """Points of seeds whose sizes scatter around size(d), on a grid."""
  rng = np.random.default_rng(seed)
  grid = search.sizes(4, 10**6, factor)
  points = []
  for d in dimensions:
    own = size(d) * np.exp(spread * rng.normal(size=count))
    found = search.smallest_n(
      lambda n, s, own=own: float(n < own[s]), range(count), grid
    )
    points.append({"x": d, **dataclasses.asdict(found)})
  return points


_DIMENSIONS = [64, 128, 256, 512, 1024, 2048]


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5, 1.0])
def test_fit_of_a_power_law(exponent):
  slope = fits.fit(_law(lambda d: 30 * d**exponent, _DIMENSIONS))
  assert slope.contains(exponent)
  assert slope.low <= slope.value <= slope.high
  for other in (-0.25, 0.0, 0.25, 0.5, 0.75, 1.0):
    assert slope.contains(other) == (other == exponent)


def test_fit_of_a_ratio_takes_common_growth_away():
  under = _law(lambda d: 20 * d**0.5, _DIMENSIONS, seed=1)
  same = _law(lambda d: 56 * d**0.5, _DIMENSIONS, seed=2)
  more = _law(lambda d: 2 * d, _DIMENSIONS, seed=3)
  assert "no growth shown" == fits.growth_verdict(fits.fit(same, under))
  slope = fits.fit(more, under)
  assert fits.growth_verdict(slope) == "consistent with sqrt(d)"
  assert fits.fit(same).contains(0.5)  # n alone would have misled


def test_fit_covers_the_width_of_the_grid():
  """All seeds agree, but what lies between two sizes is not known."""
  points = _law(lambda d: 100 * d**0.5, [64, 256, 1024], spread=0.0)
  slope = fits.fit(points)
  assert 0.02 < slope.high - slope.low < 0.2
  ratio = fits.size_interval(points[0])
  assert ratio.low <= 800 <= ratio.high


def test_fit_leaves_censored_points_out():
  points = _law(lambda d: 30 * d**0.5, _DIMENSIONS)
  broken = {**points[-1], "n": None, "brackets": [(10, None)] * 12}
  slope = fits.fit([*points[:-1], broken])
  assert slope.value == fits.fit(points[:-1]).value
  assert fits.size_interval(broken) is None
  assert fits.fit([broken] * 4 + points[:2]) is None
  assert "too few" in fits.growth_verdict(None)


@pytest.mark.parametrize(
  ("interval", "verdict"),
  [
    ((0.4, 0.6), "consistent with sqrt(d)"),
    ((-0.1, 0.2), "no growth shown"),
    ((-0.1, 0.6), "no growth shown; sqrt(d) is not excluded"),
    ((0.1, 0.4), "grows with d, more slowly than sqrt(d)"),
    ((0.6, 0.9), "grows with d, faster than sqrt(d)"),
    ((-0.5, -0.1), "shrinks as d grows"),
  ],
)
def test_growth_verdict(interval, verdict):
  assert fits.growth_verdict(fits.Fit(sum(interval) / 2, *interval)) == (
    verdict
  )


def test_line_verdict():
  def verdict(size):
    points = _law(size, range(2, 11), factor=1.04)
    found = [fits.fit(points, degree=k, logs=False) for k in (1, 2)]
    return fits.line_verdict(*found)

  assert "straight line" in verdict(lambda d: 100 + 100 * d)
  assert "bent up" in verdict(lambda d: 20 * d**2)
  assert "bent down" in verdict(lambda d: 300 * d**0.3)
  assert verdict(lambda d: 300) == "no growth shown"


# Learners.


def test_schedule_is_paid_for():
  schedule = halfspaces_rates.Schedule(0.5, 1.0, 1e-6)
  assert (schedule.steps, schedule.sampling_prob) == (16, 0.5)
  assert 0.99 < schedule.proven() <= 1.0
  less = privacy.poisson_sgd(0.98 * schedule.stddev, 0.5, 16)
  assert privacy.dp_epsilon(less, 1e-6) > 1.0


@pytest.mark.parametrize("count", [8, 9, 11, 50, 333])
def test_schedule_never_takes_more_than_it_pays_for(count, monkeypatch):
  seen = []

  def train(self, features, labels):
    seen.append((self.steps(len(features)), self.batch_size))
    return np.zeros((1, 1, 1, 3, 1))

  monkeypatch.setattr(papers.Trials, "train", train)
  schedule = halfspaces_rates.Schedule(0.24, 1.0, 1e-6)
  schedule.train(np.zeros((count, 3)), 1.0, 0.2, seed=0)
  [(steps, batch)] = seen
  assert steps == schedule.steps == 70
  assert batch / count <= schedule.sampling_prob < (batch + 1) / count
  with pytest.raises(ValueError, match="at least 5 examples"):
    schedule.train(np.zeros((4, 3)), 1.0, 0.2, seed=0)


def test_signed_rows_of_one_class_are_the_halfspace():
  """The engine's halfspace of one class out of two, from y x alone."""
  x, y = instances.Easy(10, 0.3).draw(60, seed=0)
  common = {"batch_size": 20, "margins": (0.28,), "stddevs": (0.0,)}
  common.update(trials=1, epochs=8.0, seed=5)
  two = papers.Trials(num_classes=2, **common)
  one = papers.Trials(num_classes=1, **common)
  wanted = two.train(x, np.where(y > 0, 0, 1))[..., 0]
  found = one.train(y[:, None] * x, np.zeros(60, int))[..., 0]
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
  assert np.linalg.norm(found) > 1


def test_projection_keeps_inner_products_and_loses_the_margin():
  gamma, d = 0.5, 2000
  matrix = halfspaces_rates.projection(d, gamma, seed=0)
  assert matrix.shape == (d, 40)
  x, y = instances.Easy(d, gamma).draw(300, seed=0)
  signed = y[:, None] * x @ matrix
  assert np.linalg.norm(signed, axis=1).mean() == pytest.approx(1, abs=0.05)
  low = signed @ matrix[0]  # towards the image of w* = e_1
  assert low.mean() == pytest.approx(gamma, abs=0.2)
  weights = matrix @ matrix[0]
  assert instances.robust_risk(weights, x, y, 0.0) < 0.05
  assert instances.robust_risk(weights, x, y, 0.9 * gamma) > 0.95


_IDEAL = {
  "gamma": 0.4,
  "radius": 0.36,
  "stddev": 3.0,
  "sampling_prob": 0.4,
  "steps": 25,
}


def test_noisy_mean_has_its_formula():
  d, n, rng = 60, 90, np.random.default_rng(0)
  risks = []
  for seed in range(60):
    x, y = instances.Easy(d, 0.4).draw(n, seed)
    counts = rng.binomial(25, 0.4, n)
    weights = (counts * y) @ x + rng.normal(0, 3.0 * 5, d)
    fresh = instances.Easy(d, 0.4).draw(500, seed, instances.FRESH)
    risks.append(instances.robust_risk(weights, *fresh, 0.36))
  wanted = halfspaces_ideal.noisy_mean_risk(n, d, **_IDEAL)
  assert 0.2 < wanted < 0.8
  error = 3.5 * np.std(risks) / math.sqrt(len(risks))
  assert error < 0.06
  assert np.mean(risks) == pytest.approx(wanted, abs=error)


def test_noisy_mean_n():
  n = halfspaces_ideal.noisy_mean_n(1000, **_IDEAL)
  assert halfspaces_ideal.noisy_mean_risk(n, 1000, **_IDEAL) == (
    pytest.approx(0.1, rel=1e-6)
  )
  far = [2**20, 2**22]
  # Far out it is sqrt(d) with noise and constant without, or judged clean.
  assert halfspaces_ideal.exponent(far, **_IDEAL) == pytest.approx(
    0.5, abs=0.02
  )
  for change in ({"stddev": 0.0}, {"radius": 0.0}):
    flat = halfspaces_ideal.exponent(far, **{**_IDEAL, **change})
    assert flat == pytest.approx(0, abs=0.02)
  with pytest.raises(ValueError, match="radius < gamma"):
    halfspaces_ideal.noisy_mean_n(10, **{**_IDEAL, "radius": 0.4})


def test_control_is_private_and_not_robust():
  learner = halfspaces_rates.LEARNERS["control"]
  schedule = halfspaces_rates.Schedule(0.5, 1.0, 1e-6)
  study = halfspaces_rates.Study(
    learner, instances.Easy(512, 0.5), schedule, fresh=500
  )
  assert study.risk(400, seed=0) < 0.1
  [risks] = study.risks.values()
  assert risks["judged"] == risks["clean"]
  assert risks["robust"] > 0.9
  assert study.risk(8, seed=0) > 0.1  # the noise is there


def test_pure_learner_has_the_predicted_law():
  gamma, dp_epsilon, seeds = 0.25, 0.2, 300
  study = halfspaces_pure.Study(3, gamma, dp_epsilon)
  n = halfspaces_pure.predicted(3, gamma) / dp_epsilon
  shares = [
    np.mean([study.risk(round(k * n), seed) == 0 for seed in range(seeds)])
    for k in (0.6, 1.0, 1.5)
  ]
  slack = 3.5 * math.sqrt(2 / 9 / seeds)
  assert abs(shares[1] - 2 / 3) < slack
  assert shares[0] < 2 / 3 - slack
  assert shares[2] > 2 / 3 + slack


# All of it.


@pytest.fixture(scope="module")
def results():
  return {
    part: {**halfspaces_rates.rates_cell(part, _TINY), "seconds": 1.0}
    for part in _TINY.parts()
  }


@pytest.mark.slow
def test_cells(results):
  assert list(results) == [
    "easy-dp",
    "easy-free",
    "blocks-free",
    "pure",
  ]
  private, free = results["easy-dp"], results["easy-free"]
  assert private["proven"]["dp_epsilon"] <= 4.0
  assert free["proven"] is None
  assert (private["condition"], free["condition"]) == (run_facts.CONDITION, "")
  assert free["stddev"] == 0 < private["stddev"]
  for over, under in zip(private["points"], free["points"]):
    assert over["n"] > under["n"]
    assert over["robust_risk"] <= 0.1
    assert len(over["brackets"]) == 2
  assert [p["x"] for p in results["pure"]["points"]] == [2, 3, 4, 2, 3, 4]
  with pytest.raises(ValueError, match="easy-dp"):
    halfspaces_rates.rates_cell("easy-clean", _TINY)


@pytest.mark.slow
def test_page(results):
  tables = halfspaces_rates_page.tables(results)
  for table in tables:
    assert all(len(row) == len(table.head) for row in table.rows), table.title
  proven = [row[2] for row in tables[-1].rows]
  assert proven[0].endswith(f") ({run_facts.CONDITION})")
  assert set(proven[1:]) == {"not private"}
  sizes = tables[0].rows
  assert [row[0] for row in sizes] == ["16", "32", "64"]
  point = results["easy-dp"]["points"][1]
  assert sizes[1][1] == f"{point['n']:,}"
  fitted = [row[1] for row in tables[2].rows]
  assert "from its n" in tables[2].rows[0][-1]
  assert "exponent of d, ratio to without noise" in fitted
  assert any("mean log ratio" in text for text in fitted)
  figures = list(halfspaces_rates_page.figures(results))
  assert [figure.name for figure in figures] == ["rates", "pure"]
  for figure in map(grid_plots.draw, figures):
    text = io.StringIO()
    figure.savefig(text, format="svg")
    root = xml.etree.ElementTree.fromstring(text.getvalue())
    assert root.tag.endswith("svg")


@pytest.mark.slow
def test_page_of_what_is_done(results):
  """Also before all cells are done, and with a search that hit its cap."""
  point = {**results["easy-dp"]["points"][2], "n": None, "censored": True}
  point["brackets"] = [(4096, None)] * 2
  points = [*results["easy-dp"]["points"][:2], point]
  some = {"easy-dp": {**results["easy-dp"], "points": points}}
  tables = halfspaces_rates_page.tables(some)
  assert tables[0].rows[2][1] == "> 4,096 (censored)"
  assert tables[2].rows[0][-1] == "no verdict: too few points"
  assert not tables[3].rows
  assert not list(halfspaces_rates_page.figures(some))
  both = {**some, "easy-free": results["easy-free"]}
  (figure,) = halfspaces_rates_page.figures(both)
  assert grid_plots.draw(figure) is not None
  assert halfspaces_rates_page.notes()
