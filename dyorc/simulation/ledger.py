"""Records the cost and the answers of a run, without asking the engine.

The ledger evaluates each request in advance. So it knows which calls are needed, independently of the engine: a call is
identified by its output, a number that no other call returns. All other device time is waste. It also checks the answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dyorc.core.tensor import TensorRef
from dyorc.engine.events import RequestArrived
from dyorc.errors import InternalError
from dyorc.simulation.plain import evaluate, operand_of
from dyorc.simulation.value_draws import Value


@dataclass(slots=True)
class ProgramAccount:
    """One program's part.

    Attributes:
        num_calls: Calls of measured requests.
        num_batches: Their batches; a batch shared with others counts by their share of its calls.
        device_ns: Device time of those calls: an equal share of their batches.
        num_wasted: Calls that no request needed.
        wasted_ns: Device time of those calls.
    """

    num_calls: int = 0
    num_batches: float = 0.0
    device_ns: float = 0.0
    num_wasted: int = 0
    wasted_ns: float = 0.0


class Ledger:
    """Observes a world.

    Args:
        num_warmup: The first requests, which are not measured: queues fill and the engine learns.
    """

    def __init__(self, programs: Sequence[str], num_warmup: int) -> None:
        self.programs = {name: ProgramAccount() for name in programs}
        self.latencies_ns: list[int] = []
        self.from_ns = 0
        """When the first measured request arrived."""
        self.to_ns = 0
        """When the last request arrived."""
        self.num_answered = 0
        """Answers between the two, of any request: so neither the first nor the last requests distort the throughput."""
        self._num_late = 0
        self._num_warmup = num_warmup
        self._num_arrived = 0
        self._open: dict[int, tuple[int, tuple[Value, ...], bool]] = {}
        self._needed: dict[float, bool] = {}

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        is_measured = self._num_arrived >= self._num_warmup
        if self._num_arrived == self._num_warmup:
            self.from_ns = now_ns
        self._num_arrived += 1
        self.to_ns = now_ns
        self.num_answered += self._num_late
        self._num_late = 0
        evaluation = evaluate(event.workflow, [operand_of(tensor) for tensor in event.inputs], event.statics)
        self._open[event.request_id] = now_ns, evaluation.answers, is_measured
        for _, output in evaluation.calls:
            self._needed[_first(output)] = is_measured

    def dispatched(self, program: str, outputs: Sequence[tuple[TensorRef, ...]], execute_ns: int) -> None:
        account = self.programs[program]
        part = 1 / len(outputs)
        for (output,) in outputs:
            is_measured = self._needed.pop(_first(operand_of(output)), None)
            if is_measured:
                account.num_calls += 1
            elif is_measured is None and self._num_arrived > self._num_warmup:
                account.num_wasted += 1
                account.wasted_ns += part * execute_ns
            else:
                continue
            account.num_batches += part
            account.device_ns += part * execute_ns

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        arrived_ns, expected, is_measured = self._open.pop(request_id)
        answers = tuple([operand_of(tensor) for tensor in tensors])
        if answers != expected:
            given, wanted = (", ".join(map(str, values)) for values in (answers, expected))
            raise InternalError(f"simulated request {request_id} was answered {given}, expected {wanted}")
        if is_measured:
            self.latencies_ns.append(now_ns - arrived_ns)
        self._num_late += self._num_arrived > self._num_warmup


def _first(output: Value) -> float:
    return float(output[0]) if isinstance(output, np.ndarray) else output
