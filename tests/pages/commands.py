"""Commands of a page's shell blocks: what they are, what the page shows of their output, and running them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.deadlines import wait_until
from tests.markdown import Block

ROOT = Path(__file__).parents[2]
COMMAND_TIMEOUT_S = 240
_ANY = re.compile(r"\\\.\\\.\\\.|…")
_NUMBER = re.compile(r"\d(?:[\d,]|\\\.(?=\d))*")
_SPACE = re.compile(r"(?:\\? )+")


class PageError(Exception):
    """A block did not do what its page says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command with the lines that the page shows of its output."""

    text: str
    shown: str


def commands(block: Block) -> list[Command]:
    """Returns a block's commands: of `console` those after `$`, of `sh` and `bash` the whole block as one script.

    Raises:
        PageError: If a `console` block does not begin with `$`.
    """
    if block.language != "console":
        return [Command(text="set -e\n" + block.code, shown="")]
    return list(_prompted(block))


def _prompted(block: Block) -> Iterator[Command]:
    text: list[str] = []
    shown: list[str] = []
    for line in block.code.splitlines():
        if line.startswith("$ "):
            if text:
                yield Command(text="\n".join(text), shown="\n".join(shown))
            text, shown = [line[2:]], []
        elif not text:
            raise PageError(f"{block.place}: a console block begins with '$ ' and a command, and not with {line!r}")
        elif not shown and (line.startswith("> ") or text[-1].endswith("\\")):
            text.append(line.removeprefix("> "))
        else:
            shown.append(line)
    yield Command(text="\n".join(text), shown="\n".join(shown))


def missing_lines(shown: str, output: str, *, numbers_vary: bool) -> list[str]:
    """Returns the shown lines that do not follow in the output in this order; `...` in a line is any text."""
    left = iter(output.splitlines())
    patterns = [(line, _pattern(line, numbers_vary)) for line in shown.splitlines() if line.strip() not in ("", "...", "…")]
    return [line for line, pattern in patterns if not any(pattern.fullmatch(candidate.strip()) for candidate in left)]


def _pattern(line: str, numbers_vary: bool) -> re.Pattern[str]:
    text = re.escape(line.strip())
    if numbers_vary:
        text = _NUMBER.sub(r"\\d[\\d.,]*", text)
    return re.compile(_ANY.sub(".*", _SPACE.sub(r"\\s+", text)))


def environment(folder: Path) -> dict[str, str]:
    """Returns a reader's environment: this environment's commands, an empty home, a terminal without colours."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("DYORC_", "PYTEST_"))}
    return ours | {
        "COLUMNS": "130",
        "HOME": str(folder),
        "NO_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "TERM": "dumb",
    }


def run_command(block: Block, command: Command, folder: Path) -> str:
    """Runs a command to its end, and returns its output, that of standard error included.

    Raises:
        PageError: If it does not exit as the page says, or its output is not the shown one.
    """
    try:
        process = subprocess.run(
            ["bash", "-c", command.text],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PageError(f"{block.place}: {command.text!r} did not end in {COMMAND_TIMEOUT_S} s; {error.stdout!r}") from None
    if (process.returncode != 0) != ("fails" in block.markers):
        raise PageError(f"{block.place}: {command.text!r} exited with {process.returncode}:\n{process.stdout}")
    check_output(block, command.shown, process.stdout)
    return process.stdout


def check_output(block: Block, shown: str, output: str) -> None:
    """Compares an output with what the page shows.

    Raises:
        PageError: If lines are missing.
    """
    if missing := missing_lines(shown, output, numbers_vary="numbers vary" in block.markers):
        raise PageError(f"{block.place}: the output has no line {missing[0]!r} where the page shows it:\n{output}")


class Terminal:
    """A command that keeps running in a terminal of its own until the reader presses Ctrl-C: a server."""

    def __init__(self, block: Block, command: Command, folder: Path, log: Path) -> None:
        self._block = block
        self._command = command
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", command.text],
                cwd=folder,
                env=environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Waits until the output shows what the page says.

        Raises:
            PageError: If the command ends instead.
        """
        wait_until(self._has_shown_or_ended, f"output of {self._block.place}: {self._command.text}")
        if self._process.poll() is not None:
            raise PageError(f"{self._block.place}: {self._command.text!r} ended with {self._process.returncode}:\n{self.output}")

    def _has_shown_or_ended(self) -> bool:
        shown = f"{self._command.shown}\n" + "".join(f"...{text}...\n" for text in [self._block.markers["background"]] if text)
        if not shown.strip():
            raise PageError(f"{self._block.place}: neither output nor <!-- background: TEXT --> says when the command is ready")
        vary = "numbers vary" in self._block.markers
        return self._process.poll() is not None or not missing_lines(shown, self.output, numbers_vary=vary)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._log.read_text()

    def stop(self) -> None:
        """Presses Ctrl-C and waits for the end.

        Raises:
            PageError: If it does not end.
        """
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise PageError(f"{self._block.place}: {self._command.text!r} does not end after Ctrl-C:\n{self.output}") from None
        finally:
            _kill_group(self._process.pid)


def _kill_group(leader: int) -> None:
    """Ends what a command has left in its process group."""
    while True:
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.05)
