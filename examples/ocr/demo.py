"""Sends the sample page to a server and prints what it reads.

    python demo.py                                # starts a server for it, and stops it
    python demo.py --url http://127.0.0.1:8000    # uses one that runs

Speaks the Open Inference Protocol v2 and its binary tensor extension, with NumPy and the standard library alone.
Exits with 1 if the texts read are not the texts drawn.
"""

import argparse
import json
import math
import struct
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from sample_page import draw_page

from dyorc.testing import serving

HEADER_LENGTH = "Inference-Header-Content-Length"
TIMEOUT_S = 120
NUMPY_DTYPES = {"FP32": "<f4"}


def read_page(url: str, page: UInt8[np.ndarray, "height width 3"]) -> dict[str, np.ndarray]:
    """What the workflow `ocr` of the server at `url` reads on an RGB page: text (bytes), boxes, score.

    Raises:
        urllib.error.URLError: The server cannot be reached or answers with an error.
    """
    body = np.ascontiguousarray(page).tobytes()
    described = {
        "name": "page",
        "shape": page.shape,
        "datatype": "UINT8",
        "parameters": {"binary_data_size": len(body)},
    }
    header = json.dumps({"inputs": [described], "parameters": {"binary_data_output": True}}).encode()
    request = urllib.request.Request(
        f"{url.rstrip('/')}/v2/models/ocr/infer",
        data=header + body,
        headers={"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(header))},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        answer = response.read()
        return decode_answer(answer, int(response.headers.get(HEADER_LENGTH, len(answer))))


def decode_answer(answer: bytes, header_length: int) -> dict[str, np.ndarray]:
    """The tensors of an answer: their JSON header, then the bytes of each in the header's order."""
    outputs = json.loads(answer[:header_length])["outputs"]
    tensors: dict[str, np.ndarray] = {}
    start = header_length
    for output in outputs:
        num_bytes = output["parameters"]["binary_data_size"]
        raw = answer[start : start + num_bytes]
        start += num_bytes
        if output["datatype"] == "BYTES":
            tensor = np.fromiter(split_texts(raw), object, math.prod(output["shape"]))
        else:
            tensor = np.frombuffer(raw, NUMPY_DTYPES[output["datatype"]])
        tensors[output["name"]] = tensor.reshape(output["shape"])
    return tensors


def split_texts(raw: bytes) -> Iterator[bytes]:
    """The elements of a BYTES tensor, each with its length in four bytes (little-endian) before it."""
    start = 0
    while start < len(raw):
        (length,) = struct.unpack_from("<I", raw, start)
        start += 4
        yield raw[start : start + length]
        start += length


def main() -> int:
    """Sends the page, prints the answer and gives the exit status."""
    parser = argparse.ArgumentParser(description="Reads a sample page through a server.")
    parser.add_argument("--url", help="a running server; without it, one is started")
    parser.add_argument("--seed", type=int, default=0, help="which sample page")
    options = parser.parse_args()
    if options.url:
        return read_sample(options.url, options.seed)
    workflow = Path(__file__).with_name("workflow.py")
    with serving(f"{workflow}:ocr", show=lambda line: print(f"  server | {line}", flush=True)) as url:
        read_sample(url, options.seed)  # the first page pays for what the models put off
        return read_sample(url, options.seed)


def read_sample(url: str, seed: int) -> int:
    """Sends one sample page, prints what comes back, and gives the exit status."""
    page, expected = draw_page(seed)
    started_s = time.perf_counter()
    try:
        lines = read_page(url, page)
    except urllib.error.HTTPError as error:
        return fail(f"{error}: {error.read().decode(errors='replace')}")
    except urllib.error.URLError as error:
        return fail(f"{url}: {error.reason}")
    elapsed_s = time.perf_counter() - started_s
    texts = [text.decode() for text in lines["text"]]
    for text, score, box in zip(texts, lines["score"], lines["boxes"], strict=True):
        print(f"{score:.3f}  {text:<60}  {' '.join(f'{x:.0f},{y:.0f}' for x, y in box)}")
    print(f"{len(texts)} lines in {1000 * elapsed_s:.0f} ms")
    return 0 if texts == expected else fail(f"expected {expected}")


def fail(reason: str) -> int:
    """Says why, and gives the exit status of a failure."""
    print(reason, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
