"""What every target of the fuzzers promises: it takes any bytes, and raises nothing but its documented errors.

One contract for Hypothesis and the kept corpora (`tests/property/test_fuzzed.py`) and for Atheris (`python -m tests.fuzz`).
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

MAX_CPU_S = 1.0
"""Of one input. Processor time, because others use the machine, too."""
MAX_GROWTH_BYTES = 192 * 2**20
"""By how much one input may raise the most memory that the process ever had; inputs are a few kilobytes."""
_RSS_UNIT_BYTES = 1024


class InputForm(Enum):
    """How inputs are changed so that most of them get past the first check."""

    BYTES = "anything"
    LINES = "lines, as in HTTP and TOML"
    JSON = "a JSON value, with anything before and behind it"
    MSGPACK = "a value of msgpack"


class ContractBrokenError(AssertionError):
    """An input took too long, took too much memory, or was read wrongly."""


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class FuzzTarget:
    """A place where bytes come in.

    Attributes:
        read: Reads an input, checks what came out, and raises `ContractBrokenError` if that is wrong.
        errors: What it may raise.
        seeds: Inputs that make sense.
        words: Parts of inputs that mean something there.
        close: Frees what the target holds.
    """

    name: str
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    form: InputForm = InputForm.BYTES
    words: tuple[bytes, ...] = ()
    close: Callable[[], None] = field(default=_do_nothing)

    def take(self, data: bytes) -> bool:
        """Reads an input. Returns whether it was accepted.

        Raises:
            ContractBrokenError: If it took too long or too much memory, or was read wrongly.
            Exception: Any that is not documented.
        """
        started_s, peak = time.process_time(), _peak_bytes()
        try:
            self.read(data)
        except self.errors:
            is_accepted = False
        else:
            is_accepted = True
        took_s, growth = time.process_time() - started_s, _peak_bytes() - peak
        if took_s > MAX_CPU_S:
            raise ContractBrokenError(f"{self.name}: {len(data)} bytes took {took_s:.1f} s, expected at most {MAX_CPU_S} s")
        if growth > MAX_GROWTH_BYTES:
            raise ContractBrokenError(f"{self.name}: {len(data)} bytes took {growth:,} bytes of memory")
        return is_accepted


def check(is_right: bool, problem: str) -> None:
    """Raises `ContractBrokenError` unless what was read is right."""
    if not is_right:
        raise ContractBrokenError(problem)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT_BYTES
