"""What becomes of a direct request when its client has gone, or its answer cannot be written."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from dyorc.gateway.http.direct import DirectRequest


class Desk:
    """A connection whose transport behaves like uvloop's: it raises once it is closed."""

    def __init__(self, *, is_closed: bool, is_broken: bool = False) -> None:
        self.transport: Any = SimpleNamespace(is_closing=lambda: is_closed)
        self.flow: Any = SimpleNamespace(is_writing_paused=False)
        self.calls: list[str] = []
        self.writer = SimpleNamespace(is_last=False, write_whole=self._write)
        self._is_broken = is_closed or is_broken

    def _write(self, lines: bytes, parts: Any) -> None:
        if self._is_broken:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.calls.append("write")

    def on_answered(self) -> None:
        self.calls.append("answered")

    def give_up(self) -> None:
        self.calls.append("give up")


def request_of(desk: Desk, *, is_lost: bool = False) -> DirectRequest:
    head = SimpleNamespace(answer_encoding=None, request_id="", negotiates=False, caller=None)
    ids = SimpleNamespace(facts={})
    exchange: Any = SimpleNamespace(is_lost=is_lost, writer=desk.writer, has_given_id=False, ids=ids)
    route: Any = SimpleNamespace(head=head, model="m", key=None)
    inference: Any = SimpleNamespace()  # has nothing that a request needs to run
    return DirectRequest(inference, route, exchange, desk)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("desk", "expected"),
    [
        (Desk(is_closed=False), ["write", "answered"]),
        (Desk(is_closed=True), ["answered"]),
        (Desk(is_closed=False, is_broken=True), ["give up"]),
    ],
)
def test_an_answer_is_written_only_to_a_connection_that_takes_it(desk: Desk, expected: list[str]) -> None:
    with structlog.testing.capture_logs() as logs:
        request_of(desk).done((b"", [b"body"], None))
    assert desk.calls == expected
    assert [line["event"] for line in logs] == ["answer_not_written"] * expected.count("give up")


def test_a_request_whose_client_has_gone_meanwhile_is_not_run() -> None:
    async def run() -> list[str]:
        desk = Desk(is_closed=True)
        request_of(desk, is_lost=True).run(b"")
        return desk.calls

    assert asyncio.run(run()) == []
