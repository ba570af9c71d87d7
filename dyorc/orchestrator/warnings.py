"""What a process is told, as plain values, of inputs that may have ended another; see `Warned`."""

from collections.abc import Mapping, Sequence
from typing import Any

from dyorc.engine.events import Danger, Warned
from dyorc.orchestrator.identity import InputsIdentity


def read_warning(value: Mapping[str, Any]) -> Warned:
    """Returns the event for the engine."""
    return Warned(_dangers(value["suspects"]), _dangers(value["refused"]), value["until_ns"])


def _dangers(values: Sequence[Sequence[Any]]) -> list[Danger]:
    return [
        Danger(program, InputsIdentity.of(bytes.fromhex(digest)), reason, until_ns)
        for program, digest, reason, until_ns in values
    ]
