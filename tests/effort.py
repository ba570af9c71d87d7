"""How much tests try. `make test` has minutes; `make test-slow` takes the time that it needs."""

import os

IS_THOROUGH = bool(os.environ.get("DYORC_TEST_THOROUGHLY"))


def examples(num: int, share: float = 0.25) -> int:
    """Returns how many examples a property is tried on.

    Args:
        num: All.
        share: What part of them is enough to meet at least once what the property is about.
    """
    return num if IS_THOROUGH else round(num * share)
