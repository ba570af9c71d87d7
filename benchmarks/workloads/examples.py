"""The nets of the examples, for the workloads that use them."""

import sys
from pathlib import Path

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def use_example(name: str) -> None:
    """Makes the modules of an example importable, as they are when it is served."""
    folder = str(_EXAMPLES / name)
    if folder not in sys.path:
        sys.path.append(folder)
