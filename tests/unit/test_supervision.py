"""The supervisor's parts that need no processes: when a cell is started again, which limits are divided, who reserves a port."""

import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest

from dyorc.config import GatewayConfig, Settings
from dyorc.engine.tallies import BatchTally, ModelStatistics, Tally
from dyorc.gateway.peer_processes import NoPeers, PeerReplies
from dyorc.gateway.server_view import add_up_reports
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from dyorc.supervisor.cell_main import settings_of_cell
from dyorc.supervisor.cell_process import RestartBackoff
from dyorc.supervisor.console import StartProgress
from dyorc.system.ports import bind, reserve, reserve_for_grpc
from tests.fake_backend import FakeBackend
from tests.workflows import arithmetic


def test_a_cell_that_dies_again_and_again_starts_later_each_time() -> None:
    restarts = RestartBackoff(0.5, 3.0)
    assert [restarts.delay_s(1.0) for _ in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert restarts.delay_s(3600.0) == 0.0  # it was well for long
    assert restarts.delay_s(1.0) == 0.5


def test_states_of_programs_are_shown_until_the_server_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    progress = StartProgress(2)
    for number in range(2):
        progress.states(number, {"double": ("loading", 1, 1, ""), "triple": ("ready", 1, 1, "")})
    progress.states(0, {"double": ("ready", 1, 1, ""), "triple": ("ready", 1, 1, "")})
    assert capsys.readouterr().out.splitlines() == [
        "  cell 0: double: loading", "  cell 0: triple: ready", "  cell 1: double: loading", "  cell 1: triple: ready",
        "  cell 0: double: ready",
    ]  # fmt: skip
    progress.ready(1.0, ["double"])
    assert capsys.readouterr().out.startswith("Ready after 1.0 s, 2 cells.")
    progress.states(1, {"double v2": ("loading", 1, 1, "")})  # a deploy
    assert not capsys.readouterr().out


def test_a_reserved_port_is_for_those_who_share_it() -> None:
    with reserve("127.0.0.1", 0) as keeper:
        port = keeper.getsockname()[1]
        with bind("127.0.0.1", port, is_shared=True) as first, bind("127.0.0.1", port, is_shared=True) as second:
            first.listen()
            second.listen()
        for refused in (bind, reserve):  # although nobody listens now
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
                refused("127.0.0.1", port)
    with bind("127.0.0.1", port):
        pass


def test_a_taken_port_for_grpc_says_how_to_take_another() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use; --grpc-port N takes"):
            reserve_for_grpc("127.0.0.1", port)


def test_a_port_that_others_share_is_not_reserved() -> None:
    with bind("127.0.0.1", 0, is_shared=True) as others:
        others.listen()
        with pytest.raises(OSError, match="Address already in use"):
            reserve("127.0.0.1", others.getsockname()[1])


def test_a_connection_goes_to_those_who_listen() -> None:
    with reserve("127.0.0.1", 0) as keeper:
        port = keeper.getsockname()[1]
        with bind("127.0.0.1", port, is_shared=True) as only:
            only.listen()
            for _ in range(20):
                socket.create_connection(("127.0.0.1", port), timeout=10).close()


def test_limits_are_divided_among_cells(tmp_path: Path) -> None:
    settings = Settings(gateway=GatewayConfig(max_requests=5, max_bytes_in_flight=100, max_request_bytes=80))
    one = settings_of_cell(settings, 2)
    assert (one.gateway.max_requests, one.gateway.max_connections, one.jobs.max_running) == (3, 8192, 20)
    assert one.gateway.max_bytes_in_flight == 80  # or a request that the server takes would fit into no cell
    assert settings_of_cell(settings, 1) == settings


def test_reports_are_added_up() -> None:
    def report(number: int, state: str, cost_ms: float | None) -> dict[str, object]:
        return {
            "num_requests": number,
            "programs": {"p": {"state": state, "error": None, "batch_base_ms": cost_ms}},
            "speculation": {"is_enabled": number > 1, "wasted_ratio": 0.1 * number},
            "jobs": {"num_running": number, "max_bytes": 100},
        }

    assert add_up_reports([report(1, "loading", 2.0), report(3, "ready", None)]) == {
        "num_requests": 4,
        "programs": {"p": {"state": "ready", "error": None, "batch_base_ms": 2.0}},
        "speculation": {"is_enabled": True, "wasted_ratio": pytest.approx(0.2)},
        "jobs": {"num_running": 4, "max_bytes": 100},
    }


def test_a_replica_may_be_in_a_state_that_no_program_is_in() -> None:
    own = {"programs": {"large": {"state": "ready", "replicas": {"large#1": {"state": "parking", "pid": 1}}}}}
    assert add_up_reports([own, {}]) == own


def test_statistics_are_added_up() -> None:
    def of(number: int) -> ModelStatistics:
        tally = Tally(number, 10 * number)
        return ModelStatistics(
            number, number, number, success=tally, batches={number: BatchTally(compute_infer=Tally(number, 10 * number))}
        )

    both = of(1)
    both.add(of(2))
    both.add(of(2))
    assert (both.last_inference_ms, both.inference_count, both.success) == (2, 5, Tally(5, 50))
    assert {size: tally.compute_infer for size, tally in both.batches.items()} == {1: Tally(1, 10), 2: Tally(4, 40)}


class _OtherCell(NoPeers):
    """Another cell, whose replica has the name that ours has."""

    def __init__(self, report: dict[str, Any]) -> None:
        self._report = report

    async def ask(self, topic: str, value: Any = None) -> PeerReplies:
        return PeerReplies({1: {"pid": 2, "report": self._report}})


class _Reporting(FakeBackend):
    """A backend with a report of its own."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__(ModelRegistry.of([arithmetic.quadruple]), lambda workflow, inputs: [*inputs])
        self._report = report

    def report(self) -> dict[str, Any]:
        return self._report


@pytest.mark.anyio
async def test_replicas_of_cells_stay_apart() -> None:
    def report(pid: int) -> dict[str, Any]:
        replica = {"state": "ready", "pid": pid, "since_s": 1e9 + pid, "load_s": 0.5}
        return {"num_requests": 1, "link": {}, "programs": {"p": {"num_queued": 1, "replicas": {"p-in-process-1": replica}}}}

    with contextlib.closing(InferenceService(_Reporting(report(1)), GatewayConfig(port=0), _OtherCell(report(2)))) as service:
        program = (await service.server_view.report())["programs"]["p"]
    assert program["num_queued"] == 2
    assert {name: (one["pid"], one["since_s"]) for name, one in program["replicas"].items()} == {
        "0/p-in-process-1": (1, 1e9 + 1),
        "1/p-in-process-1": (2, 1e9 + 2),
    }


def test_lead_times_are_averaged() -> None:
    assert add_up_reports([{"from_cold_s": 2.0, "from_parked_s": None}, {"from_cold_s": 4.0, "from_parked_s": 1.0}]) == {
        "from_cold_s": 3.0,
        "from_parked_s": 1.0,
    }
