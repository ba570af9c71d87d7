"""Workflows that go round until a decision ends them: a halting loop, and an agent that chooses its tools."""

import bisect
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate

from dyorc.authoring.decisions import choose, when
from dyorc.authoring.workflow import workflow
from dyorc.simulation.workload import Deployment, Number, Workload, drawn_program

MAX_TURNS = 16


refine = drawn_program("refine")
"""Computes the state after one more turn."""
halting_head = drawn_program("halting_head")
"""Says whether more turns would help."""
read_out = drawn_program("read_out")
"""Reads the answer from the last state."""


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


plan = drawn_program("plan")
"""Chooses what to do next."""
search = drawn_program("search", 16)
"""Looks for documents: a tool."""
read = drawn_program("read")
"""Reads a document: a tool."""
compute = drawn_program("compute", 16)
"""Runs code: a tool."""
answer = drawn_program("answer")
"""Writes the answer."""
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
