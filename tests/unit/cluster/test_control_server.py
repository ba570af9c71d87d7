"""What an orchestrator asks of its gateways when versions change."""

import pytest

from dyorc.cluster.cluster_messages import DrainQuery, FromOrchestrator
from dyorc.cluster.control_server import ControlServer
from dyorc.cluster.gateway_sessions import GatewaySession


async def _scale(program: str, num_warm: int | None, num_parked: int | None) -> None:
    pytest.fail("nobody scales here")


@pytest.mark.parametrize("step", [1, -1])
def test_gateways_are_asked_in_the_order_of_their_sessions(step: int) -> None:
    """Otherwise a simulation of the same seed would be another run."""
    sessions = [GatewaySession(b"%d" % number, f"gateway-{number}") for number in range(5)][::step]
    asked: list[GatewaySession] = []

    def send(session: GatewaySession, message: FromOrchestrator) -> None:
        assert isinstance(message, DrainQuery)
        asked.append(session)

    control = ControlServer(send, lambda: sessions, _scale)
    has_ended = control.begin_epoch()
    assert asked == sessions
    for session in sessions:
        assert not has_ended()
        control.confirm_drained(session, 1)
    assert has_ended()
