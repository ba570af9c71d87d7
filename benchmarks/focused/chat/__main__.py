"""A small language model under Poisson arrivals: DyOrc token by token, peers with batches of whole requests, and a loop by hand.

    python -m benchmarks.focused.chat [--systems loop,dyorc_cell,dyorc,litserve,mosec,ray_serve] [--duration-s 6]

The model is that of `examples/chat`; every answer is compared with the loop by hand. The loop by hand (`hand_loop.py`) has no
server and no HTTP: what it can do without a pause is the capacity, in tokens per second. Each system is then measured at shares
of it, from 5 % up, until it misses both objectives (`load.py`). One is that of somebody who reads along: 99 % of first tokens
come within 0.2 s of the time at which the question was due, and 99 % of the times between tokens are below 0.1 s; systems that
answer whole requests show their first token with the last. The other is that of somebody who waits for the end: 99 % of answers
come within 1 s and 0.1 s for each further token. "cpu_ms_per_token" is the processor time of all of a system's processes. It
depends on how large batches are, and so, like all else here, on the rate and on what others do on the machine.

After that, one client at a time: tokens per second of `chat` and `chat_speculative`, served and by hand.

Progress goes to stderr. The last line of stdout is one JSON object: the capacity, for each system all points and the highest
rates within each objective, their ratios, and the figures of speculative decoding. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.focused import turns
from benchmarks.focused.chat.answering import EXAMPLE, MAX_TOKENS, draw_turns, load_draft, load_model, prompt_of
from benchmarks.focused.chat.hand_loop import HandLoop
from benchmarks.focused.chat.http_clients import StreamClient, WholeClient
from benchmarks.focused.chat.load import Ask, Asked, Point, arrivals, ask_all, point_of
from benchmarks.focused.chat.processor_time import cpu_of_descendants_s
from benchmarks.focused.chat.turn import Turn
from benchmarks.focused.ray_serve_server import ray_serve
from benchmarks.focused.turns import System
from benchmarks.processes import adopt_orphans
from benchmarks.serving import ROOT, serving
from loadgen.targets.base import TargetSpec
from loadgen.targets.connections import Connections

from plain_loop import answer, answer_guessing  # isort: skip (found after `answering`)

_WORKFLOWS = ("chat", "chat_speculative")
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.2, 1.6)
"""On a shared machine the capacity may have been measured in a bad moment, so the steps go on beyond it."""
_ALWAYS = (0.3, 0.6, 0.9)
_WARM_UP_S, _DRAIN_S, _ALONE_S = 1.0, 8.0, 5.0
_NUM_TURNS = 256


def _peer(name: str, module: str, *options: str) -> System:
    python = ROOT / ".venv-peers" / name / "bin" / "python"
    return System(command=[str(python), "-m", "benchmarks.focused.chat.peer_server", module, *options])


def _dyorc(*options: str) -> System:
    first, *more = [f"{EXAMPLE / 'workflow.py'}:{name}" for name in _WORKFLOWS]
    return turns.dyorc(first, *more, *options)


SYSTEMS = {
    "dyorc_cell": _dyorc("--in-process"),
    "dyorc": _dyorc(),
    "litserve": _peer("litserve", "benchmarks.focused.chat.litserve_api", "--stop-by-interrupt"),
    "mosec": _peer("mosec", "benchmarks.focused.chat.mosec_worker"),
    "ray_serve": ray_serve("benchmarks.focused.chat.ray_serve_app", "default"),
}
_PATHS = {"litserve": "/infer", "mosec": "/infer", "ray_serve": "/"}


@asynccontextmanager
async def _asking(name: str, url: str, workflow: str = "chat") -> AsyncGenerator[Ask]:
    async with Connections(TargetSpec(protocol="raw", url=url)) as connections:
        yield (
            WholeClient(connections, url, path) if (path := _PATHS.get(name)) else StreamClient(connections, url, workflow)
        ).ask


async def _capacity(drawn: Sequence[Turn], duration_s: float) -> float:
    """Returns the tokens per second of the loop by hand when questions always wait."""
    asked = [Asked(turn, time.monotonic_ns()) for turn in drawn * 40]
    async with HandLoop() as loop:
        asking = [asyncio.ensure_future(loop.ask(one)) for one in asked[: int(duration_s * 400)]]
        await asyncio.sleep(duration_s)
        now_ns, num_tokens = time.monotonic_ns(), sum(len(one.part_ns) for one in asked)
        began_ns = min(one.part_ns[0] for one in asked if one.part_ns)
        loop.give_up()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return num_tokens / ((now_ns - began_ns) / 1e9)


async def _ladder(name: str, ask: Ask, drawn: Sequence[Turn], capacity_rps: float, duration_s: float) -> list[Point]:
    points: list[Point] = []
    for number, share in enumerate(_SHARES):
        is_missed = any(not point.is_live for point in points) and any(not point.is_in_time for point in points)
        if is_missed and share not in _ALWAYS:
            continue
        total_s = _WARM_UP_S + duration_s
        due = arrivals(drawn, share * capacity_rps, total_s, seed=number)
        cpu_s = time.process_time() if name == "loop" else cpu_of_descendants_s()
        asked, start_ns = await ask_all(ask, due, _DRAIN_S)
        cpu_s = (time.process_time() if name == "loop" else cpu_of_descendants_s()) - cpu_s
        points.append(point_of(asked, start_ns, share * capacity_rps, _WARM_UP_S, total_s, cpu_s))
        turns.log(f"{name:<12} {share:4.0%} {points[-1]}")
    return points


async def _alone(ask: Ask, drawn: Sequence[Turn]) -> dict[str, float]:
    """Asks one question after another."""
    end_ns, began_ns = time.monotonic_ns() + int(_ALONE_S * 1e9), time.monotonic_ns()
    asked: list[Asked] = []
    while time.monotonic_ns() < end_ns:
        asked.append(Asked(drawn[len(asked) % len(drawn)], time.monotonic_ns()))
        await ask(asked[-1])
    num_tokens, num_parts = sum(len(one.turn.tokens) for one in asked), sum(len(one.part_ns) for one in asked)
    seconds = (time.monotonic_ns() - began_ns) / 1e9
    wrong = sum(not one.is_right for one in asked)
    return {"tokens_per_s": num_tokens / seconds, "tokens_per_part": num_tokens / num_parts, "num_wrong": wrong}


def _alone_by_hand(drawn: Sequence[Turn]) -> dict[str, float]:
    model, draft = load_model(), load_draft()
    prompts = [(prompt_of(turn.question), len(turn.tokens)) for turn in drawn[:48]]
    began_s = time.perf_counter()
    for prompt, _ in prompts:
        answer(model, prompt, MAX_TOKENS)
    plain_s = time.perf_counter() - began_s
    guessed = [answer_guessing(model, draft, prompt, MAX_TOKENS) for prompt, _ in prompts]
    guessing_s = time.perf_counter() - began_s - plain_s
    num_tokens = sum(number for _, number in prompts)
    acceptance = sum(one.num_right for one in guessed) / sum(one.num_guessed for one in guessed)
    return {"tokens_per_s": num_tokens / plain_s, "speculative_tokens_per_s": num_tokens / guessing_s, "acceptance": acceptance}


def _highest(points: Sequence[Point], is_met: Callable[[Point], bool]) -> float:
    """Returns the highest rate before the first that missed an objective."""
    met = 0.0
    for point in points:
        if not is_met(point):
            break
        met = point.rate_rps
    return met


async def _measure(
    name: str, drawn: Sequence[Turn], capacity_rps: float, duration_s: float
) -> tuple[list[Point], dict[str, Any]]:
    if name == "loop":
        async with HandLoop() as loop:
            return await _ladder(name, loop.ask, drawn, capacity_rps, duration_s), {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        system = SYSTEMS[name]
        environment = {"XDG_STATE_HOME": str(Path(folder) / "state"), "OMP_NUM_THREADS": "1", **system.environment}
        with serving(system.command, environment) as (address, _):
            alone: dict[str, Any] = {}
            async with _asking(name, address.url) as ask:
                await ask_all(ask, arrivals(drawn, 0.2 * capacity_rps, 2.0, seed=99), _DRAIN_S)
                points = await _ladder(name, ask, drawn, capacity_rps, duration_s)
                if turns.is_dyorc(name):
                    alone["chat"] = await _alone(ask, drawn)
            if turns.is_dyorc(name):
                async with _asking(name, address.url, "chat_speculative") as ask:
                    alone["chat_speculative"] = await _alone(ask, drawn)
                turns.log(f"{name:<12} one client: {alone}")
            return points, alone


async def _run(names: Sequence[str], duration_s: float) -> dict[str, Any]:
    drawn = draw_turns(_NUM_TURNS)
    num_tokens = sum(len(turn.tokens) for turn in drawn) / len(drawn)
    capacity = await _capacity(drawn, duration_s)
    turns.log(f"the loop by hand makes {capacity:,.0f} tokens/s; an answer has {num_tokens:.1f} on average")
    summary: dict[str, Any] = {"capacity_tokens_per_s": capacity, "mean_tokens": num_tokens, "by_hand": _alone_by_hand(drawn)}
    turns.log(f"one client by hand: {summary['by_hand']}")
    for name in names:
        points, alone = await _measure(name, drawn, capacity / num_tokens, duration_s)
        highest = {objective: _highest(points, is_met) for objective, is_met in _OBJECTIVES.items()}
        summary[name] = {"highest_rps": highest, "points": [asdict(point) for point in points], "alone": alone}
    return summary | {objective: _ratios(summary, objective) for objective in _OBJECTIVES}


_OBJECTIVES: dict[str, Callable[[Point], bool]] = {
    "live": lambda point: point.is_live,
    "in_time": lambda point: point.is_in_time,
}


def _ratios(summary: dict[str, Any], objective: str) -> dict[str, float]:
    highest = {
        name: figures["highest_rps"][objective]
        for name, figures in summary.items()
        if isinstance(figures, dict) and "highest_rps" in figures
    }
    peers = [rate for name, rate in highest.items() if name in _PATHS]
    ratios: dict[str, float] = {}
    for name, rate in highest.items():
        if turns.is_dyorc(name):
            if peers and max(peers):
                ratios[f"{name}_to_best_peer"] = round(rate / max(peers), 2)
            if highest.get("loop"):
                ratios[f"{name}_to_loop"] = round(rate / highest["loop"], 2)
    return ratios


def main() -> None:
    """Runs the benchmark that the command line asks for."""
    names = ("loop", *SYSTEMS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--duration-s", type=float, default=6.0)
    options = parser.parse_args()
    chosen = options.systems.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    adopt_orphans()  # so that all that a server starts is found
    try:
        print(json.dumps(uvloop.run(_run(chosen, options.duration_s))))
    except OSError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
