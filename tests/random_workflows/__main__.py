"""`python -m tests.random_workflows [--number 1000] [--seed 0] [--modes run,local,cell,ray] [--case FILE]`

Generates workflows and compares what DyOrc makes of them with plain Python. Prints the first that differ in each mode as small
Python files and, as the last line of stdout, one JSON object. Exits with 1 if one differs.
"""

import argparse
import json
import sys
from pathlib import Path

from tests.random_workflows.files import read, text_of
from tests.random_workflows.trial import MODES, Tally, expected_of, generated, make_small, outcomes


def main() -> int:
    """Tries all cases in all modes and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_workflows")
    parser.add_argument("--number", type=int, default=1000, help="workflows")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--modes", default=",".join(MODES), help="some of %(default)s")
    parser.add_argument("--case", type=Path, help="run the workflow in this file instead, as printed by an earlier run")
    parser.add_argument("--chunk", type=int, default=250, help="workflows that a server serves at a time")
    parser.add_argument("--show", type=int, default=3, help="workflows that differ and are made small, in each mode")
    arguments = parser.parse_args()
    cases = expected_of(read(arguments.case)) if arguments.case else generated(arguments.seed, arguments.number)
    reports: dict[str, dict[str, int]] = {}
    for mode in arguments.modes.split(","):
        tally = Tally()
        for each, outcome in outcomes(mode, cases, arguments.seed, arguments.chunk):
            if lines := tally.add(each, outcome):
                print(f"{mode}: {each.case.name} differs: {lines[0]}", file=sys.stderr, flush=True)
        for each, lines in tally.different[: arguments.show]:
            small, where = make_small(each.case, mode, arguments.seed)
            print(f"# {each.case.name} differs in mode {mode}:", *lines, sep="\n# ")
            print(text_of(small, where), flush=True)
        reports[mode] = tally.report()
        print(f"{mode}: {reports[mode]}", file=sys.stderr, flush=True)
    print(json.dumps({"seed": arguments.seed, "modes": reports}))
    return 1 if any(report["different"] for report in reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
