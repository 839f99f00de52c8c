"""Packaging of tf_privrob; tool settings live in pyproject.toml."""

import os
import pathlib
import re

import setuptools

_ROOT = pathlib.Path(__file__).parent
_VERSION = re.search(
  r'__version__ = "([^"]+)"',
  (_ROOT / "tf_privrob" / "__init__.py").read_text(encoding="utf-8"),
).group(1)

# Python 3.9 to 3.11 have TensorFlow 2.15, the newest under which TF Privacy can
# be imported, and what TF Privacy pins; newer Pythons have TensorFlow 2.16 and
# later, whose Keras 2 is tf-keras. Who wants the newer stack on an older Python
# builds with TF_PRIVROB_STACK=newest in the environment.
_NEWEST = os.environ.get("TF_PRIVROB_STACK") == "newest"


def _of_stacks(old, new):
  """Requirements of the two stacks, with their markers."""
  if _NEWEST:
    return list(new)
  return [
    *(f"{one}; python_version < '3.12'" for one in old),
    *(f"{one}; python_version >= '3.12'" for one in new),
  ]


_INSTALL = [
  "absl-py",
  "cryptography",
  "h5py",
  "jinja2",
  "matplotlib",
  "numpy",
  "scipy",
  "tensorboard",
  *_of_stacks(
    ("tensorflow>=2.15,<2.16", "tensorflow-privacy==0.9.0"),
    (
      "dp-accounting>=0.5,<0.7",
      "tensorflow>=2.16,<2.22",
      "tf-keras>=2.16,<2.22",
    ),
  ),
]
_ATTACKS = ["cleverhans==4.0.0"]
_DEMO = ["mlxtend", "scikit-learn"]
_EXTRAS = {
  "attacks": _ATTACKS,
  "demo": _DEMO,
  "dev": [
    *_ATTACKS,
    *_DEMO,
    "hypothesis",
    "pytest",
    "pytest-xdist",
    "ruff==0.17.4",
  ],
  "gpu": _of_stacks(
    ("tensorflow[and-cuda]>=2.15,<2.16",), ("tensorflow[and-cuda]<2.22",)
  ),
  "peers": ["foolbox==3.3.4", "opacus==1.6.0", "torch==2.13.0"],
  # TFDS imports importlib_resources for downloads without declaring it, and
  # newer tensorflow-metadata needs another protobuf than TensorFlow 2.15 has.
  "tfds": [
    "importlib_resources",
    "tensorflow-datasets",
    *_of_stacks(("tensorflow-metadata<1.17",), ()),
  ],
}

setuptools.setup(
  name="tf_privrob",
  version=_VERSION,
  description=(
    "Differentially private and adversarially robust learning in Keras, with"
    " every guarantee shown as claimed, proven and audited."
  ),
  long_description=(_ROOT / "README.md").read_text(encoding="utf-8"),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  packages=setuptools.find_packages(include=["tf_privrob", "tf_privrob.*"]),
  package_data={"tf_privrob.report": ["templates/*"]},
  entry_points={"console_scripts": ["tf-privrob = tf_privrob.console:main"]},
  python_requires=">=3.9,<3.14",
  install_requires=_INSTALL,
  extras_require=_EXTRAS,
)
