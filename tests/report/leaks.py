"""Synthetic files of membership inference, audits and attacked radii."""

from __future__ import annotations

import numpy as np


def inference(
  strategy="held_out",
  score="benign_confidence",
  label="I_B, held-out threshold",
  advantage=0.16,
  shift=0.4,
  members=1000,
):
  """One strategy; its ROC is that of two normal scores `shift` apart."""
  rng = np.random.default_rng(7)
  inside = rng.normal(shift, 1, members)
  outside = rng.normal(0, 1, members)
  thresholds = np.r_[np.inf, np.sort(outside)[::-7], -np.inf]
  accuracy = (1 + advantage) / 2
  return {
    "strategy": strategy,
    "score": score,
    "label": label,
    "balanced_accuracy": accuracy,
    "interval": [accuracy - 0.02, accuracy + 0.02],
    "advantage": advantage,
    "advantage_interval": [advantage - 0.04, advantage + 0.04],
    "auc": 0.611,
    "auc_interval": [0.586, 0.636],
    "tpr_at_fpr": [
      {"fpr": 0.001, "note": "needs 10,000 non-members"},
      {"fpr": 0.01, "tpr": 0.0231, "interval": [0.014, 0.035]},
    ],
    "roc": {
      "fpr": [float((outside >= t).mean()) for t in thresholds],
      "tpr": [float((inside >= t).mean()) for t in thresholds],
    },
    "threshold": 0.5,
    "num_members": members,
    "num_nonmembers": members,
    "confidence": 0.95,
  }


def membership():
  return {
    "created": "2026-11-16T03:00:00+00:00",
    "num_members": 1000,
    "num_nonmembers": 1000,
    "attack_eps": 0.1,
    "attack": "PGD(steps=40)",
    "outputs": "main",
    "seed": 0,
    "seconds": 12.5,
    "command": "python -m experiments.infer --run_dir=runs/x",
    "bound": None,
    "strategies": [
      inference("oracle", label="I_B, oracle threshold", advantage=0.19),
      inference(),
      inference(
        score="adversarial_confidence",
        label="I_A, held-out threshold",
        advantage=0.21,
        shift=0.6,
      ),
    ],
  }


def audit(**changes):
  entry = {
    "name": "one_run",
    "label": "One-run audit",
    "statistic": "loss difference",
    "canary": "mislabelled",
    "audited": 0.4321,
    "dp_delta": 1e-5,
    "confidence": 0.95,
    "runs": 1000,
    "guesses": 100,
    "correct": 71,
    "claimed": {"dp_epsilon": 3.0, "dp_delta": 1e-5},
    "proven": {"dp_epsilon": 2.987, "dp_delta": 1e-5},
    "verdict": "below proven",
    "reachable": 2.9512,
    "scope": "this run's settings",
    "created": "2026-11-16T03:10:00+00:00",
    "seconds": 300.0,
    "command": "python -m experiments.audit --run_dir=runs/x --kind=one_run",
  }
  return {**entry, **changes}


def two_world(**changes):
  return audit(
    **{
      "name": "two_world",
      "label": "Two-world audit",
      "audited": 1.1,
      "runs": 250,
      "guesses": None,
      "correct": None,
      "caught": 200,
      "false_alarms": 40,
      "scope": "short training of 20 steps",
      "reachable": 4.1,
      **changes,
    }
  )


def certificate_audit(violations=0, **changes):
  rows = [
    {
      "index": 17 + i,
      "radius": 0.412,
      "size": 0.391,
      "attack": "pgd, 20 draws",
      "from": 4,
      "to": 9,
    }
    for i in range(violations)
  ]
  entry = {
    "created": "2026-11-16T03:20:00+00:00",
    "count": 100,
    "kind": "proven",
    "method": "randomised smoothing",
    "norm": "l2",
    "confidence": 0.999,
    "violations": violations,
    "rate": violations / 100,
    "allowed": 0.001,
    "attacks": [{"name": "pgd, 20 draws", "violations": violations}],
    "rows": rows,
    "inflated": [
      {"factor": factor, "violations": max(violations, fallen)}
      for factor, fallen in ((1.1, 0), (1.5, 1), (3.0, 55), (10.0, 100))
    ],
    "draws": 20,
    "seed": 0,
    "seconds": 40.0,
    "command": "python -m experiments.audit_certificates --run_dir=runs/x",
  }
  return {**entry, **changes}


def files():
  """The three files of a run on which everything was run, by name."""
  return {
    "nonprivate/membership.json": membership(),
    "audit.json": {"audits": [audit(), two_world()]},
    "certificate_audit.json": certificate_audit(),
  }
