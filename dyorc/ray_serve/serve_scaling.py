# pyright: basic
# Ray ships no complete types.
"""Sets how many replicas of each program Ray Serve runs."""

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
"""How long replicas of an earlier orchestrator are kept before their number may fall: the traffic must be learned first."""
_ANSWER_S = 10.0
"""How long Serve's controller may take to accept a number."""


class ServeScaling:
    """Sends numbers of replicas to Serve's controller, on a thread. Used on the event loop.

    Only the last number of each program counts. What Serve refuses is sent again later.

    Args:
        initial: How many replicas of each program Serve gets at first.
        application: Returns the name of a program's application.
    """

    def __init__(self, initial: Mapping[str, int], application: Callable[[str], str] = lambda program: program) -> None:
        self._application = application
        self._sent = dict(initial)
        self._wanted = dict(initial)
        self._is_begun = False
        self._is_keeping = False
        self._task: asyncio.Task[None] | None = None
        self._refused = LogThrottle(_log, "scaling_refused")

    def begin(self, nums_before: Mapping[str, int]) -> None:
        """Begins to send numbers: Serve has the programs now.

        Args:
            nums_before: How many replicas of some programs it already had.
        """
        self._sent.update(nums_before)
        self._is_begun = True
        self._is_keeping = bool(nums_before)
        if self._is_keeping:
            asyncio.get_running_loop().call_later(_KEEP_S, self._keep_no_longer)
        self._send_soon()

    def scale(self, program: str, num_processes: int) -> int:
        """Sets the number of replicas, without waiting for Serve. Returns how many more there are than before."""
        num_more = num_processes - self._wanted[program]
        self._wanted[program] = num_processes
        self._send_soon()
        return num_more

    def num_wanted(self, program: str) -> int:
        """Returns how many replicas of a program Serve should have by now: at least 1, since it does not accept 0."""
        return max(self._wanted.get(program, 0), 1)

    def add(self, program: str, initial: int) -> None:
        """Adds a program, which Serve deploys with this many replicas."""
        self._sent[program] = self._wanted[program] = initial

    def remove(self, program: str) -> None:
        """Removes a program."""
        self._sent.pop(program, None)
        self._wanted.pop(program, None)

    async def close(self) -> None:
        """Stops sending."""
        self._is_begun = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _keep_no_longer(self) -> None:
        self._is_keeping = False
        self._send_soon()

    def _changes(self) -> dict[str, int]:
        sent = self._sent
        return {
            name: number for name, number in self._wanted.items()
            if number > sent[name] or (number < sent[name] and not self._is_keeping)
        }  # fmt: skip

    def _send_soon(self) -> None:
        if self._is_begun and self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        delay_s = _RETRY_S
        while changes := self._changes():
            try:
                await on_thread(partial(_send, {self._application(name): (name, num) for name, num in changes.items()}))
            except Exception as error:  # Ray or the controller may raise anything
                self._refused.report(wanted=changes, error=text_of(error).splitlines()[-1])
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _MAX_RETRY_S)
            else:
                self._sent.update({name: number for name, number in changes.items() if name in self._wanted})
        self._task = None


def _send(wanted: Mapping[str, tuple[str, int]]) -> None:
    import ray
    from ray.serve._private.common import DeploymentID
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    for application, (program, number) in wanted.items():
        update = controller.update_deployment_replicas.remote(DeploymentID(name=program, app_name=application), number)
        ray.get(update, timeout=_ANSWER_S)
