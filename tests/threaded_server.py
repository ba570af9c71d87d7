"""A small HTTP server on a thread, on a free port of loopback."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any


@contextmanager
def answering(handler: Callable[..., Any]) -> Generator[str]:
    """Serves by a class of request handlers, and yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
