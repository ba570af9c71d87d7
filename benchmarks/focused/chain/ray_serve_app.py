# pyright: basic
# Ray Serve's decorators lose the types of what they decorate.
"""The chain benchmark's programs, composed the way Ray Serve itself offers: an HTTP ingress deployment that hands each
deployment's response to the next, unawaited, so that by default the tensors stay in Ray's object store and never reach it.

Imported by `ray_serve_server.py` and by the replicas. Settings chosen in Ray Serve's favour, beyond its defaults:

* the deployments take and return NumPy arrays, which Ray reads in place from the object store;
* handles call `_by_reference`, as they do anyway in the default mode. By value, as in the throughput mode, the tensors would have
  to pass through the ingress, and cannot: Serve's gRPC client accepts no response above 4 MiB;
* raw bytes in and out of HTTP, coroutines only, no access log, `max_ongoing_requests` far above the number of clients;
* no `@serve.batch`: the programs gain nothing from batches, and putting rows of 8 MB together costs a copy. With batches of up
  to four and 4 clients, three trials gave a quarter to two fifths fewer requests per second than without, one a seventh more.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from benchmarks.focused.chain.work import make, ramp, shift, total

Array = NDArray[np.float32]

_MAX_ONGOING_REQUESTS = 1000


def build_application() -> Application:
    """The four deployments, one replica each."""
    return Ingress.bind(Make.bind(), Shift.bind(), Total.bind())


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Make:
    """Expands a seed to 8 MB."""

    def __init__(self) -> None:
        self.ramp = ramp()

    async def __call__(self, seed: Array) -> Array:
        return make(self.ramp, _tensor(seed))[0].numpy()


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Shift:
    """Turns 8 MB into 8 MB."""

    async def __call__(self, x: Array) -> Array:
        return shift(_tensor(x))[0].numpy()


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Total:
    """Reduces 8 MB to four values."""

    async def __call__(self, x: Array) -> Array:
        return total(_tensor(x))[0].numpy()


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Ingress:
    """POST / with one float32 answers with four."""

    def __init__(self, make_values: DeploymentHandle, shift_values: DeploymentHandle, total_values: DeploymentHandle) -> None:
        self.make = make_values.options(_by_reference=True)
        self.shift = shift_values.options(_by_reference=True)
        self.total = total_values.options(_by_reference=True)

    async def __call__(self, request: Request) -> Response:
        seed = np.frombuffer(await request.body(), np.float32)
        values = await self.total.remote(self.shift.remote(self.make.remote(seed)))
        return Response(values.tobytes())


def _tensor(row: Array) -> Tensor:
    """Returns a batch of one, without a copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns because arrays in the store are read-only; nobody writes to them
        return torch.from_numpy(row)[None]
