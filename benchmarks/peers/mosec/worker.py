# pyright: basic, reportAttributeAccessIssue=false, reportMissingImports=false
"""The child: Mosec with one stage."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mosec import Server, Worker

from benchmarks import wire
from benchmarks.peers.child import PATH, num_workers, served_port, served_workload
from benchmarks.workloads import workload
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.lockstep import answer_together

_MAX_BATCH_SIZE = 64
_MAX_WAIT_MS = 1
_TIMEOUT_MS = 30_000
_MAX_WAITING = 16_384
_MAX_REQUEST_BYTES = 64 << 20


class Programs(Worker):
    """All programs of the workload; answers a batch of requests in lockstep."""

    resp_mime_type = "application/octet-stream"

    def __init__(self) -> None:
        super().__init__()
        self._workload = workload(served_workload())
        self._programs = {name: LoadedProgram(self._workload, name) for name in self._workload.programs}
        self._runner = asyncio.Runner()

    def deserialize(self, data: bytes) -> Any:
        return wire.unpack(data)

    def serialize(self, data: Any) -> bytes:
        return wire.pack(data)

    def forward(self, data: list[Any]) -> list[Any]:
        return answer_together(self._workload, self._programs, data, self._runner.run)


def main() -> None:
    """Serves until SIGTERM. Mosec takes most of its settings from the command line."""
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(served_port()), "--log-level", "warning"]
    sys.argv += ["--timeout", str(_TIMEOUT_MS), "--capacity", str(_MAX_WAITING), "--max-request-size", str(_MAX_REQUEST_BYTES)]
    server = Server()
    server.append_worker(Programs, num=num_workers(), max_batch_size=_MAX_BATCH_SIZE, max_wait_time=_MAX_WAIT_MS, route=PATH)
    server.run()


if __name__ == "__main__":
    main()
