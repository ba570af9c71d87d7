"""Fuzzes one target with Atheris, until libFuzzer's options say stop or an input breaks the contract.

Started by `__main__.py`.
"""

import importlib
import logging
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import structlog

atheris: Any = importlib.import_module("atheris")  # `make fuzz` installs it; the types of the other code do not depend on it

with atheris.instrument_imports(include=["dyorc"]):
    from tests.fuzz.entry_points import build_target, kept_inputs
    from tests.fuzz.mutations import mutate

_OUR_SHARE = 0.5
"""How many inputs are changed as their form allows; libFuzzer changes the others, and combines both."""


def fuzz(name: str, corpus: Path, options: Sequence[str]) -> None:
    """Fuzzes. Does not return: libFuzzer ends the process itself.

    Args:
        corpus: A folder that gets the inputs which reach new code.
    """
    folder = corpus.parent / "files"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier turn: libFuzzer ends the process without clearing up
    folder.mkdir()
    target = build_target(name, folder)
    for number, seed in enumerate([*target.seeds, *(path.read_bytes() for path in kept_inputs(name))]):
        (corpus / f"seed-{number}").write_bytes(seed)

    def change(data: bytes, max_bytes: int, number: int) -> bytes:
        random = Random(number)
        if random.random() < _OUR_SHARE:
            return mutate(data, target, random)[:max_bytes]
        return atheris.Mutate(data, max_bytes)

    atheris.Setup([sys.argv[0], *options, str(corpus)], target.take, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # NumPy warns of files that it refuses
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    fuzz(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
