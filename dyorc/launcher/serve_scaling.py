# pyright: basic
# Ray ships no complete types.
"""Tells Ray Serve how many replicas of each program there should be, while it runs them."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

import structlog

from dyorc.errors import text_of

_log = structlog.get_logger("dyorc.launcher")

_RETRY_S, _MAX_RETRY_S = 0.5, 10.0


class ServeScaling:
    """Passes numbers on to Serve's controller while entered, one at a time, on a thread. Used on the event loop.

    Only the last number of each program counts. What Serve refuses is asked again later: perhaps the program is not deployed yet.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, int] = {}
        self._is_wanted = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._carry_out())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def scale(self, program: str, num_processes: int) -> None:
        """Asks for this many replicas, in its own time."""
        self._wanted[program] = num_processes
        self._is_wanted.set()

    async def _carry_out(self) -> None:
        delay_s = _RETRY_S
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            if await self._tell_all():
                delay_s = _RETRY_S
            else:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _MAX_RETRY_S)
                self._is_wanted.set()

    async def _tell_all(self) -> bool:
        """Tells Serve what has changed. Returns False if it did not take all of it."""
        wanted, self._wanted = self._wanted, {}
        refused = {}
        for program, number in wanted.items():
            try:
                await asyncio.to_thread(_tell, program, number)
            except Exception as error:  # whatever Ray raises, or the controller
                _log.warning("scaling_refused", program=program, num_processes=number, error=text_of(error).splitlines()[-1])
                refused[program] = number
        self._wanted = refused | self._wanted
        return not refused


def _tell(program: str, num_processes: int) -> None:
    import ray
    from ray.serve._private.common import DeploymentID
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    ray.get(controller.update_deployment_replicas.remote(DeploymentID(name=program, app_name=program), num_processes))
