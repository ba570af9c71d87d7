"""Records the cost and the answers of a run, independently of the engine, and sums them up.

The ledger evaluates each request in advance. So it knows which calls are needed, independently of the engine: a call is
identified by its output, a number that no other call returns. All other device time is waste. It also checks the answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from dyorc.core.tensor import TensorRef
from dyorc.engine.events import RequestArrived
from dyorc.engine.guessing.speculation import Speculator
from dyorc.errors import InternalError
from dyorc.simulation.plain_evaluation import evaluate, operand_of
from dyorc.simulation.value_draws import Value

_NS_PER_MS = 1e6


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
        for output, *_ in outputs:  # residents hold the same number
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
            text, expected_text = (", ".join(map(str, values)) for values in (answers, expected))
            raise InternalError(f"simulated request {request_id} was answered {text}, expected {expected_text}")
        if is_measured:
            self.latencies_ns.append(now_ns - arrived_ns)
        self._num_late += self._num_arrived > self._num_warmup


@dataclass(frozen=True, kw_only=True)
class ProgramResult:
    """One program's part in a run."""

    num_replicas: int
    num_calls: int
    num_wasted: int
    mean_batch_size: float
    device_time_s: float
    wasted_ratio: float

    @classmethod
    def of(cls, account: ProgramAccount, num_replicas: int) -> Self:
        """Makes a result from the ledger's account."""
        num_calls = account.num_calls + account.num_wasted
        return cls(
            num_replicas=num_replicas,
            num_calls=num_calls,
            num_wasted=account.num_wasted,
            mean_batch_size=_ratio(num_calls, account.num_batches),
            device_time_s=_rounded(account.device_ns / 1e9),
            wasted_ratio=_ratio(account.wasted_ns, account.device_ns),
        )


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """One run; the first requests, in which queues fill and the engine learns, are left out.

    Attributes:
        load: The rate as a fraction of the saturation rate.
        p50_ms: Median of the time from a request's arrival to its answer.
        mean_batch_size: Calls per batch, over all programs.
        device_time_per_request_ms: Replicas' time, waste included.
        wasted_ratio: The part of the device time spent on calls that no request needed; calls of a batch share its time
            equally.
        throughput_rps: Answers per second, as long as requests arrive.
    """

    workload: str
    policy: str
    load: float
    rate_rps: float
    num_replicas: int
    num_requests: int
    seed: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    mean_ms: float
    mean_batch_size: float
    device_time_per_request_ms: float
    wasted_ratio: float
    speculations: int
    commits: int
    squashes: int
    throughput_rps: float
    programs: Mapping[str, ProgramResult]

    def as_row(self) -> dict[str, Any]:
        """Returns everything but the programs, for JSON."""
        return {name: value for name, value in vars(self).items() if name != "programs"}

    def as_object(self) -> dict[str, Any]:
        """Returns everything, for JSON."""
        return asdict(self)


def measure(ledger: Ledger, speculator: Speculator, replicas: Mapping[str, int], **run: Any) -> SimulationResult:
    """Builds a result from the records.

    Args:
        run: The first fields of `SimulationResult`, which say what was run.
    """
    latencies_ms = np.asarray(ledger.latencies_ns) / _NS_PER_MS
    p50_ms, p99_ms, p999_ms = np.percentile(latencies_ms, (50, 99, 99.9))
    accounts = ledger.programs.values()
    device_ns = sum(account.device_ns for account in accounts)
    num_calls = sum(account.num_calls + account.num_wasted for account in accounts)
    return SimulationResult(
        **run,
        num_replicas=sum(replicas.values()),
        p50_ms=_rounded(p50_ms),
        p99_ms=_rounded(p99_ms),
        p999_ms=_rounded(p999_ms),
        mean_ms=_rounded(latencies_ms.mean()),
        mean_batch_size=_ratio(num_calls, sum(account.num_batches for account in accounts)),
        device_time_per_request_ms=_ratio(device_ns / _NS_PER_MS, len(latencies_ms)),
        wasted_ratio=_ratio(sum(account.wasted_ns for account in accounts), device_ns),
        speculations=speculator.num_speculations,
        commits=speculator.num_commits,
        squashes=speculator.num_squashes,
        throughput_rps=_ratio(ledger.num_answered, (ledger.to_ns - ledger.from_ns) / 1e9),
        programs={name: ProgramResult.of(account, replicas[name]) for name, account in ledger.programs.items()},
    )


def _first(output: Value) -> float:
    return float(output[0]) if isinstance(output, np.ndarray) else output


def _ratio(part: float, whole: float) -> float:
    return _rounded(part / whole) if whole else 0.0


def _rounded(value: float) -> float:
    return round(float(value), 6)
