# pyright: basic
# Ray Serve's decorators lose the types of what they decorate.
"""Ray Serve with the model in one deployment, which answers whole requests in batches by ``@serve.batch``."""

from __future__ import annotations

import asyncio

from ray import serve
from ray.serve import Application
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.focused.chat.answering import MAX_BATCH_SIZE, answer_texts, load_model


def build_application() -> Application:
    """The only deployment."""
    return Chat.bind()


@serve.deployment(max_ongoing_requests=1000)
class Chat:
    """Answers a batch of questions; the next batch waits for the longest answer."""

    def __init__(self) -> None:
        self.model = load_model()

    @serve.batch(max_batch_size=MAX_BATCH_SIZE, batch_wait_timeout_s=0.001)
    async def answer(self, questions: list[bytes]) -> list[bytes]:
        return await asyncio.to_thread(answer_texts, self.model, questions)

    async def __call__(self, request: Request) -> Response:
        return Response(await self.answer(await request.body()))
