"""What is served: programs and workflows that stay, and one workflow whose file changes with each version."""

from pathlib import Path

from tests.soak import steady

TARGETS = ("steady.py:looped", "steady.py:fanned", "steady.py:counted", "steady.py:turned", "changing.py:numbered")

_CHANGING = '''"""Version {number}."""

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=16)
def add_number(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    """Adds the version's number."""
    return x + {number}


@dyorc.workflow
async def numbered(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    """Says which version answers."""
    return add_number(x)
'''


def write_steady(folder: Path) -> None:
    """Writes what stays into the folder from which the server loads."""
    (folder / "steady.py").write_text(Path(steady.__file__).read_text())


def write_version(folder: Path, number: int) -> None:
    """Writes a version of what changes."""
    (folder / "changing.py").write_text(_CHANGING.format(number=number))
