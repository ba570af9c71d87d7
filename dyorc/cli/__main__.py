"""The command ``dyorc``, also as ``python -m dyorc.cli``. Imports the commands where Ctrl-C is caught: that takes a moment."""

import sys

from dyorc.system.interrupts import end_interrupted
from dyorc.version import DISTRIBUTION


def main() -> None:
    """Runs the command line. Says what is missing if a library is, which may be one that prints errors."""
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
