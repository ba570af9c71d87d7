"""gRPC on connections of our own: what they do with clients that do not speak HTTP/2, and when grpcio answers in their place.

The tests of the protocol run over both (`grpc_servers.py`).
"""

import asyncio
import contextlib
import sys
from typing import Any, cast

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import GatewayConfig
from dyorc.errors import MissingLibraryError
from dyorc.gateway.grpc.grpc_server import GrpcServer
from dyorc.server.request_pipeline import grpc_server
from tests import oip_grpc
from tests.deadlines import TIMEOUT_S
from tests.integration.grpc_servers import GRPC_SERVERS
from tests.integration.stack import running
from tests.workflows import arithmetic

_OWN = GatewayConfig(port=0, drain_timeout_s=1, grpc_server="nghttp2")
_NO_SERVICE = cast(Any, None)


def test_with_a_certificate_grpcio_answers() -> None:
    config = _OWN.model_copy(update={"tls_certificate_file": "chain.pem", "tls_key_file": "key.pem"})
    assert isinstance(grpc_server(_NO_SERVICE, config), GrpcServer)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ngh2", None)
    with pytest.raises(MissingLibraryError, match=r"gateway.grpc_server needs ngh2.*'dyorc-core\[nghttp\]'; or set it to grpcio"):
        grpc_server(_NO_SERVICE, _OWN)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00"], ids=["nothing", "http1", "tls"]
)
async def test_who_does_not_speak_http2_is_disconnected(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    http2_server = pytest.importorskip("dyorc.gateway.grpc.http2_server")
    monkeypatch.setattr(http2_server, "_GREETING_S", TIMEOUT_S if sent else 0.05)
    async with running([arithmetic.quadruple], gateway=_OWN, grpc=True) as stack:
        host, _, port = stack.grpc_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while await reader.read(4096):
                    pass
            except ConnectionResetError:
                pass
        writer.close()
        async with oip_grpc.connected(stack.grpc_address) as stub:  # others are served
            answer = oip_grpc.outputs_of(await stub.ModelInfer(oip_grpc.request("quadruple", {"x": np.ones(4, np.float32)})))
    np.testing.assert_array_equal(answer["output"], np.full(4, 4, np.float32))


async def test_too_much_metadata_fails_its_own_call_alone() -> None:
    pytest.importorskip("dyorc.gateway.grpc.http2_server")
    async with running([arithmetic.quadruple], gateway=_OWN, grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        request = oip_grpc.request("quadruple", {"x": np.ones(4, np.float32)})
        error = await oip_grpc.refused(stub.ModelInfer(request, metadata=(("x-much", "a" * 20_000),)))
        assert error.status == "RESOURCE_EXHAUSTED"  # a connection that ends is UNAVAILABLE
        assert "expected at most 16384" in error.text
        np.testing.assert_array_equal(oip_grpc.outputs_of(await stub.ModelInfer(request))["output"], np.full(4, 4, np.float32))


async def test_a_flood_of_window_updates_is_cut_off() -> None:
    pytest.importorskip("dyorc.gateway.grpc.http2_server")
    async with running([arithmetic.quadruple], gateway=_OWN, grpc=True) as stack:
        host, _, port = stack.grpc_address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        update = bytes([0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1])
        with contextlib.suppress(ConnectionError):  # as soon as it is cut off
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    writer.write(1000 * update)
                    await writer.drain()
        writer.close()
        async with oip_grpc.connected(stack.grpc_address) as stub:
            answer = oip_grpc.outputs_of(await stub.ModelInfer(oip_grpc.request("quadruple", {"x": np.ones(4, np.float32)})))
    np.testing.assert_array_equal(answer["output"], np.full(4, 4, np.float32))


@dyorc.program
def grow(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 100000"]:
    """Returns much."""
    return np.repeat(x, 25_000, axis=1)


@dyorc.workflow
async def large(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "100000"]:
    """Answers with 400 kB."""
    return grow(x)


class _Deaf:
    """A client that opens its windows only when it is asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ngh2 = pytest.importorskip("ngh2")
        self._http2 = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration(auto_window_update=False))
        self._http2.initiate_connection({})
        self._data_received = ngh2.DataReceived
        self._reader, self._writer = reader, writer

    def ask(self) -> None:
        message = oip_grpc.request("large", {"x": np.ones(4, np.float32)}).SerializeToString()
        path = (oip_grpc.METHOD + "ModelInfer").encode()
        headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a")]
        stream = self._http2.send_request([*headers, (b"content-type", b"application/grpc"), (b"te", b"trailers")])
        self._http2.send_data(stream, b"\0" + len(message).to_bytes(4) + message, end_stream=True)
        self._writer.write(self._http2.data_to_send())

    async def read(self, *, opens_window: bool) -> int:
        """Returns how many bytes of answers came; 0 once the server has ended the connection."""
        while data := await self._reader.read(2**16):
            self._http2.receive_data(data)
            chunks = [event for event in self._http2.events() if isinstance(event, self._data_received)]
            for chunk in chunks if opens_window else []:
                self._http2.acknowledge_received_data(len(chunk.data), chunk.stream_id)
            self._writer.write(self._http2.data_to_send())
            if chunks:
                return sum(len(chunk.data) for chunk in chunks)
        return 0


async def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    pytest.importorskip("dyorc.gateway.grpc.http2_server")
    config = _OWN.model_copy(update={"write_timeout_s": 0.2, "min_bytes_per_s": 1000})
    async with running([large], gateway=config, grpc=True) as stack, asyncio.timeout(TIMEOUT_S):
        host, _, port = stack.grpc_address.rpartition(":")
        (deaf_reader, deaf_writer), (reader, writer) = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        deaf, patient = _Deaf(deaf_reader, deaf_writer), _Deaf(reader, writer)
        patient.ask()
        num_read = 0
        while num_read < 400_000:
            num_read += await patient.read(opens_window=True)
        deaf.ask()
        with contextlib.suppress(ConnectionError):
            while await deaf.read(opens_window=False):
                pass
        patient.ask()  # it has been idle for longer than the deaf one
        assert await patient.read(opens_window=True) > 0
        for one in (deaf_writer, writer):
            one.close()


_GOOD = {
    b":method": b"POST", b":scheme": b"http", b":path": b"/inference.GRPCInferenceService/ServerLive", b":authority": b"x",
    b"content-type": b"application/grpc", b"te": b"trailers",
}  # fmt: skip
_LIVE = {":status": "200", "grpc-status": "0"}
_RESET = {"reset": 2}


def _unread(name: str) -> dict[str, object]:
    return {":status": "200", "grpc-status": "13", "grpc-message": f"Error parsing '{name}' metadata"}


@pytest.mark.parametrize("server", GRPC_SERVERS)
async def test_odd_headers_are_answered_as_grpcio_answers_them(server: str) -> None:
    """Each on a connection of its own."""
    pytest.importorskip("ngh2")
    timeouts = [(b"grpc-timeout", value, _unread("grpc-timeout")) for value in (b"", b"1", b"S", b"1x", b"-1S", b"1.5S", b"1s")]
    methods = [(b":method", value, _unread(":method")) for value in (b"HEAD", b"post")]
    cases: list[tuple[bytes, bytes | None, dict[str, object]]] = [
        (b"te", b"trailers", _LIVE), *((b"grpc-timeout", value, _LIVE) for value in (b"9S", b"9 S", b"123456789S")),
        *timeouts, *methods, (b":method", b"GET", _RESET), (b":method", b"PUT", _RESET), (b"te", None, _RESET),
    ]  # fmt: skip
    config = _OWN.model_copy(update={"grpc_server": server})
    async with running([arithmetic.quadruple], gateway=config, grpc=True) as stack:
        for name, value, expected in cases:
            headers = {key: each for key, each in (_GOOD | {name: value}).items() if each is not None}
            assert await _answer_to(stack.grpc_address, headers) == expected, (name, value)


async def _answer_to(address: str, headers: dict[bytes, bytes]) -> dict[str, object]:
    """Calls a method with an empty message, and returns what comes of it."""
    import ngh2  # pyright: ignore[reportMissingImports]

    http2: Any = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
    http2.initiate_connection({})
    http2.send_data(http2.send_request(list(headers.items())), bytes(5), end_stream=True)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answer: dict[str, object] = {}
    is_over = False
    async with asyncio.timeout(TIMEOUT_S):
        while not is_over:
            writer.write(http2.data_to_send())
            http2.receive_data(await reader.read(65536))
            for event in http2.events():
                match event:
                    case ngh2.ResponseReceived() | ngh2.TrailersReceived():
                        fields = {name.decode(): value.decode() for name, value in event.headers}
                        answer |= {name: fields[name] for name in (":status", "grpc-status", "grpc-message") if fields.get(name)}
                    case ngh2.StreamReset() if event.error_code:
                        answer["reset"] = event.error_code
                    case ngh2.StreamClosed():
                        is_over = True
                    case _:
                        pass
    writer.close()
    return answer


async def test_clients_that_connect_at_once_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio lets 100 wait; with more, the kernel drops what they send, and they try again after a second."""
    pytest.importorskip("dyorc.gateway.grpc.http2_server")
    loop = asyncio.get_running_loop()
    listening: list[dict[str, Any]] = []
    create_server = loop.create_server

    async def create(*args: Any, **options: Any) -> asyncio.Server:
        listening.append(options)
        return await create_server(*args, **options)

    monkeypatch.setattr(loop, "create_server", create)
    async with running([arithmetic.quadruple], gateway=_OWN, grpc=True):
        assert [options.get("backlog") for options in listening] == [4096, 4096]  # of HTTP and gRPC
