"""One measurement of a server: closed-loop clients over HTTP or gRPC, in a process of its own. Prints its figures as JSON.

    python -m benchmarks.focused.gateway.load --transport grpc --port 8001 --model plus_one --pool pool.npz --num-clients 32

Every client has a connection of its own; the requests are laid out beforehand, and one thread waits for all of them on one epoll.
Every answer is kept, and checked after the clock has stopped: a wrong or missing one ends the process with an error.

Figures: "p50_ms", "p99_ms", "rps", and "client_cpu_ratio", the part of one core that this process used while it measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.focused.gateway.grpc_connection import Call, Connection, GrpcError, message
from benchmarks.focused.overhead.client import Load, LoadError, Record, build_requests, check_answers, run_load, summarize

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_ANSWER_TIMEOUT_S = 10.0


# ------------------------------------------------------------------------------------------------------------------ messages


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(number: int, raw: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(raw)) + raw


def infer_request(model: str, name: str, x: np.ndarray) -> bytes:
    """A ModelInferRequest with one FP32 input in raw_input_contents, as a gRPC client sends it."""
    shape = b"".join(_varint(size) for size in x.shape)
    tensor = _field(1, name.encode()) + _field(2, b"FP32") + _field(3, shape)
    return _field(1, model.encode()) + _field(5, tensor) + _field(7, x.tobytes())


def raw_output(answer: bytes, num_bytes: int) -> bytes:
    """The one raw output of a ModelInferResponse, whose last field it is.

    Raises:
        LoadError: If there is none of that size.
    """
    tag = b"\x32" + _varint(num_bytes)
    if not answer[:-num_bytes].endswith(tag):
        raise LoadError(f"an answer without {num_bytes} bytes of output: {answer[:200]!r}")
    return answer[-num_bytes:]


# ---------------------------------------------------------------------------------------------------------------------- loop


def run_grpc_load(load: Load, requests: Sequence[bytes]) -> tuple[Record, int]:
    """As `run_load` of the HTTP client, over HTTP/2.

    Raises:
        LoadError: If an answer does not come in time.
        GrpcError: If the server ends a call or a connection.
    """
    measured_from_ns = time.monotonic_ns() + int(load.warm_up_s * 1e9)
    stop_at_ns = measured_from_ns + int(load.duration_s * 1e9)
    record = Record()
    connections = _connect(load, len(requests))
    num_in_flight = len(connections)
    gc.disable()
    try:
        with select.epoll() as poll:
            for fd, connection in connections.items():
                poll.register(fd, select.EPOLLIN)
                _send(connection, requests)
            while num_in_flight:
                ready = poll.poll(_ANSWER_TIMEOUT_S)
                if not ready:
                    raise LoadError(f"{num_in_flight} requests had no answer in {_ANSWER_TIMEOUT_S:.0f} s")
                is_over = time.monotonic_ns() >= stop_at_ns
                for fd, _ in ready:
                    connection = connections[fd]
                    if not _receive(connection, record):
                        continue
                    if is_over:
                        poll.unregister(fd)  # a ping may still come
                        num_in_flight -= 1
                    else:
                        _send(connection, requests)
    finally:
        gc.enable()
        for connection in connections.values():
            connection.socket.close()
    return record, measured_from_ns


def _connect(load: Load, num_requests: int) -> dict[int, Connection]:
    call = Call.of(f"{load.host}:{load.port}", _METHOD)
    connections: dict[int, Connection] = {}
    for i in range(load.num_clients):
        opened = socket.create_connection((load.host, load.port), timeout=_ANSWER_TIMEOUT_S)
        opened.settimeout(None)  # with a timeout, Python would poll before every call
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(opened, call)
        connection.index = i * num_requests // load.num_clients
        connections[opened.fileno()] = connection
    return connections


def _send(connection: Connection, requests: Sequence[bytes]) -> None:
    connection.index = (connection.index + 1) % len(requests)
    connection.sent_at_ns = time.monotonic_ns()
    connection.send(requests[connection.index])


def _receive(connection: Connection, record: Record) -> bool:
    answer = connection.receive()
    if answer is None:
        return False
    now_ns = time.monotonic_ns()
    record.indexes.append(connection.index)
    record.bodies.append(answer)
    record.latencies_ns.append(now_ns - connection.sent_at_ns)
    record.arrived_at_ns.append(now_ns)
    return True


# -------------------------------------------------------------------------------------------------------------------- figures


def measure(transport: str, load: Load, model: str, inputs: np.ndarray, answers: np.ndarray) -> dict[str, float]:
    """Runs the clients, checks what they got, and gives the figures."""
    if transport == "grpc":
        requests = [message(infer_request(model, load.input_name, x)) for x in inputs]
        run = run_grpc_load
    else:
        requests = build_requests(load, inputs)
        run = run_load
    started_s, used_s = time.perf_counter(), time.process_time()
    record, measured_from_ns = run(load, requests)
    cpu_ratio = (time.process_time() - used_s) / (time.perf_counter() - started_s)
    if transport == "grpc":
        record.bodies[:] = [raw_output(body, answers[0].nbytes) for body in record.bodies]
    check_answers(load.protocol, record, answers)
    return summarize(load, record, measured_from_ns) | {"client_cpu_ratio": round(cpu_ratio, 3)}


def main() -> None:
    """Runs one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["http", "grpc"], required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input-name", default="x")
    parser.add_argument("--num-clients", type=int, default=1)
    parser.add_argument("--warm-up-s", type=float, default=1.0)
    parser.add_argument("--duration-s", type=float, default=3.0)
    parser.add_argument("--pool", type=Path, required=True, help="an .npz file with the arrays `inputs` and `answers`")
    parser.add_argument("--has-batch-dim", action="store_true", help="send [1, ...], as servers want it that batch dim 0")
    arguments = parser.parse_args()
    with np.load(arguments.pool) as pool:
        inputs, answers = pool["inputs"], pool["answers"]
    if arguments.has_batch_dim:
        inputs = inputs[:, np.newaxis]
    load = Load(
        host=arguments.host,
        port=arguments.port,
        path=f"/v2/models/{arguments.model}/infer",
        protocol="raw" if arguments.transport == "grpc" else "oip",
        input_name=arguments.input_name,
        num_clients=arguments.num_clients,
        warm_up_s=arguments.warm_up_s,
        duration_s=arguments.duration_s,
    )
    try:
        figures = measure(arguments.transport, load, arguments.model, inputs, answers)
    except (LoadError, GrpcError, OSError) as error:
        sys.exit(f"load.py: {error}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
