"""A server's errors become errors of the same classes."""

import copy
import inspect
import json
import pickle
import traceback
from typing import Any

import msgspec
import pytest

from dyorc.client.effects import Reply
from dyorc.client.operations import read_json
from dyorc.errors import CapacityError, DyOrcError, InternalError, ProgramError, TransportError
from dyorc.gateway.codec.http_errors import error_body, retry_headers, status_of
from dyorc.gateway.request_ids import Ids
from dyorc.protocol.wire_errors import ErrorBody, error_from_answer, error_from_body, with_attributes


def _every_class() -> list[type[DyOrcError]]:
    found = [DyOrcError]
    for kind in found:
        found += [child for child in kind.__subclasses__() if child.__module__ == "dyorc.errors"]
    return found


def _made(kind: type[DyOrcError]) -> DyOrcError:
    return kind("crop", "ValueError", "too small: 3") if issubclass(kind, ProgramError) else kind("what went wrong")


@pytest.mark.parametrize("kind", _every_class())
def test_every_error_of_the_tree_survives_the_wire(kind: type[DyOrcError]) -> None:
    error = _made(kind)
    headers = {name.decode(): value.decode() for name, value in retry_headers(error)}
    found, is_ours = error_from_answer(status_of(error), headers, memoryview(error_body(error, Ids("r-1", "a" * 32))))
    assert type(found) is kind
    assert is_ours
    assert (str(found), found.code, found.retryable) == (str(error), error.code, error.retryable)
    assert found.retry_after_s == error.retry_after_s
    assert (found.request_id, found.trace_id) == ("r-1", "a" * 32)
    assert "request r-1" in "".join(traceback.format_exception(found)), "whoever sees only a traceback learns it, too"
    if isinstance(found, ProgramError):
        assert (found.program, found.error_type, found.message) == ("crop", "ValueError", "too small: 3")
        assert found.remote_traceback == ""
    for name in inspect.signature(kind.__init__).parameters.keys() & vars(error).keys():
        assert hasattr(found, name)


@pytest.mark.parametrize(
    "error", [*map(_made, _every_class()), ValueError("a bug of ours")], ids=lambda error: type(error).__name__
)
def test_clients_that_repeat_every_status_from_500_on_learn_what_may_not_be_repeated(error: Exception) -> None:
    status, retryable = (status_of(error), error.retryable) if isinstance(error, DyOrcError) else (500, False)
    is_forbidden = (b"x-should-retry", b"false") in retry_headers(error)
    assert is_forbidden == (status >= 500 and not retryable)


@pytest.mark.parametrize("kind", _every_class())
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_every_error_of_the_tree_survives_pickle_and_copy(kind: type[DyOrcError], duplicate: Any) -> None:
    error = with_attributes(_made(kind), request_id="r-1", trace_id="a" * 32, code="new", retryable=True, retry_after_s=2.5)
    vars(error).update({name: 7 for name in ("rank", "step", "input_at") if hasattr(error, name)})
    error.add_note("request r-1")
    again = duplicate(error)
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    assert again.__notes__ == ["request r-1"]


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in _every_class()]
    assert len(set(codes)) == len(codes)


def test_an_unknown_code_keeps_what_the_server_says() -> None:
    error = error_from_body(ErrorBody("something new", "brand_new", retryable=True))
    assert type(error) is DyOrcError
    assert (str(error), error.code, error.retryable) == ("something new", "brand_new", True)
    assert (DyOrcError.code, DyOrcError.retryable) == ("error", False), "the class is as it was"


def test_what_the_server_says_goes_before_the_class() -> None:
    assert not error_from_body(ErrorBody("full for good", "capacity", retryable=False)).retryable
    assert error_from_body(ErrorBody("try again", "internal", retryable=True)).retryable
    assert not InternalError.retryable
    assert CapacityError.retryable


@pytest.mark.parametrize(("status", "is_retryable"), [(503, True), (429, True), (400, False), (500, False)])
def test_other_servers_send_the_text_alone(status: int, is_retryable: bool) -> None:
    error, is_ours = error_from_answer(status, {}, memoryview(json.dumps({"error": "no"}).encode()))
    assert is_ours
    assert (type(error), str(error), error.retryable) == (DyOrcError, "no", is_retryable)


@pytest.mark.parametrize("body", [b"", b"<html>", b'"text"', b"[1]", b"{}", b'{"error": 3}', b"\xff\xfe", b"[" * 100_000])
def test_a_malformed_error_body_is_a_transport_error_that_shows_it(body: bytes) -> None:
    error, is_ours = error_from_answer(502, {}, memoryview(body))
    assert not is_ours
    assert isinstance(error, TransportError)
    assert str(error).startswith("the server answered 502 with ")
    assert len(str(error)) < 1000


@pytest.mark.parametrize("value", ["-1", "soon", "1e9", "9" * 30, "Wed, 21 Oct 2026 07:28:00 GMT", "\u0663"])
def test_a_retry_after_that_is_not_a_number_is_ignored(value: str) -> None:
    assert error_from_answer(503, {"retry-after": value}, memoryview(b'{"error": "busy"}'))[0].retry_after_s is None


@pytest.mark.parametrize("status", [200, 404])
def test_a_page_comes_from_no_server_of_ours(status: int) -> None:
    headers, page = {"content-type": "text/html;charset=utf-8"}, memoryview(b"<!DOCTYPE HTML>")
    if status == 200:
        with pytest.raises(TransportError, match="a page of HTML: this is no DyOrc server") as caught:
            read_json(Reply(status, headers, page, 0), msgspec.json.Decoder(dict))
        error = caught.value
    else:
        error, is_ours = error_from_answer(status, headers, page)
        assert not is_ours
        assert str(error).startswith("the server answered 404 with a page of HTML: this is no DyOrc server")
    assert not error.retryable
