"""A request's work in the engine grows no faster than what it asks for, however much of it is open at once.

Counted are the lines of the engine that run (`tests.unit.engine.line_counts`): a walk over everything that is open, in each turn,
makes each item cost more the more items there are.
"""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.pure  # compiled modules run no lines that could be counted


def test_no_item_costs_more_among_many() -> None:
    command = [sys.executable, "-m", "tests.unit.engine.line_counts"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90)
    counts = json.loads(done.stdout)
    assert len(counts) == 16
    assert {name: (few, many) for name, (few, many) in counts.items() if many >= 1.15 * few} == {}
