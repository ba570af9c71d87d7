"""`python -m tests.pages PAGE...`: runs the pages' blocks, each page in a new folder.

A page that starts servers takes the ports that it shows, so run it in a network namespace: tests/e2e/test_pages.py.
"""

import sys
import tempfile
from pathlib import Path

from tests.pages.commands import PageError
from tests.pages.page_run import run_page


def main() -> int:
    """Returns 1 if a block does not do what its page says."""
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            work.mkdir()
            try:
                print(f"{name}: {run_page(Path(name).resolve(), work)} blocks")
            except PageError as error:
                print(error, file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
