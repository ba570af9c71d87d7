"""Memory that a process frees stays in it, if that is wanted."""

import os
import subprocess
import sys

import pytest

_FAULTS = """
import resource, threading
import numpy as np
from dyorc.system import malloc
malloc.keep_freed()
def batches():
    for _ in range(20):
        sum(np.ones(2**20, np.uint8)[0] + np.ones(2**24, np.uint8)[0] for _ in range(2))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
batches()
first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=batches)
thread.start()
thread.join()
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
malloc.give_back()
batches()
print(first - before, after - first, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - after)
"""


def faults(**environment: str) -> list[int]:
    """Returns how often batches touched a fresh page: the first ones, those on another thread, and those after `give_back`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", _FAULTS], env=kept | environment, capture_output=True, text=True, check=True, timeout=60
    )
    return [int(each) for each in found.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another C library")
def test_batches_touch_the_same_pages_again_on_any_thread() -> None:
    first, on_thread, after = faults()
    assert first > 20 * on_thread
    assert after > 20 * on_thread


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another C library")
def test_the_environment_has_precedence() -> None:
    _, on_thread, _ = faults(MALLOC_MMAP_THRESHOLD_="65536")
    assert on_thread > 1000
