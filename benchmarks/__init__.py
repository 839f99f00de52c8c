"""Speed and memory beside peers; every module is a binary."""

import os
import sys

# Another checkout, whose library is to be measured by these modules.
sys.path[:0] = filter(None, [os.environ.get("TF_PRIVROB_CHECKOUT")])

import tf_privrob  # noqa: E402, F401  (chooses Keras 2 before any candidate)
