"""How many calls one orchestrator decides per second: the whole of it, with replicas that take no time.

    python -m benchmarks.focused.scaleout.decisions NUM_REPLICAS NUM_IN_FLIGHT DURATION_S

Runs in a separate process. Requests are submitted by coroutines, as a gateway in the same process does; nothing crosses a
process. Each request makes two calls, one after the other. The last line is one JSON object: calls per second, and calls and
batches per second of processor time, which the machine's other load does not change.
"""

import asyncio
import json
import sys
import time

import numpy as np
import uvloop
from jaxtyping import Float

import dyorc
from benchmarks.focused.scaleout.instant_fleet import InstantFleet
from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.config import EngineConfig, OrchestratorConfig, TransportConfig
from dyorc.models.offers import ModelKey
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.models.submission import Submission
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.system.garbage_collector import settle_garbage_collector
from dyorc.transport.tensor_path import TensorExchange

_WARM_UP_S = 2.0
_X = np.ones(16, np.float32)


@dyorc.program(max_batch_size=32)
def first(x: Float[np.ndarray, "batch 16"]) -> Float[np.ndarray, "batch 16"]:
    """Never runs: the fleet answers for it."""
    return x


@dyorc.program(max_batch_size=32)
def second(x: Float[np.ndarray, "batch 16"]) -> Float[np.ndarray, "batch 16"]:
    """Never runs: the fleet answers for it."""
    return x


@dyorc.workflow
async def chain(x: Float[np.ndarray, "16"]) -> Float[np.ndarray, "16"]:
    """Two calls, one after the other."""
    return second(first(x))


async def measure(num_replicas: int, num_in_flight: int, duration_s: float) -> dict[str, float]:
    """Returns the figures."""
    repertoire = ModelRegistry.of([chain])
    status = StatusBoard(repertoire.programs)
    tensors = Tensors(TensorExchange(OWN, "bench", TransportConfig()))
    fleet = InstantFleet(repertoire.programs, num_replicas, status)
    config = OrchestratorConfig(engine=EngineConfig(max_requests=2**20))
    async with Orchestrator(repertoire, config, tensors, status, fleet) as orchestrator:
        settle_garbage_collector()
        until_s = time.monotonic() + _WARM_UP_S + duration_s

        async def client() -> None:
            while time.monotonic() < until_s:
                await orchestrator.infer(Submission(ModelKey("chain"), [_X]))

        clients = [asyncio.create_task(client()) for _ in range(num_in_flight)]
        await asyncio.sleep(_WARM_UP_S)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        calls, batches = fleet.num_calls, fleet.num_batches
        await asyncio.sleep(duration_s)
        took_s, took_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        calls, batches = fleet.num_calls - calls, fleet.num_batches - batches
        await asyncio.gather(*clients)
    return {
        "calls_per_s": round(calls / took_s),
        "calls_per_cpu_s": round(calls / took_cpu_s),
        "batches_per_cpu_s": round(batches / took_cpu_s),
        "mean_batch": round(calls / max(1, batches), 2),
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))))
