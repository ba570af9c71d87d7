"""The command: runs seeds, each in a child of this process that has imported everything, and adds up what they saw."""

import argparse
import contextlib
import importlib
import json
import os
import resource
import select
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

from dyorc.system.owned_folder import owned_folder
from tests.command_line import INTERRUPTED, end_at_sigterm, positive
from tests.whole_server.mutants import MUTANTS as COORDINATION_MUTANTS
from tests.whole_server.mutants_of_stores import STORE_MUTANTS
from tests.whole_server.run import run_seed

MUTANTS = {**COORDINATION_MUTANTS, **STORE_MUTANTS}

_NEEDED = (
    "anyio._backends._asyncio", "dyorc.cells.orchestrator_cell", "dyorc.orchestrator.linked_orchestrator", "dyorc.store.redis",
    "numpy.ma", "pydantic.v1", "rich._emoji_codes",
)  # fmt: skip
"""Modules that servers and clients import when they start; each child would import them again."""
_LIMIT_S = 60
"""Of the processor's time, for a seed."""
_MEMORY = "/dev/shm"
"""Where stores lie, if it is there: their commits wait for no disk."""
_SHOW_EVERY_S = 5.0
_OF_ONE = ("seed", "wrong", "steps", "digest")
"""What the last line says of one seed: the same each time."""
_NUM_SERIES = 3
_MAX_SEEDS = 100
"""In a series, until a mistake has to be noticed."""


class Child:
    """A child process that runs a seed."""

    def __init__(self, seed: int, root: str, log_path: str | None, mutant: str) -> None:
        self.seed = seed
        self.folder = tempfile.mkdtemp(dir=root)
        self._received = b""
        self.descriptor, theirs = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.descriptor)
            _be_child(seed, self.folder, theirs, log_path, mutant)
        os.close(theirs)

    def read(self) -> bool:
        """Reads what it says; False at the end."""
        data = os.read(self.descriptor, 1 << 16)
        self._received += data
        return bool(data)

    def result(self) -> dict[str, Any]:
        """Returns what it saw, once it has ended."""
        os.close(self.descriptor)
        _, status, usage = os.wait4(self.pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        processor_s = usage.ru_utime + usage.ru_stime
        if not self._received:
            return {"seed": self.seed, "wrong": [f"the child ended with status {status}"], "processor_s": processor_s}
        return json.loads(self._received) | {"processor_s": processor_s}


def _be_child(seed: int, folder: str, descriptor: int, log_path: str | None, mutant: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_LIMIT_S, _LIMIT_S))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills its children
    try:
        if mutant:
            MUTANTS[mutant]()
        with open(log_path or os.devnull, "w") as log:
            result = run_seed(seed, folder, lambda line: print(line, file=log))
        os.write(descriptor, json.dumps(result).encode())
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(0)


def results(seeds: Sequence[int], num_children: int, log_path: str | None = None, mutant: str = "") -> Generator[dict[str, Any]]:
    """Runs seeds side by side, and yields what each has seen.

    Args:
        log_path: Where the log goes; None: nowhere.
        mutant: The mistake to make; empty: none.
    """
    waiting = list(reversed(seeds))
    children: dict[int, Child] = {}
    with owned_folder("dyorc-sim-") as root:
        try:
            while waiting or children:
                while waiting and len(children) < num_children:
                    child = Child(waiting.pop(), root, log_path, mutant)
                    children[child.descriptor] = child
                readable, _, _ = select.select(list(children), [], [], 1.0)
                for descriptor in readable:
                    if not children[descriptor].read():
                        yield children.pop(descriptor).result()
        finally:
            for child in children.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
                child.result()


def main(arguments: list[str]) -> int:
    """Runs what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.whole_server", description="The whole server under one seed.")
    parser.add_argument("--seeds", type=positive, metavar="N", help="run N seeds, by default 20; of each mistake, at most N")
    parser.add_argument("--first", type=positive, default=1, metavar="K", help="the first of them")
    parser.add_argument("--seed", type=int, metavar="K", help="run one seed, and print its log")
    parser.add_argument("--jobs", type=positive, default=2, metavar="N", help="seeds that run side by side")
    parser.add_argument("--mutant", choices=MUTANTS, default="", help="make this mistake on purpose")
    parser.add_argument(
        "--mutants",
        nargs="*",
        choices=MUTANTS,
        metavar="NAME",
        help="make these mistakes, by default all, and see how soon each is noticed",
    )
    options = parser.parse_args(arguments)
    end_at_sigterm()
    tempfile.tempdir = _MEMORY if os.path.isdir(_MEMORY) else None
    for module in _NEEDED:
        importlib.import_module(module)
    if options.mutants is not None:
        series = [options.seeds] if options.seeds else [_MAX_SEEDS] * _NUM_SERIES
        return _run_mutants(options.mutants or list(MUTANTS), options.first, series, options.jobs)
    if options.seed is not None:
        return _run_one(options.seed, options.mutant)
    return _run_many(range(options.first, options.first + (options.seeds or 20)), options.jobs, options.mutant)


def _run_mutants(names: Sequence[str], first: int, series: Sequence[int], num_children: int) -> int:
    """Makes each mistake in series of seeds of these lengths, and looks how many each takes until it is noticed."""
    figures: dict[str, Any] = {}
    for name in names:
        seeds, took_s, text = list[int](), list[float](), ""
        for number, length in enumerate(series):
            begin = first + number * _MAX_SEEDS
            num_seeds, series_s, text = _until_noticed(range(begin, begin + length), num_children, name)
            seeds.append(num_seeds)
            took_s.append(series_s)
            if not text:
                break
        figures[name] = {"noticed": bool(text), "seeds": statistics.median(seeds), "took_s": round(statistics.median(took_s), 1)}
        print(f"{name}: {figures[name]} {text}", flush=True)
    missed = [name for name, figure in figures.items() if not figure["noticed"]]
    print(json.dumps({"mutants": len(names), "missed": missed, "figures": figures}))
    return bool(missed)


def _until_noticed(seeds: Sequence[int], num_children: int, mutant: str) -> tuple[int, float, str]:
    """Returns how many seeds it took to notice a mistake, how long, and what was noticed; empty if nothing was."""
    began_s = time.monotonic()
    with contextlib.closing(results(seeds, num_children, mutant=mutant)) as running:
        for number, result in enumerate(running, 1):
            if result["wrong"]:
                return number, time.monotonic() - began_s, result["wrong"][0]
    return len(seeds), time.monotonic() - began_s, ""


def _run_one(seed: int, mutant: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/log"
        open(path, "w").close()  # a child may break off before it begins
        (result,) = results([seed], 1, path, mutant)
        with open(path) as log:
            shutil.copyfileobj(log, sys.stdout)
    sys.stdout.flush()
    for text in result["wrong"]:
        print(f"WRONG: {text}", file=sys.stderr, flush=True)
    if result["wrong"]:
        print(_how_to_repeat(seed, mutant))
    print(json.dumps({name: result[name] for name in _OF_ONE if name in result}))
    return bool(result["wrong"])


def _how_to_repeat(seed: int, mutant: str) -> str:
    return f"repeat it: python -m tests.whole_server --seed {seed}{f' --mutant {mutant}' if mutant else ''}"


def _run_many(seeds: Sequence[int], num_children: int, mutant: str) -> int:
    began_s = shown_s = time.monotonic()
    faults, outcomes, stores, rare_paths = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    virtual_s, processor_s, num_steps, failed, num_done = 0.0, 0.0, 0, list[int](), 0
    is_interrupted = False
    try:
        for result in results(seeds, num_children, mutant=mutant):
            num_done += 1
            faults.update(result.get("faults", {}))
            rare_paths.update(result.get("rare_paths", {}))
            outcomes.update(result.get("outcomes", {}))
            stores.update(result.get("stores", {}))
            virtual_s += result.get("virtual_s", 0.0)
            processor_s += result["processor_s"]
            num_steps += result.get("steps", 0)
            if result["wrong"]:
                failed.append(result["seed"])
                print(f"seed {result['seed']}: {'; '.join(result['wrong'][:3])}")
                print(f"  {_how_to_repeat(result['seed'], mutant)}", flush=True)
            if time.monotonic() - shown_s > _SHOW_EVERY_S:
                shown_s = time.monotonic()
                print(
                    f"{num_done} of {len(seeds)} seeds, {len(failed)} failed, {num_done / (shown_s - began_s):.1f} a second",
                    flush=True,
                )
    except KeyboardInterrupt:
        is_interrupted = True
    took_s = time.monotonic() - began_s
    figures = {
        "seeds": num_done, "failed": failed, "took_s": round(took_s, 1), "seeds_per_s": round(num_done / took_s, 2),
        "processor_s": round(processor_s, 1), "virtual_s": round(virtual_s), "steps": num_steps,
        "stores": dict(sorted(stores.items())), "faults": dict(sorted(faults.items())),
        "rare_paths": dict(sorted(rare_paths.items())), "outcomes": dict(sorted(outcomes.items())),
    }  # fmt: skip
    print(json.dumps(figures))
    return INTERRUPTED if is_interrupted else bool(failed)
