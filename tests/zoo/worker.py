"""`python -m tests.zoo.worker FOLDER`: checks the models that it reads the names of, one a line, and writes what came of each.

A line that it reads is JSON: the model's name, and the cases to plan. Lines that it writes are JSON: the row of the capture, a
row for each case, and `{"ended": NAME}`. It may hang or crash in between: see supervising.py.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from tests.zoo.capturing import capture_entry
from tests.zoo.models import entries
from tests.zoo.models.entry import Entry
from tests.zoo.planning import Case, PlanChecker
from tests.zoo.reference import narrowest


def main() -> None:
    """Works until its input ends."""
    warnings.simplefilter("ignore")  # of other libraries, about small configurations
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    with PlanChecker(sys.argv[1]) as checker:
        for line in sys.stdin:
            task = json.loads(line)
            entry = entries([task["name"].partition("/")[0]])[task["name"]]
            for row in _rows(entry, [Case(*case) for case in task["cases"]], checker):
                print(json.dumps(row), file=answers, flush=True)
            print(json.dumps({"ended": entry.name}), file=answers, flush=True)


def _rows(entry: Entry, cases: list[Case], checker: PlanChecker) -> Iterator[dict[str, Any]]:
    began_s = time.monotonic()
    outcome = capture_entry(entry)
    program = outcome.captured.program if outcome.captured else None
    yield {
        "capture": {
            "refused": outcome.refused,
            "is_broken": outcome.is_broken,
            "is_equal": outcome.captured is not None,
            "error": outcome.error,
            "where": outcome.where,
            "nodes": len(program.nodes) if program else 0,
            "dtype": narrowest(program) if program else "",
            "took_s": round(time.monotonic() - began_s, 1),
        }
    }
    if outcome.captured:
        for case in cases:
            yield {"plan": asdict(checker.check(outcome.captured, case))}


if __name__ == "__main__":
    main()
