# pyright: basic
# Ray Serve's decorators lose the types of what they decorate.
"""A workload composed the way Ray Serve itself offers: an HTTP ingress deployment that runs the flow, and a deployment for each
program, called through its handle. Imported by the server and by the replicas.

Settings chosen in Ray Serve's favour, beyond its defaults (see `server.py` for the modes, and for what was tried):

* bytes in and out of HTTP: no JSON, no FastAPI; no access log;
* `pickle` between the deployments where they talk by gRPC, instead of `cloudpickle`;
* `max_ongoing_requests` far above the number of requests in flight; its default of 5 would also cap the batches at 5;
* the chain's tensors never reach the ingress: it hands responses on unawaited, and by reference, so that they stay in Ray's
  object store. By value, as in the throughput mode, they would have to pass through the ingress, and cannot: Serve's gRPC client
      accepts no response above 4 MiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from ray import serve
from ray.exceptions import RayTaskError
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response

from benchmarks import wire
from benchmarks.peers.ray_serve.batcher import WorkConservingBatcher
from benchmarks.workloads import workload
from benchmarks.workloads.base import LoadedProgram, Tensors

Arrays = dict[str, np.ndarray[Any, Any]]

PATH = "/infer"

_BATCH_WAIT_S = 0.0
_APART = {"runtime_env": {"env_vars": {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "1"}}}
"""Programs run on a different event loop from the one that accepts requests, as in the default mode anyway."""
_MAX_ONGOING_REQUESTS = 1000
_MAX_ERROR_LENGTH = 500
_NEVER_BATCHED = ("chain",)
"""Programs with rows of 8 MB, where stacking costs more than a batch gains."""


def build_application(name: str, *, has_own_batcher: bool) -> Application:
    """Returns the ingress and the programs of the workload called `name`."""
    load = workload(name)
    programs: dict[str, Application] = {}
    for program, about in load.programs.items():
        is_batched = about.max_batch_size > 1 and name not in _NEVER_BATCHED
        kind = Alone if not is_batched else WorkConserving if has_own_batcher else Batched
        programs[program] = kind.options(name=program, num_replicas=load.replicas.get(program, 1)).bind(name, program)
    return _INGRESSES.get(name, Ingress).options(name="ingress").bind(name, programs)


# ------------------------------------------------------------------------------------------------------------------ programs


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Alone:
    """A program that takes one item at a time. Runs it on the replica's event loop, so that nothing runs beside it."""

    def __init__(self, workload_name: str, program: str) -> None:
        self._program = LoadedProgram(workload(workload_name), program)

    async def __call__(self, item: Arrays) -> Arrays:
        return self._program.run_items([item])[0]


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS, ray_actor_options=_APART)
class Batched:
    """A program that Ray Serve batches.

    The program runs on its event loop, which stands still meanwhile, and so does the batch's timer: whatever arrives during that
    time forms the next batch. On a thread, `@serve.batch` would close small batches while the program runs.
    """

    def __init__(self, workload_name: str, program: str) -> None:
        self._program = LoadedProgram(workload(workload_name), program)
        self.__call__.set_max_batch_size(self._program.program.max_batch_size)  # pyright: ignore[reportAttributeAccessIssue]

    @serve.batch(batch_wait_timeout_s=_BATCH_WAIT_S)
    async def __call__(self, items: list[Arrays]) -> list[Arrays]:
        return self._program.run_items(items)


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class WorkConserving:
    """A program that takes everything that is waiting as soon as it is free. It runs on a thread, so that requests can arrive
    meanwhile."""

    def __init__(self, workload_name: str, program: str) -> None:
        self._program = LoadedProgram(workload(workload_name), program)
        self._thread = ThreadPoolExecutor(1)
        self._batcher = WorkConservingBatcher(self._run, self._program.program.max_batch_size)

    async def __call__(self, item: Arrays) -> Arrays:
        return await self._batcher.submit(item)

    async def _run(self, items: list[Arrays]) -> list[Arrays]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._program.run_items, items)


# ------------------------------------------------------------------------------------------------------------------- ingress


class WorkloadIngress:
    """A POST to `PATH` with a body of `benchmarks.wire` runs the flow. A malformed body is a 400, a program's error a 500."""

    def __init__(self, workload_name: str, programs: dict[str, DeploymentHandle]) -> None:
        self._flow = workload(workload_name).flow
        self._programs = {
            name: handle.options(request_serialization="pickle", response_serialization="pickle")
            for name, handle in programs.items()
        }

    async def __call__(self, request: Request) -> Response:
        if request.scope["path"] != PATH:
            return Response(f"there is only {PATH}", 404)
        try:
            inputs = wire.unpack(await request.body())
        except ValueError as error:
            return Response(str(error), 400)
        try:
            return Response(wire.pack(await self._answer(inputs)))
        except Exception as error:
            return Response(_text(error), 500)

    async def _answer(self, inputs: Tensors) -> Arrays:
        answer, _ = await self._flow(self._call, inputs)
        return answer

    def _call(self, program: str, /, **inputs: np.ndarray[Any, Any]) -> Awaitable[Arrays]:
        return self._programs[program].remote(inputs)


class _ChainIngress(WorkloadIngress):
    """The chain's flow, which passes tensors by reference from program to program."""

    def __init__(self, workload_name: str, programs: dict[str, DeploymentHandle]) -> None:
        super().__init__(workload_name, {name: handle.options(_by_reference=True) for name, handle in programs.items()})

    async def _answer(self, inputs: Tensors) -> Arrays:
        made = self._programs["make"].remote(inputs)
        return await self._programs["total"].remote(self._programs["shift"].remote(made))


Ingress = serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)(WorkloadIngress)
ChainIngress = serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)(_ChainIngress)
_INGRESSES = {"chain": ChainIngress}
"""Workloads whose composition differs from the generic one."""


def _text(error: Exception) -> str:
    cause = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(cause).__name__}: {cause}"[:_MAX_ERROR_LENGTH]
