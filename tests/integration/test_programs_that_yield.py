# pyright: basic
# Generated messages and stubs have no types.
"""Token streams of a real server whose program waits for an engine: many at once, slow clients, and ends of all kinds."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyorc.client import AsyncClient
from dyorc.errors import DeadlineError
from dyorc.testing import ServerProcess, serve_command
from tests import oip_grpc
from tests.deadlines import TIMEOUT_S

_MODULE = Path(__file__).parents[1] / "workflows" / "llm_engine.py"
_NUM_TOGETHER = 64
_LONG = 100_000
"""Words of an answer that does not end by itself."""


def _start(log: Path) -> ServerProcess:
    command = serve_command(f"{_MODULE}:chat", f"{_MODULE}:state", in_process=True)
    return ServerProcess(command, environment={"TALKING_LOG": str(log), "DYORC_GATEWAY__DRAIN_TIMEOUT_S": "1"})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the file where programs note that they were closed."""
    return tmp_path_factory.mktemp("talking") / "log"


@pytest.fixture(scope="module")
def server(log: Path) -> Any:
    """Starts one server for this module."""
    with _start(log) as found:
        found.wait_until_ready(TIMEOUT_S)
        yield found


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[AsyncClient]:
    """Returns a client of the server, and checks that nothing runs at the end."""
    async with AsyncClient(server.url) as found:
        yield found
        await _until(found, lambda state: state["running"] == 0)


async def _state(client: AsyncClient) -> dict[str, int]:
    numbers = await client.infer("state", x=np.array(0))
    return dict(zip(("running", "aborted", "finished", "together"), map(int, numbers), strict=True))


async def _until(client: AsyncClient, holds: Any) -> dict[str, int]:
    """Waits until the engine's state is as it should be."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if holds(state := await _state(client)):
                return state


def _chat(client: AsyncClient, prompt: str, num_words: int, **options: Any) -> Any:
    return client.stream("chat", prompt=np.array(prompt.encode(), object), num_words=np.array(num_words), **options)


def _num_closed(log: Path) -> int:
    return log.read_text().count("closed")


def _text(pieces: list[Any]) -> str:
    return b"".join([piece.item() for piece in pieces]).decode()


async def test_text_comes_in_parts_over_http(client: AsyncClient) -> None:
    pieces = [piece async for piece in _chat(client, "a", 5)]
    assert pieces == [b"a0", b" a1", b" a2", b" a3", b" a4"]


async def test_text_comes_in_parts_over_grpc(server: ServerProcess) -> None:
    async with oip_grpc.connected(server.grpc_address) as stub:
        call = stub.ModelStreamInfer()
        inputs = {"prompt": np.array(b"b", object), "num_words": np.array(3)}
        await call.write(oip_grpc.request("chat", inputs))
        await call.done_writing()
        answers = [oip_grpc.outputs_of(answer.infer_response) async for answer in call]
        pieces = [output["output"].item() for output in answers if output]
    assert pieces == [b"b0", b" b1", b" b2"]


async def test_64_streams_run_together_in_the_engine(client: AsyncClient) -> None:
    async def read(number: int) -> list[Any]:
        return [piece async for piece in _chat(client, f"{number}-", 40)]

    answers = await asyncio.gather(*[read(number) for number in range(_NUM_TOGETHER)])
    for number, pieces in enumerate(answers):
        assert _text(pieces) == " ".join(f"{number}-{word}" for word in range(40))
    assert (await _state(client))["together"] > _NUM_TOGETHER // 2


async def test_clients_that_leave_in_the_middle_abort_their_requests_in_the_engine(client: AsyncClient, log: Path) -> None:
    before, num_closed = await _state(client), _num_closed(log)
    streams = [_chat(client, "c", _LONG) for _ in range(_NUM_TOGETHER)]
    for first in await asyncio.gather(*[anext(stream) for stream in streams]):
        assert first == b"c0"
    await asyncio.gather(*[stream.aclose() for stream in streams])
    after = await _until(client, lambda state: state["running"] == 0)
    assert after["aborted"] - before["aborted"] == _NUM_TOGETHER
    assert _num_closed(log) - num_closed == _NUM_TOGETHER


async def test_a_slow_client_slows_nothing_but_its_own_stream(client: AsyncClient) -> None:
    slow = _chat(client, "d", _LONG)
    assert await anext(slow) == b"d0"
    pieces = [piece async for piece in _chat(client, "e", 30)]
    assert len(pieces) == 30
    assert (await _state(client))["running"] == 1
    await slow.aclose()


async def test_a_deadline_in_the_middle_ends_the_stream_after_the_parts_before(client: AsyncClient) -> None:
    before = await _state(client)
    pieces: list[Any] = []
    with pytest.raises(DeadlineError):
        await _read_into(pieces, _chat(client, "f", _LONG, timeout_s=1.0))
    assert pieces[0] == b"f0"
    assert (await _until(client, lambda state: state["running"] == 0))["aborted"] == before["aborted"] + 1


async def _read_into(pieces: list[Any], stream: Any) -> None:
    async for piece in stream:
        pieces.append(piece)


async def test_a_server_that_stops_in_the_middle_closes_what_runs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with _start(log) as server:
        server.wait_until_ready(TIMEOUT_S)
        async with AsyncClient(server.url) as client:
            stream = _chat(client, "g", _LONG)
            assert await anext(stream) == b"g0"
            await asyncio.to_thread(server.stop)
            await stream.aclose()
    assert log.read_text() == "closed\n"


_CODE = """
from collections.abc import AsyncIterator
import numpy as np
from jaxtyping import Int
import asyncio
import dyorc

@dyorc.program(batched=False, max_ongoing=8)
async def words(num: Int[np.ndarray, ""]) -> AsyncIterator[Int[np.ndarray, ""]]:
    for at in range(int(num)):
        await asyncio.sleep(0.01)
        yield np.array({first} + at)

@dyorc.workflow
async def speak(num: Int[np.ndarray, ""]) -> AsyncIterator[Int[np.ndarray, ""]]:
    async for word in words(num):
        yield word
"""


async def test_streams_of_the_old_version_end_as_they_should_while_a_new_one_goes_live(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(_CODE.format(first=0))
    environment = {"DYORC_STORE": f"sqlite://{tmp_path}/store.sqlite"}
    with ServerProcess(serve_command(f"{app}:speak", in_process=True), environment=environment) as server:
        server.wait_until_ready(TIMEOUT_S)
        async with AsyncClient(server.url, timeout_s=TIMEOUT_S) as client:
            streams = [client.stream("speak", num=np.array(300)) for _ in range(4)]
            for stream in streams:
                assert int(await anext(stream)) == 0
            app.write_text(_CODE.format(first=1000))
            await client.deploy(f"{app}:speak")
            assert [int(word) async for word in client.stream("speak", num=np.array(3))] == [1000, 1001, 1002]
            for stream in streams:
                assert [int(word) async for word in stream] == list(range(1, 300))
