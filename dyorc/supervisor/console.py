"""What a supervisor prints. Only the standard library."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from dyorc.core.counts import count


def say(text: str) -> None:
    """Prints a line."""
    print(text, flush=True)


def report_errors_as_json() -> None:
    """Makes `report_error` write JSON lines like those in the cells' logs."""
    global _is_json
    _is_json = True


_is_json = False


def report_error(text: str, traceback: str = "") -> None:
    """Prints an error."""
    sys.stderr.write(_as_json(text, traceback) if _is_json else f"{traceback}dyorc: {text}\n")
    sys.stderr.flush()


def _as_json(text: str, traceback: str) -> str:
    now_s = time.time()
    iso = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1e6):06d}Z"
    line = {"time": iso, "time_s": round(now_s, 6), "level": "error", "event": text, "logger": "dyorc.supervision"}
    return json.dumps(line | ({"traceback": traceback} if traceback else {})) + "\n"


class StartProgress:
    """Shows how a server starts: what all cells report alike, once, and every change of a program's state in a cell until all
    are ready. Later changes, as of deploys, are for `dyorc status`, as in a server of one process."""

    def __init__(self, num_cells: int) -> None:
        self._num_cells = num_cells
        self._printed: set[str] = set()
        self._states: dict[tuple[int, str], str] = {}
        self._is_over = False

    def listening(self, url: str, grpc_address: str) -> None:
        """Shows that a cell listens."""
        self._print_once(f"Listening on {url}")
        if grpc_address:
            self._print_once(f"gRPC on {grpc_address}")

    def _print_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            say(text)

    def states(self, number: int, programs: dict[str, Sequence[Any]]) -> None:
        """Shows the states of a cell's programs, as `StatusBoard.as_values` gives them, while the server starts."""
        if self._is_over:
            return
        for name, (state, _, _, error) in programs.items():
            text = f"{state} {error}".rstrip()
            if self._states.get((number, name)) != text:
                self._states[number, name] = text
                say(f"  cell {number}: {name}: {text}" if self._num_cells > 1 else f"  {name}: {text}")

    def ready(self, after_s: float, models: Sequence[str]) -> None:
        """Shows that all cells are ready, which ends the start."""
        self._is_over = True
        cells = count(self._num_cells, "cell")
        say(f"Ready after {after_s:.1f} s, {cells}. Models: {', '.join(models) or 'none'}. Ctrl-C stops.")
