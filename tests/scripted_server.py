"""An HTTP server on a real socket that does what a test says, if need be byte by byte: it plays every server a client must be
ready for.

It shares no code with DyOrc's server, and keeps connections open as that does.
"""

import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests import oip

STREAM = "application/vnd.dyorc.stream"


@dataclass(frozen=True)
class Received:
    """A request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def head(self) -> dict[str, Any]:
        """The JSON of an inference request."""
        return json.loads(self.body[: int(self.headers[oip.LENGTH_HEADER.lower()])])


Script: TypeAlias = Callable[[Received, socket.socket], bool]
"""Answers a request; tells whether the connection stays open."""


@dataclass
class ScriptedServer:
    """What was asked, and what is answered: for each path, its scripts in order, the last one over and over."""

    url: str = ""
    received: list[Received] = field(default_factory=list[Received])
    scripts: dict[str, list[Script]] = field(default_factory=dict[str, list[Script]])

    def on(self, path: str, *scripts: Script) -> None:
        """Sets the answers of a path."""
        self.scripts[path] = list(scripts)

    def paths(self) -> list[str]:
        """Returns the paths that were asked for, in order."""
        return [request.path for request in self.received]

    def next_script(self, request: Received) -> Script:
        self.received.append(request)
        scripts = self.scripts.get(request.path.partition("?")[0], [error(404, "Not Found", "http")])
        return scripts.pop(0) if len(scripts) > 1 else scripts[0]


@contextmanager
def scripted_server(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """Serves on a free port until the end."""
    script = ScriptedServer()
    open_sockets: set[socket.socket] = set()

    class Handler(socketserver.StreamRequestHandler):
        def setup(self) -> None:
            if tls is not None:
                self.request = tls.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
                self._shake_hands(self.request)
            super().setup()

        def _shake_hands(self, connection: ssl.SSLSocket) -> None:
            try:
                connection.do_handshake()
            except OSError:
                with connection, suppress(OSError):
                    while socket.socket.recv(connection, 4096):  # closed with bytes unread, the client might miss why
                        pass
                raise

        def finish(self) -> None:
            super().finish()
            self.connection.close()  # the one with TLS is another than the server's

        def handle(self) -> None:
            open_sockets.add(self.connection)
            with suppress(OSError):
                while (request := _read(self.rfile)) is not None and script.next_script(request)(request, self.connection):
                    pass
            open_sockets.discard(self.connection)

    class Server(socketserver.ThreadingTCPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignores clients that do not trust us, or that we do not trust: tests make such clients."""

    with Server(("127.0.0.1", 0), Handler) as server:
        script.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
            for connection in list(open_sockets):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _read(stream: Any) -> Received | None:
    first = stream.readline()
    if not first:
        return None
    method, path, _ = first.decode().split(" ")
    headers: dict[str, str] = {}
    while (line := stream.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Received(method, path, headers, stream.read(int(headers.get("content-length", 0))))


def raw(content: bytes, *, stays: bool = False) -> Script:
    """Returns a script that sends these bytes, and closes the connection unless it `stays`."""

    def script(request: Received, connection: socket.socket) -> bool:
        connection.sendall(content)
        return stays

    return script


def answer(status: int, body: bytes, headers: Mapping[str, str] = {}) -> Script:
    """Returns a script that sends a correct answer."""
    return raw(_head(status, {"Content-Length": str(len(body)), **headers}) + body, stays=True)


def json_answer(content: Any, status: int = 200) -> Script:
    """Returns a script that sends a correct answer in JSON."""
    return answer(status, json.dumps(content).encode(), {"Content-Type": "application/json"})


def error(status: int, text: str, code: str, retryable: bool = False, headers: Mapping[str, str] = {}) -> Script:
    """Returns a script that sends a correct error."""
    return answer(status, json.dumps({"error": text, "code": code, "retryable": retryable}).encode(), headers)


def outputs(arrays: Mapping[str, oip.Array], **fields: Any) -> Script:
    """Returns a script that sends an inference's answer in binary form."""
    head, body = binary_answer(arrays, **fields)
    return answer(200, head + body, {oip.LENGTH_HEADER: str(len(head)), "Content-Type": "application/octet-stream"})


def binary_answer(arrays: Mapping[str, oip.Array], **fields: Any) -> tuple[bytes, bytes]:
    """Returns JSON and raw bytes of an inference's answer."""
    tensors = [oip.binary_tensor(name, array) for name, array in arrays.items()]
    head = json.dumps({"model_name": "m", "model_version": "1", "outputs": [head for head, _ in tensors], **fields})
    return head.encode(), b"".join(body for _, body in tensors)


def frame(head: bytes, rest: bytes = b"") -> bytes:
    """Returns a frame of a stream."""
    return len(head).to_bytes(4, "little") + len(rest).to_bytes(4, "little") + head + rest


def chunked(pieces: list[bytes], headers: Mapping[str, str] = {}, *, is_complete: bool = True) -> Script:
    """Returns a script that sends an answer without a length, in chunks, and cuts it off after them unless it `is_complete`."""
    head = _head(200, {"Transfer-Encoding": "chunked", "Content-Type": STREAM, **headers})
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return raw(head + body + (b"0\r\n\r\n" if is_complete else b""), stays=is_complete)


def close(request: Received, connection: socket.socket) -> bool:
    """Closes the connection without an answer."""
    return False


def silence(request: Received, connection: socket.socket) -> bool:
    """Says nothing until the client goes away."""
    connection.recv(1)
    return False


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def metadata(
    inputs: Mapping[str, tuple[str, list[int]]], outputs: Mapping[str, tuple[str, list[int]]], **fields: Any
) -> dict[str, Any]:
    """Returns a model's metadata."""
    groups = {"inputs": inputs, "outputs": outputs}
    return {
        "name": "m",
        "versions": ["1"],
        "platform": "test",
        **{
            group: [{"name": name, "datatype": kind, "shape": shape} for name, (kind, shape) in tensors.items()]
            for group, tensors in groups.items()
        },
        **fields,
    }
