# pyright: basic
# Ray Serve's decorators lose the types of what they decorate.
"""The streams benchmark's stages, composed the way Ray Serve itself offers: handles with ``stream=True``, one process per stage.

A stream cannot be handed to another deployment (ray#57098), so each stage calls the one before it. The last stage is the HTTP
ingress itself, which spares a hop. Settings chosen in Ray Serve's favour, beyond its defaults: parts are bytes, written to HTTP
as they are; coroutines only; no access log; `max_ongoing_requests` far above the number of clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import StreamingResponse

from benchmarks.focused.streams.work import ITEM_BYTES, make_items, pass_on
from dyorc.protocol.media_types import FRAME_LENGTHS

_MAX_ONGOING_REQUESTS = 1000
_HEAD = FRAME_LENGTHS.pack(0, ITEM_BYTES)


def build_application() -> Application:
    """The three deployments, one replica each."""
    return Third.bind(Second.bind(First.bind()))


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class First:
    """Makes parts."""

    async def __call__(self, plan: bytes) -> AsyncIterator[bytes]:
        async for item in make_items(np.frombuffer(plan, np.int64)):
            yield item.tobytes()


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Second:
    """Passes parts on."""

    def __init__(self, before: DeploymentHandle) -> None:
        self.before = before.options(stream=True)

    async def __call__(self, plan: bytes) -> AsyncIterator[bytes]:
        async for part in self.before.remote(plan):  # pyright: ignore[reportGeneralTypeIssues]
            yield pass_on(np.frombuffer(part, np.int64)).tobytes()


@serve.deployment(max_ongoing_requests=_MAX_ONGOING_REQUESTS)
class Third:
    """Passes parts on to HTTP, as frames."""

    def __init__(self, before: DeploymentHandle) -> None:
        self.before = before.options(stream=True)

    async def __call__(self, request: Request) -> StreamingResponse:
        return StreamingResponse(self._frames(await request.body()))

    async def _frames(self, plan: bytes) -> AsyncIterator[bytes]:
        async for part in self.before.remote(plan):  # pyright: ignore[reportGeneralTypeIssues]
            yield _HEAD + pass_on(np.frombuffer(part, np.int64)).tobytes()
