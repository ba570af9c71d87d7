"""Runs the checks that are made by hand and prints a line of JSON for each: `python -m tests.conformance.checks_raw URL`."""

from __future__ import annotations

import argparse
import asyncio

from tests.conformance import checks_raw_bodies, checks_raw_routes
from tests.conformance.rows import Table

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--only", default="", help="only rows that have this in section, transport or name")
    arguments = parser.parse_args()
    table = Table()
    for module in (checks_raw_routes, checks_raw_bodies):
        module.add(table, arguments.url)
    asyncio.run(table.run(arguments.only))
