"""The supervisor's process: `python -m dyorc.supervisor DESCRIPTOR`. The command line replaces itself with it (exec), which frees
the memory of all that the command line had imported."""

import sys

from dyorc.system.interrupts import end_interrupted


def main() -> int:
    """Runs the supervisor. Returns the exit code. Ctrl-C ends the process by the signal until the supervisor handles it."""
    try:
        from dyorc.supervisor.supervising import supervise

        return supervise(int(sys.argv[1]))
    except KeyboardInterrupt:
        end_interrupted()


if __name__ == "__main__":
    sys.exit(main())
