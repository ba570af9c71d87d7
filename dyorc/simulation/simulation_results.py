"""The results of a simulated run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from dyorc.simulation.ledger import Ledger, ProgramAccount
from dyorc.simulation.policies import Guesses

_NS_PER_MS = 1e6


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


def measure(ledger: Ledger, guesses: Guesses, replicas: Mapping[str, int], **run: Any) -> SimulationResult:
    """Builds a result from the records.

    Args:
        run: What was run: the fields of `SimulationResult` that come first.
    """
    latencies_ms = np.asarray(ledger.latencies_ns) / _NS_PER_MS
    p50_ms, p99_ms = np.percentile(latencies_ms, (50, 99))
    accounts = ledger.programs.values()
    device_ns = sum(account.device_ns for account in accounts)
    num_calls = sum(account.num_calls + account.num_wasted for account in accounts)
    return SimulationResult(
        **run,
        num_replicas=sum(replicas.values()),
        p50_ms=_rounded(p50_ms),
        p99_ms=_rounded(p99_ms),
        mean_ms=_rounded(latencies_ms.mean()),
        mean_batch_size=_ratio(num_calls, sum(account.num_batches for account in accounts)),
        device_time_per_request_ms=_ratio(device_ns / _NS_PER_MS, len(latencies_ms)),
        wasted_ratio=_ratio(sum(account.wasted_ns for account in accounts), device_ns),
        speculations=guesses.num_speculations,
        commits=guesses.num_commits,
        squashes=guesses.num_squashes,
        throughput_rps=_ratio(ledger.num_answered, (ledger.to_ns - ledger.from_ns) / 1e9),
        programs={name: ProgramResult.of(account, replicas[name]) for name, account in ledger.programs.items()},
    )


def _ratio(part: float, whole: float) -> float:
    return _rounded(part / whole) if whole else 0.0


def _rounded(value: float) -> float:
    return round(float(value), 6)
