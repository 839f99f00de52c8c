"""Packaging of tf_privrob; tool settings live in pyproject.toml."""

import pathlib
import re

import setuptools

_ROOT = pathlib.Path(__file__).parent
_VERSION = re.search(
  r'__version__ = "([^"]+)"',
  (_ROOT / "tf_privrob" / "__init__.py").read_text(encoding="utf-8"),
).group(1)

# TF Privacy 0.9.0 declares tensorflow~=2.4 but cannot be imported from 2.16
# on; tfds needs tensorflow-metadata<1.17 next to TF 2.15's protobuf, and
# imports importlib_resources for downloads without declaring it.
_INSTALL = [
  "absl-py",
  "cleverhans==4.0.0",
  "cryptography",
  "dp-accounting==0.4.3",
  "importlib_resources",
  "jinja2",
  "matplotlib",
  "mlxtend",
  "numpy<2",
  "scikit-learn",
  "scipy",
  "tensorflow>=2.15,<2.16",
  "tensorflow-datasets",
  "tensorflow-metadata<1.17",
  "tensorflow-privacy==0.9.0",
]
_DEV = [
  "hypothesis",
  "pytest",
  "pytest-xdist",
  "ruff==0.17.4",
]

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
  python_requires=">=3.9,<3.12",
  install_requires=_INSTALL,
  extras_require={"dev": _DEV, "gpu": ["tensorflow[and-cuda]>=2.15,<2.16"]},
)
