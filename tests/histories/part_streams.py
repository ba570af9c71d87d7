"""What the documentation promises of an answer in parts, whichever process dies meanwhile."""

from collections.abc import Sequence

import msgspec

from tests.histories.operation import Operation


class Part(msgspec.Struct, frozen=True):
    """A part as a client got it.

    Attributes:
        at: Its place in the stream, from 0, as the program has counted it.
        made_by: The version whose code made it.
        version: What the server says of it.
        pid: The process that made it.
    """

    at: int
    made_by: str
    version: str
    pid: int


def faults_of_stream(operation: Operation, parts: Sequence[Part]) -> list[str]:
    """Returns what is wrong with the parts of one stream, a sentence each.

    Args:
        operation: Its argument is the number of parts, and whether the program has an effect, so that all parts must be of one
            attempt. Its outcome is ``["ended", ""]``, ``["failed", CODE]``, or None if the stream was cut off.
    """
    num_parts, has_effect = operation.argument
    wrong: list[str] = []
    places = [part.at for part in parts]
    if places != list(range(len(parts))):
        wrong.append(f"its parts came in the order {places}")
    if operation.outcome is not None and operation.outcome[0] == "ended" and len(parts) != num_parts:
        wrong.append(f"it ended after {len(parts)} of {num_parts} parts")
    if len(parts) > num_parts:
        wrong.append(f"it has {len(parts)} parts, expected {num_parts}")
    if len(versions := {version for part in parts for version in (part.made_by, part.version)}) > 1:
        wrong.append(f"its parts are of versions {sorted(versions)}")
    if has_effect and len(processes := {part.pid for part in parts}) > 1:
        wrong.append(f"its parts come from {len(processes)} attempts, and may come from one only")
    return [f"{fault}: {operation}" for fault in wrong]
