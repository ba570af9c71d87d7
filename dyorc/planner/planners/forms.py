"""The forms in which ranks can hold a value along one mesh axis, as small numbers; searches compare them quickly.

0 is replicated, 1 a partial sum, 2 + dim a shard. Sets of forms are the bits of an integer.
"""

from dyorc.planner.program import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard

WHOLE, TERM = 0, 1


def form_of(placement: Placement) -> int:
    """The number of a placement."""
    match placement:
        case Replicate():
            return WHOLE
        case Partial():
            return TERM
        case Shard(dim):
            return 2 + dim


def placement_of(form: int) -> Placement:
    """The placement of a number."""
    return REPLICATE if form == WHOLE else PARTIAL if form == TERM else Shard(form - 2)


def forms_in(bits: int) -> list[int]:
    """The forms of a set."""
    return [form for form in range(bits.bit_length()) if bits >> form & 1]
