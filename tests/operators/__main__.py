"""`python -m tests.operators [--step N]`

Runs every sample that torch has of its operators, forward and backward; splits each operation with a rule in all ways that the
rule allows and compares with the whole; compares the verifier's definitions with torch; then makes mistakes in rules, definitions
and the simplifier on purpose, one at a time, and sees that each is noticed. Prints a table and, as the last line of stdout, one
JSON object. Exits with 1 if anything is wrong or goes unnoticed.
"""

import argparse
import json
import sys
import time

import torch
from rich.console import Console

from dyorc.planner.program.rules import operations_with_rules
from dyorc.planner.verify.meanings import operations_with_meanings
from tests.operators import opinfo, written
from tests.operators.gathering import gather
from tests.operators.misreadings import MISREADINGS
from tests.operators.mutations import noticed_by
from tests.operators.results import check, json_of, table_of
from tests.operators.simplifications import SIMPLIFIER, simplified_wrongly


def main() -> int:
    """Runs everything and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.operators")
    parser.add_argument("--step", type=int, default=1, help="take every N-th of torch's operators only (default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    gathering = gather(opinfo.functions(arguments.step))
    gather(written.functions(), gathering)
    known = operations_with_rules() | operations_with_meanings()
    gather(opinfo.functions(arguments.step, known), gathering, whole=known)
    gather(written.functions(), gathering, whole=known)
    print(f"{gathering.num_recorded} samples, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    results = check(gathering.samples.values())
    print(f"{len(gathering.samples)} operations compared, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    noticed = {mistake.name: noticed_by(mistake, gathering.samples.values()) for mistake in MISREADINGS}
    noticed |= {name: ["program"] * bool(simplified_wrongly(name)) for name in SIMPLIFIER}
    Console(width=160).print(table_of(results))
    found = json_of(results, operations_with_rules() | {"view"}, operations_with_meanings())
    found["recorded"], found["skipped"] = gathering.num_recorded, gathering.skipped.total()
    found["simplified_wrongly"] = gathering.wrong
    found["mutations"] = len(noticed)
    found["mutations_noticed"] = sum(bool(by) for by in noticed.values())
    found["noticed"] = noticed
    found["took_s"] = round(time.monotonic() - started, 1)
    print(json.dumps(found))
    return 0 if not found["failures"] and not gathering.wrong and all(noticed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
