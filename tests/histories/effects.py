"""What the documentation promises of effects that must not be repeated. The world outside is a file of numbers."""

from collections import Counter
from collections.abc import Sequence

from tests.histories.operation import Operation

LOST = "effect_lost"


def faults_of_effects(operations: Sequence[Operation], happened: Counter[int]) -> list[str]:
    """Returns what is wrong, a sentence each.

    Args:
        operations: Each requests the effect with the number in its `subject`. Its outcome is ``["answered", ""]``,
            ``["failed", CODE]``, or None if nobody knows what became of it. Nobody sent one twice.
        happened: How often each effect was seen outside.
    """
    wrong: list[str] = []
    for operation in operations:
        times = happened[int(operation.subject)]
        if times > 1:
            wrong.append(f"it happened {times} times: {operation}")
        elif times == 0 and operation.outcome is not None and operation.outcome[0] == "answered":
            wrong.append(f"it did not happen: {operation}")
    sent = {int(operation.subject) for operation in operations}
    return wrong + [f"effect {number} happened, and nobody asked for it" for number in happened if number not in sent]
