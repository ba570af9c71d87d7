"""How long processes that were forked ahead of Serve are held."""

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.config import DeploymentConfig, LinkConfig, TransportConfig
from dyorc.ray_serve.forked_replicas import ForkedReplicas
from dyorc.ray_serve.replica_specs import ReplicaSpecs
from dyorc.replica.assignment import ForkServerSpec, ProgramSource, Uplink
from dyorc.replica.fork_client import ForkClient
from dyorc.system.json_lines import JsonLineSocket

_LONG_S = 3_600.0
_UPLINK = Uplink(address="", link=LinkConfig(), transport=TransportConfig())


@dyorc.program
def one(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x


class _Holder(SimpleNamespace):
    __hash__ = object.__hash__

    def close(self) -> None:
        self.line.close()


class _Forks:
    """A fork server that forks nothing: each process is the other end of a connection."""

    def __init__(self) -> None:
        self.processes: list[JsonLineSocket] = []

    def fork(self, assignment: object, *, is_adopted: bool) -> _Holder:
        ours, theirs = socket.socketpair()
        self.processes.append(JsonLineSocket(theirs))
        return _Holder(line=JsonLineSocket(ours))

    def num_held(self) -> int:
        num = 0
        for process in self.processes:
            try:
                num += process.receive(0.01) is not None
            except TimeoutError:
                num += 1
        return num

    def end_replicas(self, timeout_s: float) -> None: ...

    def close(self, timeout_s: float = 0.0) -> None: ...


def _held(num: int, then: Callable[[ForkedReplicas, _Forks, list[float]], Any]) -> None:
    async def run() -> None:
        forks, now_s = _Forks(), [0.0]
        plans = ReplicaSpecs(
            {one: ProgramSource(folder="", target="", program="one")}, DeploymentConfig(), ForkServerSpec(folder=""), "local", 1.0
        )
        held = ForkedReplicas(cast("ForkClient", forks), plans, 1.0, lambda: now_s[0])
        await held.prepare(one, num, _UPLINK)
        assert forks.num_held() == num
        await asyncio.sleep(0)
        await then(held, forks, now_s)
        await held.close()
        assert forks.num_held() == 0
        for process in forks.processes:
            process.close()

    asyncio.run(run())


def test_a_process_stays_however_long_serve_takes_to_start_its_own() -> None:
    async def wait_long(held: ForkedReplicas, forks: _Forks, now_s: list[float]) -> None:
        for _ in range(10):
            now_s[0] += _LONG_S
            held.release_surplus(())
        assert forks.num_held() == 2

    _held(2, wait_long)


def test_one_that_nobody_wants_is_let_go_a_while_after_serve_has_all_replicas() -> None:
    async def complete_late(held: ForkedReplicas, forks: _Forks, now_s: list[float]) -> None:
        now_s[0] += _LONG_S
        held.release_surplus({"one"})  # the last replica has just come up: it may be about to adopt
        assert forks.num_held() == 1
        now_s[0] += _LONG_S
        held.release_surplus(())  # another replica is starting again
        held.release_surplus({"one"})
        assert forks.num_held() == 1
        now_s[0] += _LONG_S
        held.release_surplus({"one"})
        assert forks.num_held() == 0
        assert not held.is_waiting

    _held(1, complete_late)


def test_one_forked_for_a_program_that_serve_has_already_is_not_let_go_at_once() -> None:
    async def scale(held: ForkedReplicas, forks: _Forks, now_s: list[float]) -> None:
        held.release_surplus({"one"})
        now_s[0] += _LONG_S
        await held.prepare(one, 1, _UPLINK)
        held.release_surplus({"one"})
        assert forks.num_held() == 1

    _held(0, scale)
