"""Two hosts on one machine: network namespaces on a switch, with processes in them and a link that can be slowed and cut.

    with two_hosts() as hosts:
        hosts.second.start([sys.executable, "-m", ...])
        with hosts.first.entered():         # this thread, and what it starts, is on the first host
            ...

Each host has a network of its own and nothing else: both see the same processes, files and shared memory, and the same clock. So
what tells hosts apart for DyOrc is the `node` that their processes are given. Needs root; `why_not` says what is missing. The
switch is a namespace, too, so that nothing of the machine's own network changes, and removing the three names removes all.
"""

import contextlib
import ctypes
import functools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from tests.deadlines import wait_until
from tests.link_relay import enter_namespace
from tests.real import require_mark

_REPOSITORY = Path(__file__).parents[1]
_NAMES = Path("/var/run/netns")
_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
"""Set to one that every kernel has, and that believes at once that a path has become slower: BBR takes ten seconds."""
_SLOW_DEVICE = "slow0"
_SLOW_MTU = 9000  # the relay is Python: fewer, larger frames
_SLOW_QUEUE = 10_000  # frames; the relay may have to wait for a core
_ETH_P_ALL = 3
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_SO_RCVBUFFORCE = 33  # Python does not name it
_CAPTURE_BUFFER_BYTES = 64 * 2**20
_CAPTURE_BYTES = 1 << 17


@functools.cache
def why_not() -> str:
    """Returns what keeps this machine from having two hosts; empty if nothing does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [command for command in ("ip", "tc") if shutil.which(command) is None]
    if missing:
        return f"there is no command {missing[0]!r} (package iproute2)"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    name = f"dyorc-{secrets.token_hex(3)}-probe"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "add", "probe", "type", "bridge")
        _run("ip", "-n", name, "link", "add", "one", "type", "veth", "peer", "name", "other")
        _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "one", "root", "tbf", *_TBF, "rate", "1mbit")
    except RuntimeError as error:
        return f"this kernel, or its settings, forbid it: {error}"
    finally:
        _try("ip", "netns", "del", name)
    return ""


_TBF = ("burst", "256kb", "latency", "200ms")


class Host:
    """One of the two hosts. `address` is how the other reaches it, `name` its namespace."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, stdout: "int | None" = None
    ) -> "subprocess.Popen[bytes]":
        """Starts a process here, as the leader of a group of its own. Whatever runs here at the end is killed.

        Args:
            environment: Variables of its environment, besides those of this process.
            stdout: Where its output goes, errors included; by default where this process's goes.
        """
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *command],
            cwd=_REPOSITORY,
            env={**os.environ, **(environment or {})},
            stdout=stdout,
            stderr=None if stdout is None else subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # so that nothing stays if this process is killed
        )
        self._processes.append(process)
        return process

    def pids(self) -> list[int]:
        """Returns all processes here but this one."""
        here = os.stat(_NAMES / self.name)
        found: list[int] = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended
                if os.path.samestat(os.stat(process / "ns/net"), here) and int(process.name) != os.getpid():
                    found.append(int(process.name))
        return found

    def kill(self) -> None:
        """Kills everything that runs here, as a loss of power would. Waits until it is gone."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        wait_until(lambda: not self.pids(), f"everything on {self.name} has ended")

    @contextlib.contextmanager
    def entered(self) -> Generator[None]:
        """Puts the calling thread here meanwhile, with the threads and processes that it starts and the sockets that it opens."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(_NAMES / self.name, os.O_RDONLY)
        try:
            enter_namespace(there)
            try:
                yield
            finally:
                enter_namespace(home)
        finally:
            os.close(home)
            os.close(there)

    def block_port(self, port: int) -> None:
        """Drops all answers from a TCP port of this host, silently, for good: nobody gets a connection to it any more."""
        _run("ip", "-n", self.name, "rule", "add", "blackhole", "ipproto", "tcp", "sport", str(port))

    def num_bytes_sent(self) -> int:
        """Returns what this host has sent to the other so far, headers of packets included."""
        with self.entered():
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        counts = {name.strip(): numbers.split() for name, _, numbers in (line.partition(":") for line in lines[2:])}
        return sum(int(numbers[8]) for name, numbers in counts.items() if name != "lo")

    def ip(self, *arguments: str) -> None:
        """Runs `ip` for this host's network."""
        _run("ip", "-n", self.name, *arguments)

    def tc(self, *arguments: str) -> None:
        """Runs `tc` for this host's network."""
        _run("ip", "netns", "exec", self.name, "tc", *arguments)


class TwoHosts:
    """Both hosts and the link between them. Made by `two_hosts`."""

    def __init__(self, name: str) -> None:
        self.first = Host(f"{name}-1", "10.77.0.1")
        self.second = Host(f"{name}-2", "10.77.0.2")
        self._switch = Host(f"{name}-switch", "")
        self._relay: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> tuple[Host, Host]:
        """Both hosts."""
        return self.first, self.second

    def set_up(self) -> None:
        """Makes the namespaces and links."""
        for host in (self._switch, *self.hosts):
            _run("ip", "netns", "add", host.name)
        self._switch.ip("link", "add", "switch", "type", "bridge")
        self._switch.ip("link", "set", "switch", "up")
        for number, host in enumerate(self.hosts, 1):
            port = f"port{number}"
            self._switch.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            self._switch.ip("link", "set", port, "master", "switch", "up")
            host.ip("addr", "add", f"{host.address}/24", "dev", "eth0")
            host.ip("link", "set", "eth0", "up")
            host.ip("link", "set", "lo", "up")
            with host.entered():
                _CONGESTION_CONTROL.write_text("reno")

    def remove(self) -> None:
        """Kills what runs on the hosts, and removes them. Never raises."""
        for host in self.hosts:
            with contextlib.suppress(RuntimeError, AssertionError):
                host.kill()
        self._end_relay()
        for host in (*self.hosts, self._switch):
            _try("ip", "netns", "del", host.name)

    # The link

    def cut(self) -> None:
        """Cuts the link: what is sent is lost, without an error."""
        self._switch.ip("link", "set", "port2", "down")
        self._tell_relay("cut")

    def heal(self) -> None:
        """Puts the link back."""
        self._switch.ip("link", "set", "port2", "up")
        self._tell_relay("heal")

    @contextlib.contextmanager
    def slowed(self, *, mbit_per_s: int | None = None, delay_s: float = 0.0) -> Generator[None]:
        """Limits the rate of each direction, and delays what is sent by `delay_s` each way.

        Connections that are open stay so. A delay costs a process that handles every packet, so it also limits the rate, to
        some 400 Mbit/s.
        """
        with contextlib.ExitStack() as stack:
            device = "eth0"
            if delay_s:
                device = _SLOW_DEVICE
                stack.enter_context(self._delayed(delay_s))
            if mbit_per_s is not None:
                for host in self.hosts:
                    host.tc("qdisc", "add", "dev", device, "root", "tbf", *_TBF, "rate", f"{mbit_per_s}mbit")
                    stack.callback(_try, "ip", "netns", "exec", host.name, "tc", "qdisc", "del", "dev", device, "root")
            yield

    @contextlib.contextmanager
    def _delayed(self, delay_s: float) -> Generator[None]:
        names = [host.name for host in self.hosts]
        command = [sys.executable, "-m", "tests.link_relay", *names, _SLOW_DEVICE]
        self._relay = relay = subprocess.Popen(command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert relay.stdout is not None
            if relay.stdout.readline() != b"ready\n":
                raise RuntimeError("the relay did not start")
            self._tell_relay(f"delay {delay_s}")
            for host, other in (self.hosts, self.hosts[::-1]):
                host.ip("link", "set", _SLOW_DEVICE, "mtu", str(_SLOW_MTU), "txqueuelen", str(_SLOW_QUEUE), "up")
                host.ip("route", "add", f"{other.address}/32", "dev", _SLOW_DEVICE, "src", host.address)
            yield
        finally:
            self._end_relay()  # its devices, and with them the routes, go with it

    def _tell_relay(self, order: str) -> None:
        if self._relay is not None:
            assert self._relay.stdin is not None
            self._relay.stdin.write(f"{order}\n".encode())
            self._relay.stdin.flush()

    def _end_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.communicate()  # closes its standard input, with which it ends

    @contextlib.contextmanager
    def captured(self) -> Generator[bytearray]:
        """Captures all bytes that pass between the hosts, headers of packets included; complete once the block is left."""
        seen = bytearray()
        with self._switch.entered():
            sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        with sniffer:
            sniffer.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _CAPTURE_BUFFER_BYTES)
            sniffer.bind(("port2", _ETH_P_ALL))
            sniffer.settimeout(0.1)
            is_over = threading.Event()
            reader = threading.Thread(target=_read_all, args=(sniffer, seen, is_over))
            reader.start()
            try:
                yield seen
            finally:
                is_over.set()
                reader.join()


@contextlib.contextmanager
def two_hosts() -> Generator[TwoHosts]:
    """Makes two hosts, which are removed at the end with everything that runs on them.

    Raises:
        RuntimeError: If there can be none; see `why_not`.
    """
    require_mark("two hosts")
    hosts = TwoHosts(f"dyorc-{secrets.token_hex(3)}")
    try:
        hosts.set_up()
        yield hosts
    finally:
        hosts.remove()


def _read_all(sniffer: socket.socket, seen: bytearray, is_over: threading.Event) -> None:
    """Takes in what comes, and at the end what has come until then."""
    while not is_over.is_set():
        with contextlib.suppress(TimeoutError):
            seen += sniffer.recv(_CAPTURE_BYTES)
    sniffer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            seen += sniffer.recv(_CAPTURE_BYTES)


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _run(*command: str) -> str:
    """Runs a system command and returns its output.

    Raises:
        RuntimeError: If it fails; says why.
    """
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def _try(*command: str) -> None:
    with contextlib.suppress(RuntimeError):
        _run(*command)
