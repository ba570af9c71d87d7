"""Plans by one planner, or by all of them: then the plan that is quickest under the simulator and fits the memory is kept.

Planners that search nothing come first, and those that search begin with what was found before them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from time import perf_counter
from typing import Any

from dyorc.errors import PlanError
from dyorc.offline.cluster import Cluster
from dyorc.offline.plan import Plan
from dyorc.offline.planners import FOR_INFERENCE, PLANNERS
from dyorc.offline.planners.pricing import Best
from dyorc.offline.program import TensorProgram
from dyorc.offline.simulate import check_memory

AUTO = "auto"
_ONLY_BY_NAME = {"exhaustive", "pipeline"}
"""A planner that takes too long on anything but small graphs; and a pipeline of single ranks, which makes sense for a model that
answers, or as a part of Megatron's plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How far one planner is.

    Attributes:
        planner: Its name.
        done_ratio: The part of its search that is done; 1 at the end.
        cost_s: The simulated seconds of its best plan so far, if it has one.
        error: Why it has none in the end, or empty.
        best_s: The seconds of the best plan of all planners so far, if there is one.
    """

    planner: str
    done_ratio: float
    cost_s: float | None = None
    error: str = ""
    best_s: float | None = None


Report = Callable[[Attempt], None]


def plan(
    program: TensorProgram,
    cluster: Cluster,
    planner: str = AUTO,
    *,
    report: Report | None = None,
    among: Iterable[str] | None = None,
    **options: Any,
) -> Plan:
    """Plans a program on a cluster.

    Ctrl-C ends the search with the best plan so far; before there is one, it is passed on.

    Args:
        program: What is distributed.
        cluster: Where it runs.
        planner: A name in `PLANNERS`, or `auto` for the best of all.
        report: Hears how far each planner is.
        among: Which planners `auto` tries; all by default but those for small graphs alone.
        options: The planner's own; none for `auto`.

    Raises:
        PlanError: There is no such planner, it cannot plan this, or what it plans needs more memory than there is.
    """
    usual = FOR_INFERENCE if program.outputs else [name for name in PLANNERS if name not in _ONLY_BY_NAME]
    names = list(among or usual) if planner == AUTO else [planner]
    for name in names:
        if name not in PLANNERS:
            raise PlanError(f"there is no planner {name!r}; there are {', '.join([AUTO, *PLANNERS])}")
        if program.outputs and name not in FOR_INFERENCE:
            raise PlanError(f"{name} plans training; models that answer are planned by {', '.join(FOR_INFERENCE)}")
    if planner == AUTO and options:
        raise PlanError(f"{AUTO} takes no options, and {', '.join(options)} was given: name a planner")
    return _Search(program, cluster, report).best(names, options)


class _Search:
    def __init__(self, program: TensorProgram, cluster: Cluster, report: Report | None) -> None:
        self._program = program
        self._cluster = cluster
        self._report = report
        self._best = Best(program, cluster)
        self._found: list[Plan] = []
        self._begun_s = perf_counter()

    def best(self, names: Sequence[str], options: dict[str, Any]) -> Plan:
        errors: dict[str, str] = {}
        is_interrupted = False
        for name in names:
            try:
                found = self._planned(name, options)
            except PlanError as error:
                if len(names) == 1:
                    raise
                errors[name] = str(error)
                self._tell(name, 1.0, error=str(error))
            except KeyboardInterrupt:
                if self._best.found is None:
                    raise
                is_interrupted = True
                break
            else:
                if is_interrupted := "interrupted" in found.provenance.notes:
                    break
        return self._kept(errors, is_interrupted)

    def _kept(self, errors: dict[str, str], is_interrupted: bool) -> Plan:
        best = self._best.found
        if best is None or not best.does_fit:
            reasons = "\n".join(f"  {name}: {error}" for name, error in errors.items())
            raise PlanError(f"no planner has a plan of {self._program.name} for {self._cluster.name}:\n{reasons}")
        provenance = best.plan.provenance
        notes = dict(provenance.notes) | ({"interrupted": "yes"} if is_interrupted else {})
        took_s = perf_counter() - self._begun_s
        return replace(best.plan, provenance=replace(provenance, search_s=took_s, notes=notes))

    def _planned(self, name: str, options: dict[str, Any]) -> Plan:
        function = PLANNERS[name]
        accepted = signature(function).parameters
        self._tell(name, 0.0)
        if "progress" in accepted:

            def heard(done_ratio: float, cost_s: float | None) -> None:
                self._tell(name, min(done_ratio, 1.0), cost_s)

            options = {"progress": heard} | options
        if "known" in accepted and self._found:
            options = {"known": tuple(self._found)} | options
        found = function(self._program, self._cluster, **options)
        self._found.append(found)
        price = self._best.offer(found)
        check_memory(price.simulation, self._cluster)
        self._tell(name, 1.0, price.simulation.total_s)
        return found

    def _tell(self, name: str, done_ratio: float, cost_s: float | None = None, error: str = "") -> None:
        if self._report:
            attempt = Attempt(planner=name, done_ratio=done_ratio, cost_s=cost_s, error=error, best_s=self._best.cost_s)
            self._report(attempt)
