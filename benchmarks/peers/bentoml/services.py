# pyright: basic, reportAttributeAccessIssue=false, reportMissingImports=false
"""The services. BentoML imports this module in each of its processes. It reads annotations, so they must not be strings here."""

import math
from typing import Annotated, Any

import bentoml
from bentoml.validators import ContentType

from benchmarks import wire
from benchmarks.devices.program import device_time
from benchmarks.peers.child import PATH, served_workload
from benchmarks.workloads import workload
from benchmarks.workloads.base import LoadedProgram

_MAX_LATENCY_MS = 10_000
_MAX_ON_LOOP_S = 0.01
_WORKLOAD = workload(served_workload())
_QUIET: dict[str, Any] = {"metrics": {"enabled": False}, "logging": {"access": {"enabled": False}}}
_Body = Annotated[bytes, ContentType("application/octet-stream")]


def _service(name: str) -> Any:
    """A service for one program. It takes and returns lists of items, which BentoML joins into batches."""
    size = _WORKLOAD.programs[name].max_batch_size
    batching: dict[str, Any] = {"batchable": True, "max_batch_size": size, "max_latency_ms": _MAX_LATENCY_MS} if size > 1 else {}

    class OneProgram:
        def __init__(self) -> None:
            self._program = LoadedProgram(_WORKLOAD, name)

        if _is_long(name):

            @bentoml.api(**batching)
            def run(self, items: list[Any]) -> list[Any]:
                return self._program.run_items(items)
        else:

            @bentoml.api(**batching)
            async def run(self, items: list[Any]) -> list[Any]:
                return self._program.run_items(items)

    OneProgram.__name__ = f"program_{name}"
    return bentoml.service(OneProgram, workers=_WORKLOAD.replicas.get(name, 1), **_QUIET)


def _is_long(program: str) -> bool:
    """Whether a program waits so long for its accelerator that it must not stop the service's event loop."""
    time = device_time(program)
    return time is not None and time.batch_s(1) > _MAX_ON_LOOP_S


class Flow:
    """Takes a request through the flow; calls go to the programs' services."""

    def __init__(self) -> None:
        self._clients = {name: getattr(self, _attribute(name)).to_async for name in _WORKLOAD.programs}
        for client in self._clients.values():
            # See server.py: otherwise requests in flight fail.
            client._session_manager.max_requests = client._session_manager.max_age = math.inf

    @bentoml.api(route=PATH)
    async def infer(self, body: _Body, /) -> _Body:
        """Returns the answer to a request, both in the layout of `benchmarks.wire`."""
        answer, _ = await _WORKLOAD.flow(self._call, wire.unpack(body))
        return wire.pack(answer)

    async def _call(self, program: str, /, **inputs: Any) -> Any:
        return (await self._clients[program].run(items=[inputs]))[0]


def _attribute(program: str) -> str:
    return f"on_{program}"


for _name in _WORKLOAD.programs:
    setattr(Flow, _attribute(_name), bentoml.depends(_service(_name)))
front = bentoml.service(Flow, workers=1, **_QUIET)
