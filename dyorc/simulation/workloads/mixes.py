"""Short requests, long loops and wide fan-outs that share one program: here the order of calls matters."""

import numpy as np
from jaxtyping import Float64

from dyorc.authoring.decisions import choose, gather
from dyorc.authoring.program import program
from dyorc.authoring.workflow import workflow
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload, drawn_program

MIN_TURNS, MAX_TURNS = 8, 32
WIDTH = 48


@program(max_queued_calls=MAX_QUEUED_CALLS)
def sort(item: Numbers) -> Float64[np.ndarray, "batch 49"]:
    """Says by number 0 what an item asks for; the others are its parts."""
    return draw("sort", item, size=1 + WIDTH)


work = drawn_program("work", 4)
"""Works on a part, or for a turn."""


def mixture(loop_ratio: float = 0.05, fan_ratio: float = 0.03) -> Workload:
    """Makes requests that call `work` once; but `loop_ratio` of them 8 to 31 times in a row, and `fan_ratio` 48 times at once."""

    def num_turns(score: float) -> int:
        """Returns how often `work` is called in a row; 0: for all parts at once."""
        if score < fan_ratio:
            return 0
        if score >= fan_ratio + loop_ratio:
            return 1
        return MIN_TURNS + int((score - fan_ratio) / loop_ratio * (MAX_TURNS - MIN_TURNS))

    @workflow(name="mixture")
    async def mixed(item: Number) -> Number:
        numbers = sort(item)
        turns = await choose(numbers[0], num_turns)
        if not turns:
            return np.asarray(sum(await gather(*[work(numbers[1 + at]) for at in range(WIDTH)])) / WIDTH)
        part = numbers[1]
        for _ in range(turns):
            part = work(part)
        return part

    return Workload(
        "mixture",
        mixed,
        (
            Deployment(program=sort, base_s=0.002, item_s=0.0001, num_replicas=1),
            Deployment(program=work, base_s=0.010, item_s=0.004, num_replicas=4),
        ),
    )
