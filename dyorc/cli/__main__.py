"""The command ``dyorc``, also as ``python -m dyorc.cli``. Imports the commands where Ctrl-C is caught: that takes a moment."""

from dyorc.system.interrupts import end_interrupted


def main() -> None:
    """Runs the command line."""
    try:
        from dyorc.cli.main import main as run_command

        run_command()
    except KeyboardInterrupt:
        end_interrupted()


if __name__ == "__main__":
    main()
