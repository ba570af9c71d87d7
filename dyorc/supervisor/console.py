"""What a supervisor prints. Only the standard library."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any


def say(text: str) -> None:
    """Prints a line."""
    print(text, flush=True)


def report_errors_as_json() -> None:
    """From now on, `report_error` writes lines like those in the cells' logs."""
    global _is_json
    _is_json = True


_is_json = False


def report_error(text: str, traceback: str = "") -> None:
    """Prints what went wrong."""
    sys.stderr.write(_as_json(text, traceback) if _is_json else f"{traceback}dyorc: {text}\n")
    sys.stderr.flush()


def _as_json(text: str, traceback: str) -> str:
    now_s = time.time()
    iso = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1e6):06d}Z"
    line: dict[str, Any] = {
        "time": iso,
        "time_s": round(now_s, 6),
        "level": "error",
        "event": text,
        "logger": "dyorc.supervision",
    }
    return json.dumps(line | ({"traceback": traceback} if traceback else {})) + "\n"


class StartProgress:
    """Shows how a server starts: once what all cells say alike, and every change of a program in a cell.

    Args:
        num_cells: How many cells there are.
    """

    def __init__(self, num_cells: int) -> None:
        self._num_cells = num_cells
        self._said: set[str] = set()
        self._states: dict[tuple[int, str], str] = {}

    def listening(self, url: str, grpc_address: str) -> None:
        """A cell listens."""
        self._once(f"Listening on {url}")
        if grpc_address:
            self._once(f"gRPC on {grpc_address}")

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)

    def states(self, number: int, programs: dict[str, Sequence[Any]]) -> None:
        """What the programs of a cell are doing; the text of `StatusBoard.as_values`."""
        for name, (state, _, _, error) in programs.items():
            text = f"{state} {error}".rstrip()
            if self._states.get((number, name)) != text:
                self._states[number, name] = text
                say(f"  cell {number}: {name}: {text}" if self._num_cells > 1 else f"  {name}: {text}")

    def ready(self, after_s: float, models: Sequence[str]) -> None:
        """All cells are ready."""
        cells = "1 cell" if self._num_cells == 1 else f"{self._num_cells} cells"
        say(f"Ready after {after_s:.1f} s, {cells}. Models: {', '.join(models)}. Ctrl-C stops.")
