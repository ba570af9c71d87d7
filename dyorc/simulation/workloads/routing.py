"""Cascade and router: a first program decides which one does the work."""

import bisect
from collections.abc import Sequence
from itertools import accumulate

from dyorc.authoring.decisions import choose, when
from dyorc.authoring.program import program
from dyorc.authoring.workflow import workflow
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def small(image: Numbers) -> Numbers:
    """Answers quickly, and says how sure it is."""
    return draw("small", image)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def large(image: Numbers) -> Numbers:
    """Answers better, but more slowly."""
    return draw("large", image)


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


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def embed(text: Numbers) -> Numbers:
    """Says which expert knows best."""
    return draw("embed", text)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def expert_0(text: Numbers) -> Numbers:
    return draw("expert_0", text)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def expert_1(text: Numbers) -> Numbers:
    return draw("expert_1", text)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def expert_2(text: Numbers) -> Numbers:
    return draw("expert_2", text)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def expert_3(text: Numbers) -> Numbers:
    return draw("expert_3", text)


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
