"""The workloads, as parameters of tests."""

import pytest

from benchmarks.workloads import NAMES

_UNTRAINED = ("chain", "ocr")
WORKLOADS = [name if name in _UNTRAINED else pytest.param(name, marks=pytest.mark.real) for name in NAMES]
"""Most use the weights of an example, and `make test` does not wait until these are trained."""
