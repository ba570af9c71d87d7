# pyright: basic
# Generated messages and stubs have no types.
"""While a large request over gRPC is copied or converted, others are answered."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.system.thread_offload import ThreadOffload
from tests import oip_grpc
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.integration.test_tensor_path import wait_until_empty
from tests.workflows import arithmetic

T = TypeVar("T")

NUMBERS = np.arange(500_000, dtype=np.float32)
SMALL = np.arange(4, dtype=np.float32)
PATIENCE_S = 30.0
"""A test that would wait for ever fails after this time."""


@dyorc.program(max_batch_size=1)
def ends(numbers: Float[np.ndarray, "batch 500000"]) -> Float[np.ndarray, "batch 2"]:
    return numbers[:, [0, -1]]


@dyorc.workflow
async def both_ends(numbers: Float[np.ndarray, "500000"]) -> Float[np.ndarray, "2"]:
    return ends(numbers)


class GatedOffLoop(ThreadOffload):
    """Does nothing until the test says so."""

    def __init__(self) -> None:
        super().__init__("gated")
        self.is_open = threading.Event()
        self.num_begun = 0

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        def gated() -> T:
            self.num_begun += 1
            assert self.is_open.wait(PATIENCE_S)
            return function(*arguments)

        return await super().run(gated)


def gated(stack: Stack) -> GatedOffLoop:
    """Replaces what the stack uses from now on."""
    stack.service.off_loop.close()
    stack.service.off_loop = found = GatedOffLoop()
    return found


async def ask(stub: Any, num_requests: int) -> None:
    """Sends small requests."""
    for _ in range(num_requests):
        answer = await stub.ModelInfer(oip_grpc.request("quadruple", {"x": SMALL}))
        np.testing.assert_array_equal(oip_grpc.outputs_of(answer)["output"], SMALL * 4)


@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
@pytest.mark.parametrize("is_streamed", [False, True], ids=["unary", "stream"])
async def test_small_requests_are_answered_while_a_large_one_is_read(typed: bool, is_streamed: bool) -> None:
    large = oip_grpc.request("both_ends", {"numbers": NUMBERS}, typed=typed)
    async with running([both_ends, arithmetic.quadruple], grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        gate = gated(stack)
        if is_streamed:
            call = stub.ModelStreamInfer()
            await call.write(large)
        else:
            call = stub.ModelInfer(large)
        await wait_until_async(lambda: gate.num_begun == 1, "the large request is being read")
        await ask(stub, 20)
        gate.is_open.set()
        response = (await call.read()).infer_response if is_streamed else await call
        assert oip_grpc.outputs_of(response)["output"].tolist() == [0, len(NUMBERS) - 1]
        assert gate.num_begun == 1
        call.cancel()


async def test_memory_of_a_cancelled_request_is_freed_when_nobody_writes_there() -> None:
    async with running([both_ends, arithmetic.quadruple], grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        gate = gated(stack)
        call = stub.ModelInfer(oip_grpc.request("both_ends", {"numbers": NUMBERS}))
        await wait_until_async(lambda: gate.num_begun == 1, "the large request is being read")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await ask(stub, 5)
        assert stack.service.admission.num_requests == 1
        assert stack.orchestrator.tensors.exchange.arena.num_blocks == 1
        gate.is_open.set()
        await wait_until_async(lambda: stack.service.admission.num_requests == 0, "the request has ended")
        await wait_until_empty(stack)
