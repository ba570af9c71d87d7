"""The time that a prefix of a duplex program takes: the costs (psi, phi) of HiDup's equations (4) and (5).

A stage is one communication step, then a computation step. Microbatch 2 computes stage i - 1 while microbatch 1 communicates
for stage i (slot 1); then microbatch 1 computes stage i while microbatch 2 communicates (slot 2):

    psi(i) = psi(i-1) + phi(i-1) + max(-phi(i-1), comm(i)) + max(comm(i), comp(i)) - phi(i)        phi(i) = -comp(i)

A clock holds the same with its last stage still open. What is communicated once for both microbatches is not the same in both
slots: parameters go with slot 1; a gradient is reduced once both terms exist, which is slot 2 of the stage after.
"""

from operator import le
from typing import NamedTuple


class Clock(NamedTuple):
    """How far a prefix is.

    Attributes:
        done_s: Slots that are over.
        before_s: One microbatch's computation of the stage before the open one.
        first_s: Communication for the open stage in slot 1.
        second_s: In slot 2.
        comp_s: One microbatch's computation of the open stage.
        waiting_s: Reductions of what the open stage made, which wait for the next.
    """

    done_s: float = 0.0
    before_s: float = 0.0
    first_s: float = 0.0
    second_s: float = 0.0
    comp_s: float = 0.0
    waiting_s: float = 0.0

    @property
    def psi_s(self) -> float:
        """Until both microbatches are through, if nothing followed."""
        return self.done_s + max(self.before_s, self.first_s) + max(self.comp_s, self.second_s) + self.comp_s + self.waiting_s

    def open_stage(self) -> "Clock":
        """Closes the open stage and opens the next."""
        done_s = self.done_s + max(self.before_s, self.first_s) + max(self.comp_s, self.second_s)
        return Clock(done_s, self.comp_s, 0.0, self.waiting_s)

    def after(self, first_s: float, second_s: float, comp_s: float) -> "Clock":
        """Adds to the open stage."""
        return Clock(
            self.done_s,
            self.before_s,
            self.first_s + first_s,
            self.second_s + second_s,
            self.comp_s + comp_s,
            self.waiting_s,
        )

    def bounds(self) -> tuple[float, ...]:
        """Sixteen sums: every continuation takes the largest of them, plus its own terms.

        So a clock none of whose sums is larger than the other's is never behind it. For closed stages this is psi <= psi' and
        psi + phi <= psi' + phi', which drops more than Theorem 1's psi <= psi' and phi <= phi', and never the optimum.
        """
        done, before, first, second, comp, waiting = self
        sums = (
            before + comp + comp,
            before + comp,
            before + second + comp,
            before + second,
            first + comp + comp,
            first + comp,
            first + second + comp,
            first + second,
        )
        return tuple([done + each for each in sums] + [done + waiting + each for each in sums])


def is_ahead(bounds: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether a clock with the first bounds is never behind one with the other bounds."""
    return all(map(le, bounds, other))
