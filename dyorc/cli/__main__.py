"""``python -m dyorc.cli``: the command line where the script ``dyorc`` is not installed."""

from dyorc.cli.main import main

main()
