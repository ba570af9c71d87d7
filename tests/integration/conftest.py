"""Every integration test runs on asyncio and is checked for what it leaves behind."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc.aio
import pytest
import torch
import uvloop
import zmq

from dyorc.store.base import Store
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.leaks import no_leaks
from tests.redis_server import RedisServer

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.anyio)


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Names the event loop: asyncio's, or that of `dyorc serve` in a module with ``USES_UVLOOP = True``. Its transports differ.

    One is made beforehand: the first of a process opens a pipe that it keeps, which is no leak of a test.
    """
    uses_uvloop: bool = getattr(request.module, "USES_UVLOOP", False)
    if uses_uvloop:
        uvloop.new_event_loop().close()
    return "asyncio", {"use_uvloop": uses_uvloop}


@pytest.fixture(scope="session")
def zero_copy() -> None:
    """Starts the thread that pyzmq keeps for good once a message was sent without copying, so that it does not count as a
    leak.
    """
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://zero-copy")
        other.connect("inproc://zero-copy")
        one.send(bytes(1 << 17), copy=False)
        other.recv()


async def _init_grpc() -> None:
    grpc.aio.init_grpc_aio()


@pytest.fixture(scope="session")
def grpc_threads() -> Iterator[None]:
    """Starts the threads that gRPC keeps as long as any of its objects is alive, and keeps them, so that they do not count as
    a leak.

    pytest holds on to a test's fixtures, so objects that were closed may live on for some time. The channel that is kept open
    holds the threads that all channels and servers of the process share.
    """
    with asyncio.Runner() as runner:  # it wants a loop, and another test may have left none
        runner.run(_init_grpc())
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        with contextlib.suppress(grpc.RpcError):
            channel.unary_unary("/nobody/listens")(b"")
        yield


@pytest.fixture(scope="module")
def one_torch_thread() -> None:
    """Has torch compute in one thread, no matter what other modules have set: its pool of others would outlive the tests."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(anyio_backend: object, zero_copy: None, grpc_threads: None, one_torch_thread: None) -> Iterator[None]:
    """Checks that the module as a whole leaves nothing behind. Set up first, so that it looks after all else has been torn
    down.
    """
    with no_leaks():
        yield


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    """Runs a real Redis, which the tests of a module share."""
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same store every time it is called, on SQLite or on Redis."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "jobs.sqlite")
    server: RedisServer = request.getfixturevalue("redis_server")
    prefix = f"{{{secrets.token_hex(4)}}}:"
    return lambda: RedisStore(server.url, prefix)
