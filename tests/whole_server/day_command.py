"""Runs hours of virtual time: ``python -m tests.whole_server.day_command [--hours 24] [--rate 0.2] [--seed 1]``."""

from tests.whole_server import patches

if __name__ == "__main__":
    patches.install()  # before anything of `dyorc` is imported
    from tests.whole_server.day import main

    main()
