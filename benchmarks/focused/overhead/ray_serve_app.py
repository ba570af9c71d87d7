# pyright: basic
# Ray Serve's decorators lose the types of what they decorate.
"""The overhead benchmark's cascade, composed the way Ray Serve itself offers: an HTTP ingress deployment that calls two
deployments through their handles, both of them batching with `@serve.batch`.

Imported by `ray_serve_server.py` and by the replicas. Settings chosen in Ray Serve's favour, beyond its defaults, each after a
trial:

* raw bytes in and out of HTTP: no JSON, no FastAPI;
* bytes between the deployments as well, with `pickle`: about a tenth more requests per second at 32 clients than with NumPy
  arrays and Serve's own choice, `cloudpickle` (in the throughput mode; in the default mode Ray serializes, alike for both);
* coroutines only, which run the networks where they are: a plain method goes through a thread pool, and the networks take less
  time than that;
* `max_ongoing_requests` far above the number of clients; its default of 5 would also cap the batches at 5;
* no access log, in both modes;
* `batch_wait_timeout_s` set for each load: see `_BATCH_WAIT_TIMEOUT_S` in `__main__.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response
from torch import nn

from benchmarks.focused.overhead.nets import MAX_BATCH_SIZE, build_large, build_small, is_done

BATCH_WAIT_PATH = "/batch-wait-timeout-s"

_MAX_ONGOING_REQUESTS = 1000


def build_application() -> Application:
    """The three deployments, one replica each."""
    return Ingress.bind(Small.bind(), Large.bind())


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Small:
    """The cheap first stage."""

    def __init__(self) -> None:
        self.net = build_small()

    @serve.batch(max_batch_size=MAX_BATCH_SIZE, batch_wait_timeout_s=0.0)
    async def __call__(self, xs: list[bytes]) -> list[bytes]:
        return _run(self.net, xs)

    async def set_batch_wait(self, timeout_s: float) -> None:
        self.__call__.set_batch_wait_timeout_s(timeout_s)  # pyright: ignore[reportAttributeAccessIssue]


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Large:
    """The second stage, for the inputs the first could not settle."""

    def __init__(self) -> None:
        self.net = build_large()

    @serve.batch(max_batch_size=MAX_BATCH_SIZE, batch_wait_timeout_s=0.0)
    async def __call__(self, xs: list[bytes]) -> list[bytes]:
        return _run(self.net, xs)

    async def set_batch_wait(self, timeout_s: float) -> None:
        self.__call__.set_batch_wait_timeout_s(timeout_s)  # pyright: ignore[reportAttributeAccessIssue]


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Ingress:
    """POST / with 256 float32 answers with 16; POST to `BATCH_WAIT_PATH` sets the batch wait of both stages."""

    def __init__(self, small: DeploymentHandle, large: DeploymentHandle) -> None:
        self.small = small.options(request_serialization="pickle", response_serialization="pickle")
        self.large = large.options(request_serialization="pickle", response_serialization="pickle")

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        if request.scope["path"] == BATCH_WAIT_PATH:
            for stage in (self.small, self.large):
                await stage.set_batch_wait.remote(float(body))
            return Response()
        y = await self.small.remote(body)
        if not is_done(np.frombuffer(y, np.float32)):
            y = await self.large.remote(body)
        return Response(y)


@torch.inference_mode()
def _run(net: nn.Module, xs: list[bytes]) -> list[bytes]:
    batch = torch.frombuffer(bytearray(b"".join(xs)), dtype=torch.float32).reshape(len(xs), -1)
    return [y.tobytes() for y in net(batch).numpy()]
