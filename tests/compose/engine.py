"""A separate Docker engine for a test, in a separate network; nothing of it stays.

An engine that does not start, or hangs before it has run a container, says nothing about DyOrc: `NoEngineError`, for which the
test is skipped. A hang after that is a failure. Both have a time limit, by `Engine.within`.
"""

import contextlib
import math
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from tests.deadlines import wait_until

_NAMES = Path("/var/run/netns")
_START_S = 30.0
_STOP_S = 15.0
_COMMAND_S = 300.0
"""Long for any command, even on a busy machine."""


def why_not() -> str:
    """Returns what keeps this machine from running an engine; empty if nothing is known to."""
    if os.geteuid() != 0:
        return "a Docker engine needs root"
    commands = ("dockerd", "docker-compose", "docker-init", "iptables", "ip", "nsenter")
    missing = [command for command in commands if shutil.which(command) is None]
    return f"there is no {', no '.join(missing)} (Debian: apt install docker.io docker-compose iptables)" if missing else ""


class NoEngineError(Exception):
    """This machine cannot run one, or no containers on it; says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine.

    Attributes:
        environment: For commands that use it.
        namespace: File of the network in which its containers publish their ports; empty if it is this one.
        deadline_s: By when all commands have to have ended, on the monotonic clock.
    """

    environment: dict[str, str]
    namespace: str
    deadline_s: float = math.inf

    def within(self, limit_s: float) -> "Engine":
        """Returns the same engine, whose commands have to end within so many seconds from now, all of them together."""
        return replace(self, deadline_s=time.monotonic() + limit_s)

    @property
    def left_s(self) -> float:
        """How long a command may take now."""
        return max(0.0, min(_COMMAND_S, self.deadline_s - time.monotonic()))

    @property
    def inside(self) -> list[str]:
        """What to put before a command that asks the containers."""
        return ["nsenter", f"--net={self.namespace}"] if self.namespace else []

    def docker(self, *arguments: str) -> str:
        """Runs a command of Docker's, and returns what it prints.

        Raises:
            AssertionError: If it fails.
            subprocess.TimeoutExpired: If it hangs.
        """
        return self.run(["docker", *arguments])

    def try_out(self, image: str) -> None:
        """Runs a container.

        Raises:
            NoEngineError: If none can be run here.
        """
        command = ["docker", "run", "--rm", image, "true"]
        try:
            subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True, timeout=self.left_s)
        except subprocess.CalledProcessError as error:
            raise NoEngineError(f"the engine runs no containers: {error.stderr[-1000:]}") from None

    def run(self, command: list[str], folder: Path | None = None, stdin: IO[bytes] | None = None, **variables: str) -> str:
        """Runs a command, and returns what it prints.

        Raises:
            AssertionError: If it fails.
            subprocess.TimeoutExpired: If it hangs.
        """
        environment = {**self.environment, **variables}
        done = subprocess.run(
            command, cwd=folder, stdin=stdin, env=environment, capture_output=True, text=True, check=False, timeout=self.left_s
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout


@contextlib.contextmanager
def hanging_is_no_engine() -> Generator[None]:
    """Reports what hangs while entered.

    Raises:
        NoEngineError: Instead of `subprocess.TimeoutExpired`.
    """
    try:
        yield
    except subprocess.TimeoutExpired as error:
        raise NoEngineError(f"the engine hangs: {error}") from None


@contextlib.contextmanager
def engine() -> Generator[Engine]:
    """Runs an engine. Its network is a namespace: rules, bridges and ports are gone with it, and the machine's stay as they are.

    Raises:
        NoEngineError: If it does not start.
    """
    name = f"dyorc-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="t-", dir="/tmp", ignore_cleanup_errors=True)))
        # All files of all layers: Python takes minutes to remove them on a busy machine.
        stack.callback(subprocess.run, ["rm", "--recursive", "--force", str(folder / "data")], check=False)
        _run("ip", "netns", "add", name)
        stack.callback(_run, "ip", "netns", "del", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        namespace = str(_NAMES / name)
        address = f"unix://{folder}/socket"
        environment = {**os.environ, "DOCKER_HOST": address, "DOCKER_BUILDKIT": "1", "DOCKER_CONFIG": str(folder / "config")}
        environment["PATH"] = os.pathsep.join(["/usr/bin", environment["PATH"]])  # the engine's own client, if there is another
        started = Engine(environment, namespace)
        paths = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", f"--host={address}"]
        command = ["nsenter", f"--net={namespace}", "dockerd", *paths]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        stack.callback(_stop, process)
        try:
            wait_until(lambda: _is_up(started) or process.poll() is not None, "dockerd answers", _START_S)
            assert process.poll() is None, "dockerd ended"
        except AssertionError as error:
            raise NoEngineError(f"{error}: {(folder / 'log').read_text()[-1000:]}") from None
        yield started


def _is_up(started: Engine) -> bool:
    try:
        done = subprocess.run(["docker", "info"], env=started.environment, capture_output=True, check=False, timeout=_START_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the engine and what it has started: containerd is its child."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that cannot even be killed ends with the machine
            process.wait(_STOP_S)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_START_S)
