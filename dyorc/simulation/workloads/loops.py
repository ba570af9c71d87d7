"""Workflows that go round until a decision ends them: a halting loop, and an agent that chooses its tools."""

import bisect
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate

from dyorc.authoring.decisions import choose, when
from dyorc.authoring.program import program
from dyorc.authoring.workflow import workflow
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload

MAX_TURNS = 16


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def refine(state: Numbers) -> Numbers:
    """Computes the state after one more turn."""
    return draw("refine", state)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def halting_head(state: Numbers) -> Numbers:
    """Says whether more turns would help."""
    return draw("halting_head", state)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def read_out(state: Numbers) -> Numbers:
    """Reads the answer from the last state."""
    return draw("read_out", state)


def halting(halt_ratio: float = 0.2) -> Workload:
    """Makes a learned halting: after each turn a head looks at the state and ends the loop with probability `halt_ratio`."""

    @workflow(name="halting")
    async def think(state: Number) -> Number:
        for _ in range(MAX_TURNS):
            state = refine(state)
            if await when(halting_head(state), lambda score: score < halt_ratio):
                break
        return read_out(state)

    return Workload(
        "halting",
        think,
        (
            Deployment(program=refine, base_s=0.006, item_s=0.0003, num_replicas=4),
            Deployment(program=halting_head, base_s=0.003, item_s=0.0001, num_replicas=2),
            Deployment(program=read_out, base_s=0.003, item_s=0.0002, num_replicas=1),
        ),
    )


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def plan(state: Numbers) -> Numbers:
    """Chooses what to do next."""
    return draw("plan", state)


@program(max_batch_size=16, max_queued_calls=MAX_QUEUED_CALLS)
def search(state: Numbers) -> Numbers:
    """Looks for documents: a tool."""
    return draw("search", state)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def read(state: Numbers) -> Numbers:
    """Reads a document: a tool."""
    return draw("read", state)


@program(max_batch_size=16, max_queued_calls=MAX_QUEUED_CALLS)
def compute(state: Numbers) -> Numbers:
    """Runs code: a tool."""
    return draw("compute", state)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def answer(state: Numbers) -> Numbers:
    """Writes the answer."""
    return draw("answer", state)


TOOLS = {"search": search, "read": read, "compute": compute}
HABITS: Mapping[str, Sequence[float]] = {
    "start": (0.85, 0.05, 0.10, 0.00),
    "search": (0.08, 0.82, 0.05, 0.05),
    "read": (0.12, 0.08, 0.55, 0.25),
    "compute": (0.05, 0.05, 0.10, 0.80),
}
"""After each choice, the probabilities of the next: to search, read, compute or answer."""
_CHOICES = ("search", "read", "compute", "answer")


def agent(habits: Mapping[str, Sequence[float]] = HABITS) -> Workload:
    """Makes an agent that plans, uses a tool, and plans again. What it chooses depends on what it chose before."""
    bounds = {previous: list(accumulate(ratios[:-1])) for previous, ratios in habits.items()}

    def next_choice(previous: str, score: float) -> str:
        return _CHOICES[bisect.bisect_right(bounds[previous], score)]

    @workflow(name="agent", programs=tuple(TOOLS.values()))
    async def act(state: Number) -> Number:
        choice = "start"
        for _ in range(MAX_TURNS):
            choice = await choose(plan(state), partial(next_choice, choice))
            if choice == "answer":
                break
            state = TOOLS[choice](state)
        return answer(state)

    return Workload(
        "agent",
        act,
        (
            Deployment(program=plan, base_s=0.010, item_s=0.0005, num_replicas=4),
            Deployment(program=search, base_s=0.012, item_s=0.0010, num_replicas=2),
            Deployment(program=read, base_s=0.008, item_s=0.0005, num_replicas=2),
            Deployment(program=compute, base_s=0.015, item_s=0.0010, num_replicas=2),
            Deployment(program=answer, base_s=0.012, item_s=0.0006, num_replicas=1),
        ),
    )
