"""`dyorc.request` and `dyorc.requests` under `dyorc.run`, and their errors."""

import time
from dataclasses import FrozenInstanceError

import msgspec
import numpy as np
import pytest

import dyorc
from dyorc.core.request import SHADOW_TENANT, RequestClient, RequestFacts, RequestInfo, Terms, shifted
from dyorc.core.trace_context import new_trace
from dyorc.errors import ProgramError
from tests.workflows import seen_requests


def test_workflows_and_programs_see_the_request() -> None:
    answer = dyorc.run(seen_requests.seen, "x")
    assert answer["workflow"] == answer["program"] == answer["waiting"]
    assert answer["workflow"]["id"].startswith("run-")
    assert answer["workflow"] | {"id": ""} == {
        "id": "", "tenant": "", "priority": 0, "headers": {}, "trace": "", "has_time": False,
    }  # fmt: skip


def test_each_run_has_an_id_of_its_own_and_keeps_it() -> None:
    ids = [list(dyorc.run(seen_requests.parts, "x")) for _ in range(2)]
    assert ids[0][0] == ids[0][1] != ids[1][0]


def test_rows_of_a_batch() -> None:
    x, number = dyorc.run(seen_requests.numbered, np.float32([1]))
    assert (x.tolist(), number) == ([1], -1)


def test_a_program_that_is_not_declared_so() -> None:
    with pytest.raises(ProgramError, match=r"declare it: @dyorc.program\(sees_requests=True\)"):
        dyorc.run(seen_requests.blindly, "x")


def test_a_batch_has_no_single_request() -> None:
    with pytest.raises(ProgramError, match=r"dyorc.requests\(\) returns them, one for each row"):
        dyorc.run(seen_requests.confusedly, np.float32([1]))


def test_outside() -> None:
    with pytest.raises(RuntimeError, match="was called for no request"):
        dyorc.request()
    with pytest.raises(RuntimeError, match="was called outside a program"):
        dyorc.requests()


def test_it_is_read_only() -> None:
    info = RequestInfo.of(RequestFacts("a", None, (("x-a", "1"),)), Terms(), None)
    with pytest.raises((AttributeError, FrozenInstanceError)):
        info.id = "b"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        info.headers["x-a"] = "2"  # pyright: ignore[reportIndexIssue]
    assert info.headers == {"x-a": "1"}
    assert repr(info) == "RequestInfo(id='a', tenant='', priority=0, trace=None, headers={'x-a': '1'})"
    assert info.deadline_s is None
    assert info.left_s is None


def test_it_travels_to_a_machine_with_another_clock() -> None:
    now_ns = time.monotonic_ns()
    facts = RequestFacts("a", new_trace(is_sampled=True), (("x-a", "1"),))
    info = RequestInfo.of(facts, Terms(priority=2, tenant="t"), now_ns + 10**10)
    (away,) = shifted([info], -now_ns)
    here = msgspec.msgpack.decode(msgspec.msgpack.encode(away), type=RequestInfo)
    (back,) = shifted([here], now_ns)
    assert back == info
    assert back.left_s is not None
    assert 9 < back.left_s <= 10
    assert back.deadline_s is not None
    assert abs(back.deadline_s - time.time() - back.left_s) < 1


def test_time_that_is_up_is_none() -> None:
    assert RequestInfo.of(RequestFacts(), Terms(), 1).left_s == 0


def test_code_in_a_copy_sees_who_sent_the_request() -> None:
    terms = Terms(tenant=SHADOW_TENANT, is_shadow=True)
    info = RequestInfo.of(RequestFacts("a", client=RequestClient("shop", 2)), terms, None)
    assert (info.tenant, info.priority) == ("shop", 2)
    assert RequestInfo.of(RequestFacts("a", client=RequestClient("", 0)), terms, None).tenant == ""
