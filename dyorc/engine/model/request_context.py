"""What the scheduler knows about a request: priority, tenant, budget for guesses."""

from collections.abc import Callable, Hashable
from typing import TypeAlias

import msgspec

from dyorc.core.request import NO_DEADLINE_NS, RequestFacts, RequestInfo, Terms
from dyorc.engine.engine_statistics import ModelRecord
from dyorc.engine.model.journal_keeper import JournalKeeper
from dyorc.engine.model.speculation_budget import Round, SpeculationBudget
from dyorc.engine.request_trace import RequestTrace


class QueueOrder(msgspec.Struct, frozen=True, order=True, gc=False):
    """A call's place in a queue: the smaller goes first.

    Attributes:
        improbability: Minus the probability, in thousandths, of a call that is a guess; 0 for all others.
        due_ns: When its request is due, by its priority, deadline and arrival.
        deadline_ns: Of its request.
        arrival: The request's number, in the order in which requests arrived; 0 for guesses.
    """

    improbability: int
    due_ns: int
    deadline_ns: int
    arrival: int

    @classmethod
    def of_request(cls, terms: Terms, now_ns: int, deadline_ns: int, arrival: int, max_overtaking_ns: int) -> "QueueOrder":
        """Returns the place of a request that arrives now.

        It is due at its deadline, but no later than a third of `max_overtaking_ns` after its arrival. Any priority moves that
        forward by another third, so that it counts for more than a deadline, and priority n by an n-th of the last third. A
        request is therefore due at most two thirds before and one third after its arrival: priorities age, since a
        request that arrives more than `max_overtaking_ns` after another is due after it. The place never changes, so a heap can
        hold it.
        """
        third_ns = max_overtaking_ns // 3
        due_ns = min(deadline_ns, now_ns + third_ns)
        if terms.priority:
            due_ns -= third_ns + third_ns // terms.priority
        return cls(0, due_ns, deadline_ns, arrival)


WorkMark: TypeAlias = tuple[str, str, int]
"""What the work that follows a call is learned by: workflow, program, and how many calls its request has made, in bits."""


class RequestContext(msgspec.Struct, eq=False, gc=False):
    """What all calls of one request share: their tenant, how urgent they are, what they may waste on guesses.

    Attributes:
        order: Their place in every queue, among the calls of their tenant.
        identity: Equal for requests with the same inputs; None if that is not known.
        number: The request's.
        tenant: Who sent the request.
        weight: The tenant's part of every queue.
        budget: What the request's workflow may waste on guesses.
        record: Where the workflow's requests are counted.
        round: Says whether the request guesses, and collects the time that it takes.
        story: What happens to the request, if it is recorded.
        terms: Those of the request.
        facts: Returns what is known of it besides; None: nothing.
        info: What code may know of it, once that was asked for.
        keeper: Gets its journal when it ends; None: nothing does.
        may_lag: Whether its calls may be due later than `order` says: its deadline is not near.
        attained_ns: The time that replicas have spent on it, if there is a queue discipline.
        marks: For its first calls, `attained_ns` when they became ready; None without a discipline, or before the first.
        can_be_dropped: Whether the request may be failed because it will be late: it is not answered and has had no effect.
        lacks_room: Whether there was no room for results of one of its calls: it fails, so no other waits for room.
        tried: Programs that ran one of its calls alone without harm, because its inputs may have ended another process.
    """

    order: QueueOrder
    tenant: str
    weight: float
    budget: SpeculationBudget
    record: ModelRecord
    round: Round
    number: int = 0
    identity: Hashable = None
    story: RequestTrace | None = None
    terms: Terms = Terms()
    facts: Callable[[], RequestFacts] | None = None
    info: RequestInfo | None = None
    keeper: JournalKeeper | None = None
    can_be_dropped: bool = True
    may_lag: bool = True
    attained_ns: int = 0
    marks: list[tuple[WorkMark, int]] | None = None
    lacks_room: bool = False
    tried: tuple[str, ...] = ()

    def request_info(self) -> RequestInfo:
        """Returns what code may know of the request; always the same object."""
        if self.info is None:
            facts = RequestFacts() if self.facts is None else self.facts()
            deadline_ns = self.order.deadline_ns
            self.info = RequestInfo.of(facts, self.terms, deadline_ns if deadline_ns < NO_DEADLINE_NS else None)
        return self.info
