# pyright: basic
# Ray ships no complete types.
"""Serve applications of a group of orchestrators, which outlive the one that deployed them: the next one takes them over.

Serve restarts no replica if a program is deployed again with the same *plan*, a digest of its code, its options, and what its
replicas know of the cluster. If the plan differs, Serve replaces the replicas, a few at a time.
"""

import hashlib
from collections.abc import Callable, Collection

import structlog

from dyorc.authoring.program import Program
from dyorc.core.plan_head import read_plan_head
from dyorc.replica.assignment import ProgramSource, Uplink
from dyorc.version import version

_log = structlog.get_logger("dyorc.launcher")

_PLAN_CHARACTERS = 16
_ENDING = "STOPPING"


class PersistentApplications:
    """The applications of a group.

    Args:
        group: Its name.
        code: A digest of the user's modules on disk.
        uplink: What replicas know of the cluster.
    """

    def __init__(self, group: str, code: str, uplink: Uplink) -> None:
        self._prefix = f"dyorc:{group}:"
        secrets = "" if uplink.secrets is None else uplink.secrets.token
        link = uplink.link.model_copy(update={"host": "", "port": 0})  # the leader's, which may change
        self._code = code
        self._stamp = repr((version(), link, uplink.transport, uplink.group and uplink.group.store, uplink.spans, secrets))

    def application(self, program: str) -> str:
        """Returns the name of a program's application."""
        return f"{self._prefix}{program}"

    def plan(self, program: Program, source: ProgramSource) -> str:
        """Returns the plan of a program's replicas."""
        options = sorted(program.options.ray_actor_options.items())
        code = source.code or repr((source.target, self._code))  # versions that share a program may have other targets
        split = "" if program.options.plan is None else read_plan_head(program.options.plan).digest
        content = repr((self._stamp, code, program.name, sorted(program.overrides.items()), options, split))
        return hashlib.sha256(content.encode()).hexdigest()[:_PLAN_CHARACTERS]

    def nums_running(self) -> dict[str, int]:
        """Returns how many replicas run, by program."""
        from ray import serve

        nums: dict[str, int] = {}
        for name, application in serve.status().applications.items():
            if name.startswith(self._prefix):
                states = [deployment.replica_states for deployment in application.deployments.values()]
                running = sum(num for each in states for state, num in each.items() if str(state) != _ENDING)
                nums[name.removeprefix(self._prefix)] = running
        return nums

    def delete_others(self, programs: Callable[[], Collection[str]]) -> None:
        """Makes Serve end the applications of all programs but these; does not wait for that.

        Args:
            programs: Called after Serve was queried, so that a program deployed meanwhile is included.
        """
        from ray import serve

        running = self.nums_running()
        for program in running.keys() - set(programs()):
            _log.info("program_not_needed", program=program)
            serve.delete(self.application(program), _blocking=False)
