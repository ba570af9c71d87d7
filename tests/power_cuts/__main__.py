"""Cuts the power at random moments: ``python -m tests.power_cuts --cuts 1000 [--seed N] [--mistakes]``.

The last line is JSON. What is recorded differs from run to run, so a record with which something was wrong is kept:
``python -m tests.power_cuts --steps FILE --seed N --cut K`` repeats one of its cuts.
"""

import argparse
import json
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.command_line import INTERRUPTED, end_at_sigterm, positive
from tests.power_cuts.cuts import Verdict, record, try_cuts
from tests.power_cuts.file_log import Step
from tests.power_cuts.trials import trials

_REPORT_S = 5.0
_KEPT = Path("build/power-cuts.steps")


def _try(steps: Sequence[Step], numbers: Sequence[int], seed: int, kept: Path) -> int:
    print(f"{len(steps)} steps on files, {sum(len(step.data) for step in steps) / 1e6:.1f} MB", flush=True)
    start_s = reported_s = time.monotonic()
    latest, is_interrupted = Verdict(), False

    def report(verdict: Verdict) -> None:
        nonlocal reported_s, latest
        latest = verdict
        if (now_s := time.monotonic()) - reported_s >= _REPORT_S:
            reported_s = now_s
            print(f"{verdict.num_cuts} cuts, {len(verdict.wrong)} with something wrong", flush=True)

    try:
        try_cuts(steps, numbers, seed, report=report)
    except KeyboardInterrupt:
        is_interrupted = True
    for number, texts in (latest.wrong | latest.wrong_after_lies).items():
        print(f"cut {number}{' after lies' if number in latest.wrong_after_lies else ''}: {'; '.join(texts[:3])}")
    if latest.wrong:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(list(steps)))
        print(f"  repeat it: python -m tests.power_cuts --steps {kept} --seed {seed} --cut {next(iter(latest.wrong))}")
    minutes = (time.monotonic() - start_s) / 60
    figures = {
        "seed": seed, "steps": len(steps), "cuts": latest.num_cuts, "wrong": len(latest.wrong), "after_lies": latest.num_lies,
        "damaged": latest.num_damaged, "silently_wrong": len(latest.wrong_after_lies),
        "cuts_per_minute": round(latest.num_cuts / minutes),
    }  # fmt: skip
    print(json.dumps(figures))
    return INTERRUPTED if is_interrupted else int(bool(latest.wrong))


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
    parser.add_argument("--cuts", type=positive, default=1000, help="how many; a fifth of them after the disk has lied")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mistakes", action="store_true", help="make mistakes on purpose, and see that each is noticed")
    parser.add_argument("--steps", type=Path, metavar="FILE", help="a record that an earlier run has kept")
    parser.add_argument("--cut", type=int, metavar="K", help="only this cut")
    options = parser.parse_args(arguments)
    end_at_sigterm()
    if options.mistakes:
        return _try_mistakes(options.cuts, options.seed)
    steps = pickle.loads(options.steps.read_bytes()) if options.steps else record()
    numbers = range(options.cuts) if options.cut is None else [options.cut]
    return _try(steps, numbers, options.seed, options.steps or _KEPT)


if __name__ == "__main__":
    sys.exit(main())
