# pyright: basic
# Ray ships no complete types.
"""Tells Ray Serve how many replicas of each program there should be, while it runs them."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from dyorc.errors import text_of
from dyorc.ray_serve.ray_connection import on_thread
from dyorc.system.log_throttle import LogThrottle

_log = structlog.get_logger("dyorc.launcher")

_RETRY_S, _MAX_RETRY_S = 0.5, 10.0
_KEEP_S = 20.0
"""How long replicas of an earlier orchestrator are kept before fewer may be asked for: the traffic has to be learned."""
_ANSWER_S = 10.0
"""How long Serve's controller may take to accept a number."""


class ServeScaling:
    """Passes numbers on to Serve's controller, on a thread. Used on the event loop.

    Only the last number of each program counts. What Serve refuses is asked again later.

    Args:
        asked: How many replicas of each program Serve is asked for when it gets them.
        application: Returns the name of a program's application.
    """

    def __init__(self, asked: Mapping[str, int], application: Callable[[str], str] = lambda program: program) -> None:
        self._application = application
        self._asked = dict(asked)
        self._wanted = dict(asked)
        self._is_begun = False
        self._is_keeping = False
        self._task: asyncio.Task[None] | None = None
        self._refused = LogThrottle(_log, "scaling_refused")

    def begin(self, found: Mapping[str, int]) -> None:
        """Serve has the programs: from now on, it is told.

        Args:
            found: How many replicas it already has of some of them.
        """
        self._asked.update(found)
        self._is_begun = True
        self._is_keeping = bool(found)
        if self._is_keeping:
            asyncio.get_running_loop().call_later(_KEEP_S, self._keep_no_longer)
        self._tell()

    def scale(self, program: str, num_processes: int) -> int:
        """Asks for this many replicas, in its own time. Returns how many more that are than before."""
        num_more = num_processes - self._wanted[program]
        self._wanted[program] = num_processes
        self._tell()
        return num_more

    def num_wanted(self, program: str) -> int:
        """Returns how many replicas of a program Serve should have by now. There is always one: Serve takes no 0."""
        return max(self._wanted.get(program, 0), 1)

    def add(self, program: str, asked: int) -> None:
        """Another program, of which Serve is asked for so many replicas when it gets it."""
        self._asked[program] = self._wanted[program] = asked

    def remove(self, program: str) -> None:
        """Asks for nothing of a program any more."""
        self._asked.pop(program, None)
        self._wanted.pop(program, None)

    async def close(self) -> None:
        """Tells Serve nothing any more."""
        self._is_begun = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _keep_no_longer(self) -> None:
        self._is_keeping = False
        self._tell()

    def _changes(self) -> dict[str, int]:
        asked = self._asked
        return {
            name: number for name, number in self._wanted.items()
            if number > asked[name] or (number < asked[name] and not self._is_keeping)
        }  # fmt: skip

    def _tell(self) -> None:
        if self._is_begun and self._task is None:
            self._task = asyncio.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        delay_s = _RETRY_S
        while changes := self._changes():
            try:
                await on_thread(partial(_tell, {self._application(name): (name, num) for name, num in changes.items()}))
            except Exception as error:  # whatever Ray raises, or the controller
                self._refused.report(wanted=changes, error=text_of(error).splitlines()[-1])
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _MAX_RETRY_S)
            else:
                self._asked.update({name: number for name, number in changes.items() if name in self._wanted})
        self._task = None


def _tell(wanted: Mapping[str, tuple[str, int]]) -> None:
    import ray
    from ray.serve._private.common import DeploymentID
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    for application, (program, number) in wanted.items():
        told = controller.update_deployment_replicas.remote(DeploymentID(name=program, app_name=application), number)
        ray.get(told, timeout=_ANSWER_S)
