"""Loads a program that has a plan: its module is split among the members of a group, everything else stays in the replica."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from dyorc.authoring.planned import head_of, load_module_by
from dyorc.authoring.program import Program
from dyorc.errors import PlanError
from dyorc.planner.plan.plan_file import read_plan
from dyorc.planner.runtime import RankOptions
from dyorc.planner.serving import PlannedModule, check_module, computed_weights, inference_of
from dyorc.replica.executor import ProgramExecutor, load_error
from dyorc.replica.group import MemberGroup
from dyorc.replica.group_site import GroupSite
from dyorc.replica.warmup import load_and_warm_up

_log = structlog.get_logger("dyorc.replica")


def load_planned(program: Program, site: GroupSite) -> tuple[ProgramExecutor, MemberGroup]:
    """Loads a program whose module runs by a plan.

    Raises:
        ProgramLoadError: If it cannot be loaded, or its plan is not of its module.
    """
    try:
        loading = _Loading(program, site)
    except (OSError, PlanError) as error:
        raise load_error(program.name, error) from error
    token = load_module_by.set(loading.load_module)
    try:
        executor = load_and_warm_up(program)
        return executor, loading.group
    except PlanError as error:
        loading.close()
        raise load_error(program.name, error) from error
    except BaseException:
        loading.close()
        raise
    finally:
        load_module_by.reset(token)


class _Loading:
    def __init__(self, program: Program, site: GroupSite) -> None:
        path = program.options.plan or ""
        head = head_of(path)
        self._plan = read_plan(path)
        self._inference = inference_of(self._plan)
        what = f"{site.assignment.key}|{head.digest}"
        self._note = Path(site.client.folder) / f"checked.{hashlib.sha256(what.encode()).hexdigest()[:32]}"
        self._site = site
        self._options = RankOptions(
            num_ranks=self._plan.num_ranks,
            device="cuda" if program.options.num_gpus else "cpu",
            timeout_s=program.options.execution_timeout_s,
            folder=site.client.folder,
        )
        self._path = path
        self._group: MemberGroup | None = None

    def load_module(self, make: Callable[[], Any], path: Path, device: str) -> Any | None:
        """Has the group load the module, if it is the first: the program's other modules are loaded as usual."""
        if self._group is not None:
            return None
        self._group = MemberGroup(self._plan, self._inference, self._site, self._options)
        try:
            computed = computed_weights(self._plan, make, path)
            self._check(make)
        except PlanError as error:
            raise PlanError(f"the plan {self._path} does not fit: {error}") from error
        self._group.start()
        self._group.load(path, computed)
        _log.info("group_started", pids=self._group.pids, plan=self._path)
        return PlannedModule(self._inference, self._group.run)

    def _check(self, make: Callable[[], Any]) -> None:
        """Captures the module to compare it with the planned one, which takes seconds: once for each server and plan."""
        if not self._note.exists():
            check_module(self._plan, make)
            self._note.touch()

    @property
    def group(self) -> MemberGroup:
        """The group.

        Raises:
            PlanError: The program did not load a module that can be split.
        """
        if self._group is None:
            raise PlanError(
                f"it has the plan {self._path}, but loads no module by dyorc.load_module, which is what a plan splits"
            )
        return self._group

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
