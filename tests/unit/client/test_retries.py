"""When the client sends a request again, and when it gives up."""

import math
from typing import Any

import pytest

from dyorc.client.effects import Reply
from dyorc.client.retries import DEFAULT_RETRIES, Retries
from dyorc.errors import (
    CapacityError,
    ConflictError,
    DeadlineError,
    DyOrcError,
    NotReadyError,
    ReplicaLostError,
    ServerStoppedError,
    TenantLimitError,
    TransportError,
)
from dyorc.protocol.inference_request import PreparedRequest
from tests.unit.client.driver import Driver, broken, refused, reply

BUSY = refused(503, "capacity", retryable=True)
PLAIN = PreparedRequest("POST", "/x")


def _send(driver: Driver, retries: Retries = DEFAULT_RETRIES, timeout_s: float = math.inf, **how: Any) -> Reply:
    return driver.run(driver.delivery.send(PLAIN, driver.now_s + timeout_s, retries, **how))


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (BUSY, CapacityError),
        (refused(503, "not_ready", retryable=True), NotReadyError),
        (refused(503, "replica_lost", retryable=True), ReplicaLostError),
        (refused(429, "tenant_limit", retryable=True), TenantLimitError),
        (refused(500, "something_new", retryable=True), DyOrcError),
    ],
)
def test_a_retryable_error_is_sent_again(failure: Reply, kind: type[DyOrcError]) -> None:
    driver = Driver([(0, failure), (0, failure), (0, reply({}))])
    assert _send(driver, is_repeatable=False).status == 200
    driver = Driver([(0, failure)] * 3)
    with pytest.raises(kind) as found:
        _send(driver, Retries(max_attempts=3))
    assert len(driver.sent) == 3
    assert found.value.retryable


@pytest.mark.parametrize(
    "failure",
    [
        refused(409, "conflict", retryable=False),
        refused(409, "conflict", retryable=True),
        refused(400, "invalid_input", retryable=True),
        refused(500, "program", retryable=False),
        refused(504, "deadline", retryable=False),
        Reply(404, {}, bytearray(b"<html>")),
        Reply(302, {"location": "/elsewhere"}),
    ],
)
def test_a_permanent_error_is_not_sent_again(failure: Reply) -> None:
    driver = Driver([(0, failure)])
    with pytest.raises(DyOrcError):
        _send(driver)
    assert len(driver.sent) == 1


def test_a_request_that_a_stopping_server_gave_up_is_sent_again_only_if_it_may_be_repeated() -> None:
    given_up = refused(503, "server_stopped", retryable=False)
    driver = Driver([(0, given_up), (0, reply({}))])
    assert _send(driver, is_repeatable=True).status == 200
    driver = Driver([(0, given_up)])
    with pytest.raises(ServerStoppedError):
        _send(driver, is_repeatable=False)
    assert len(driver.sent) == 1


def test_a_request_that_never_left_is_sent_again_and_one_that_may_have_run_only_if_it_may_be_repeated() -> None:
    driver = Driver([(0, broken(was_sent=False)), (0, reply({}))])
    assert _send(driver, is_repeatable=False).status == 200
    for may_repeat in ({"is_repeatable": True}, {"is_repeatable": False, "retries": Retries(repeats=True)}):
        driver = Driver([(0, broken(was_sent=True)), (0, reply({}))])
        assert _send(driver, **may_repeat).status == 200
    for may_not in ({"is_repeatable": False}, {"is_repeatable": True, "retries": Retries(repeats=False)}):
        driver = Driver([(0, broken(was_sent=True)), (0, reply({}))])
        with pytest.raises(TransportError, match="it broke"):
            _send(driver, **may_not)


def test_after_an_error_of_a_proxy_the_request_may_have_run() -> None:
    page = Reply(502, {}, bytearray(b"<html>Bad Gateway</html>"))
    driver = Driver([(0, page), (0, reply({}))])
    assert _send(driver, is_repeatable=True).status == 200
    with pytest.raises(TransportError, match="the server answered 502 with '<html>Bad Gateway</html>'"):
        _send(Driver([(0, page)]), is_repeatable=False)


def test_time_between_attempts_doubles_to_a_bound_and_is_random() -> None:
    retries = Retries(max_attempts=6, first_backoff_s=0.1, max_backoff_s=0.5)
    for draw in (1.0, 0.25, 0.0):
        driver = Driver([(0, BUSY)] * 6, draw=draw)
        with pytest.raises(CapacityError):
            _send(driver, retries)
        assert driver.slept_s == pytest.approx([draw * bound for bound in (0.1, 0.2, 0.4, 0.5, 0.5)])
    assert Retries(max_attempts=10**6).backoff_s(10**5, DyOrcError(), lambda: 1.0) == 5.0


def test_retry_after_comes_before_the_random_time() -> None:
    driver = Driver([(0, refused(503, "capacity", retryable=True, retry_after="7")), (0, reply({}))], draw=0.5)
    _send(driver, Retries(first_backoff_s=0.2))
    assert driver.slept_s == pytest.approx([7.1])


def test_one_deadline_bounds_all_attempts_and_the_server_is_told_what_is_left() -> None:
    driver = Driver([(2, BUSY), (1, BUSY), (0, reply({}))])
    _send(driver, Retries(first_backoff_s=1, max_backoff_s=1), timeout_s=10, is_timed=True)
    assert {send.deadline_s for send in driver.sent} == {1010.0}
    told = [float(dict(send.request.headers)["request-timeout"]) for send in driver.sent]
    assert told == pytest.approx([10, 7, 5])
    driver = Driver([(0, reply({}))])
    _send(driver, is_timed=True)
    assert driver.sent[0].request.headers == (), "without a limit nothing is said"


def test_an_attempt_that_would_come_too_late_is_not_waited_for() -> None:
    driver = Driver([(0.95, BUSY)])
    with pytest.raises(CapacityError):
        _send(driver, Retries(first_backoff_s=0.1), timeout_s=1)
    assert driver.slept_s == []
    with pytest.raises(DeadlineError, match="before the request was sent"):
        _send(Driver(), timeout_s=0, is_timed=True)


def test_senseless_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="max_attempts is 0, expected at least 1"):
        Retries(max_attempts=0)
    with pytest.raises(ValueError, match="expected finite times"):
        Retries(max_backoff_s=math.inf)


def test_a_conflict_is_named() -> None:
    with pytest.raises(ConflictError, match="it is conflict") as found:
        _send(Driver([(0, refused(409, "conflict", retryable=False))]))
    assert found.value.code == "conflict"
