"""Plans by one planner, or by all of them: then the first plan is the quickest in the simulator that fits the memory.

Planners that search nothing come first; planners that search begin with the plans found before.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan, SearchEnd
from dyorc.planner.planners import FOR_INFERENCE, PLANNERS
from dyorc.planner.planners.ending import deadline, end_of
from dyorc.planner.planners.pricing import PricedPlan, price_plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import check_memory

AUTO = "auto"
_ONLY_BY_NAME = {"exhaustive", "pipeline"}
"""`exhaustive` takes too long on anything but small graphs; a pipeline of single ranks makes sense for inference, or as a part of
Megatron's plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How far one planner is.

    Attributes:
        planner: Its name.
        done_ratio: The part of its search that is done; 1 at the end.
        cost_s: The simulated seconds of its best plan so far, if it has one.
        error: Why it has none in the end, or empty.
        best_s: The seconds of the best plan of all planners so far, if there is one.
        ended: How its search ended; None before that.
    """

    planner: str
    done_ratio: float
    cost_s: float | None = None
    error: str = ""
    best_s: float | None = None
    ended: SearchEnd | None = None


Report = Callable[[Attempt], None]


def plan(program: TensorProgram, cluster: Cluster, planner: str = AUTO, **options: Any) -> Plan:
    """Plans a program on a cluster: the first of `plans`, which takes the same arguments."""
    return plans(program, cluster, planner, **options)[0]


def plans(
    program: TensorProgram,
    cluster: Cluster,
    planner: str = AUTO,
    *,
    report: Report | None = None,
    among: Iterable[str] | None = None,
    deadline_s: float | None = None,
    **options: Any,
) -> Sequence[Plan]:
    """Plans a program on a cluster, and returns all plans that were found and fit its memory, the quickest first.

    Ctrl-C ends the search with the plans so far; before there is one, it is passed on.

    Args:
        program: What is distributed.
        cluster: Where it runs.
        planner: A name in `PLANNERS`, or `auto` for the best of all.
        report: Called with the progress of each planner.
        among: Which planners `auto` tries; all by default but those for small graphs alone.
        deadline_s: After how many seconds the search ends with the plans so far. In other threads than the main one it ends when
            a planner next says how far it is.
        options: The planner's own; none for `auto`.

    Raises:
        PlanError: There is no such planner, it cannot plan this, its plan needs more memory than there is, or no plan was found
            before the deadline.
    """
    usual = FOR_INFERENCE if program.outputs else [name for name in PLANNERS if name not in _ONLY_BY_NAME]
    names = list(among or usual) if planner == AUTO else [planner]
    for name in names:
        if name not in PLANNERS:
            raise PlanError(f"unknown planner {name!r}; choose one of {', '.join([AUTO, *PLANNERS])}")
        if program.outputs and name not in FOR_INFERENCE:
            raise PlanError(f"{name} plans training; models that answer are planned by {', '.join(FOR_INFERENCE)}")
    if planner == AUTO and options:
        raise PlanError(f"{AUTO} takes no options, and {', '.join(options)} was given: name a planner")
    if deadline_s is not None and not deadline_s > 0:
        raise PlanError(f"the deadline must be a number of seconds above 0, and not {deadline_s:g}")
    return _Search(program, cluster, report, deadline_s).plans(names, options)


class _Search:
    def __init__(self, program: TensorProgram, cluster: Cluster, report: Report | None, deadline_s: float | None) -> None:
        self._program = program
        self._cluster = cluster
        self._report = report
        self._begun_s = time.monotonic()
        self._deadline_s = deadline_s
        self._due_s = None if deadline_s is None else self._begun_s + deadline_s
        self._plans: list[Plan] = []
        self._priced: list[PricedPlan] = []
        self._errors: dict[str, str] = {}
        self._left: dict[str, str] = {}  # planner -> "not tried" or "not finished"

    def plans(self, names: Sequence[str], options: dict[str, Any]) -> Sequence[Plan]:
        ended = SearchEnd.FINISHED
        for number, name in enumerate(names):
            try:
                ended = self._run_planner(name, options)
            except PlanError as error:
                if len(names) == 1:
                    raise
                self._errors[name] = str(error)
                self._report_attempt(name, 1.0, error=str(error), ended=SearchEnd.FINISHED)
            except KeyboardInterrupt as stop:
                ended = end_of(stop)
                if ended is SearchEnd.INTERRUPTED and not self._priced:
                    raise
                self._note_left([name], "not finished", ended)
            if ended is not SearchEnd.FINISHED:
                self._note_left(names[number + 1 :], "not tried", ended)
                break
        return self._best_first(ended)

    def _run_planner(self, name: str, options: dict[str, Any]) -> SearchEnd:
        """Runs a planner, and returns how its search ended. Its plan is priced even after the deadline."""
        with deadline(self._due_s) as check:
            plan = self._call_planner(name, options, check)
        self._plans.append(plan)
        price = price_plan(plan, self._program, self._cluster)
        check_memory(price.simulation, self._cluster)
        self._priced.append(price)
        ended = plan.provenance.ended
        self._report_attempt(name, 1.0, price.simulation.total_s, ended=ended)
        if ended is not SearchEnd.FINISHED:
            self._left[name] = "not finished"
        return ended

    def _call_planner(self, name: str, options: dict[str, Any], check: Callable[[], None]) -> Plan:
        function = PLANNERS[name]
        accepted = signature(function).parameters
        self._report_attempt(name, 0.0)
        if "progress" in accepted:

            def progress(done_ratio: float, cost_s: float | None) -> None:
                check()
                self._report_attempt(name, min(done_ratio, 1.0), cost_s)

            options = {"progress": progress} | options
        if "known" in accepted and self._plans:
            options = {"known": tuple(self._plans)} | options
        return function(self._program, self._cluster, **options)

    def _note_left(self, names: Iterable[str], how: str, ended: SearchEnd) -> None:
        limit = "" if self._deadline_s is None else f" of {self._deadline_s:g} s"  # without one, the planner has its own
        why = "interrupted" if ended is SearchEnd.INTERRUPTED else f"the deadline{limit} was reached"
        for name in names:
            self._left[name] = how
            self._report_attempt(name, 1.0, error=f"{how}: {why}", ended=ended)

    def _best_first(self, ended: SearchEnd) -> Sequence[Plan]:
        """The plans that fit, each once, with what the whole search was like.

        Raises:
            PlanError: No plan fits.
        """
        if not self._priced:
            raise self._no_plan(ended)
        left = {how: ", ".join(name for name, other in self._left.items() if other == how) for how in self._left.values()}
        plans: list[Plan] = []
        for price in sorted(self._priced, key=lambda each: each.simulation.total_s):
            if not any((price.plan.steps, price.plan.sources) == (other.steps, other.sources) for other in plans):
                made = price.plan.provenance
                took_s = time.monotonic() - self._begun_s
                made = replace(made, search_s=took_s, ended=ended, notes={**made.notes, **left})
                plans.append(replace(price.plan, provenance=made))
        return plans

    def _no_plan(self, ended: SearchEnd) -> PlanError:
        reasons = "\n".join(f"  {name}: {error}" for name, error in (self._errors | self._left).items())
        within = f" within {self._deadline_s:g} s" if ended is SearchEnd.DEADLINE and self._deadline_s else ""
        return PlanError(f"no planner has found a plan of {self._program.name} for {self._cluster.name}{within}:\n{reasons}")

    def _report_attempt(
        self, name: str, done_ratio: float, cost_s: float | None = None, error: str = "", ended: SearchEnd | None = None
    ) -> None:
        if self._report:
            best_s = min((price.simulation.total_s for price in self._priced), default=None)
            self._report(Attempt(planner=name, done_ratio=done_ratio, cost_s=cost_s, error=error, best_s=best_s, ended=ended))
