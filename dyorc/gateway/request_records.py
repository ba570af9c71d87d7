"""Records of requests from all processes of the server, for tenants that may see them. On the event loop's thread.

To explain a long request takes milliseconds, so other work has a turn before each record.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from dyorc.errors import UnknownRequestError
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.gateway.tenants import Tenant
from dyorc.telemetry.details import Json, details, summary
from dyorc.telemetry.perfetto import Window, trace_events
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.record_store import MaySee, Order, Query, RecordStore
from dyorc.telemetry.tail import ProcessTail, merge_tails, pick, timed

_LIST, _FIND, _TRACE, _TAIL = "records", "record", "trace", "tail"
_BASE_NS = 3_600_000_000_000
"""Times in a trace count from an hour before its window, so that they are small enough to be exact, and not negative."""

_ROUNDED_NS = 1_000
_MOVED_NS = 1_000_000
"""How far the two clocks may have drifted apart meanwhile."""


class Records:
    """Asks the peers, if there are any, and merges their records.

    A tenant sees its own requests. A key that may manage shows everything.

    Args:
        store: This process's.
    """

    def __init__(self, store: RecordStore, peers: PeerProcesses) -> None:
        self._store = store
        self._peers = peers
        peers.answer(_LIST, lambda asked: self._own_list(msgspec.convert(asked["query"], Query), asked["owner"]))
        peers.answer(_FIND, lambda asked: self._own_details(asked["request_id"], asked["owner"]))
        peers.answer(_TAIL, lambda asked: self._tail_for_peer(asked["workflow"], asked["seconds"], asked["owner"]))
        peers.answer(_TRACE, lambda asked: self._own_trace(msgspec.convert(asked["window"], Window), asked["owner"]))

    async def page(self, query: Query, tenant: Tenant) -> Json:
        """Returns summaries of requests, how many records are kept, and how many bytes they take."""
        owner = _owner(tenant)
        replies = await self._peers.ask(_LIST, {"query": msgspec.to_builtins(query), "owner": owner})
        each: Sequence[Json] = [await self._own_list(query, owner), *replies.values.values()]
        key = "duration_ms" if query.order == "slowest" else "ended_s"
        requests = sorted((entry for own in each for entry in own["requests"]), key=lambda entry: -entry[key])
        page = {"requests": requests[: query.limit], "num_kept": sum(own["num_kept"] for own in each)}
        return page | {"kept_bytes": sum(own["kept_bytes"] for own in each), "missing_cells": list(replies.missing)}

    async def get(self, request_id: str, tenant: Tenant) -> Json:
        """Returns everything about a request; the latest of several with the same id.

        Raises:
            UnknownRequestError: If it has no record that the tenant may see.
        """
        owner = _owner(tenant)
        replies = await self._peers.ask(_FIND, {"request_id": request_id, "owner": owner})
        each = [entry for entry in (self._own_details(request_id, owner), *replies.values.values()) if entry is not None]
        if not each:
            raise UnknownRequestError(self._unknown(request_id, replies.missing))
        return max(each, key=lambda entry: entry["arrived_s"])

    async def trace(self, seconds: float, tenant: Tenant) -> Json:
        """Returns the requests of the last seconds as a trace in Chrome's format."""
        now_ns = time.monotonic_ns()  # the same clock in all processes of a machine
        from_ns = now_ns - round(seconds * 1e9)
        window = Window(from_ns=from_ns, base_ns=max(0, from_ns - _BASE_NS))
        owner = _owner(tenant)
        replies = await self._peers.ask(_TRACE, {"window": msgspec.to_builtins(window), "owner": owner})
        each: Sequence[Json] = [self._own_trace(window, owner), *replies.values.values()]
        facts: Json = {
            "num_requests": sum(own["num_requests"] for own in each),
            "num_left_out": sum(own["num_left_out"] for own in each),
        }
        return {
            "traceEvents": [event for own in each for event in own["events"]],
            "displayTimeUnit": "ms",
            "otherData": facts | {"seconds": seconds, "missing_cells": list(replies.missing)},
        }

    async def tail(self, workflow: str | None, share: float, seconds: float | None, tenant: Tenant) -> Json:
        """Returns where the time of the slowest requests went, beside typical ones (`merge_tails`).

        Args:
            workflow: Only requests of this one; None: of all.
            seconds: Only requests that ended in the last seconds; None: all of the latest that are remembered.
        """
        owner = _owner(tenant)
        replies = await self._peers.ask(_TAIL, {"workflow": workflow, "seconds": seconds, "owner": owner})
        each = [await self._own_tail(workflow, seconds, owner)]
        each += [msgspec.convert(reply, ProcessTail) for reply in replies.values.values()]
        return merge_tails(each, share) | {"workflow": workflow, "missing_cells": list(replies.missing)}

    # This process's

    async def _own_list(self, query: Query, owner: str | None) -> Json:
        may_see = _seen_by(owner)
        held = self._store.usage(may_see)
        records = self._store.select(query, may_see)
        requests = [summary(record, self._store, self._peers.number) async for record in _in_turns(records)]
        return {"requests": requests, "num_kept": held.num, "kept_bytes": held.num_bytes}

    async def _own_tail(self, workflow: str | None, seconds: float | None, owner: str | None) -> ProcessTail:
        from_ns = 0 if seconds is None else time.monotonic_ns() - round(seconds * 1e9)
        records = self._store.latest_since(from_ns, _seen_by(owner))
        asked_for = [record for record in records if workflow is None or record.workflow == workflow]
        slowest, typical = pick(asked_for)
        wrong_guesses = self._store.wrong_guesses
        return ProcessTail(
            len(asked_for),
            [timed(record, wrong_guesses) async for record in _in_turns(slowest)],
            [timed(record, wrong_guesses) async for record in _in_turns(typical)],
        )

    async def _tail_for_peer(self, workflow: str | None, seconds: float | None, owner: str | None) -> Json:
        return msgspec.to_builtins(await self._own_tail(workflow, seconds, owner))

    def _own_details(self, request_id: str, owner: str | None) -> Json | None:
        may_see = _seen_by(owner)
        record = self._store.find(request_id, may_see)
        return None if record is None else details(record, self._store, self._peers.number, may_see)

    def _own_trace(self, window: Window, owner: str | None) -> Json:
        may_see = _seen_by(owner)
        records = self._store.since(window.from_ns, may_see)
        kept = records[: window.max_requests]
        events = trace_events(kept, window, self._peers.number)
        return {"events": events, "num_requests": len(kept), "num_left_out": len(records) - len(kept)}

    def _unknown(self, request_id: str, missing: Sequence[int]) -> str:
        oldest_ns = self._store.usage(_seen_by(None)).oldest_ns
        kept = (
            "none is kept yet"
            if oldest_ns is None
            else f"all of the last {_ago(oldest_ns)} are kept, slow and failed ones longer"
        )
        text = f"there is no record of request {request_id!r}: it has not ended, was not recorded, or is too old; {kept}"
        return f"{text}; cells that did not answer: {', '.join(map(str, missing))}" if missing else text


def beyond_ns_of(order: Order, beyond: float) -> int:
    """Returns where a list continues that ended with a request of this `duration_ms` (`slowest`) or `ended_s`; a little
    before, as both are rounded."""
    if order == "slowest":
        return round(beyond * 1e6) + _ROUNDED_NS
    return time.monotonic_ns() - round((time.time() - beyond) * 1e9) + _MOVED_NS


def _owner(tenant: Tenant) -> str | None:
    """Returns whose requests a tenant may see; None: all tenants'."""
    return None if tenant.may_manage else tenant.name


def _seen_by(owner: str | None) -> MaySee:
    def may_see(record: RequestRecord) -> bool:
        return owner is None or record.tenant == owner

    return may_see


async def _in_turns(records: Iterable[RequestRecord]) -> AsyncIterator[RequestRecord]:
    """Yields records, each in a turn of its own."""
    for record in records:
        await asyncio.sleep(0)
        yield record


def _ago(at_ns: int) -> str:
    seconds = (time.monotonic_ns() - at_ns) / 1e9
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
