# pyright: basic, reportAttributeAccessIssue=false, reportMissingImports=false
"""The child: LitServe with one LitAPI. FastAPI reads annotations, so they must not be strings here."""

import asyncio
from typing import Annotated, Any

import litserve
from fastapi import Depends, Request, Response

from benchmarks import wire
from benchmarks.peers.child import PATH, num_workers, served_port, served_workload
from benchmarks.workloads import workload
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.lockstep import answer_together

_MAX_BATCH_SIZE = 64
_BATCH_TIMEOUT_S = 0.001


async def _body(request: Request) -> bytes:
    return await request.body()


class Programs(litserve.LitAPI):
    """All programs of the workload; answers a batch of requests in lockstep."""

    def setup(self, device: str) -> None:
        self._workload = workload(served_workload())
        self._programs = {name: LoadedProgram(self._workload, name) for name in self._workload.programs}
        self._runner = asyncio.Runner()

    def decode_request(self, request: Annotated[bytes, Depends(_body)]) -> Any:
        return wire.unpack(request)

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, x: list[Any]) -> list[Any]:
        return answer_together(self._workload, self._programs, x, self._runner.run)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> Response:
        return Response(wire.pack(output), media_type="application/octet-stream")


def main() -> None:
    """Serves until SIGINT."""
    api = Programs(max_batch_size=_MAX_BATCH_SIZE, batch_timeout=_BATCH_TIMEOUT_S, api_path=PATH)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=num_workers())
    server.run(
        host="127.0.0.1",
        port=served_port(),
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )


if __name__ == "__main__":
    main()
