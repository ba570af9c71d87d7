"""`dyorc` with a fault that it once had: ``python -m tests.storm.mistaken_server NAME serve ...``.

Only real processes and a real Ray show these; see [the simulation](docs/testing/simulation.md), "Faults of before".
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dyorc.ray_serve import forked_replicas, serve_replicas
from dyorc.server import stop_signals

MODULE = "tests.storm.mistaken_server"
MISTAKES: dict[str, Callable[[], None]] = {}
"""By name, what makes the mistake in this process."""
_FOR_EVER_S = 1e9
_HELD_S, _LOOK_S = 3.0, 1.0
"""It was 60 s, and a busy machine needed longer until Serve had started."""


def _mistake(make: Callable[[], None]) -> Callable[[], None]:
    MISTAKES[make.__name__] = make
    return make


@_mistake
def handler_of_ray() -> None:
    """Ray handles SIGTERM as a crash: it aborts the process (decision 0070)."""
    os.environ["RAY_DISABLE_FAILURE_SIGNAL_HANDLER"] = "0"
    signals: Any = stop_signals
    signals._AGAIN_S = _FOR_EVER_S


@_mistake
def hasty_release() -> None:
    """Processes that were forked ahead are let go a while after their start, adopted or not (decision 0070)."""
    forks: Any = forked_replicas.ForkedReplicas
    serve: Any = serve_replicas
    serve._RELEASE_S = _LOOK_S

    def release_surplus(self: Any, complete: Any) -> None:
        now_s = self._clock()
        for handle, held in list(self._held.items()):
            if now_s - held.since_s >= _HELD_S:
                self._release(handle)

    forks.release_surplus = release_surplus


def with_mistake(command: Sequence[str], mistake: str) -> list[str]:
    """Returns a command of `dyorc` that makes a mistake; the same command without one."""
    if not mistake:
        return list(command)
    return [sys.executable, "-m", MODULE, mistake, *command[command.index("dyorc.cli.main") + 1 :]]


def main() -> None:
    """Makes the mistake, and runs the command."""
    from dyorc.cli.main import main as run_command

    MISTAKES[sys.argv[1]]()
    sys.argv = ["dyorc", *sys.argv[2:]]
    run_command()


if __name__ == "__main__":
    main()
