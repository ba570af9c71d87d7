"""The benchmark of cold starts: its last line has every figure that it promises."""

import argparse
import json

import pytest

from benchmarks.focused.coldstart.__main__ import Measured, main
from benchmarks.focused.coldstart.ours import Starts

STARTS = [
    Starts(cold_s=cold_s, fork_s=fork_s, parked_s=parked_s, first_bytes=2**20, second_bytes=3 * 2**20, second_own_bytes=2**21)
    for cold_s, fork_s, parked_s in ((3.0, 0.09, 0.02), (2.0, 0.08, 0.05), (4.0, 0.07, 0.03))
]
THEIRS = {"zero0": 3.5, "zero1": 4.0, "zero2": 3.75, "default": 5.0}


def last_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, float | None]:
    """Returns the figures that the command prints if these are its options."""

    def measure(options: argparse.Namespace) -> Measured:
        theirs = {name: seconds for name, seconds in THEIRS.items() if name != "default" or not options.no_default}
        return Measured(STARTS[: options.rounds], theirs)

    main(arguments, measure)
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_last_line_has_all_five_ways_to_start_as_medians(capsys: pytest.CaptureFixture[str]) -> None:
    assert last_line(capsys) == {
        "cold_s": 3.0,
        "fork_s": 0.08,
        "parked_s": 0.03,
        "ray_serve_default_s": 5.0,
        "ray_serve_zero_delay_s": 3.75,
        "second_replica_mb": 3.0,
        "second_replica_ratio": 1.5,
    }


def test_what_is_not_measured_is_named_too(capsys: pytest.CaptureFixture[str]) -> None:
    figures = last_line(capsys, "--no-default", "--rounds", "1")
    assert figures["ray_serve_default_s"] is None
    assert (figures["parked_s"], figures["ray_serve_zero_delay_s"]) == (0.02, 3.75)
