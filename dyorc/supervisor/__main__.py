"""The supervisor's process: `python -m dyorc.supervisor DESCRIPTOR`. The command line replaces itself with it (exec), which frees
the memory of all that the command line had imported."""

import sys

from dyorc.system.interrupts import end_by_signals_at_start


def main() -> int:
    """Runs the supervisor. Returns the exit code. Signals end the process, with a line, until the supervisor handles them."""
    end_by_signals_at_start()
    from dyorc.supervisor.supervising import supervise  # here, because that takes a moment

    return supervise(int(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
