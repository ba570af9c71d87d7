"""How long a tensor takes from one process to another, by each of DyOrc's tiers and by other ways.

    python -m benchmarks.focused.transport [--quick] [--tiers memcpy,ray_actor] [--picture docs/img/transport.png]

A hop: the producer has a result of n bytes in its own private memory -> the consumer process has an array that it can read, and
its tiny reply has reached the producer. Tiers and peers take turns, size by size, in rounds, every second one in reverse; each
figure is the median of the rounds' medians. Every reply is checked. The consumer does not read the whole array: reading costs the
same for all, except for the first read of memory that another core has written.

On caches: all arrays are warm. A producer has four of each size (two of 64 MiB) and uses them in turn. So up to 256 KiB per hop,
everything fits into a core's own cache, like a small result that a program has just written. With 1 and 4 MiB (4 and 16 MiB of
sources) it fits if the last level is large; with 16 and 64 MiB (64 and 128 MiB of sources, and as much of targets) only into the
last level of large servers. `memcpy` is one `np.copyto` within one process, between such arrays: the lower bound for every way
that copies once. `raw_socket` receives into a warm buffer that it keeps; ZeroMQ, gRPC and the pipe allocate one for each tensor.

Stdout: one JSON line per tier and size: "us" per hop, "gb_per_s" (1e9 bytes), "copies" of the bytes on their way, including the
kernel's (null: not counted), and "vs_memcpy" (us / us of memcpy; null without it). The last line is one JSON object: all those
"lines", and the "goals". A table goes to stderr. Takes about four minutes, `--quick` about 40 s.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from benchmarks.focused.transport.dyorc_tiers import TIERS, Tier
from benchmarks.focused.transport.goals import Table, judge
from benchmarks.focused.transport.hop import Hop, HopError, Pool, format_bytes
from benchmarks.focused.transport.peers import GrpcUnary, Memcpy, PipePeer, RawSocket, RawZmq
from benchmarks.focused.transport.ray_peers import RayHost, RayPeer
from benchmarks.output_paths import output_file
from benchmarks.processes import adopt_orphans, end_children

_SIZES = tuple(2**exponent for exponent in (10, 12, 14, 16, 18, 20, 22, 24, 26))
_MIN_HOPS, _MAX_HOPS = 3, 2000
_NUM_WARM_UP_HOPS = 4
_ORPHAN_GRACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The figures of one tier at one size."""

    tier: str
    bytes: int
    us: float
    gb_per_s: float
    copies: int | None
    vs_memcpy: float | None


def build_hops() -> dict[str, Hop]:
    """Returns all tiers and peers by name, not started."""
    pool = Pool()
    ray = RayHost()
    ours = [Tier(pool, name) for name in TIERS]
    peers = [Memcpy(pool), PipePeer(pool), RawSocket(pool), RawZmq(pool, "ipc"), RawZmq(pool, "tcp"), GrpcUnary(pool)]
    rays = [RayPeer(ray, "ray_actor"), RayPeer(ray, "ray_put_get")]
    return {hop.name: hop for hop in (*ours, *peers, *rays)}


@contextmanager
def running(hops: Sequence[Hop]) -> Generator[list[Hop]]:
    """Starts them; at the end stops them and everything that they left behind."""
    try:
        for hop in hops:
            hop.start()
        yield list(hops)
    finally:
        for hop in hops:
            hop.stop()
        for command in end_children(_ORPHAN_GRACE_S):
            _log(f"left behind, and killed: {command}")


def count_hops(hops: Sequence[Hop], cell_s: float) -> dict[tuple[str, int], int]:
    """Warms everything up and finds how many hops of each tier and size fit into `cell_s`."""
    counts: dict[tuple[str, int], int] = {}
    for num_bytes in _SIZES:
        for hop in hops:
            taken_us = statistics.median(hop.time_hops(num_bytes, _NUM_WARM_UP_HOPS))
            counts[hop.name, num_bytes] = max(_MIN_HOPS, min(_MAX_HOPS, int(cell_s * 1e6 / taken_us)))
    return counts


def measure(hops: Sequence[Hop], num_rounds: int, duration_s: float) -> Table:
    """Runs all rounds and returns the medians, in microseconds."""
    counts = count_hops(hops, duration_s / (num_rounds * len(hops) * len(_SIZES)))
    medians: dict[tuple[str, int], list[float]] = {cell: [] for cell in counts}
    for round_ in range(num_rounds):
        _log(f"round {round_ + 1} of {num_rounds}")
        for num_bytes in _SIZES:
            for hop in hops if round_ % 2 == 0 else reversed(hops):
                taken_us = hop.time_hops(num_bytes, counts[hop.name, num_bytes])
                medians[hop.name, num_bytes].append(statistics.median(taken_us))
    return {cell: statistics.median(times) for cell, times in medians.items()}


def describe(hops: Sequence[Hop], table: Table) -> list[Line]:
    """Returns one line per tier and size."""
    return [
        Line(
            tier=hop.name,
            bytes=num_bytes,
            us=round(us := table[hop.name, num_bytes], 3),
            gb_per_s=round(num_bytes / us / 1e3, 3),
            copies=hop.copies(num_bytes),
            vs_memcpy=round(us / table["memcpy", num_bytes], 3) if ("memcpy", num_bytes) in table else None,
        )
        for hop in hops
        for num_bytes in _SIZES
    ]


def format_table(hops: Sequence[Hop], table: Table) -> str:
    """Returns a table with a row per tier and a column per size, in microseconds."""
    lines = [f"{'us per hop':<21}" + "".join(f"{format_bytes(size):>10}" for size in _SIZES)]
    for hop in hops:
        cells = [table[hop.name, size] for size in _SIZES]
        lines.append(f"{hop.name:<21}" + "".join(f"{us:>10,.1f}" if us < 100 else f"{us:>10,.0f}" for us in cells))
    return "\n".join(lines)


def main() -> None:
    """Runs all rounds, prints lines, goals and a table, and draws the picture if it is asked for."""
    arguments = _parse()
    adopt_orphans()
    signal.signal(signal.SIGTERM, _exit)
    try:
        with running([hop for name, hop in build_hops().items() if name in arguments.tiers]) as hops:
            if not hops:
                sys.exit("nothing to measure")
            table = measure(hops, arguments.rounds, arguments.duration_s)
            lines = describe(hops, table)
    except HopError as error:
        sys.exit(str(error))
    _log(format_table(hops, table))
    for line in lines:
        print(json.dumps(asdict(line)))
    print(json.dumps({"lines": [asdict(line) for line in lines], "goals": judge(table)}))
    if arguments.picture is not None:
        from benchmarks.focused.transport.picture import draw_picture

        draw_picture({hop.name: [(size, table[hop.name, size]) for size in _SIZES] for hop in hops}, arguments.picture)


def _parse() -> argparse.Namespace:
    names = list(build_hops())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiers", default=",".join(names), help="some of %(default)s")
    parser.add_argument("--rounds", type=int, help="default: 5, or 2 with --quick")
    parser.add_argument(
        "--duration-s", type=float, help="time for measuring, without start and warm-up; default: 170, or 15 with --quick"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--picture", type=output_file, help="draw into this file; needs matplotlib")
    arguments = parser.parse_args()
    arguments.tiers = arguments.tiers.split(",")
    if unknown := set(arguments.tiers) - set(names):
        parser.error(f"no such tier: {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    arguments.duration_s = arguments.duration_s or (15.0 if arguments.quick else 170.0)
    return arguments


def _exit(*_: object) -> None:
    sys.exit(143)  # an exception, so that everything is stopped


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
