"""How much tests try. `make test` has minutes; `make test-slow` takes the time that it needs."""

import os

IS_THOROUGH = bool(os.environ.get("DYORC_TEST_THOROUGHLY"))


def examples(num: int) -> int:
    """Returns how many examples a property is tried on: all, or a quarter of them."""
    return num if IS_THOROUGH else num // 4
