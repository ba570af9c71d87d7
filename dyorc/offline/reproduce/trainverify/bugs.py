"""The bugs of TrainVerify's table as changes of our plans, and more faults: which tier finds each."""

from collections.abc import Iterator, Sequence

from dyorc.offline.cluster import even_cluster, one_machine
from dyorc.offline.models import llama
from dyorc.offline.passes.channels import with_channels
from dyorc.offline.passes.coconet import overlapped
from dyorc.offline.plan import ChannelKind, Plan
from dyorc.offline.planners import PLANNERS
from dyorc.offline.program import TensorProgram, capture
from dyorc.offline.reproduce.study import Progress
from dyorc.offline.reproduce.table import Relation, Row
from dyorc.offline.reproduce.trainverify.figures import CAUGHT_BY
from dyorc.offline.verify import Tier
from dyorc.offline.verify.mutants import NUM_PUBLISHED, Outcome, outcomes


def faults(quick: bool, progress: Progress) -> Iterator[Row]:
    """A row for each fault; in a Llama on dp 2, tp 2, pp 2 with 2 microbatches, or where that has no place, on ZeRO's shards,
    with a parameter server, or with products that are overlapped.
    """
    program = capture(*llama())
    tiers = (Tier.STRUCTURE, Tier.PROOF) if quick else tuple(Tier)
    found: list[Outcome] = []
    for outcome in outcomes(program, _plans(program), tiers):
        progress(f"fault: {outcome.name}")
        found.append(outcome)
        yield _row(outcome, len(found))
    yield _summary(found)
    yield _by_structure(found[:NUM_PUBLISHED])
    yield _of_megatron(found)


def _plans(program: TensorProgram) -> Sequence[Plan]:
    pipeline = PLANNERS["megatron"](program, even_cluster(8), dp=2, tp=2, pp=2, microbatches=2)
    server = PLANNERS["parameter_server"](program, one_machine(2), servers=1)
    static = with_channels(server, one_machine(2), [ChannelKind.STATIC])  # has edges
    products = overlapped(PLANNERS["megatron"](program, even_cluster(2)), program, 2)
    return [pipeline, PLANNERS["zero"](program, even_cluster(2)), static, products]


def _row(outcome: Outcome, number: int) -> Row:
    is_published = number <= NUM_PUBLISHED
    seen = [f"{tier}: {kind}, {outcome.seconds[tier]:.2f} s" for tier, kind in outcome.kinds.items() if kind]
    relation = Relation.DIFFERS if not seen else Relation.EQUAL if is_published else Relation.OURS_ALONE
    note = "" if is_published else "not among the published bugs"
    published = CAUGHT_BY[number - 1] if is_published else ""
    return Row(
        figure="bugs", what=outcome.name, published=published, ours="; ".join(seen) or "not found", relation=relation, note=note
    )


def _by_structure(found: Sequence[Outcome]) -> Row:
    """Cheap checks find more of them here, because a plan says what every rank holds."""
    num_seen = sum(bool(outcome.kinds[Tier.STRUCTURE]) for outcome in found)
    num_published = sum(by != "solver" for by in CAUGHT_BY)
    return Row(
        figure="bugs",
        what="published bugs that are found without a solver, by structure or shapes",
        published=f"{num_published} of {len(CAUGHT_BY)}",
        ours=f"{num_seen} of {len(found)}",
        relation=Relation.EQUAL if num_seen == num_published else Relation.SAME_SIGN,
        note="those that are not found by structure are by arithmetic and by proof",
    )


def _of_megatron(found: Sequence[Outcome]) -> Row:
    """The bug that TrainVerify found in Megatron's context parallelism: losses of tokens scaled by the number of ranks."""
    (scaled,) = (outcome for outcome in found if outcome.name.startswith("12 "))
    return Row(
        figure="bugs",
        what="a loss that is scaled by the number of ranks, as in Megatron's context parallelism",
        published="found",
        ours="found" if scaled.kinds[Tier.PROOF] else "not found",
        relation=Relation.EQUAL if scaled.kinds[Tier.PROOF] else Relation.DIFFERS,
        note="the same fault in our plans is number 12: a whole that is said to be a sum; not Megatron's code",
    )


def _summary(found: Sequence[Outcome]) -> Row:
    first = [next((tier for tier, kind in outcome.kinds.items() if kind), None) for outcome in found]
    counts = ", ".join(f"{sum(tier is one for one in first)} first by {tier}" for tier in Tier if tier in first)
    num_found = sum(tier is not None for tier in first)
    slowest_s = max(sum(outcome.seconds.values()) for outcome in found)
    return Row(
        figure="bugs",
        what="faults found",
        published="14 of 14",
        ours=f"{num_found} of {len(found)}",
        relation=Relation.EQUAL if num_found == len(found) else Relation.DIFFERS,
        note=f"{counts}; the slowest took {slowest_s:.1f} s in all tiers, published: less than 3 minutes each",
    )
