# pyright: basic
# Ray ships no complete types.
"""The guarded example's programs behind Ray Serve's autoscaler, composed the way Ray Serve itself offers. Imported by
`ray_serve_server.py` and by the replicas.

Programs and flow are those of the table's workload, and so are the deployments, with the settings in Ray Serve's favour that
`benchmarks/peers/ray_serve/app.py` explains. The ingress has one replica, which stays, and which also tells how many replicas the
programs have.
"""

from __future__ import annotations

import asyncio
import json
import os

from ray import serve
from ray.serve import Application
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from benchmarks.focused.scaling_live.settings import MAX_REPLICAS, MIN_REPLICAS, OPTIONS_VARIABLE, REPLICAS_PATH
from benchmarks.peers.ray_serve.app import Batched, WorkloadIngress
from benchmarks.workloads import workload

_NAME = "guarded"
_MAX_ONGOING_REQUESTS = 1000


def build_application() -> Application:
    """Returns ingress and programs."""
    options = {"min_replicas": MIN_REPLICAS, "max_replicas": MAX_REPLICAS} | json.loads(os.environ[OPTIONS_VARIABLE])
    programs = {
        program: Batched.options(name=program, autoscaling_config=options).bind(_NAME, program)
        for program in workload(_NAME).programs
    }
    ingress = serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)(ScaledIngress)
    return ingress.options(name="ingress").bind(_NAME, programs)


class ScaledIngress(WorkloadIngress):
    """Also answers at `REPLICAS_PATH`, with each program's replicas by Ray Serve's states."""

    async def __call__(self, request: Request) -> Response:
        if request.scope["path"] == REPLICAS_PATH:
            return JSONResponse(await asyncio.to_thread(_replicas))
        return await super().__call__(request)


def _replicas() -> dict[str, dict[str, int]]:
    programs = workload(_NAME).programs
    return {
        name: {str(getattr(state, "value", state)): number for state, number in about.replica_states.items()}
        for application in serve.status().applications.values()
        for name, about in application.deployments.items()
        if name in programs
    }
