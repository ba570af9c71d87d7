"""A well-behaved client: sends requests at a steady pace on a few connections, and tells how long answers took.

``python -m benchmarks.focused.hostile.probe URL [--key KEY] [--rate N] [--duration-s S]`` prints one line of JSON. Latencies
count from when a request was due, not from when it could be sent, so a server that stalls is not spared the requests that waited
meanwhile. Every answer is checked.
"""

import argparse
import asyncio
import json
import math
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import numpy as np
import uvloop

from tests import oip

_NUM_CONNECTIONS = 4
_WARM_UP_S = 1.0
_LENGTH = b"\r\ncontent-length:"
_PATH = "/v2/models/answer/infer"


def request_bytes(path: str, x: oip.Array, key: str | None) -> bytes:
    """A whole request."""
    body = oip.binary_body({"x": x}, parameters={"binary_data_output": True})
    headers = {"Host": "bench", "Content-Length": str(len(body.content)), **body.headers}
    if key:
        headers["X-API-Key"] = key
    head = "\r\n".join([f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())])
    return head.encode() + b"\r\n\r\n" + body.content


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().index(_LENGTH) + len(_LENGTH)
    size = int(head[at : head.index(b"\r", at)])
    return int(head[9:12]), await reader.readexactly(size)


async def _pace(place: tuple[str, int], number: int, options: argparse.Namespace, latencies_s: list[float]) -> None:
    reader, writer = await asyncio.open_connection(*place)
    x = np.full(16, number + 1, np.float32)
    data = request_bytes(_PATH, x, options.key)
    gap_s = _NUM_CONNECTIONS / options.rate
    start_s = time.perf_counter() + gap_s * number / _NUM_CONNECTIONS
    for turn in range(math.ceil((_WARM_UP_S + options.duration_s) / gap_s)):
        due_s = start_s + turn * gap_s
        await asyncio.sleep(due_s - time.perf_counter())
        writer.write(data)
        status, body = await read_answer(reader)
        if status != 200 or body[-64:] != (x * 2).tobytes():
            raise SystemExit(f"wrong answer: {status} {body[:500]!r}")
        if due_s - start_s >= _WARM_UP_S:
            latencies_s.append(time.perf_counter() - due_s)
    writer.close()
    await writer.wait_closed()


def percentile_ms(latencies_s: Sequence[float], ratio: float) -> float:
    """A percentile, in milliseconds."""
    ordered = sorted(latencies_s)
    return round(ordered[max(0, math.ceil(ratio * len(ordered)) - 1)] * 1e3, 3)


async def _probe(options: argparse.Namespace) -> list[float]:
    url = urlsplit(options.url)
    latencies_s: list[float] = []
    place = (url.hostname or "", url.port or 80)
    await asyncio.gather(*(_pace(place, number, options, latencies_s) for number in range(_NUM_CONNECTIONS)))
    return latencies_s


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--key")
    parser.add_argument("--rate", type=float, default=150.0)
    parser.add_argument("--duration-s", type=float, default=6.0)
    latencies_s = uvloop.run(_probe(parser.parse_args()))
    print(
        json.dumps(
            {"p50_ms": percentile_ms(latencies_s, 0.5), "p99_ms": percentile_ms(latencies_s, 0.99), "num": len(latencies_s)}
        )
    )


if __name__ == "__main__":
    main()
