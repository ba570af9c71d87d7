"""Runs seeds: `python -m tests.whole_server --help`."""

import ctypes
import os
import sys

_NO_RANDOM_ADDRESSES = 0x0040000
_MARK = "DYORC_WHOLE_SERVER"

if __name__ == "__main__":
    if os.environ.get(_MARK) != "1":
        # Sets are ordered by hashes, and those of objects by addresses.
        ctypes.CDLL(None).personality(_NO_RANDOM_ADDRESSES)
        environment = os.environ | {"PYTHONHASHSEED": "0", _MARK: "1", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.whole_server", *sys.argv[1:]], environment)
    from tests.whole_server import patches

    patches.install()
    from tests.whole_server.command import main

    sys.exit(main(sys.argv[1:]))
