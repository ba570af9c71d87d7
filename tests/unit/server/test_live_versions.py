"""A leader keeps the versions of the last one until its gateways can have come back."""

from collections.abc import Callable

from dyorc.server.group_deployments import RETURN_S, after_return_of_gateways


def test_requests_of_before_have_not_ended_before_their_gateways_can_be_back() -> None:
    now_s, at_desk = 5.0, {"request"}
    asked_at: list[float] = []

    def begin_epoch() -> Callable[[], bool]:
        asked_at.append(now_s)
        return lambda: not at_desk

    quiet = after_return_of_gateways(begin_epoch, lambda: now_s)
    early = quiet()
    assert not early()
    now_s += RETURN_S - 0.1
    assert not early()
    now_s += 0.1
    assert not early(), "a gateway has come back with a request"
    at_desk.clear()
    assert early()
    assert asked_at == [5.0 + RETURN_S], "it is asked once, when all can be back"
    assert quiet()(), "later, nobody is waited for"
