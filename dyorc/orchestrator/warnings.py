"""What a process is told, as plain values, of inputs that may have ended another; see `SuspectsReported`."""

from collections.abc import Mapping, Sequence
from typing import Any

from dyorc.engine.events import SuspectInput, SuspectsReported
from dyorc.orchestrator.identity import InputsIdentity


def read_warning(value: Mapping[str, Any]) -> SuspectsReported:
    """Returns the event for the engine."""
    return SuspectsReported(_dangers(value["suspects"]), _dangers(value["refused"]), value["until_ns"])


def _dangers(values: Sequence[Sequence[Any]]) -> list[SuspectInput]:
    return [
        SuspectInput(program, InputsIdentity.of(bytes.fromhex(digest)), reason, until_ns)
        for program, digest, reason, until_ns in values
    ]
