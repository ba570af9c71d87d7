"""A closed-loop HTTP load client that costs little, in a process of its own.

Started by `main.py`, the same way for every system, and by other benchmarks. It shares the machine's few cores with the server it
measures, so the loop does the least that can be done in Python: one thread, blocking on one epoll over plain sockets, requests
laid out beforehand, answers kept and checked after the clock has stopped. About 10 us per request, the kernel's part included.

Every answer is checked. A status other than 200, a closed connection, a malformed or a wrong answer, a warm-up one included,
ends the process with an error and no figures.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import select
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_HEAD_END = b"\r\n\r\n"
_RECEIVE_BYTES = 65536
_ANSWER_TIMEOUT_S = 10.0

# the tensors' types, as the Open Inference Protocol names them
_DATATYPES = {np.dtype(np.float32): "FP32", np.dtype(np.uint8): "UINT8"}

# float32 through one to three layers with sums in another order: seen are differences of 1e-6
_TOLERANCE = 1e-4


class LoadError(Exception):
    """The server closed a connection, did not answer in time, or answered wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send and for how long."""

    host: str
    port: int
    path: str
    protocol: str
    input_name: str
    num_clients: int
    warm_up_s: float
    duration_s: float


@dataclass(slots=True)
class Connection:
    """One closed-loop client: one request is in flight, the one for the pool's entry `index`."""

    socket: socket.socket
    index: int
    sent_at_ns: int = 0
    received: bytes = b""


@dataclass(slots=True)
class Record:
    """What came back, in the order of arrival: `indexes[i]` says which pool entry `bodies[i]` answers."""

    indexes: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    latencies_ns: list[int] = field(default_factory=list)
    arrived_at_ns: list[int] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------------------- requests


def build_requests(load: Load, inputs: np.ndarray) -> list[bytes]:
    """Whole HTTP requests, one per row of `inputs`."""
    build = {"raw": _raw_body, "oip": _oip_body}[load.protocol]
    return [_post(load, *build(load.input_name, x)) for x in inputs]


def _raw_body(_: str, x: np.ndarray) -> tuple[dict[str, str], bytes]:
    return {"Content-Type": "application/octet-stream"}, x.tobytes()


def _oip_body(name: str, x: np.ndarray) -> tuple[dict[str, str], bytes]:
    """Open Inference Protocol v2 with the binary tensor extension, as Triton's own client sends it."""
    raw = x.tobytes()
    parameters = {"binary_data_size": len(raw)}
    tensor = {"name": name, "shape": list(x.shape), "datatype": _DATATYPES[x.dtype], "parameters": parameters}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}, separators=(",", ":")).encode()
    return {"Inference-Header-Content-Length": str(len(header))}, header + raw


def _post(load: Load, headers: dict[str, str], body: bytes) -> bytes:
    lines = [f"POST {load.path} HTTP/1.1", f"Host: {load.host}:{load.port}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + _HEAD_END + body


# ---------------------------------------------------------------------------------------------------------------- answers


def parse_response(data: bytes) -> bytes | None:
    """The body of the one response in `data`, or None while it is incomplete.

    Raises:
        LoadError: the status is not 200, or the body has no length.
    """
    head_end = data.find(_HEAD_END)
    if head_end < 0:
        return None
    head = data[:head_end].lower()
    start = head_end + len(_HEAD_END)
    if not head.startswith(b"http/1.1 200"):
        raise LoadError(f"not a 200 answer: {data[:1000]!r}")
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        line_end = head.find(b"\r\n", at + 2)
        end = start + int(head[at + 17 : line_end if line_end >= 0 else head_end])
        return data[start:end] if len(data) >= end else None
    if b"\r\ntransfer-encoding: chunked" in head:
        return _parse_chunks(data, start)
    raise LoadError(f"an answer without a length: {data[:1000]!r}")


def _parse_chunks(data: bytes, at: int) -> bytes | None:
    chunks: list[bytes] = []
    while (line_end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:line_end].split(b";")[0], 16)
        at = line_end + 2
        if len(data) < at + size + 2:
            return None
        if size == 0:
            return b"".join(chunks)
        chunks.append(data[at : at + size])
        at += size + 2
    return None


def check_answers(protocol: str, record: Record, answers: np.ndarray) -> None:
    """Compares every kept answer with its reference; whole numbers have to be equal.

    Raises:
        LoadError: an answer has the wrong form, size or values; says how many and shows the first.
    """
    num_bytes = answers[0].nbytes
    datatype = _DATATYPES[answers.dtype]
    tensors = [_oip_tensor(body, datatype) if protocol == "oip" else body for body in record.bodies]
    if any(len(tensor) != num_bytes for tensor in tensors):
        raise LoadError(f"an answer is not {num_bytes} bytes long")
    got = np.frombuffer(b"".join(tensors), answers.dtype).reshape(len(tensors), -1)
    wrong = np.flatnonzero(~(np.abs(got - answers[record.indexes]) <= _TOLERANCE).all(axis=1))
    if wrong.size:
        i = int(wrong[0])
        raise LoadError(
            f"{wrong.size} of {len(tensors)} answers are wrong; the first: {got[i]}, not {answers[record.indexes[i]]}"
        )


def _oip_tensor(body: bytes, datatype: str) -> bytes:
    # latin-1 keeps one character per byte, so the end of the JSON text is an offset into the body
    header, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    (output,) = header["outputs"]
    if output["datatype"] != datatype or output["parameters"]["binary_data_size"] != len(body) - end:
        raise LoadError(f"an answer of another form: {header}, then {len(body) - end} bytes")
    return body[end:]


# ---------------------------------------------------------------------------------------------------------------- the loop


def run_load(load: Load, requests: Sequence[bytes]) -> tuple[Record, int]:
    """Keeps `num_clients` requests in flight until the time is over, then waits for the last answers.

    Returns:
        All answers, those of the warm-up included, and the monotonic time in ns at which the warm-up ended.
    """
    connections = _connect(load, len(requests))
    measured_from_ns = time.monotonic_ns() + int(load.warm_up_s * 1e9)
    stop_at_ns = measured_from_ns + int(load.duration_s * 1e9)
    record = Record()
    num_in_flight = len(connections)
    gc.disable()
    try:
        with select.epoll() as poll:
            for fd in connections:
                poll.register(fd, select.EPOLLIN)
            for connection in connections.values():
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
                        num_in_flight -= 1
                    else:
                        _send(connection, requests)
    finally:
        for connection in connections.values():
            connection.socket.close()
    return record, measured_from_ns


def _connect(load: Load, num_requests: int) -> dict[int, Connection]:
    connections: dict[int, Connection] = {}
    for i in range(load.num_clients):
        opened = socket.create_connection((load.host, load.port), timeout=_ANSWER_TIMEOUT_S)
        opened.settimeout(None)  # with a timeout, Python would poll before every call
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # each client starts elsewhere in the pool, so that a batch is never one input many times
        connections[opened.fileno()] = Connection(opened, i * num_requests // load.num_clients)
    return connections


def _send(connection: Connection, requests: Sequence[bytes]) -> None:
    connection.index = (connection.index + 1) % len(requests)
    connection.received = b""
    connection.sent_at_ns = time.monotonic_ns()
    connection.socket.sendall(requests[connection.index])


def _receive(connection: Connection, record: Record) -> bool:
    """Takes what has come in; says whether the answer is complete."""
    data = connection.socket.recv(_RECEIVE_BYTES)
    if not data:
        raise LoadError(f"the server closed a connection after {connection.received[:1000]!r}")
    connection.received += data
    body = parse_response(connection.received)
    if body is None:
        return False
    now_ns = time.monotonic_ns()
    record.indexes.append(connection.index)
    record.bodies.append(body)
    record.latencies_ns.append(now_ns - connection.sent_at_ns)
    record.arrived_at_ns.append(now_ns)
    return True


# ---------------------------------------------------------------------------------------------------------------- figures


def summarize(load: Load, record: Record, measured_from_ns: int) -> dict[str, float]:
    """Latencies and rate of the answers that arrived in the measured time."""
    until_ns = measured_from_ns + int(load.duration_s * 1e9)
    arrivals = zip(record.latencies_ns, record.arrived_at_ns, strict=True)
    latencies_ms = sorted(latency_ns / 1e6 for latency_ns, at_ns in arrivals if measured_from_ns <= at_ns < until_ns)
    if not latencies_ms:
        raise LoadError("no answer arrived between the warm-up and the end")
    return {
        "p50_ms": round(_percentile(latencies_ms, 0.50), 3),
        "p99_ms": round(_percentile(latencies_ms, 0.99), 3),
        "rps": round(len(latencies_ms) / load.duration_s, 1),
    }


def _percentile(ordered: Sequence[float], ratio: float) -> float:
    return ordered[max(0, math.ceil(ratio * len(ordered)) - 1)]


def main() -> None:
    """Runs one measurement and prints its figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/")
    parser.add_argument("--protocol", choices=["raw", "oip"], required=True)
    parser.add_argument("--input-name", default="x", help="the one input's name in the Open Inference Protocol")
    parser.add_argument("--num-clients", type=int, default=1)
    parser.add_argument("--warm-up-s", type=float, default=1.5)
    parser.add_argument("--duration-s", type=float, default=4.0)
    parser.add_argument("--pool", type=Path, required=True, help="an .npz file with the arrays `inputs` and `answers`")
    arguments = vars(parser.parse_args())
    with np.load(arguments.pop("pool")) as pool:
        inputs, answers = pool["inputs"], pool["answers"]
    load = Load(**arguments)
    try:
        record, measured_from_ns = run_load(load, build_requests(load, inputs))
        check_answers(load.protocol, record, answers)
        figures = summarize(load, record, measured_from_ns)
    except (LoadError, OSError) as error:
        sys.exit(f"client.py: {error}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
