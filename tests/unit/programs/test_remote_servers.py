"""Programs that ask another server, against a real socket that answers what a test says.

The chat server here speaks the documented form of OpenAI's streams; it is not OpenAI's code, nor ours.
"""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import dyorc
from dyorc.errors import DefinitionError
from tests.deadlines import TIMEOUT_S
from tests.scripted_server import Received, ScriptedServer, answer, chunked, close, error, json_answer, scripted_server, silence

CHAT = "/v1/chat/completions"
EVENTS = {"Content-Type": "text/event-stream"}
MESSAGES = [{"role": "user", "content": "Count."}]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """The other server."""
    with scripted_server() as server:
        yield server


def ask(text: str) -> dict[str, int]: ...


def asking(server: ScriptedServer, **options: Any) -> dyorc.Program:
    return dyorc.programs.http(f"{server.url}/count", ask, **options)


def chatting(server: ScriptedServer, **options: Any) -> dyorc.Program:
    return dyorc.programs.openai(f"{server.url}/v1", "counter", api_key="k1", **options)


def event(**delta: Any) -> bytes:
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
USAGE = b'data: {"object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 5}}\n\n'


def test_json_is_posted_with_key_and_headers(server: ScriptedServer) -> None:
    server.on("/count", json_answer({"letters": 2}))
    program = asking(server, api_key="k1", headers={"X-Team": "blue"})
    assert dyorc.run(program, text="hi") == {"letters": 2}
    (request,) = server.received
    assert (request.method, json.loads(request.body)) == ("POST", {"text": "hi"})
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer k1", "blue")


def test_a_server_without_room_is_asked_again(server: ScriptedServer) -> None:
    server.on("/count", error(503, "busy", "capacity", headers={"Retry-After": "0"}), error(429, "busy", "x"), json_answer({}))
    assert dyorc.run(asking(server), text="hi") == {}
    assert len(server.received) == 3


def test_not_more_often_than_it_may(server: ScriptedServer) -> None:
    server.on("/count", error(503, "busy", "capacity"))
    with pytest.raises(dyorc.ProgramError, match=r"'ask' failed: CapacityError: http://.*/count: 503 .*busy"):
        dyorc.run(asking(server, max_attempts=2), text="hi")
    assert len(server.received) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "InvalidInputError"), (401, "AuthenticationError"), (404, "UnknownModelError"), (500, "ExecutionError")],
)
def test_other_errors_are_not_asked_again(server: ScriptedServer, status: int, kind: str) -> None:
    server.on("/count", error(status, "why", "x"))
    with pytest.raises(dyorc.ProgramError, match=rf"failed: {kind}: .* {status} .*why"):
        dyorc.run(asking(server), text="hi")
    assert len(server.received) == 1


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_is_no_answer(server: ScriptedServer, status: int) -> None:
    server.on("/count", answer(status, b'{"letters": 2}', {"Location": "http://elsewhere.example/count"}))
    with pytest.raises(
        dyorc.ProgramError, match=rf"ExecutionError: .*/count: {status} is a redirect to 'http://elsewhere.example/"
    ):
        dyorc.run(asking(server), text="hi")


def test_a_silent_server_is_a_deadline(server: ScriptedServer) -> None:
    server.on("/count", silence)
    with pytest.raises(dyorc.ProgramError, match=r"failed: DeadlineError: .*did not answer within 0\.2 s"):
        dyorc.run(asking(server, timeout_s=0.2), text="hi")


def test_a_broken_connection_is_no_answer(server: ScriptedServer) -> None:
    server.on("/count", close)
    with pytest.raises(dyorc.ProgramError, match="failed: TransportError: "):
        dyorc.run(asking(server), text="hi")


def test_an_absent_server_is_named(server: ScriptedServer) -> None:
    program = dyorc.programs.http("http://127.0.0.1:1/count", ask, max_attempts=1)
    with pytest.raises(dyorc.ProgramError, match=r"failed: TransportError: http://127\.0\.0\.1:1/count cannot be reached"):
        dyorc.run(program, text="hi")


def test_an_answer_of_another_type_fails(server: ScriptedServer) -> None:
    server.on("/count", json_answer({"letters": "many"}))
    with pytest.raises(dyorc.ProgramError, match=r"letters.*valid integer"):
        dyorc.run(asking(server), text="hi")


def test_a_url_without_a_model_needs_a_signature() -> None:
    with pytest.raises(DefinitionError, match=r"is not that of a model, .*; give a signature"):
        dyorc.programs.http("http://127.0.0.1:1/count")


def test_a_chat_comes_in_parts(server: ScriptedServer) -> None:
    pieces = [event(role="assistant", content=""), b": still here\n\n", event(content="one "), event(content="two"), USAGE, DONE]
    server.on(CHAT, chunked(pieces, EVENTS))
    parts = dyorc.run(chatting(server), messages=MESSAGES, sampling={"temperature": 0})
    assert list(parts) == ["one ", "two"]
    (request,) = server.received
    expected = {"model": "counter", "messages": MESSAGES, "stream": True, "temperature": 0}
    assert (json.loads(request.body), request.headers["authorization"]) == (expected, "Bearer k1")


def test_a_chat_may_come_whole(server: ScriptedServer) -> None:
    server.on(CHAT, json_answer({"choices": [{"index": 0, "message": {"role": "assistant", "content": "one two"}}]}))
    assert dyorc.run(chatting(server, is_streaming=False), messages=MESSAGES) == "one two"


def test_a_chat_that_breaks_off_fails_after_its_parts(server: ScriptedServer) -> None:
    server.on(CHAT, chunked([event(content="one")], EVENTS))
    parts = dyorc.run(chatting(server), messages=MESSAGES)
    assert next(parts) == "one"
    with pytest.raises(dyorc.ProgramError, match=r"ExecutionError: .*the stream of 'counter' ended before its end"):
        next(parts)


def test_a_chat_that_fails_in_the_middle_says_what_the_model_says(server: ScriptedServer) -> None:
    server.on(CHAT, chunked([event(content="one"), b'data: {"error": {"message": "out of memory"}}\n\n', DONE], EVENTS))
    parts = dyorc.run(chatting(server), messages=MESSAGES)
    assert next(parts) == "one"
    with pytest.raises(dyorc.ProgramError, match=r"ExecutionError: the remote model failed: .*out of memory"):
        next(parts)


def test_a_malformed_event_of_a_chat_names_server_and_model(server: ScriptedServer) -> None:
    server.on(CHAT, chunked([event(content="one"), b"data: {oops}\n\n", DONE], EVENTS))
    parts = dyorc.run(chatting(server), messages=MESSAGES)
    assert next(parts) == "one"
    with pytest.raises(dyorc.ProgramError, match=r"http://.*/v1: an event of 'counter' is '\{oops\}', which is no JSON"):
        next(parts)


def test_a_chat_server_without_room_is_asked_again(server: ScriptedServer) -> None:
    server.on(CHAT, error(429, "slow down", "x"), chunked([event(content="one"), DONE], EVENTS))
    assert list(dyorc.run(chatting(server), messages=MESSAGES)) == ["one"]


def test_a_chat_that_is_left_is_cut_off_at_the_server(server: ScriptedServer) -> None:
    is_left = threading.Event()

    def one_and_wait(request: Received, connection: socket.socket) -> bool:
        chunked([event(content="one")], EVENTS, is_complete=False)(request, connection)
        if connection.recv(1) == b"":
            is_left.set()
        return False

    server.on(CHAT, one_and_wait)
    parts = dyorc.run(chatting(server), messages=MESSAGES)
    assert next(parts) == "one"
    parts.close()
    assert is_left.wait(TIMEOUT_S)


def test_the_key_may_come_from_the_environment(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTER_KEY", "k2")
    server.on(CHAT, chunked([DONE], EVENTS))
    program = dyorc.programs.openai(f"{server.url}/v1", "counter", api_key_variable="COUNTER_KEY")
    assert list(dyorc.run(program, messages=MESSAGES)) == []
    assert server.received[0].headers["authorization"] == "Bearer k2"
