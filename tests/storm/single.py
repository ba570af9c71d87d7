"""Shapes of one server: a cell, several cells, and programs on Ray."""

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from dyorc.testing import ServerProcess, serve_command
from tests.deadlines import wait_until
from tests.server_process import target
from tests.shared_folders import shared_folder
from tests.storm import faults
from tests.storm.contract import Entrance, Fault, Shape
from tests.storm.members import Member, SmallFolder, reserved_port
from tests.storm.mistaken_server import with_mistake
from tests.storm.wall_clock import WallClock
from tests.workflows import stormy

TARGETS = [target("stormy", workflow.name) for workflow in stormy.ALL]
STORE_BYTES = 24 * 2**20
_HANG_LIMIT_S = 6.0
_NUM_CELLS = 2
_MAX_STOP_S = 1.2


class SingleServer(Shape):
    """A server with one entrance."""

    mistake = ""
    """One of `mistaken_server.MISTAKES`, which the server makes; empty: none."""
    _ray_s = 0.0
    """How long its Ray took to start."""

    def start(self) -> None:
        stack, is_on_ray = self._stack, self.name == "ray"
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="t-", dir="/tmp")))
        self._disk = stack.enter_context(SmallFolder(STORE_BYTES))
        self._clock = stack.enter_context(WallClock())
        port, grpc_port = reserved_port(stack), reserved_port(stack)
        settings = self._clock.settings | {
            "DYORC_STORE": f"sqlite://{self._disk.path}/store.db",
            "DYORC_JOBS__TTL_S": "1728000",  # clocks jump by days
            "DYORC_JOBS__MAX_ATTEMPTS": "100",  # an innocent job may be running each time that its server is killed
            "DYORC_CELLS__HANG_LIMIT_S": str(_HANG_LIMIT_S),
            # Faults follow one another within a minute, which is not what the growing delay is for.
            "DYORC_CELLS__RESTART_DELAY_S": "0.1",
            "DYORC_CELLS__MAX_RESTART_DELAY_S": "0.1",
        }
        if is_on_ray:
            self.arena_folder = Path(stack.enter_context(shared_folder()))
            settings["DYORC_TRANSPORT__ARENA_FOLDER"] = str(self.arena_folder)
            settings["DYORC_TRANSPORT__INLINE_LIMIT_BYTES"] = "16384"
        options = ["--cells", str(_NUM_CELLS)] if self.name == "cells" else []
        command = serve_command(*TARGETS, *options, *(["--verbose"] if is_on_ray else []), in_process=not is_on_ray)
        command[command.index("--port") + 1] = str(port)
        command = with_mistake([*command, "--grpc-port", str(grpc_port)], self.mistake)

        def make(further: Mapping[str, str]) -> ServerProcess:
            return ServerProcess(command, environment=settings | dict(further))

        self._server = Member("server", make, ServerProcess.wait_until_ready, self.findings, lambda: self.hindered_until_s)
        began_s = time.monotonic()
        self._server.start()
        if is_on_ray:
            self._server.process.wait_for("replicas_handed_over")
            self._ray_s = time.monotonic() - began_s
        self.entrances = [Entrance(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}")]

    def stop(self) -> None:
        with self._stack:
            if hasattr(self, "_server"):
                self._server.end()
            if self.arena_folder is not None:
                self.findings.leaks += [f"left in shared memory: {path}" for path in self.arena_folder.iterdir()]

    def faults(self) -> Mapping[str, Mapping[str, Callable[[], Fault]]]:
        server, chance, away = self._server, self._chance, faults.AWAY
        kinds: dict[str, Callable[[], Fault]] = {
            "kill server": lambda: faults.kill(server, [0], away),
            "stop server": lambda: faults.stop_for("server", [server.pid], self._some_s(), away),
            "restart server": lambda: self._with_end_of_ray(faults.restart(server, [0], away, chance)),
            "change configuration": lambda: self._with_end_of_ray(faults.reconfigure(server, [0], away, chance)),
            "deploy": lambda: faults.deploy(self.entrances[0], TARGETS, chance),
        }
        match self.name:
            case "cells":
                kinds |= {"kill cell": self._kill_cell, "stop cell": self._stop_cell, "crash cell": self._crash_cell}
            case "ray":
                kinds |= {
                    "kill replica": self._kill_replica,
                    "stop replica": self._stop_replica,
                    "crash replica": self._crash_replica,
                    "scale": lambda: faults.scale(self.entrances[0], chance.choice(("add", "multiply", "mix")), chance),
                }
            case _:
                pass
        possible: dict[str, Mapping[str, Callable[[], Fault]]] = {"server": kinds}
        if self._disk.can_be_full:
            possible["disk"] = {"full disk": lambda: faults.full(self._disk, "disk", ["store"])}
        if self._clock.can_move:
            possible["clock"] = {"clock": lambda: faults.clock_jump(self._clock, chance)}
        return possible

    def _with_end_of_ray(self, fault: Fault) -> Fault:
        """A server answers before its Ray has started, and stops only after: that start cannot be broken off (decision 0070)."""
        fault.bound_s += faults.BUSY_FACTOR * self._ray_s
        return fault

    def _some_s(self) -> float:
        return self._chance.uniform(0.2, _MAX_STOP_S)

    # Cells

    def _cells(self) -> list[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._server.pid).children()
            return [child.pid for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        return []

    def _strike_cell(self, name: str, apply: Callable[[int], object], *, is_ended: bool, bound_s: float) -> Fault:
        pid = self._chance.choice(self._cells())
        num_ready = self._num_ready_again()

        def end() -> None:
            if is_ended:
                wait_until(lambda: pid not in self._cells() and self._num_ready_again() > num_ready, f"another cell for {pid}")

        return Fault(
            name=name, apply=lambda: apply(pid), end=end, bound_s=bound_s, codes=faults.LOST_WITH_LEADER, cuts=[0], pids=[pid]
        )

    def _num_ready_again(self) -> int:
        return sum("is ready again" in line for line in self._server.process.lines)

    def _kill_cell(self) -> Fault:
        return self._strike_cell(
            "kill cell", lambda pid: faults.send([pid], signal.SIGKILL), is_ended=True, bound_s=faults.BUSY_S
        )

    def _stop_cell(self) -> Fault:
        """For a moment, or until its supervisor ends it."""
        is_ended = self._chance.random() < 0.3
        for_s = self._some_s()

        def apply(pid: int) -> None:
            os.kill(pid, signal.SIGSTOP)
            if not is_ended:
                time.sleep(for_s)
                faults.send([pid], signal.SIGCONT)

        bound_s = 2 * _HANG_LIMIT_S if is_ended else for_s
        return self._strike_cell("stop cell", apply, is_ended=is_ended, bound_s=bound_s + faults.BUSY_S)

    def _crash_cell(self) -> Fault:
        num_ready = self._num_ready_again()
        fault = faults.crash(self.entrances[0], "crash cell", [0], faults.BUSY_S, self._cells, self._chance)
        fault.codes = faults.LOST_WITH_LEADER
        fault.end = lambda: wait_until(lambda: self._num_ready_again() > num_ready, "another cell")
        return fault

    # Replicas

    def _replicas(self) -> list[int]:
        pids: list[int] = []
        for pid in self._server.process.pids():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.name().startswith("dyorc-") and process.status() != psutil.STATUS_ZOMBIE:
                    pids.append(pid)
        return pids

    def _kill_replica(self) -> Fault:
        pid = self._chance.choice(self._replicas())
        return Fault(
            name="kill replica",
            apply=lambda: faults.send([pid], signal.SIGKILL),
            end=lambda: wait_until(lambda: not psutil.pid_exists(pid), "it is gone"),
            bound_s=faults.start_bound_s(self._server),
            codes=(*faults.LOST_WITH_LEADER, "replica_lost"),
        )

    def _stop_replica(self) -> Fault:
        pid = self._chance.choice(self._replicas())
        codes = (*faults.LOST_WITH_LEADER, "replica_lost")
        return faults.stop_for("replica", [pid], self._some_s(), codes, bound_s=faults.start_bound_s(self._server))

    def _crash_replica(self) -> Fault:
        bound_s = faults.start_bound_s(self._server)
        fault = faults.crash(self.entrances[0], "crash replica", [], bound_s, self._replicas, self._chance)
        fault.codes = (*faults.LOST_WITH_LEADER, "replica_lost")
        return fault

    # What it is made of

    def pids(self) -> dict[str, list[int]]:
        kinds = {"server": [self._server.pid]}
        if self.name == "cells":
            kinds["cell"] = self._cells()
        if self.name == "ray":
            kinds["replica"] = self._replicas()
        return kinds

    @property
    def num_log_lines(self) -> int:
        return self._server.num_lines

    @property
    def log_tail(self) -> str:
        return "\n".join(self._server.tail)
