"""The bugs of TrainVerify's table as changes of our plans, and more faults: which tier finds each."""

from collections.abc import Iterator, Sequence

from benchmarks.papers.bands import EXACT, FOUND
from benchmarks.papers.mutants import NUM_PUBLISHED, Outcome, outcomes
from benchmarks.papers.rows import fact_row, own_row, sign_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Kind, Row
from benchmarks.papers.trainverify.figures import CAUGHT_BY
from dyorc.planner.cluster import even_cluster, one_machine
from dyorc.planner.models import llama
from dyorc.planner.passes.channels import with_channels
from dyorc.planner.passes.coconet import overlap_products
from dyorc.planner.plan import ChannelKind, Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.verify import Tier


def faults(quick: bool, progress: Progress) -> Iterator[Row]:
    """A row for each fault; in a Llama on dp 2, tp 2, pp 2 with 2 microbatches, or where that has no place, on ZeRO's shards,
    with a parameter server, or with products that are overlapped.
    """
    program = capture(*llama())
    tiers = (Tier.STRUCTURE, Tier.PROOF) if quick else tuple(Tier)
    checked: list[Outcome] = []
    for outcome in outcomes(program, _plans(program), tiers):
        progress(f"fault: {outcome.name}")
        checked.append(outcome)
        yield _row(outcome, len(checked))
    yield from _summary(checked)
    yield _by_structure(checked[:NUM_PUBLISHED])
    yield _of_megatron(checked)


def _plans(program: TensorProgram) -> Sequence[Plan]:
    pipeline = PLANNERS["megatron"](program, even_cluster(8), dp=2, tp=2, pp=2, microbatches=2)
    server = PLANNERS["parameter_server"](program, one_machine(2), servers=1)
    static = with_channels(server, one_machine(2), [ChannelKind.STATIC])  # has edges
    products = overlap_products(PLANNERS["megatron"](program, even_cluster(2)), program, 2)
    return [pipeline, PLANNERS["zero"](program, even_cluster(2)), static, products]


def _row(outcome: Outcome, number: int) -> Row:
    """The fault is found or not; by what differs, as tiers do."""
    is_published = number <= NUM_PUBLISHED
    seen = [f"{tier}: {kind}, {outcome.seconds[tier]:.2f} s" for tier, kind in outcome.kinds.items() if kind]
    if seen and not is_published:
        return own_row("bugs", outcome.name, "; ".join(seen), "not among the published bugs")
    published, kind = (CAUGHT_BY[number - 1], Kind.PUBLISHED) if is_published else ("", Kind.OWN)
    return fact_row("bugs", outcome.name, published, "; ".join(seen) or "not found", is_so=bool(seen), band=FOUND, kind=kind)


def _by_structure(outcomes: Sequence[Outcome]) -> Row:
    """Cheap checks find more of them here, because a plan says what every rank holds."""
    num_seen = sum(bool(outcome.kinds[Tier.STRUCTURE]) for outcome in outcomes)
    num_published = sum(by != "solver" for by in CAUGHT_BY)
    return sign_row(
        "bugs",
        "published bugs that are found without a solver, by structure or shapes",
        f"{num_published} of {len(CAUGHT_BY)}",
        f"{num_seen} of {len(outcomes)}",
        is_so=num_seen >= num_published,
        note="those that are not found by structure are by arithmetic and by proof",
    )


def _of_megatron(outcomes: Sequence[Outcome]) -> Row:
    """The bug that TrainVerify found in Megatron's context parallelism: losses of tokens scaled by the number of ranks."""
    (scaled,) = (outcome for outcome in outcomes if outcome.name.startswith("12 "))
    is_so = bool(scaled.kinds[Tier.PROOF])
    return fact_row(
        "bugs",
        "a loss that is scaled by the number of ranks, as in Megatron's context parallelism",
        "found",
        "found" if is_so else "not found",
        is_so=is_so,
        band=FOUND,
        note="the same fault in our plans is number 12: a whole that is said to be a sum; not Megatron's code",
    )


def _summary(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """How many are found: of the published ones, and of all."""
    first = [next((tier for tier, kind in outcome.kinds.items() if kind), None) for outcome in outcomes]
    num_found = sum(tier is not None for tier in first[:NUM_PUBLISHED])
    slowest_s = max(sum(outcome.seconds.values()) for outcome in outcomes)
    yield fact_row(
        "bugs",
        "published bugs found",
        f"{NUM_PUBLISHED} of {NUM_PUBLISHED}",
        f"{num_found} of {NUM_PUBLISHED}",
        is_so=num_found == NUM_PUBLISHED,
        band=EXACT,
        note=f"the slowest of all faults took {slowest_s:.1f} s in all tiers, published: less than 3 minutes each",
    )
    counts = ", ".join(f"{sum(tier is wanted for wanted in first)} first by {tier}" for tier in Tier if tier in first)
    yield own_row("bugs", "faults found", f"{sum(tier is not None for tier in first)} of {len(outcomes)}", counts)
