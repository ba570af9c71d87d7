"""The engine's own time per call, guessing included: events in, actions out, with replicas that take no time to simulate.

    python -m benchmarks.focused.engine

A cascade in which a third of the requests make a second call. Time is virtual: a batch takes 4 ms and comes back in the next
turn, 5 ms later. So guesses pay as they do in a server, and the engine makes them: with few requests in flight more, since
replicas are free. The garbage collector is set as in a server. Counted is the processor's time of the thread.

The last line is one JSON object: for 10, 1,000 and 10,000 requests in flight, and for 1,000 with 100 programs, the microseconds
per request and per call, and the calls of a request; calls that ran in vain count too. Then the first and the last of them with
guesses off, where all requests make the same calls.
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.arrays import inline
from dyorc.engine.actions import AnswerRequest, DispatchBatch
from dyorc.engine.engine import Engine
from dyorc.engine.events import BatchDone, Event, ReplicaJoined, RequestArrived
from dyorc.system.garbage_collector import settle_garbage_collector

NUM_REQUESTS = 20_000
NUM_ROUNDS = 3
TURN_NS = 5_000_000
EXECUTE_S = 0.004
INPUT = inline(np.zeros(16, np.float32))
INPUT_THAT_GOES_ON = inline(np.ones(16, np.float32))
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


def measure(num_in_flight: int, workflows: Sequence[dyorc.Workflow], *, is_guessing: bool = True) -> tuple[float, float]:
    """Returns the microseconds inside `Engine.handle` per request, in a closed loop of `num_in_flight` requests, and the calls of
    a request."""
    programs = [program for workflow in workflows for program in workflow.programs]
    engine = Engine(
        EngineConfig(max_requests=2**31, max_determinism_checks=0, speculation=SpeculationConfig(enabled=is_guessing)), programs
    )
    engine.handle([ReplicaJoined(program.name, program.name) for program in programs], 1)
    events: list[Event] = []
    num_sent = num_done = num_calls = 0
    engine_ns = now_ns = 0
    while num_done < NUM_REQUESTS:
        while num_sent - num_done < num_in_flight:
            num_sent += 1
            given = INPUT if num_sent % 3 else INPUT_THAT_GOES_ON
            events.append(RequestArrived(num_sent, workflows[num_sent % len(workflows)], (given,)))
        now_ns += TURN_NS
        started_ns = time.thread_time_ns()
        actions = engine.handle(events, now_ns)
        engine_ns += time.thread_time_ns() - started_ns
        events = []
        for action in actions:
            if isinstance(action, DispatchBatch):
                outputs = [(IS_DONE if given is INPUT else GOES_ON,) for (given,) in action.operands]
                num_calls += len(outputs)
                events.append(BatchDone(action.replica_id, action.batch_id, outputs, EXECUTE_S))
            elif isinstance(action, AnswerRequest):
                num_done += 1
    return engine_ns / num_done / 1000, num_calls / num_done


def main() -> None:
    """Runs the cases in turn, several times, and prints medians."""
    single, many = [make_cascade(0)], [make_cascade(number) for number in range(50)]
    cases = {
        "10": (10, single, True),
        "1000": (1000, single, True),
        "10000": (10_000, single, True),
        "100_programs": (1000, many, True),
        "10_unguessed": (10, single, False),
        "10000_unguessed": (10_000, single, False),
    }
    settle_garbage_collector()
    figures: dict[str, list[float]] = {}
    for round_number in range(NUM_ROUNDS):
        for name, (num_in_flight, workflows, is_guessing) in cases.items():
            us, num_calls = measure(num_in_flight, workflows, is_guessing=is_guessing)
            new = {f"us_per_request_{name}": us, f"us_per_call_{name}": us / num_calls, f"calls_per_request_{name}": num_calls}
            for figure, value in new.items():
                figures.setdefault(figure, []).append(value)
            print(f"round {round_number + 1}  {name}: {us:.1f} us, {num_calls:.2f} calls", file=sys.stderr, flush=True)
    print(json.dumps({name: round(statistics.median(values), 2) for name, values in figures.items()}))


if __name__ == "__main__":
    main()
