"""A server whose models take part in OpenAI's API, and the official client for it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai

from dyorc.config import GatewayConfig
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, openai_models


@asynccontextmanager
async def openai_server(**options: Any) -> AsyncGenerator[Stack]:
    """Starts one server with replicas of all programs. `options` are settings of the gateway."""
    gateway = GatewayConfig(port=0, drain_timeout_s=1, **options)
    async with running([*openai_models.ALL, arithmetic.sums], gateway=gateway) as started:
        for program in {program.name: program for each in openai_models.ALL for program in each.programs}.values():
            await started.start_worker(program)
        yield started


def openai_client(stack: Stack) -> openai.AsyncOpenAI:
    """Returns a client that does not try again."""
    return openai.AsyncOpenAI(base_url=f"{stack.client.base_url}/v1", api_key="any", max_retries=0)
