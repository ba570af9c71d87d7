"""A replica in a process of its own, without Ray.

``python -m tests.integration.replica_process TARGET PROGRAM ADDRESS REPLICA_ID``
"""

import sys
import threading

from dyorc.authoring.loading import load_program
from dyorc.replica.worker import Worker
from tests.integration.stack import FAST_LINK


def main(target: str, name: str, address: str, replica_id: str) -> None:
    """Runs until the process is ended."""
    worker = Worker(lambda: load_program(target, name), name, address, replica_id, "here", FAST_LINK)
    worker.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
