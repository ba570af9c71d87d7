"""Connects to an existing Ray cluster and to Serve on it, and runs the steps that Ray needs with retries.

Connecting takes seconds, most of them for imports, and needs no lead: a standby orchestrator connects ahead.
"""

import asyncio
import socket
import time
from collections.abc import Callable

import structlog

from dyorc.config import Settings
from dyorc.errors import LaunchError, bounded, text_of
from dyorc.telemetry import logs

_MAX_ATTEMPTS = 20
_RETRY_S = 0.25


def connect(settings: Settings) -> None:
    """Connects, unless this process is connected. Blocking."""
    import ray
    from ray import serve
    from ray.exceptions import ActorAlreadyExistsError

    if not ray.is_initialized():
        logs.adopt_ray()
        ray.init(
            address=settings.deployment.ray_address,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address=socket.gethostbyname(settings.link.host),
        )
    for num_left in reversed(range(_MAX_ATTEMPTS)):
        try:
            serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
        except ActorAlreadyExistsError:  # another orchestrator has just started it: now it is found
            if not num_left:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def disconnect() -> None:
    """Ends the connection; the cluster stays."""
    import ray

    if ray.is_initialized():
        ray.shutdown()


_log = structlog.get_logger("dyorc.launcher")

_MAX_CHARACTERS = 300


async def start_with_retry(name: str, step: Callable[[], object], undo: Callable[[], object], max_attempts: int = 2) -> None:
    """Runs `step` on a thread, and again if it raises: Ray's processes have fixed timeouts, which a busy machine may exceed.

    Args:
        name: What is started, for people.
        undo: Reverts what an attempt may have done that failed, or was given up.

    Raises:
        LaunchError: If the last attempt fails; one line, with the exception as its cause.
    """
    for number in range(1, max_attempts + 1):
        try:
            await on_thread(step)
            return
        except asyncio.CancelledError:
            await on_thread(undo)  # nobody wants what it has started, and after a failure nobody else knows of it
            raise
        except Exception as error:
            await on_thread(undo)
            reason = _in_one_line(error)
            if number == max_attempts:
                times = "" if max_attempts == 1 else f", tried {max_attempts} times"
                raise LaunchError(f"{name} could not be started{times}: {reason}") from error
            _log.warning("start_failed", what=name, error=reason, attempt=number)


async def on_thread(step: Callable[[], object]) -> None:
    """Runs a step on a thread. If this is cancelled, it still waits for the step, since threads cannot be ended: a step that
    calls Serve after Ray has ended would start another Ray.
    """
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()  # nobody waits for it now; unread, it would be logged as lost
        raise


def _in_one_line(error: Exception) -> str:
    """Returns an error's text in one line; Ray's texts fill pages and quote log files."""
    text = " ".join(text_of(error).split())
    return bounded(f"{type(error).__name__}: {text}", _MAX_CHARACTERS)
