# pyright: reportAttributeAccessIssue=false
# Generated messages have no types.
"""A client in a separate process that sends one request: with the product's client, by gRPC, or by a bare socket into one
buffer.

    python -m benchmarks.focused.answers.reader {client,async_client,raw,text,sent,grpc,grpc_sent} URL GRPC_ADDRESS

The last line is the time from the request's first byte to the answer's last, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from urllib.parse import urlsplit

import grpc
import numpy as np

from benchmarks.focused.answers.served import NUM_LARGE
from dyorc.client import AsyncClient, Client
from dyorc.protocol import inference_pb2
from dyorc.protocol.api_paths import grpc_path

_SEED = np.array([3], np.float32)
_TIMEOUT_S = 300.0


def main() -> None:
    """Reads and prints."""
    kind, url, grpc_address = sys.argv[1:]
    match kind:
        case "client":
            duration_s = _by_client(url)
        case "async_client":
            duration_s = asyncio.run(_by_async_client(url))
        case "raw":
            duration_s = _by_socket(url, "large", is_raw=True)
        case "sent":
            duration_s = _sent(url)
        case "grpc":
            duration_s = _by_grpc(grpc_address, "large", "seed", _SEED)
        case "grpc_sent":
            duration_s = _by_grpc(grpc_address, "taken", "numbers", _numbers())
        case _:
            duration_s = _by_socket(url, "text", is_raw=False)
    print(duration_s)


def _by_client(url: str) -> float:
    with Client(url, timeout_s=_TIMEOUT_S) as client:
        client.metadata("large")
        start_s = time.perf_counter()
        outputs = client.infer("large", seed=_SEED)
        duration_s = time.perf_counter() - start_s
    assert outputs[0] == outputs[-1] == _SEED[0]
    return duration_s


async def _by_async_client(url: str) -> float:
    async with AsyncClient(url, timeout_s=_TIMEOUT_S) as client:
        await client.metadata("large")
        start_s = time.perf_counter()
        outputs = await client.infer("large", seed=_SEED)
        duration_s = time.perf_counter() - start_s
    assert outputs[0] == outputs[-1] == _SEED[0]
    return duration_s


def _numbers() -> np.ndarray:
    return np.full(NUM_LARGE, _SEED[0])


def _sent(url: str) -> float:
    numbers = _numbers()
    with Client(url, timeout_s=_TIMEOUT_S) as client:
        client.metadata("taken")
        start_s = time.perf_counter()
        outputs = client.infer("taken", numbers=numbers)
        duration_s = time.perf_counter() - start_s
    assert outputs[0] == _SEED[0]
    return duration_s


def _by_grpc(address: str, model: str, name: str, array: np.ndarray) -> float:
    request = inference_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name=name, datatype="FP32", shape=array.shape)
    request.raw_input_contents.append(array.tobytes())
    message = request.SerializeToString()
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=limits) as channel:
        grpc.channel_ready_future(channel).result(_TIMEOUT_S)
        infer = channel.unary_unary(grpc_path("ModelInfer"))
        start_s = time.perf_counter()
        answer = infer(message, timeout=_TIMEOUT_S)
        duration_s = time.perf_counter() - start_s
    response = inference_pb2.ModelInferResponse.FromString(answer)
    assert np.frombuffer(response.raw_output_contents[0], np.float32)[-1] == _SEED[0]
    return duration_s


def _by_socket(url: str, model: str, *, is_raw: bool) -> float:
    """Reads as fast as possible: the body goes straight into memory of its length."""
    place = urlsplit(url)
    request = {
        "inputs": [{"name": "seed", "datatype": "FP32", "shape": [1], "data": _SEED.tolist()}],
        "parameters": {"binary_data_output": is_raw},
    }
    body = json.dumps(request).encode()
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    start_s = time.perf_counter()
    with socket.create_connection((place.hostname or "", place.port or 80), _TIMEOUT_S) as connection:
        connection.sendall(head.encode() + body)
        came = b""
        while b"\r\n\r\n" not in came:
            came += connection.recv(4096)
        lines, _, rest = came.partition(b"\r\n\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines.split(b"\r\n")[1:])}
        assert lines.startswith(b"HTTP/1.1 200"), lines
        view = np.empty(int(fields[b"content-length"]), np.uint8).data
        view[: len(rest)] = rest
        at = len(rest)
        connection.settimeout(None)  # otherwise nothing could wait for all of it
        while at < len(view):
            num_bytes = connection.recv_into(view[at:], 0, socket.MSG_WAITALL)
            assert num_bytes, "the server closed the connection in the middle of its answer"
            at += num_bytes
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
