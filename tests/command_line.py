"""What the commands of `tests` have in common: options, and how they end early."""

import signal
import sys

INTERRUPTED = 130
"""The exit status after Ctrl-C, as of any command."""
_TERMINATED = 128 + signal.SIGTERM


def positive(text: str) -> int:
    """Returns a whole number above 0, for argparse.

    Raises:
        ValueError: If the text is none; argparse then names the option.
    """
    if (number := int(text)) < 1:
        raise ValueError(f"{number}, expected a whole number above 0")
    return number


def end_at_sigterm() -> None:
    """Lets SIGTERM raise `SystemExit`, so that what was started ends too, and nothing is left behind."""

    def end(*_: object) -> None:
        sys.exit(_TERMINATED)

    signal.signal(signal.SIGTERM, end)
