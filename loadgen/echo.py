"""Servers that always give the same answer at once, to find out what the generator itself can do. ``python -m loadgen.echo
http|grpc``.

Prints ``Listening on ADDRESS`` and runs until SIGINT or SIGTERM.
"""

import asyncio
import re
import signal
import sys
from typing import Any, cast

import numpy as np
import uvloop

from dyorc.protocol import header_names, media_types
from dyorc.protocol.api_paths import GRPC_SERVICE

_ANSWER = np.arange(10, dtype=np.float32)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_HEAD = b'{"model_name":"echo","outputs":[{"name":"y","datatype":"FP32","shape":[10],"parameters":{"binary_data_size":40}}]}'
_REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b: %d\r\ncontent-length: %d\r\n\r\n"
    % (media_types.TENSORS.encode(), header_names.JSON_LENGTH.encode(), len(_HEAD), len(_HEAD) + _ANSWER.nbytes)
    + _HEAD
    + _ANSWER.tobytes()
)


class _Http(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(data, 0, end + 2)
            end += 4 + (int(length[1]) if length else 0)
            if len(data) < end:
                break
            data = data[end:]
            self._transport.write(_REPLY)
        self._data = data


async def _serve_http(stop: asyncio.Event) -> None:
    server = await asyncio.get_running_loop().create_server(_Http, "127.0.0.1", 0, backlog=1024)
    async with server:
        print(f"Listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await stop.wait()


async def _serve_grpc(stop: asyncio.Event) -> None:
    import grpc
    import grpc.aio

    from loadgen.targets.grpc import pb

    response: Any = pb.ModelInferResponse(model_name="echo")
    response.outputs.add(name="y", datatype="FP32", shape=_ANSWER.shape)
    response.raw_output_contents.append(_ANSWER.tobytes())
    reply = response.SerializeToString()

    async def infer(request: bytes, context: object) -> bytes:
        return reply

    server = grpc.aio.server()
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(GRPC_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"Listening on 127.0.0.1:{port}", flush=True)
    try:
        await stop.wait()
    finally:
        await server.stop(0)


async def _main() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    await (_serve_grpc if sys.argv[1:] == ["grpc"] else _serve_http)(stop)


if __name__ == "__main__":
    uvloop.run(_main())
