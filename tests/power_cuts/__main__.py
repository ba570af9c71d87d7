"""Cuts the power at random moments: ``python -m tests.power_cuts --cuts 1000 [--seed N] [--mistakes]``.

The last line is JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from tests.power_cuts.cuts import Verdict, record, try_cuts
from tests.power_cuts.trials import trials

_REPORT_S = 5.0


def _try(num_cuts: int, seed: int) -> int:
    steps = record()
    print(f"{len(steps)} steps on files, {sum(len(step.data) for step in steps) / 1e6:.1f} MB", flush=True)
    start_s = reported_s = time.monotonic()

    def report(verdict: Verdict) -> None:
        nonlocal reported_s
        if (now_s := time.monotonic()) - reported_s >= _REPORT_S:
            reported_s = now_s
            print(f"{verdict.num_cuts} cuts, {len(verdict.wrong)} with something wrong", flush=True)

    verdict = try_cuts(steps, range(num_cuts), seed, report=report)
    for number, texts in (verdict.wrong | verdict.wrong_after_lies).items():
        print(f"cut {number}{' after lies' if number in verdict.wrong_after_lies else ''}: {'; '.join(texts[:3])}")
    minutes = (time.monotonic() - start_s) / 60
    figures = {
        "seed": seed, "steps": len(steps), "cuts": verdict.num_cuts - verdict.num_lies, "wrong": len(verdict.wrong),
        "cuts_after_lies": verdict.num_lies, "damaged": verdict.num_damaged, "silently_wrong": len(verdict.wrong_after_lies),
        "cuts_per_minute": round(verdict.num_cuts / minutes),
    }  # fmt: skip
    print(json.dumps(figures))
    return int(bool(verdict.wrong))


def _try_mistakes(num_cuts: int, seed: int) -> int:
    first: dict[str, int | None] = {}
    for name, trial in trials().items():
        first[name] = trial.first_noticed(num_cuts, seed)
        print(f"{name:34} {'not noticed' if first[name] is None else f'noticed after {first[name]} cuts'}", flush=True)
    print(json.dumps({"seed": seed, "noticed_after_cuts": first}))
    return int(None in first.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 1 if something was wrong after a cut, or a mistake was not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_cuts", description="Cuts the power at random moments.")
    parser.add_argument("--cuts", type=int, default=1000, help="how many; a fifth of them after the disk has lied")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mistakes", action="store_true", help="make mistakes on purpose, and see that each is noticed")
    options = parser.parse_args(arguments)
    return (_try_mistakes if options.mistakes else _try)(options.cuts, options.seed)


if __name__ == "__main__":
    sys.exit(main())
