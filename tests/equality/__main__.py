"""`python -m tests.equality [--planners hap,zero] [--models gpt,net] [--output FILE]`

Plans every model by every planner on clusters of two and four ranks, proves each plan, runs it on real ranks with and without
communication beside computation, and compares the loss and all gradients with those of one device, in float64. Prints a table
and, as the last line of stdout, one JSON object, also of what has been tried until Ctrl-C. Exits with 1 if a plan is not equal or
not proved.
"""

import argparse
import contextlib
import json
import sys

import torch
from rich.console import Console

from benchmarks.output_paths import output_file
from tests.equality.cases import MODELS, cases, variants
from tests.equality.checking import Checker, Outcome
from tests.equality.report import json_of, table_of


def main() -> int:
    """Tries all cases and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.equality")
    parser.add_argument("--planners", default=",".join(variants()), help="some of %(default)s")
    parser.add_argument("--models", default=",".join(MODELS), help="some of %(default)s")
    parser.add_argument("--output", type=output_file, help="write the JSON object to this file, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    all_cases = list(cases(arguments.planners.split(","), arguments.models.split(",")))
    outcomes: list[Outcome] = []
    with contextlib.suppress(KeyboardInterrupt), Checker() as checker:
        for number, case in enumerate(all_cases, 1):
            outcome = checker.check(case)
            outcomes.append(outcome)
            said = outcome.refused or outcome.trouble or f"{outcome.error:.1e}"
            mark = "no plan: " if outcome.refused else "" if outcome.is_equal else "WRONG: "
            print(f"{number}/{len(all_cases)} {case}: {mark}{said} ({outcome.took_s:.1f} s)", file=sys.stderr, flush=True)
            if arguments.output:  # after each, so that nothing is lost
                found = json_of(outcomes) | {"not_tried": len(all_cases) - number}
                arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    Console(width=220).print(table_of(outcomes))
    found = json_of(outcomes) | {"not_tried": len(all_cases) - len(outcomes)}
    print(json.dumps(found))
    return 0 if not found["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
