"""Starts the worker, gives it one model after the other, and ends it where it takes too long: that is a row, not the end."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from tests.zoo.planning import Case


class Supervisor:
    """Checks models in a process of its own that lasts until it hangs or crashes. A context manager.

    Args:
        limit_s: How long a capture, and each plan, may take.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._folder = tempfile.TemporaryDirectory(prefix="zoo-")
        self._worker: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *error: object) -> None:
        if self._worker is not None and error[0] is None:
            assert self._worker.stdin
            self._worker.stdin.close()
            self._worker.wait(self._limit_s)
        self._kill()
        self._folder.cleanup()

    def check(self, name: str, cases: Sequence[Case]) -> dict[str, Any]:
        """Captures a model and plans it.

        Returns:
            Its row: `name`, `capture` and `plans`.
        """
        row: dict[str, Any] = {"name": name, "capture": {}, "plans": []}
        remaining = list(cases)
        while True:
            try:
                self._give(name, remaining)
                for answer in iter(self._answer, {"ended": name}):
                    if "capture" in answer:
                        row["capture"] = answer["capture"]
                    else:
                        row["plans"].append(answer["plan"])
                        remaining.pop(0)
                return row
            except (TimeoutError, EOFError) as error:
                self._kill()
                if not row["capture"]:
                    row["capture"] = {"refused": str(error), "is_equal": False, "is_broken": False, "nodes": 0, "dtype": ""}
                    return row
                if not remaining:
                    return row
                case = remaining.pop(0)
                row["plans"].append({"planner": case.planner, "cluster": case.cluster, "refused": "", "trouble": str(error)})
                row["plans"][-1] |= {"is_equal": False, "error": float("inf"), "where": ""}

    def _give(self, name: str, cases: Sequence[Case]) -> None:
        if self._worker is None:
            command = [sys.executable, "-m", "tests.zoo.worker", self._folder.name]
            self._worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
            self._buffer = b""
        task = {"name": name, "cases": [(case.planner, case.cluster) for case in cases]}
        assert self._worker.stdin
        try:
            self._worker.stdin.write(json.dumps(task).encode() + b"\n")
            self._worker.stdin.flush()
        except BrokenPipeError as error:
            raise EOFError("the process crashed") from error

    def _answer(self) -> dict[str, Any]:
        assert self._worker
        assert self._worker.stdout
        until_s = time.monotonic() + self._limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._worker.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(until_s - time.monotonic(), 0)):
                    raise TimeoutError(f"took longer than {self._limit_s:g} s")
                part = os.read(self._worker.stdout.fileno(), 1 << 16)
                if not part:
                    raise EOFError(f"the process crashed with status {self._worker.wait(self._limit_s)}")
                self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)  # its ranks, too
        worker.wait()
        for stream in (worker.stdin, worker.stdout):
            assert stream
            stream.close()
