"""Watches the requests of models whose requests go to several versions: counts them by version, and has some of them copied.

Other models' requests pay for one look at a set. For the event loop's thread, except where said otherwise.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

import msgspec

from dyorc.core.arrays import Array
from dyorc.core.request import Receiver
from dyorc.errors import ClientError, DyOrcError, InternalError, RequestCancelledError
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.gateway.server_view import ServerView
from dyorc.gateway.shadow_requests import RequestCopy, ShadowRequests
from dyorc.models.submission import Submission
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from dyorc.telemetry.version_counts import VersionCounts

T = TypeVar("T")

_VERSIONS = "versions"
_MAX_VERSIONS = 256

CountsByVersion: TypeAlias = dict[str, dict[str, VersionCounts]]
"""Counts by the names of models and versions."""


class WatchedRequest:
    """One request that is watched, from when it is handed to the backend."""

    __slots__ = ("_began_ns", "_copy", "_counts", "_shadows", "is_over")

    def __init__(self, counts: VersionCounts, copy: RequestCopy | None, shadows: ShadowRequests) -> None:
        self._counts = counts
        self._copy = copy
        self._shadows = shadows
        self._began_ns = time.monotonic_ns()
        self.is_over = False

    def take_outputs(self, arrays: list[Array]) -> None:
        """Keeps outputs for a comparison, if the request is copied. May be called on a thread."""
        if self._copy is not None:
            self._shadows.take_outputs(self._copy, arrays)

    def done(self) -> None:
        """Notes that the answer was handed over."""
        self.is_over = True
        self._counts.count_ok(time.monotonic_ns() - self._began_ns)
        if self._copy is not None:
            self._shadows.start(self._copy)
            self._copy = None

    def failed(self, error: BaseException) -> None:
        """Notes that the request has failed. Lost clients say nothing of the version; errors of its client may: it could be the
        version that refuses what others take."""
        if isinstance(error, ClientError):
            self._counts.count_refusal(error.code)
        elif isinstance(error, Exception) and not isinstance(error, RequestCancelledError):
            self._counts.count_failure(error.code if isinstance(error, DyOrcError) else InternalError.code)
        self.end()

    def end(self) -> None:
        """Drops the copy of a request that has ended without an answer."""
        self.is_over = True
        if self._copy is not None:
            self._shadows.drop(self._copy)
            self._copy = None


class WatchedReceiver:
    """A receiver whose request is watched; hands everything on first."""

    __slots__ = ("_receiver", "_watched")

    def __init__(self, receiver: Receiver[Any], watched: WatchedRequest) -> None:
        self._receiver = receiver
        self._watched = watched

    def take(self, arrays: list[Array], /) -> Any:
        """Turns the outputs into the answer, and keeps them."""
        answer = self._receiver.take(arrays)
        self._watched.take_outputs(arrays)
        return answer

    def done(self, taken: Any) -> None:
        """Hands the answer over."""
        try:
            self._receiver.done(taken)
        finally:
            self._watched.done()

    def failed(self, error: Exception) -> None:
        """Hands the error over."""
        try:
            self._receiver.failed(error)
        finally:
            self._watched.failed(error)


class VersionWatch:
    """The counts of all versions between which requests are distributed.

    Args:
        catalog: Says which these are.
        shadows: Runs copies.
        view: Keeps the counts when this process ends.
        peers: The other processes of the server.
    """

    def __init__(self, catalog: Catalog, shadows: ShadowRequests, view: ServerView, peers: PeerProcesses) -> None:
        self._catalog = catalog
        self._shadows = shadows
        self._peers = peers
        self._open: dict[int, WatchedRequest] = {}
        self._num_open = 0
        self._tallies: dict[tuple[str, str], str] = {}
        self._counts = _counts_of(view.add_counts(_VERSIONS, self._values) or {})
        view.add_report_part(_VERSIONS, self._report)
        peers.answer(_VERSIONS, lambda _: self._values())

    def begin(self, model: Model, submission: Submission) -> WatchedRequest | None:
        """Begins to watch a request; None if its model needs no watching."""
        if model.key not in self._catalog.watched:
            return None
        copy, version = None, self._catalog.draw_shadow(model.key)
        if version is not None:
            copy = self._shadows.keep(version, submission, self._of(version))
        return WatchedRequest(self._of(model), copy, self._shadows)

    def note_submitted(self, number: int, watched: WatchedRequest) -> None:
        """Notes the number of a request, by which it may be cancelled."""
        if not watched.is_over:
            self._open[number] = watched
        if len(self._open) > 2 * self._num_open + 64:  # most have been answered
            self._open = {number: watched for number, watched in self._open.items() if not watched.is_over}
            self._num_open = len(self._open)

    def note_cancelled(self, number: int) -> None:
        """Notes that a request will not be answered."""
        if (watched := self._open.pop(number, None)) is not None:
            watched.end()

    def _of(self, model: Model) -> VersionCounts:
        versions = self._counts.setdefault(model.name, {})
        if (counts := versions.get(model.version)) is None:
            while len(versions) >= _MAX_VERSIONS:
                oldest = next(iter(versions))
                del versions[oldest]
                self._tallies.pop((model.name, oldest), None)
            counts = versions[model.version] = VersionCounts()
        self._tallies[model.key] = model.tally
        return counts

    async def counts(self) -> CountsByVersion:
        """Returns the counts of all processes together, since the server was started."""
        self._peers.count()
        replies = await self._peers.ask(_VERSIONS)
        total = _counts_of(self._values())
        others = [*replies.values.values(), *(counted.get(_VERSIONS, {}) for counted in replies.counted.values())]
        for values in others:
            for name, versions in _counts_of(values).items():
                for version, counts in versions.items():
                    total.setdefault(name, {}).setdefault(version, VersionCounts()).add(counts)
        return total

    def _values(self) -> Any:
        return msgspec.to_builtins(self._counts)

    def _report(self) -> dict[str, Any]:
        """Returns what adds up over processes."""
        return {
            name: {
                version: {
                    "num_ok": counts.num_ok,
                    "num_failed": counts.num_failed,
                    "num_refused": counts.num_refused,
                    "num_shadow": dict(counts.copies),
                }
                for version, counts in versions.items()
            }
            for name, versions in self._counts.items()
        }

    def measure(self, readings: Readings) -> None:
        """Adds what became of copies."""
        for (name, version), tally in self._tallies.items():
            for outcome, number in self._counts.get(name, {}).get(version, VersionCounts()).copies.items():
                readings.add(catalogue.SHADOW, number, tally, outcome)


def _counts_of(values: Any) -> CountsByVersion:
    return msgspec.convert(values, CountsByVersion)


async def watch_parts(
    open_parts: Callable[[Callable[[list[Array]], object]], AsyncGenerator[T]], begin: Callable[[], WatchedRequest | None]
) -> AsyncGenerator[T]:
    """Yields the parts of a request that is watched from when the first part is asked for.

    Args:
        open_parts: Starts the request. It gets a function that it calls with the outputs of each part.
        begin: Begins to watch.
    """
    watched = begin()
    parts = open_parts(_ignore if watched is None else watched.take_outputs)
    async with aclosing(parts):
        try:
            async for ready in parts:
                yield ready
        except BaseException as error:
            if watched is not None:
                watched.failed(error)
            raise
    if watched is not None:
        watched.done()


def _ignore(arrays: list[Array]) -> None:
    """Keeps nothing of a request that is not watched."""
