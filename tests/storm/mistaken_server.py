"""`dyorc` with a fault that it once had: ``python -m tests.storm.mistaken_server NAME serve ...``.

For faults that only real processes and a real Ray show; docs/testing/simulation.md lists them.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dyorc.server import stop_signals

MODULE = "tests.storm.mistaken_server"
MISTAKES: dict[str, Callable[[], None]] = {}
"""By name, what makes the mistake in this process."""
_FOR_EVER_S = 1e9


def _mistake(make: Callable[[], None]) -> Callable[[], None]:
    MISTAKES[make.__name__] = make
    return make


@_mistake
def handler_of_ray() -> None:
    """Ray handles SIGTERM as a crash: it aborts the process (decision 0070)."""
    os.environ["RAY_DISABLE_FAILURE_SIGNAL_HANDLER"] = "0"
    signals: Any = stop_signals
    signals._AGAIN_S = _FOR_EVER_S


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
