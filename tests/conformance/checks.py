"""Runs the checks that `tritonclient` makes, in its own environment, and prints a line of JSON for each.

    .venv-tritonclient/bin/python tests/conformance/checks.py SERVER URL GRPC_ADDRESS [--folder FOLDER] [--only TEXT]

SERVER says what is served there: `main`, `closed` or `ocr`, as `servers.py` starts them.
"""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

import argparse
import asyncio
import logging

import checks_closed
import checks_control
import checks_grpc
import checks_infer
import checks_memory
import checks_ocr
import checks_perf
import checks_stream
from rows import Table


def table(arguments: argparse.Namespace) -> Table:
    """Returns the checks of a server."""
    found = Table()
    url, grpc_address = arguments.url, arguments.grpc_address
    match arguments.server:
        case "main":
            for module in (checks_control, checks_infer, checks_memory, checks_perf):
                module.add(found, url, grpc_address)
            for module in (checks_grpc, checks_stream):
                module.add(found, grpc_address)
        case "closed":
            checks_closed.add(found, url, grpc_address)
        case _:
            checks_ocr.add(found, url, grpc_address, arguments.folder)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=["main", "closed", "ocr"])
    parser.add_argument("url")
    parser.add_argument("grpc_address")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--only", default="", help="only rows that have this in section, transport or name")
    parsed = parser.parse_args()
    # tritonclient's asyncio client does not read the bodies of errors; asyncio then logs the connections that this loses.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    asyncio.run(table(parsed).run(parsed.only))
