"""Finds out what a server of the Open Inference Protocol did, from the statistics extension; and its guesses and its slowest
requests, if it tells of them.
"""

import time
from collections import defaultdict
from typing import Any

import httpx
import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.protocol.api_paths import MODEL_STATISTICS, STATISTICS, STATUS, TAIL, model_path
from loadgen.results import ServerFigures, Tail
from loadgen.targets.base import TargetSpec
from loadgen.targets.tls import httpx_verify

_TIMEOUT_S = 5.0
_NS_PER_MS = 1e6
_SPECULATION = ("num_speculations", "num_commits", "num_squashes", "useful_s", "wasted_s")


class _Tally(msgspec.Struct):
    count: int = 0
    ns: int = 0


class _Batch(msgspec.Struct):
    batch_size: int
    compute_infer: _Tally = msgspec.field(default_factory=_Tally)


class _Model(msgspec.Struct):
    name: str
    inference_stats: dict[str, _Tally] = {}
    batch_stats: list[_Batch] = []


class _Statistics(msgspec.Struct):
    model_stats: list[_Model]


Counted = tuple[dict[tuple[str, int], tuple[int, int]], int, dict[str, float]]
"""Batches and their nanoseconds, by program and size; the model's requests; guesses."""


class StatisticsWatch:
    """Asks at the beginning and at the end of the measured time. Counts nothing if the server has no statistics.

    Args:
        spec: The target, over HTTP, with the model whose requests are counted.
    """

    def __init__(self, spec: TargetSpec) -> None:
        self._spec = spec
        self._before: Counted | None = None
        self._began_s = 0.0

    def start(self) -> None:
        """Remembers what has been counted so far."""
        self._before = self._ask()
        self._began_s = time.monotonic()

    def stop(self) -> ServerFigures:
        """Returns what has been counted since: batches, and time in programs per request that the server answered meanwhile."""
        tail, no_tail = self._tail(time.monotonic() - self._began_s)
        after = self._ask()
        if self._before is None or after is None:
            return ServerFigures(tail=tail, no_tail=no_tail)
        batches, requests, speculation = after
        sizes: dict[str, dict[str, int]] = defaultdict(dict)
        device_ns: dict[str, int] = defaultdict(int)
        for (program, size), (count, ns) in sorted(batches.items()):
            count_before, ns_before = self._before[0].get((program, size), (0, 0))
            if count > count_before:
                sizes[program][str(size)] = count - count_before
                device_ns[program] += ns - ns_before
        num_requests = max(1, requests - self._before[1])
        return ServerFigures(
            batch_sizes=dict(sizes),
            device_ms_per_request={program: ns / _NS_PER_MS / num_requests for program, ns in device_ns.items()},
            speculation={name: value - self._before[2].get(name, 0) for name, value in speculation.items()},
            tail=tail,
            no_tail=no_tail,
        )

    def _client(self) -> httpx.Client:
        spec = self._spec
        return httpx.Client(
            base_url=spec.url, headers=spec.headers, timeout=_TIMEOUT_S, trust_env=False, verify=httpx_verify(spec)
        )

    def _tail(self, seconds: float) -> tuple[Tail | None, str]:
        """Returns where the slowest requests of the last seconds spent their time, and why that is unknown if it is."""
        query = {"workflow": self._spec.model, "share": "0.01", "seconds": f"{seconds:.3f}"}
        with self._client() as client:
            try:
                answer = client.get(TAIL, params=query)
                if answer.status_code == 200:
                    return msgspec.json.decode(answer.content, type=Tail), ""
            except httpx.HTTPError as error:
                return None, f"the server could not be asked ({TAIL}: {type(error).__name__})"
            except DECODE_ERRORS:
                return None, f"the server explains no requests (its answer to {TAIL} is another server's)"
        return None, _why_refused(answer.status_code)

    def _ask(self) -> Counted | None:
        spec = self._spec
        with self._client() as client:
            try:
                for path in (STATISTICS, model_path(spec.model, None, MODEL_STATISTICS)):
                    answer = client.get(path)
                    if answer.status_code == 200:
                        break
                else:
                    return None
                models = msgspec.json.decode(answer.content, type=_Statistics).model_stats
            except (httpx.HTTPError, *DECODE_ERRORS):
                return None
            batches = {
                (model.name, batch.batch_size): (batch.compute_infer.count, batch.compute_infer.ns)
                for model in models
                for batch in model.batch_stats
            }
            ours = [model.inference_stats.get("success", _Tally()).count for model in models if model.name == spec.model]
            return batches, sum(ours), _speculation(client)


def watch_of(target: TargetSpec) -> "StatisticsWatch | UnaskedServer":
    """Returns what asks a target's server about the measured time."""
    return StatisticsWatch(target) if target.protocol == "http" else UnaskedServer()


class UnaskedServer:
    """In place of a watch where only HTTP could ask."""

    def start(self) -> None:
        """Does nothing."""

    def stop(self) -> ServerFigures:
        """Returns why nothing is known."""
        return ServerFigures(no_tail="it is asked for only over HTTP")


def _why_refused(status: int) -> str:
    if status in (401, 403):
        return f"this key may not ask for it ({TAIL} answered {status})"
    if status in (404, 405):
        return f"the server explains no requests ({TAIL} answered {status})"
    return f"{TAIL} answered {status}"


def _speculation(client: httpx.Client) -> dict[str, float]:
    try:
        answer = client.get(STATUS)
        status: Any = msgspec.json.decode(answer.content) if answer.status_code == 200 else {}
    except (httpx.HTTPError, *DECODE_ERRORS):
        return {}
    counts = status.get("speculation", {}) if isinstance(status, dict) else {}
    if not isinstance(counts, dict):
        return {}
    return {name: counts[name] for name in _SPECULATION if isinstance(counts.get(name), int | float)}
