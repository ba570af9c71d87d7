"""Workloads of slow programs, which need several replicas for a few requests a second: what `dyorc simulate scaling` scales.

What decides their branches is the number that a request brings: their first programs pass it on. So a trace can say where its
requests go.
"""

import bisect
from collections.abc import Callable, Sequence

from dyorc.authoring.decisions import choose, when
from dyorc.authoring.program import program
from dyorc.authoring.workflow import workflow
from dyorc.core.tensor import TensorRef
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload, drawn_program


@program(max_batch_size=16, max_queued_calls=MAX_QUEUED_CALLS)
def classify(text: Numbers) -> Numbers:
    """Says what a text asks for."""
    return text


chat = drawn_program("chat", 4)
write_code = drawn_program("write_code", 4)
paint = drawn_program("paint", 2)
_SKILLS = (chat, write_code, paint)
_BOUNDS = (0.6, 0.9)


def assist() -> Workload:
    """Makes an assistant: 60 % chat, 30 % code, 10 % pictures."""

    @workflow(name="assist", programs=_SKILLS)
    async def assisted(text: Number) -> Number:
        return _SKILLS[await choose(classify(text), lambda topic: bisect.bisect_right(_BOUNDS, topic))](text)

    return Workload(
        "assist",
        assisted,
        (
            Deployment(program=classify, base_s=0.020, item_s=0.002, compute=_passed_on),
            Deployment(program=chat, base_s=0.300, item_s=0.150),
            Deployment(program=write_code, base_s=0.400, item_s=0.200),
            Deployment(program=paint, base_s=0.800, item_s=0.400),
        ),
    )


@program(max_batch_size=4, max_queued_calls=MAX_QUEUED_CALLS)
def scan(page: Numbers) -> Numbers:
    """Reads a page, and says how legible it is."""
    return page


restore = drawn_program("restore", 4)
summarize = drawn_program("summarize", 4)


def read(bad_ratio: float = 0.03) -> Workload:
    """Makes a reader of pages: a scan, a summary, and for one page in thirty a restoration between them."""

    @workflow(name="read")
    async def read_page(page: Number) -> Number:
        scanned = scan(page)
        if await when(scanned, lambda legible: legible < bad_ratio):
            return summarize(restore(page))
        return summarize(scanned)

    return Workload(
        "read",
        read_page,
        (
            Deployment(program=scan, base_s=0.500, item_s=0.100, compute=_passed_on),
            Deployment(program=restore, base_s=0.600, item_s=0.200),
            Deployment(program=summarize, base_s=0.300, item_s=0.200),
        ),
    )


def _passed_on(operands: Sequence[TensorRef]) -> tuple[TensorRef, ...]:
    return (operands[0],)


SLOW: dict[str, Callable[[], Workload]] = {"assist": assist, "read": read}
