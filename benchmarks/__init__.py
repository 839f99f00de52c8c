"""Speed and memory beside peers; every module is a binary."""

import tf_privrob  # noqa: F401  (chooses Keras 2 before any candidate does)
