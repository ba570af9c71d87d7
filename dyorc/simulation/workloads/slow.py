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
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload


@program(max_batch_size=16, max_queued_calls=MAX_QUEUED_CALLS)
def classify(text: Numbers) -> Numbers:
    """Says what a text asks for."""
    return text


@program(max_batch_size=4, max_queued_calls=MAX_QUEUED_CALLS)
def chat(text: Numbers) -> Numbers:
    return draw("chat", text)


@program(max_batch_size=4, max_queued_calls=MAX_QUEUED_CALLS)
def write_code(text: Numbers) -> Numbers:
    return draw("write_code", text)


@program(max_batch_size=2, max_queued_calls=MAX_QUEUED_CALLS)
def paint(text: Numbers) -> Numbers:
    return draw("paint", text)


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


@program(max_batch_size=4, max_queued_calls=MAX_QUEUED_CALLS)
def restore(page: Numbers) -> Numbers:
    return draw("restore", page)


@program(max_batch_size=4, max_queued_calls=MAX_QUEUED_CALLS)
def summarize(page: Numbers) -> Numbers:
    return draw("summarize", page)


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
