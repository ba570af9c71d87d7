"""A plan's limits as `tc` keeps them between two hosts: the emitted commands are run, and bytes are sent through them."""

import socket
import threading
import time
from dataclasses import replace

import pytest

from dyorc.planner.cluster import Interface, even_cluster
from dyorc.planner.network import rules_of, tc_rules, to_tc
from dyorc.planner.plan import Limit, Network
from tests.deadlines import TIMEOUT_S
from tests.two_hosts import Host, two_hosts, why_not

_SECOND_ADDRESS = "10.77.0.3"  # the second host stands for two machines
_RATES = {"machine-1": 4e6, "machine-2": 1e6}
_SENT_BYTES = 1_000_000


def _received(host: Host, address: str, ready: threading.Barrier, ports: dict[str, int], ended_s: dict[str, float]) -> None:
    """Takes what comes to an address until it ends, and notes when that was."""
    with host.entered(), socket.create_server((address, 0)) as server:
        ports[address] = server.getsockname()[1]
        server.settimeout(TIMEOUT_S)
        ready.wait(TIMEOUT_S)
        connection, _ = server.accept()
    with connection:
        num_bytes = 0
        while part := connection.recv(1 << 16):
            num_bytes += len(part)
        assert num_bytes == _SENT_BYTES
        ended_s[address] = time.monotonic()


def test_each_destination_gets_what_is_reserved_for_it() -> None:
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts() as hosts:
        addresses = [hosts.first.address, hosts.second.address, _SECOND_ADDRESS]
        cluster = even_cluster(3, bytes_per_s=1e7)
        machines = zip(cluster.machines, addresses, strict=True)
        interfaces = tuple(Interface(machine=m, name="eth0", bytes_per_s=1e7, address=address) for m, address in machines)
        limits = [Limit(source="machine-0", target=target, interface="eth0", bytes_per_s=rate) for target, rate in _RATES.items()]
        network = Network(limits=tuple(limits), is_strict=True)
        rules = rules_of(network, replace(cluster, interfaces=interfaces))["machine-0"]
        assert tc_rules(to_tc(rules)) == rules
        hosts.second.ip("addr", "add", f"{_SECOND_ADDRESS}/24", "dev", "eth0")
        for line in to_tc(rules).splitlines():
            hosts.first.tc(*line.split()[1:])
        ports, ended_s, ready = dict[str, int](), dict[str, float](), threading.Barrier(3)
        receivers = [threading.Thread(target=_received, args=(hosts.second, a, ready, ports, ended_s)) for a in addresses[1:]]
        for receiver in receivers:
            receiver.start()
        ready.wait(TIMEOUT_S)
        with hosts.first.entered():
            senders = [socket.create_connection((a, ports[a]), timeout=TIMEOUT_S) for a in addresses[1:]]
        threads = [threading.Thread(target=_send, args=(sender,)) for sender in senders]
        began_s = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in [*threads, *receivers]:
            thread.join(TIMEOUT_S)
        for address, rate in zip(addresses[1:], _RATES.values(), strict=True):
            assert ended_s[address] - began_s >= 0.85 * _SENT_BYTES / rate  # no faster; a burst passes at once


def _send(sender: socket.socket) -> None:
    with sender:
        sender.settimeout(TIMEOUT_S)
        sender.sendall(bytes(_SENT_BYTES))
