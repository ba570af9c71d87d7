"""Keeps what was learned of the traffic in the store, so that it outlives the server."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Protocol

import msgspec
import structlog

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import DyOrcError
from dyorc.scaling.traffic import Traffic

_log = structlog.get_logger("dyorc.scaling")

_KEEP_S = 60.0
"""How often it is saved."""


class TrafficStore(Protocol):
    """Where notes are kept; see `dyorc.store.base.NoteStore`."""

    async def note(self, name: str, value: bytes) -> object: ...

    async def noted(self, name: str) -> bytes | None: ...


class _Learned(msgspec.Struct):
    """A note: what was learned, and when (Unix time in seconds)."""

    at_s: float
    state: dict[str, Any]


@contextlib.asynccontextmanager
async def persist_traffic(traffic: Traffic, notes: TrafficStore, name: str, has_begun: asyncio.Event) -> AsyncGenerator[None]:
    """Restores what an earlier server learned, and saves what this one learns while entered, and at the end.

    Args:
        name: Of the note.
        has_begun: Set when learning begins. Until then, nothing is restored or saved.
    """
    known = asyncio.Event()
    if has_begun.is_set():
        await _recall(traffic, notes, name)
        known.set()
    try:
        async with background_task(_keep_regularly(traffic, notes, name, has_begun, known)):
            yield
    finally:
        if known.is_set():
            await _keep(traffic, notes, name)


@contextlib.asynccontextmanager
async def background_task(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Runs a task while entered, and cancels it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _recall(traffic: Traffic, notes: TrafficStore, name: str) -> None:
    try:
        note = await notes.noted(name)
        if note is not None:
            learned = msgspec.json.decode(note, type=_Learned)
            traffic.restore(learned.state, time.monotonic_ns(), max(0.0, time.time() - learned.at_s))
    except (DyOrcError, *DECODE_ERRORS, KeyError, TypeError, ValueError) as error:
        _log.warning("history_unreadable", error=str(error))  # it is learned again


async def _keep_regularly(
    traffic: Traffic, notes: TrafficStore, name: str, has_begun: asyncio.Event, known: asyncio.Event
) -> None:
    await has_begun.wait()
    if not known.is_set():
        await _recall(traffic, notes, name)
        known.set()
    while True:
        await asyncio.sleep(_KEEP_S)
        await _keep(traffic, notes, name)


async def _keep(traffic: Traffic, notes: TrafficStore, name: str) -> None:
    learned = _Learned(time.time(), traffic.to_state(time.monotonic_ns()))
    try:
        await notes.note(name, msgspec.json.encode(learned))
    except DyOrcError as error:
        _log.warning("history_not_kept", error=str(error))
