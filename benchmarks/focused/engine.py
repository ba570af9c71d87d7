"""The engine's own time per call, guessing included: events in, actions out, with replicas that take no time to simulate.

    python -m benchmarks.focused.engine

A cascade in which a third of the requests make a second call. Time is virtual: a batch takes 4 ms and comes back in the next
turn, 5 ms later. So guesses pay as they do in a server, and the engine makes them. The garbage collector is set as in a server
(`dyorc.server.single_process`).

The last line is one JSON object: microseconds per call at 10, 1,000 and 10,000 requests in flight, and at 1,000 with 100
programs; calls that ran in vain count too. Then, for the same cases, the fraction of calls that were guesses.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig
from dyorc.core.arrays import inline
from dyorc.engine.actions import AnswerRequest, DispatchBatch
from dyorc.engine.engine import Engine
from dyorc.engine.events import BatchDone, Event, ReplicaJoined, RequestArrived

NUM_REQUESTS = 20_000
NUM_ROUNDS = 3
TURN_NS = 5_000_000
EXECUTE_S = 0.004
INPUT = inline(np.zeros(16, np.float32))
GOES_ON, IS_DONE = (inline(np.full(16, value, np.float32)) for value in (-1, 1))


def make_cascade(number: int) -> dyorc.Workflow:
    """A two-stage cascade of two programs of its own."""

    @dyorc.program(name=f"small_{number}", max_batch_size=32)
    def small(x: Float[np.ndarray, "batch 16"]) -> Float[np.ndarray, "batch 16"]:
        return x

    @dyorc.program(name=f"large_{number}", max_batch_size=32)
    def large(x: Float[np.ndarray, "batch 16"]) -> Float[np.ndarray, "batch 16"]:
        return x

    @dyorc.workflow(name=f"cascade_{number}")
    async def cascade(x: Float[np.ndarray, "16"]) -> Float[np.ndarray, "16"]:
        first = small(x)
        if await dyorc.when(first, lambda value: value[0] > 0):
            return first
        return large(x)

    return cascade


def measure(num_in_flight: int, workflows: Sequence[dyorc.Workflow]) -> tuple[float, float]:
    """Returns the microseconds inside `Engine.handle` per call, in a closed loop of `num_in_flight` requests, and the fraction of
    guesses."""
    programs = [program for workflow in workflows for program in workflow.programs]
    engine = Engine(EngineConfig(max_requests=2**31, max_determinism_checks=0), programs)
    engine.handle([ReplicaJoined(program.name, program.name) for program in programs], 1)
    events: list[Event] = []
    num_sent = num_done = num_calls = 0
    engine_ns = now_ns = 0
    while num_done < NUM_REQUESTS:
        while num_sent - num_done < num_in_flight:
            num_sent += 1
            events.append(RequestArrived(num_sent, workflows[num_sent % len(workflows)], (INPUT,)))
        now_ns += TURN_NS
        started_ns = time.perf_counter_ns()
        actions = engine.handle(events, now_ns)
        engine_ns += time.perf_counter_ns() - started_ns
        events = []
        for action in actions:
            if isinstance(action, DispatchBatch):
                outputs = [(IS_DONE if (num_calls + at) % 3 else GOES_ON,) for at in range(len(action.operands))]
                num_calls += len(outputs)
                events.append(BatchDone(action.replica_id, action.batch_id, outputs, EXECUTE_S))
            elif isinstance(action, AnswerRequest):
                num_done += 1
    return engine_ns / num_calls / 1000, engine.speculator.num_speculations / num_calls


def main() -> None:
    """Runs the cases in turn, several times, and prints medians."""
    single, many = [make_cascade(0)], [make_cascade(number) for number in range(50)]
    cases = {
        "us_per_call_10": (10, single),
        "us_per_call_1000": (1000, single),
        "us_per_call_10000": (10_000, single),
        "us_per_call_100_programs": (1000, many),
    }
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    figures: dict[str, list[float]] = {name: [] for name in cases}
    guessed: dict[str, float] = {}
    for round_number in range(NUM_ROUNDS):
        for name, (num_in_flight, workflows) in cases.items():
            us_per_call, ratio = measure(num_in_flight, workflows)
            figures[name].append(us_per_call)
            guessed[name.replace("us_per_call", "guessed_ratio")] = round(ratio, 3)
            print(f"round {round_number + 1}  {name}: {us_per_call:.1f}, {ratio:.0%} guesses", file=sys.stderr, flush=True)
    print(json.dumps({name: round(statistics.median(values), 2) for name, values in figures.items()} | guessed))


if __name__ == "__main__":
    main()
