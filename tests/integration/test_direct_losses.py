"""Clients that send requests ahead and go away: nothing is written to them, and each of their requests that began has ended."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
import structlog

from dyorc.telemetry.record import RequestRecord
from tests.deadlines import wait_until_async
from tests.integration.stack import running
from tests.workflows.arithmetic import quadruple

USES_UVLOOP = True

NUM_CLIENTS = 60
_INPUT = {"name": "x", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}
_BODY = msgspec.json.encode({"inputs": [_INPUT]})
REQUEST = b"POST /v2/models/quadruple/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_RESET = struct.pack("ii", 1, 0)


class Counting:
    """Counts the requests that began and the requests that ended."""

    def __init__(self) -> None:
        self.num_begun = self.num_ended = 0

    def wants(self) -> bool:
        """Takes all."""
        self.num_begun += 1
        return True

    def ended(self, record: RequestRecord) -> None:
        """Counts one."""
        self.num_ended += 1

    def refused(self, outcome: str, record: Callable[[], RequestRecord]) -> None:
        """Counts none: it never began."""


async def test_clients_that_send_ahead_and_go_leave_nothing_behind() -> None:
    requests, draw = Counting(), random.Random(1)
    loop = asyncio.get_running_loop()
    with structlog.testing.capture_logs() as logs:
        async with running([quadruple], recorder=requests) as stack:
            url = urlsplit(str(stack.client.base_url))
            for _ in range(NUM_CLIENTS):
                client = socket.create_connection((url.hostname, url.port or 0))  # the loop would look for the name on a thread
                client.setblocking(False)
                await loop.sock_sendall(client, REQUEST * draw.choice([1, 2, 5, 30]))
                if draw.random() < 0.5:
                    await loop.sock_recv(client, 100)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET if draw.random() < 0.5 else struct.pack("ii", 0, 0))
                client.close()
            await wait_until_async(lambda: not stack.service.admission.num_requests, "nothing is in flight")
            await wait_until_async(lambda: requests.num_begun == requests.num_ended, "each record has ended")
            assert requests.num_begun
            assert not [line for line in logs if line["log_level"] in ("warning", "error")]
