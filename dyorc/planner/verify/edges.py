"""The ways that a plan's messages take: none is written over while it is needed, and each leads between ranks of its transfer.

A static slot holds one message from when its transfer begins until the last step that needs what lies there. All ranks walk the
steps in one order, and the sender waits until the slot is empty. So if the next transfer into a slot comes after that last step,
nothing is lost and nobody waits for ever; if it comes before, the receiver waits for a message that the sender may not write.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import isinf

from dyorc.planner.plan import Plan, Transfer
from dyorc.planner.plan.lifetimes import slot_uses
from dyorc.planner.verify.report import Finding, FindingKind


def check_edges(plan: Plan) -> Iterator[Finding]:
    """Yields what is wrong with the edges of transfers."""
    is_wrong = False
    for number, step in enumerate(plan.steps):
        if isinstance(step, Transfer) and step.edges and (reason := _fault(plan, step)):
            is_wrong = True
            yield Finding(kind=FindingKind.BAD_EDGE, step=number, detail=reason)
    for (source, target, slot), uses in slot_uses(plan).items() if not is_wrong else ():
        for (first, _, last), (second, _, _) in pairwise(uses):
            if second <= last:
                subject = f"slot {slot} from rank {source} to rank {target}"
                until = "the end" if isinf(last) else f"step {last:.0f}"
                detail = f"until {until}; step {first} sent it"
                yield Finding(kind=FindingKind.SLOT_OVERWRITTEN, step=second, subject=subject, detail=detail)
                break


def _fault(plan: Plan, step: Transfer) -> str:
    pairs = [edge.pair for edge in step.edges]
    for edge in step.edges:
        if edge.source not in plan.mesh_of(step.source).ranks or edge.target not in plan.mesh_of(step.target).ranks:
            return f"{step.source} does not go from rank {edge.source} to rank {edge.target}"
        if edge.source == edge.target:
            return f"an edge leads from rank {edge.source} to itself"
        if pairs.count(edge.pair) > 1:
            return f"there are several edges from rank {edge.source} to rank {edge.target}"
        if edge.slot < 0:
            return f"{edge.slot} is no slot"
    return ""
