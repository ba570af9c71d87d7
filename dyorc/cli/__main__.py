"""The command ``dyorc``, also as ``python -m dyorc.cli``. Imports the commands where signals are handled: that takes a moment."""

import sys

from dyorc.system.interrupts import end_by_signals_at_start, end_interrupted
from dyorc.version import DISTRIBUTION

_SERVERS = frozenset({"serve", "dev", "gateway", "orchestrator"})
"""Commands that run until a signal stops them."""


def main() -> None:
    """Runs the command line. Says what is missing if a library is, which may be one that prints errors."""
    if _SERVERS.intersection(sys.argv[1:2]):
        end_by_signals_at_start()
    try:
        from dyorc.cli.main import main as run_command

        run_command()
    except KeyboardInterrupt:
        end_interrupted()
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", "dyorc", "loadgen"):
            raise
        cure = f"pip install --force-reinstall {DISTRIBUTION}"
        sys.exit(f"dyorc: the library {library}, which {DISTRIBUTION} needs, is not installed as a whole: {cure}")


if __name__ == "__main__":
    main()
