"""Fuzzes the targets by turns with Atheris: ``python -m tests.fuzz --minutes 10 [--target NAME]``. The last line is JSON.

Each has the same time and starts from its seeds, from what is kept in `corpus`, and from what earlier runs have left in
``build/fuzz/NAME/corpus``. An input that breaks the contract ends its target's turn, and stays in ``build/fuzz/NAME``;
``python -m tests.fuzz --target NAME --input FILE`` reads it once more.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.command_line import INTERRUPTED, end_at_sigterm
from tests.fuzz.entry_points import NAMES, build_target
from tests.fuzz.mutations import MAX_BYTES

_BUILD = Path("build/fuzz")
_OPTIONS = (f"-max_len={MAX_BYTES}", "-rss_limit_mb=2048", "-timeout=20", "-print_final_stats=1", "-verbosity=1")
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")
_EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_REASON = re.compile(r"^(\w[\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)
_GRACE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTurn:
    """What came of one target's turn.

    Attributes:
        coverage: Branches of our code that inputs reached, as Atheris counts.
        finding: The file with the input that broke the contract; empty: none did.
        reason: The last error in the target's log, if there is a finding.
        was_cut_off: Whether it did not end in time and was killed, as on a machine with too much to do: then its inputs are not
            counted.
    """

    target: str
    num_executions: int
    executions_per_s: float
    coverage: int
    finding: str
    reason: str
    was_cut_off: bool


def take_turn(name: str, seconds: int) -> FuzzTurn:
    """Fuzzes one target."""
    folder = _BUILD / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    command = [sys.executable, "-m", "tests.fuzz.one_target", name, str(corpus), *_OPTIONS]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"-max_total_time={seconds}", f"-artifact_prefix={folder}/"], stdout=output, stderr=output
        )
        try:
            process.wait(seconds + _GRACE_S)
            was_cut_off = False
        except subprocess.TimeoutExpired:
            was_cut_off = True
        finally:
            process.kill()
            process.wait()
    text = log.read_text(errors="replace")
    executions, coverage = _EXECUTIONS.findall(text), _COVERAGE.findall(text)
    findings = [path for path in set(folder.iterdir()) - before if path.name.startswith(("crash-", "timeout-", "oom-"))]
    if process.returncode and not findings and not was_cut_off:
        raise RuntimeError(f"fuzzing {name} failed, see {log}: {text[-500:]}")
    number = int(executions[-1]) if executions else 0
    reasons = _REASON.findall(text) if findings else []
    return FuzzTurn(
        target=name,
        num_executions=number,
        executions_per_s=round(number / seconds, 1),
        coverage=int(coverage[-1][0]) if coverage else 0,
        finding=str(findings[0]) if findings else "",
        reason=reasons[-1] if reasons else "",
        was_cut_off=was_cut_off,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 1 if an input broke a contract, or a turn did not end in time."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes all places where bytes come in.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of fuzzing, for all targets together")
    parser.add_argument("--target", choices=NAMES, help="only this one")
    parser.add_argument("--input", type=Path, metavar="FILE", help="read this input once, with --target, and show what comes")
    options = parser.parse_args(arguments)
    if options.input is not None:
        if options.target is None:
            parser.error("--input needs --target: which one reads it")
        return _read_once(options.target, options.input.read_bytes())
    if find_spec("atheris") is None:
        parser.error("Atheris is not installed: make fuzz installs it, where it can be installed")
    end_at_sigterm()
    turns, status = list[FuzzTurn](), 0
    try:
        _take_turns([options.target] if options.target else NAMES, options.minutes, turns)
    except KeyboardInterrupt:
        status = INTERRUPTED
    print(json.dumps({"minutes": options.minutes, "turns": [asdict(turn) for turn in turns]}))
    return status or int(any(turn.finding or turn.was_cut_off for turn in turns))


def _take_turns(names: Sequence[str], minutes: float, turns: list[FuzzTurn]) -> None:
    for name in names:
        turn = take_turn(name, max(1, round(60 * minutes / len(names))))
        turns.append(turn)
        print(
            f"{name:26} {turn.num_executions:>10,} inputs {turn.executions_per_s:>8,.0f}/s  {turn.coverage:>6,} branches  "
            f"{turn.finding or ('did not end in time' if turn.was_cut_off else 'nothing found')}",
            flush=True,
        )
        if turn.finding:
            print(
                f"  {turn.reason}\n  repeat it: python -m tests.fuzz --target {name} --input {turn.finding}\n"
                f"  keep it, once it is mended: tests/fuzz/corpus/{name}",
                flush=True,
            )


def _read_once(name: str, data: bytes) -> int:
    with tempfile.TemporaryDirectory(prefix="dyorc-fuzz-") as folder:
        target = build_target(name, Path(folder))
        try:
            print("accepted" if target.take(data) else "refused, with a documented error")
        finally:
            target.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
