"""Workflows with one decision.

Cascade and router: a first program decides which one does the work. Guard: nearly every text is let through, so the generator
need not wait for the guard. Coin, its counterpart: the first program says yes half of the time, and what follows is expensive on
either side.
"""

import bisect
from collections.abc import Sequence
from itertools import accumulate

from dyorc.authoring.decisions import choose, when
from dyorc.authoring.workflow import workflow
from dyorc.simulation.workload import Deployment, Number, Workload, drawn_program

small = drawn_program("small")
"""Answers quickly, and says how sure it is."""
large = drawn_program("large")
"""Answers better, but more slowly."""


def cascade(large_ratio: float = 0.4) -> Workload:
    """Makes a small model that passes `large_ratio` of the images on to a large one."""

    @workflow(name="cascade")
    async def classify(image: Number) -> Number:
        answer = small(image)
        if await when(answer, lambda doubt: doubt < large_ratio):
            return large(image)
        return answer

    return Workload(
        "cascade",
        classify,
        (
            Deployment(program=small, base_s=0.006, item_s=0.0002, num_replicas=1),
            Deployment(program=large, base_s=0.020, item_s=0.0008, num_replicas=2),
        ),
    )


embed = drawn_program("embed")
"""Says which expert knows best."""
expert_0 = drawn_program("expert_0")
expert_1 = drawn_program("expert_1")
expert_2 = drawn_program("expert_2")
expert_3 = drawn_program("expert_3")
EXPERTS = (expert_0, expert_1, expert_2, expert_3)


def router(ratios: Sequence[float] = (0.75, 0.15, 0.07, 0.03)) -> Workload:
    """Makes a router that sends texts to four experts, expert k getting ``ratios[k]`` of them. Experts see the text only."""
    bounds = list(accumulate(ratios[:-1]))

    @workflow(name="router", programs=EXPERTS)
    async def route(text: Number) -> Number:
        return EXPERTS[await choose(embed(text), lambda score: bisect.bisect_right(bounds, score))](text)

    return Workload(
        "router",
        route,
        (
            Deployment(program=embed, base_s=0.005, item_s=0.0002, num_replicas=1),
            Deployment(program=expert_0, base_s=0.016, item_s=0.0006, num_replicas=2),
            *(Deployment(program=expert, base_s=0.016, item_s=0.0006, num_replicas=1) for expert in EXPERTS[1:]),
        ),
    )


guard_program = drawn_program("guard")
"""Says how harmless a text is."""
generate = drawn_program("generate")
"""Writes what the text asks for."""


def guard(yes_ratio: float = 0.97) -> Workload:
    """Makes a guard that lets `yes_ratio` of the texts through, and a generator three times as slow."""

    @workflow(name="guard")
    async def guarded(text: Number) -> Number:
        if not await when(guard_program(text), lambda harm: harm < yes_ratio):
            return text
        return generate(text)

    return Workload(
        "guard",
        guarded,
        (
            Deployment(program=guard_program, base_s=0.008, item_s=0.0002, num_replicas=1),
            Deployment(program=generate, base_s=0.024, item_s=0.0008, num_replicas=4),
        ),
    )


toss = drawn_program("toss")
"""Tosses a fair coin."""
toil = drawn_program("toil", 16)
"""Works hard."""
moil = drawn_program("moil", 16)
"""Does other work, as hard."""


def coin(yes_ratio: float = 0.5) -> Workload:
    """Makes a short test, then one of two kinds of hard work: a guess costs more than it can save."""

    @workflow(name="coin")
    async def tossed(text: Number) -> Number:
        return toil(text) if await when(toss(text), lambda side: side < yes_ratio) else moil(text)

    return Workload(
        "coin",
        tossed,
        (
            Deployment(program=toss, base_s=0.004, item_s=0.0002, num_replicas=1),
            Deployment(program=toil, base_s=0.040, item_s=0.004, num_replicas=4),
            Deployment(program=moil, base_s=0.040, item_s=0.004, num_replicas=4),
        ),
    )
