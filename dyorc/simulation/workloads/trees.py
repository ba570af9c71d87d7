"""Workflows that branch inside branches: a page with many lines, and a nested tree of decisions."""

import math

import numpy as np
from jaxtyping import Float64

from dyorc.authoring.decisions import choose, gather, when
from dyorc.authoring.program import program
from dyorc.authoring.workflow import workflow
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload, drawn_program

MAX_LINES = 24


@program(max_batch_size=8, max_queued_calls=MAX_QUEUED_CALLS)
def detect(page: Numbers) -> Float64[np.ndarray, "batch 25"]:
    """Finds the lines of a page: number 0 says how many there are, the others are the lines."""
    return draw("detect", page, size=1 + MAX_LINES)


orient = drawn_program("orient", 64)
"""Says whether a line stands on its head."""
turn = drawn_program("turn", 64)
"""Turns a line the right way up."""
recognise = drawn_program("recognise")
"""Reads the text of a line."""


def fanout(mean_lines: float = 6.0, turned_ratio: float = 0.05) -> Workload:
    """Makes a workload that finds the lines of a page and reads each; `turned_ratio` of them have to be turned first.

    Args:
        mean_lines: Of a geometric number of lines, at least 1, cut at 24.
    """

    def num_lines(score: float) -> int:
        if mean_lines <= 1:
            return 1
        return min(MAX_LINES, 1 + math.floor(math.log1p(-score) / math.log1p(-1 / mean_lines)))

    @workflow(name="read_line")
    async def read_line(line: Number) -> Number:
        if await when(orient(line), lambda score: score < turned_ratio):
            line = turn(line)
        return recognise(line)

    @workflow(name="fanout")
    async def read_page(page: Number) -> Number:
        numbers = detect(page)
        lines = [numbers[1 + at] for at in range(await choose(numbers[0], num_lines))]
        return np.asarray(sum(await gather(*[read_line(line) for line in lines])) / MAX_LINES)

    return Workload(
        "fanout",
        read_page,
        (
            Deployment(program=detect, base_s=0.020, item_s=0.008, num_replicas=2),
            Deployment(program=orient, base_s=0.003, item_s=0.0002, num_replicas=1),
            Deployment(program=turn, base_s=0.002, item_s=0.0001, num_replicas=1),
            Deployment(program=recognise, base_s=0.010, item_s=0.0010, num_replicas=2),
        ),
    )


screen = drawn_program("screen")
"""Says whether to go on at all."""
parse = drawn_program("parse")
"""Computes the first stage."""
inspect_parse = drawn_program("inspect_parse")
"""Says whether the first stage's result deserves the second."""
enrich = drawn_program("enrich")
"""Computes the second stage."""
inspect_enrich = drawn_program("inspect_enrich")
"""Says whether the second stage's result deserves the third."""
polish = drawn_program("polish")
"""Computes the third stage."""


def nested(ratios: tuple[float, float, float] = (0.9, 0.7, 0.5)) -> Workload:
    """Makes three stages, a decision inside a decision inside a decision; ``ratios[k]`` of the items at the k-th go on."""

    @workflow(name="nested")
    async def descend(item: Number) -> Number:
        result = item
        if await when(screen(item), lambda score: score < ratios[0]):
            result = parsed = parse(item)
            if await when(inspect_parse(parsed), lambda score: score < ratios[1]):
                result = enriched = enrich(parsed)
                if await when(inspect_enrich(enriched), lambda score: score < ratios[2]):
                    result = polish(enriched)
        return result

    return Workload(
        "nested",
        descend,
        (
            Deployment(program=screen, base_s=0.005, item_s=0.0002, num_replicas=1),
            Deployment(program=parse, base_s=0.010, item_s=0.0005, num_replicas=2),
            Deployment(program=inspect_parse, base_s=0.005, item_s=0.0002, num_replicas=1),
            Deployment(program=enrich, base_s=0.010, item_s=0.0005, num_replicas=2),
            Deployment(program=inspect_enrich, base_s=0.005, item_s=0.0002, num_replicas=1),
            Deployment(program=polish, base_s=0.010, item_s=0.0005, num_replicas=1),
        ),
    )
