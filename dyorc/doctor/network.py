"""Checks of the network: the ports that a server would take, and loopback."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from dyorc.doctor.finding import Finding, Subject, error, ok, warning
from dyorc.system.ports import bind

_LAST_PORT = 65535
_LISTENING = "0A"
"""The state of a socket in /proc/net/tcp."""


def check_ports(subject: Subject) -> Iterator[Finding]:
    """Looks whether the ports for HTTP and gRPC are free, and if not, who has them."""
    gateway = subject.settings.gateway
    ports = {"HTTP": (gateway.port, "--port")} | ({"gRPC": (gateway.grpc_port_to_bind, "--grpc-port")} if gateway.grpc else {})
    for protocol, (port, option) in ports.items():
        if port == 0:
            yield ok(f"{protocol} takes a free port")
            continue
        if port > _LAST_PORT:
            yield error(
                f"port {port} for {protocol}, the one after that for HTTP, is none", f"serve with {option} N (0 takes a free one)"
            )
            continue
        try:
            bind(gateway.host, port).close()
        except OSError as problem:
            owner = _owner_of(port)
            yield warning(
                f"port {port} for {protocol} cannot be had on {gateway.host}: {problem.strerror}{owner}",
                f"end that process, or serve with {option} N (0 takes a free one)",
            )
        else:
            yield ok(f"port {port} on {gateway.host} is free for {protocol}")


def check_loopback(_: Subject) -> Iterator[Finding]:
    """Looks whether processes of this machine reach each other, by IPv4, IPv6 and Unix sockets."""
    try:
        _round_trip("127.0.0.1")
        yield ok("127.0.0.1 answers")
    except OSError as problem:
        yield error(f"127.0.0.1 does not answer: {problem.strerror}", "bring loopback up: `ip link set lo up`")
    try:
        _round_trip("::1")
        yield ok("::1 answers")
    except OSError as problem:
        yield ok(f"no IPv6 on loopback ({problem.strerror}): --host ::1 will not work, nothing else needs it")


def _round_trip(host: str) -> None:
    with bind(host, 0) as server:
        server.listen(1)
        with socket.create_connection(server.getsockname()[:2], timeout=1.0):
            pass


def _owner_of(port: int) -> str:
    """Returns the process that listens on a port, as far as this user may see it; empty if it cannot be seen."""
    inodes = {fields[9] for fields in _sockets() if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it is gone, or belongs to another user
            if (target := link.readlink().name).startswith("socket:[") and target[8:-1] in inodes:
                pid = link.parts[2]
                command = Path(f"/proc/{pid}/comm").read_text().strip()
                return f"; process {pid} ({command}) has it"
    return ""


def _sockets() -> Iterator[list[str]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            yield from (line.split() for line in Path(table).read_text().splitlines()[1:])
