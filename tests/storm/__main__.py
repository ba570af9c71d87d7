"""Runs the storm over all shapes by turns.

``python -m tests.storm [--minutes N | --faults N] [--shape NAME]... [--only FAULT]... [--seed N] [--mistake NAME] [--card
FOLDER]``. Time is shared out evenly among the shapes, and counts once a shape answers. Progress goes to standard error, the
last line of standard output is one JSON object, and the exit status is 1 if any figure is beyond its bound, or if something has
broken the storm off; then the object says what, and has the figures so far. SIGINT and SIGTERM end it after the fault of the
moment; then the status is 130 if nothing is beyond its bound. With `--card`, this day's figures in that folder grow by those of
this run; they are JSON and a page.
"""

import argparse
import datetime
import json
import random
import signal
import sys
import tempfile
import threading
import time
import traceback

from benchmarks.output_paths import output_folder
from tests.command_line import INTERRUPTED
from tests.shared_folders import own_arena_folder
from tests.storm import scorecard
from tests.storm.driver import ShapeResult, UnknownFaultError, reason_of, storm, tell
from tests.storm.mistaken_server import MISTAKES
from tests.storm.shapes import SHAPES, make_shape
from tests.storm.single import SingleServer


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, help="this many for each shape, however long that takes")
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES), help="may be repeated; by default all")
    parser.add_argument("--only", action="append", default=[], help='a fault, such as "kill gateway"; may be repeated')
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4, help="at each entrance")
    parser.add_argument("--mistake", choices=MISTAKES, default="", help="that the server of one process makes, to see it noticed")
    parser.add_argument("--card", type=output_folder, help="folder to which a scorecard of this day is written")
    options = parser.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # what has come so far is written down, and all that was started ends
        signal.signal(number, lambda *_: stopping.set())  # pyright: ignore[reportUnknownLambdaType]
    results: list[ShapeResult] = []
    skipped: dict[str, str] = {}
    broken_off: dict[str, list[str]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder, own_arena_folder():
            tempfile.tempdir = folder  # what others leave in the common one is not ours
            _run(options, stopping, results, skipped)
    except UnknownFaultError as error:  # only a shape that runs knows its faults
        parser.error(str(error))
    except Exception as error:
        broken_off["storm"] = _reasons(error)
    card = scorecard.card_of(results, skipped)
    card["broken_off"] |= broken_off
    if options.card:
        try:
            scorecard.add_to_day(card, options.card, datetime.datetime.now(datetime.UTC).date())
        except Exception as error:
            card["broken_off"]["card"] = _reasons(error)
    violations = scorecard.violations_of(card)
    print(json.dumps(card | {"violations": violations}))
    sys.exit(bool(violations) or (INTERRUPTED if stopping.is_set() else 0))


def _reasons(error: Exception) -> list[str]:
    tell("".join(traceback.format_exception(error)))
    return [reason_of(error)]


def _run(options: argparse.Namespace, stopping: threading.Event, results: list[ShapeResult], skipped: dict[str, str]) -> None:
    """Adds what each shape has shown to `results`, and why others did not run to `skipped`.

    Raises:
        UnknownFaultError: If no shape suffers any of the faults that were asked for.
    """
    names = options.shape or list(SHAPES)
    share_s = options.minutes * 60.0 / len(names)
    unknown: list[str] = []
    for name in names:
        if stopping.is_set():
            break
        shape = make_shape(name, random.Random(f"{name} {options.seed} details"))
        if isinstance(shape, SingleServer):
            shape.mistake = options.mistake
        if reason := shape.why_not:
            skipped[name] = reason
            tell(f"{name}: skipped: {reason}")
            continue
        answers_since_s: list[float] = []

        def is_over(num_strikes: int, answers_since_s: list[float] = answers_since_s) -> bool:
            now_s = time.monotonic()
            answers_since_s += [] if answers_since_s else [now_s]
            is_enough = num_strikes >= options.faults if options.faults else now_s >= answers_since_s[0] + share_s
            return stopping.is_set() or is_enough

        try:
            results.append(storm(shape, options.seed, is_over, options.clients, options.only))
        except UnknownFaultError as error:
            skipped[name] = str(error)
            unknown.append(str(error))
            tell(f"{name}: skipped: {error}")
    if unknown and not results:
        raise UnknownFaultError("; ".join(unknown))


if __name__ == "__main__":
    main()
