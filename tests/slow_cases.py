"""Cases that show again what another case of their file shows in every run.

Each takes a second or more, and together they take minutes. They run with `make
test-slow`. By file, a pattern of the names of tests with their parameters.
"""

from __future__ import annotations

import re

_CASES = {
  "attacks/apgd_test.py": r"(equals_algorithm_1|closed_form).*\[linf\]",
  "attacks/checks_test.py": r"full_collects",
  "bounds/dual_test.py": r"memory_grows",
  "certify/alone_test.py": r"an_audit_sees_rows",
  "certify/audit/audit_test.py": (
    r"sum_of_sizes_falls|a_verdict_errs|verdicts_have_draws|stands_and_no_more"
    r"\[linf\]"
  ),
  "experiments/dpal_test.py": r"sizes_at_attacked|adlm_is_deployed",
  "gradients/clipping_test.py": (
    r"equals_loop.*\[(weight_normalized|transposed_dilated|separable|group_norm)"
  ),
  "gradients/isolation_test.py": (
    r"accepts_dropout.*\[False\]|that_isolate.*\[vectorized"
  ),
  "methods/dp_sgd_test.py": r"same_seed_same_run|schedule_knows",
  "methods/objectives/private_objectives_test.py": r"statement_of.*\[pgd\]",
  "methods/objectives/smooth_test.py": (
    r"one_clipped.*\[(all|macer|consistency)|trains_states.*\[all\]"
  ),
  "methods/objectives/verified_training_test.py": r"same_domain\[dual_median",
  "methods/planted_test.py": r"bug_is_caught\[half",
  "methods/session_test.py": (
    r"draws_other_noise|anything_else_is_refused\[changes[3-9]"
  ),
  "methods/trainer_test.py": (
    r"another_objective\[(natural|attack)|is_certified\[diffai"
  ),
  "models/files/loading_test.py": (
    r"same_to_the_bit\[(sequence|mobile|states|mixed|denoiser)-suffix"
  ),
  "models/models_test.py": r"every_network_is_saved",
  "models/signs_test.py": r"no_false_alarm.*_by_name|spread_of_small",
  "models/zoo/robust_networks_test.py": r"ibp_large",
  "papers/adlm/adlm_sound_test.py": (
    r"all_features_alike|within_the_budget\[laplace|another_budget|the_same_map"
    r"|saved_and_loaded\[False|was_not_free"
  ),
  "papers/adlm/adlm_test.py": r"the_same_map_and_draws",
  "papers/dpal/claimed_inference_test.py": r"one_estimate|keeps_the_confidence",
  "papers/dpal/dpal_sound_run_test.py": (
    r"what_was_asked\[laplace|ledger_holds|other_settings_is_refused"
  ),
  "papers/dpal/dpal_test.py": (
    r"other_settings_is_refused\[changes0|asked_for\[random|loaded\[released"
    r"|within_the_range"
  ),
  "papers/halfspaces/halfspace_trials_test.py": r"seed_decides",
  "papers/pixeldp/pixeldp_test.py": r"in_every_norm\[[01]-",
  "papers/secure_sgd/secure_sgd_sound_test.py": r"copies_of_an_example",
  "privacy/gaussian_dp_test.py": r"profile_everywhere\[run0",
  "runs/audit_test.py": r"beside_the_budget\[False",
  "runs/public_classifier_test.py": r"tells_nothing_needs_a_reason",
  "runs/secrets_test.py": r"tells_its_seed\[sound_dpal",
}


def is_slow(nodeid: str) -> bool:
  """Whether a test is one of these cases."""
  path, _, name = nodeid.partition("::")
  pattern = _CASES.get(path[len("tests/") :])
  return pattern is not None and re.search(pattern, name) is not None
