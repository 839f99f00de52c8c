"""Data sets by name, and logical batches of static shape.

`load` finds a data set in a wheel, a file or TFDS and returns a checked,
read-only `Dataset` with its value range; `from_arrays` does the same for your
own arrays. A sampler decides which examples each step sees, tells the
accountant what that is worth, and delivers padded, masked chunks of one
physical size, so that Poisson batches of any length never retrace a graph.
"""

from tf_privrob.data.augmentation import augment
from tf_privrob.data.augmentation import AUGMENTATIONS
from tf_privrob.data.batching import default_physical_batch_size
from tf_privrob.data.batching import gather_chunks
from tf_privrob.data.batching import whole_batches
from tf_privrob.data.batching import whole_packets
from tf_privrob.data.catalog import NAMES
from tf_privrob.data.dataset import Dataset
from tf_privrob.data.dataset import from_arrays
from tf_privrob.data.dataset import parse_range
from tf_privrob.data.fixed import FixedBatchSampler
from tf_privrob.data.loading import DatasetNotFoundError
from tf_privrob.data.loading import load
from tf_privrob.data.public import examples_of
from tf_privrob.data.public import require_disjoint
from tf_privrob.data.public import require_unseen
from tf_privrob.data.public import shared_examples
from tf_privrob.data.public import split_public
from tf_privrob.data.sampling import FullBatchSampler
from tf_privrob.data.sampling import PoissonSampler
from tf_privrob.data.sampling import Sampler
from tf_privrob.data.sampling import ShuffleSampler
from tf_privrob.data.skips import poisson_rows

__all__ = [
  "AUGMENTATIONS",
  "NAMES",
  "Dataset",
  "DatasetNotFoundError",
  "FixedBatchSampler",
  "FullBatchSampler",
  "PoissonSampler",
  "Sampler",
  "ShuffleSampler",
  "augment",
  "default_physical_batch_size",
  "examples_of",
  "from_arrays",
  "gather_chunks",
  "load",
  "parse_range",
  "poisson_rows",
  "require_disjoint",
  "require_unseen",
  "shared_examples",
  "split_public",
  "whole_batches",
  "whole_packets",
]
