"""A guard beside a generator: nearly every text is let through, so the generator need not wait for the guard.

`coin` is its counterpart: what looks at the text says yes half of the time, and what follows is expensive on either side.
"""

from dyorc.authoring.decisions import when
from dyorc.authoring.program import program
from dyorc.authoring.workflow import workflow
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload


@program(name="guard", max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def guard_program(text: Numbers) -> Numbers:
    """Says how harmless a text is."""
    return draw("guard", text)


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def generate(text: Numbers) -> Numbers:
    """Writes what the text asks for."""
    return draw("generate", text)


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


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def toss(text: Numbers) -> Numbers:
    """Tosses a fair coin."""
    return draw("toss", text)


@program(max_batch_size=16, max_queued_calls=MAX_QUEUED_CALLS)
def toil(text: Numbers) -> Numbers:
    """Works hard."""
    return draw("toil", text)


@program(max_batch_size=16, max_queued_calls=MAX_QUEUED_CALLS)
def moil(text: Numbers) -> Numbers:
    """Does other work, as hard."""
    return draw("moil", text)


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
