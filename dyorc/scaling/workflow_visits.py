"""Which programs requests of one workflow visit, and in which order."""

from collections.abc import Mapping, Sequence
from typing import Any

from dyorc.scaling.visits import Due, Repeats, VisitStage

_MAX_STAGES = 256
"""Stages of a workflow. Beyond that, requests stay in the last one that is known."""
_MAX_PROGRAMS = 1000
_MIN_LEFT = 0.1
"""A call that is overdue is expected within this fraction of its usual delay."""
_MIN_LASTS_S = 1e-6
_MAX_LEARNING = 4
"""Stages that learn from one request, besides the start: if it visited more, they alternate."""


class WorkflowVisits:
    """Stages and repetitions of one workflow. A `RequestWalk` is one of its requests."""

    def __init__(self) -> None:
        self.start = VisitStage(frozenset())
        self._stages: dict[frozenset[str], VisitStage] = {self.start.called: self.start}
        self._repeats: dict[str, Repeats] = {}
        self._turn = 0

    def enter(self, now_ns: int) -> "RequestWalk":
        """Returns a request that begins."""
        self.start.num_here += 1
        self.start.sum_entered_ns += now_ns
        return RequestWalk(self, now_ns)

    def after(self, stage: VisitStage, program: str) -> VisitStage:
        """Returns the stage after the first call of a program."""
        called = stage.called | {program}
        following = self._stages.get(called)
        if following is None:
            if len(self._stages) >= _MAX_STAGES:
                return stage
            following = self._stages[called] = VisitStage(called)
        stage.following[program] = following
        return following

    def repeats(self, program: str) -> Repeats:
        """Returns how often a program is repeated."""
        repeats = self._repeats.get(program)
        if repeats is None:
            repeats = Repeats()
            if len(self._repeats) < _MAX_PROGRAMS:
                self._repeats[program] = repeats
        return repeats

    def has(self, program: str) -> bool:
        """Returns whether a request of this workflow has called a program."""
        return program in self._repeats

    def stages_to_learn(self, entered: Sequence[tuple[VisitStage, int]]) -> Sequence[tuple[VisitStage, int]]:
        """Returns which of the stages of a request learn from it."""
        step = -(-(len(entered) - 1) // _MAX_LEARNING)
        if step <= 1:
            return entered
        self._turn += 1
        return [entered[0], *entered[1 + self._turn % step :: step]]

    def leads_to(self, stage: VisitStage, program: str, within_s: float, probability: float) -> bool:
        """Returns whether a request that has just come to this stage will call a program within a time, this probably."""
        if program in stage.called or program not in self._repeats:
            return False
        if stage.probability(program, self.start.frequency(program)) < probability:
            return False
        delay_s = stage.delay_s(program)
        return delay_s is None or delay_s <= within_s

    def calls_of_new_request(self, program: str) -> tuple[float, float, float]:
        """Returns how often a request calls a program on average, the average of the square, and seconds until its first call."""
        probability = self.start.frequency(program)
        delay_s = self.start.delay_s(program)
        if not probability or delay_s is None:
            return 0.0, 0.0, 0.0
        mean, square = self._repeats[program].ahead_of(0)
        return probability * mean, probability * square, delay_s

    def due(self, program: str, now_ns: int) -> list[Due]:
        """Returns the calls of a program that requests in flight will make."""
        repeats = self._repeats[program]
        dues = repeats.due()
        mean, square = repeats.ahead_of(0)
        usual = self.start.frequency(program)
        for stage in self._stages.values():
            if not stage.num_here or program in stage.called:
                continue
            probability = stage.probability(program, usual)
            if probability:
                usual_s = stage.delay_s(program) or self.start.delay_s(program) or 0.0
                age_s = max((now_ns - stage.sum_entered_ns / stage.num_here) / 1e9, 0.0)
                # What is left is uniform with the usual time left as its mean, as for requests that came one after another.
                lasts_s = 2 * max(usual_s - age_s, _MIN_LEFT * usual_s, _MIN_LASTS_S)
                dues.append(Due(stage.num_here, probability * mean, probability * square, lasts_s))
        return dues

    def to_state(self) -> dict[str, Any]:
        """Returns what was learned."""
        return {
            "stages": [stage.to_state() for stage in self._stages.values()],
            "repeats": {program: repeats.to_state() for program, repeats in self._repeats.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "WorkflowVisits":
        """Returns what was exported."""
        visits = cls()
        for learned in state["stages"]:
            called = frozenset[str](learned["called"])
            visits._stages.setdefault(called, VisitStage(called)).restore(learned)
        for program, learned in state["repeats"].items():
            visits.repeats(program).restore(learned)
        return visits


class RequestWalk:
    """One request on its way.

    Attributes:
        stage: Where it is.
    """

    __slots__ = ("_entered", "_first_ns", "_last_ns", "_made", "stage", "visits")

    def __init__(self, visits: WorkflowVisits, now_ns: int) -> None:
        self.visits = visits
        self.stage = visits.start
        self._entered: list[tuple[VisitStage, int]] = [(visits.start, now_ns)]
        self._made: dict[str, int] = {}
        self._first_ns: dict[str, int] = {}
        self._last_ns: dict[str, int] = {}

    def call(self, program: str, now_ns: int) -> bool:
        """Adds a call. Returns whether it is the first of its program."""
        made = self._made.get(program, 0) + 1
        self._made[program] = made
        self.visits.repeats(program).add_call(made)
        if made > 1:
            self._last_ns[program] = now_ns
            return False
        self._first_ns[program] = now_ns
        before, entered_ns = self._entered[-1]
        following = before.following.get(program) or self.visits.after(before, program)
        if following is not before:
            before.num_here -= 1
            before.sum_entered_ns -= entered_ns
            following.num_here += 1
            following.sum_entered_ns += now_ns
            self.stage = following
            self._entered.append((following, now_ns))
        return True

    def leads_to(self, programs: Mapping[str, float], probability: float) -> bool:
        """Returns whether it will call one of the programs within so many seconds, at least this probably."""
        visits, stage = self.visits, self.stage
        return any(visits.leads_to(stage, program, within_s, probability) for program, within_s in programs.items())

    def end(self, now_ns: int) -> None:
        """Leaves, and lets the workflow learn from it."""
        stage, entered_ns = self._entered[-1]
        stage.num_here -= 1
        stage.sum_entered_ns -= entered_ns
        for stage, entered_ns in self.visits.stages_to_learn(self._entered):
            stage.learn(self._first_ns, entered_ns)
        for program, made in self._made.items():
            repeats = self.visits.repeats(program)
            repeats.remove_request(made)
            lasted_ns = self._last_ns.get(program, 0) - self._first_ns[program]
            repeats.learn(made, max(lasted_ns, 0) / 1e9)
