"""Sends the sample page to a server and prints what it reads.

    python demo.py [--in-process]                 # starts a server for it with these options of `dyorc serve`, and stops it
    python demo.py --url http://127.0.0.1:8000    # uses a running one

Exits with 1 if the texts read are not the texts drawn.
"""

import argparse
import sys
import time
from pathlib import Path

from sample_page import draw_page

import dyorc
from dyorc.testing import serving

TIMEOUT_S = 120


def main() -> int:
    """Sends the page, prints the answer and returns the exit status."""
    parser = argparse.ArgumentParser(description="Reads a sample page through a server.")
    parser.add_argument("--url", help="a running server; without it, one is started")
    parser.add_argument("--seed", type=int, default=0, help="which sample page")
    options, of_server = parser.parse_known_args()
    if options.url:
        with dyorc.Client(options.url, timeout_s=TIMEOUT_S) as client:
            return read_sample(client, options.seed)
    workflow = Path(__file__).with_name("workflow.py")
    with (
        serving(f"{workflow}:ocr", *of_server, show=lambda line: print(f"  server | {line}", flush=True)) as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
    ):
        read_sample(client, options.seed)  # the first page pays for work that the models postpone
        return read_sample(client, options.seed)


def read_sample(client: dyorc.Client, seed: int) -> int:
    """Sends one sample page, prints the answer, and returns the exit status."""
    page, expected = draw_page(seed)
    started_s = time.perf_counter()
    try:
        lines = client.infer("ocr", page=page)
    except dyorc.DyOrcError as error:
        return fail(str(error))
    elapsed_s = time.perf_counter() - started_s
    texts = [text.decode() for text in lines["text"]]
    for text, score, box in zip(texts, lines["score"], lines["boxes"], strict=True):
        print(f"{score:.3f}  {text:<60}  {' '.join(f'{x:.0f},{y:.0f}' for x, y in box)}")
    print(f"{len(texts)} lines in {1000 * elapsed_s:.0f} ms")
    return 0 if texts == expected else fail(f"expected {expected}")


def fail(reason: str) -> int:
    """Prints why, and returns the exit status of a failure."""
    print(reason, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
