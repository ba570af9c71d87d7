"""`dyorc`'s command line on a machine where Ray's first attempts to start fail: its GCS runs, its raylet never comes.

python -m tests.e2e.ray_that_fails NUM_FAILURES serve ...
"""
# pyright: basic
# Ray ships no complete types.

import sys
from typing import Any

from dyorc.cli.main import main
from dyorc.ray_serve.local_ray import LocalRay


def _fail_at_first(num_failures: int) -> None:
    start: Any = LocalRay._start
    failures = iter(range(num_failures))

    def start_with_failures(self: LocalRay) -> None:
        from ray._private.node import Node  # here, since Ray reads its environment when it is imported

        start_processes = Node.start_ray_processes

        def fail_or_start(node: Any) -> None:
            for _ in failures:
                raise Exception("The current node timed out during startup. This could happen because it was told to.")
            start_processes(node)

        Node.start_ray_processes = fail_or_start
        try:
            start(self)
        finally:
            Node.start_ray_processes = start_processes

    LocalRay._start = start_with_failures


if __name__ == "__main__":
    _fail_at_first(int(sys.argv.pop(1)))
    main()
