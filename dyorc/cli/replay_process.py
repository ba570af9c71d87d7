"""The process in which ``dyorc replay`` runs a version, which may end it: `python -m dyorc.cli.replay_process ORDER PARENT
DESCRIPTOR`."""

import sys

from dyorc.deployment.code_process import end_with_command


def main() -> None:
    """Replays, and writes the outcome."""
    order, parent, descriptor = sys.argv[1:]
    end_with_command(int(parent))
    import warnings  # here, because Ctrl-C has no effect before

    from dyorc.cli.warning_display import show_warning
    from dyorc.deployment.replay_check import replay_and_exit

    warnings.showwarning = show_warning
    replay_and_exit(order, int(descriptor))


if __name__ == "__main__":
    main()
