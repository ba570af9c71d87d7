"""Misbehaving clients: ``python -m benchmarks.focused.hostile.attackers KIND URL NUM [--key KEY]``.

Prints ``ready`` once all of them have begun, goes on until its standard input ends, and then prints one line of JSON: how often
they were disconnected, and what answers they got. A client that is disconnected connects again.

    idle     one request, and then nothing
    slow     half of them a byte of a head every second, the other half a byte of a body
    deaf     ask for 4 MB, and read nothing
    flood    one request after another, as fast as their common rate allows
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import resource
import sys
import threading
from urllib.parse import urlsplit

import numpy as np
import uvloop

from loadgen.targets.layout import http_post, oip_request

_DRIP_S = 1.0
_CONNECTS_AT_A_TIME = 100
_PORTS_PER_ADDRESS = 5000
_LENGTH = b"\r\ncontent-length:"


class Attack:
    """All attackers of one process."""

    def __init__(self, options: argparse.Namespace) -> None:
        url = urlsplit(options.url)
        self._place = (url.hostname or "", url.port or 80)
        self._options = options
        self._short, self._long = self._laid_out("answer", 16), self._laid_out("answer_at_length", 1)
        self._connecting = asyncio.Semaphore(_CONNECTS_AT_A_TIME)
        self._numbers = itertools.count()
        self.counts: collections.Counter[str] = collections.Counter()
        self.num_ready = 0

    def _laid_out(self, model: str, num_values: int) -> bytes:
        path, headers, body = oip_request(model, {"x": np.ones(num_values, np.float32)})
        key = {"X-API-Key": self._options.key} if self._options.key else {}
        return http_post(self._options.url, path, headers, key, body)

    async def run(self, number: int) -> None:
        """Runs one attacker for ever."""
        act = {"idle": self._idle, "slow": self._slow, "deaf": self._deaf, "flood": self._flood}[self._options.kind]
        is_first = True
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
                async with self._connecting:
                    # One address has a limited range of ports, but this machine has many loopback addresses.
                    own = f"127.0.0.{2 + next(self._numbers) // _PORTS_PER_ADDRESS % 200}"
                    reader, writer = await asyncio.open_connection(*self._place, local_addr=(own, 0), limit=1024)
                try:
                    if self._options.kind == "idle":
                        await self._ask(reader, writer)
                    if is_first:
                        is_first = False
                        self.num_ready += 1
                    await act(number, reader, writer)
                finally:
                    writer.transport.abort()
            self.counts["disconnected"] += 1

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._short)
        status = await _status_of_answer(reader)
        self.counts[str(status)] += 1

    async def _idle(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)  # until it is disconnected

    async def _slow(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"POST /v2/models/answer/infer HTTP/1.1\r\nHost: bench\r\n"
        writer.write(head + (b"X: " if number % 2 else b"Content-Length: 100000\r\n\r\n"))
        while not reader.at_eof():
            await asyncio.sleep(_DRIP_S)
            writer.write(b"x")
            await writer.drain()

    async def _deaf(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._long)
        while not writer.is_closing():
            await asyncio.sleep(_DRIP_S)
            writer.write(b"\r\n")  # allowed between requests; shows whether the connection still exists
            await writer.drain()

    async def _flood(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gap_s = self._options.num / self._options.rate
        while True:
            _, _ = await asyncio.gather(self._ask(reader, writer), asyncio.sleep(gap_s))


async def _status_of_answer(reader: asyncio.StreamReader) -> int:
    """Returns the status of the next answer, which is read to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().index(_LENGTH) + len(_LENGTH)
    await reader.readexactly(int(head[at : head.index(b"\r", at)]))
    return int(head[9:12])


async def _main(options: argparse.Namespace) -> None:
    attack = Attack(options)
    tasks = [asyncio.create_task(attack.run(number)) for number in range(options.num)]
    while attack.num_ready < options.num:
        await asyncio.sleep(0.05)
        if broken := [task for task in tasks if task.done()]:
            broken[0].result()
    print("ready", flush=True)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(over.set)), daemon=True).start()
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(attack.counts))


def main() -> None:
    """Runs the attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["idle", "slow", "deaf", "flood"])
    parser.add_argument("url")
    parser.add_argument("num", type=int)
    parser.add_argument("--key")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests per second of all attackers together")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
