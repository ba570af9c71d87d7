"""The supervisor's process: `python -m dyorc.supervision DESCRIPTOR`. The command line becomes it by exec, so that what it had to
import is gone from memory."""

import sys

from dyorc.supervision.plan import Plan
from dyorc.supervision.supervisor import run

if __name__ == "__main__":
    sys.exit(run(Plan.from_file(int(sys.argv[1]))))
