"""Records histories: makes them on the event loop's thread, as requests end, and writes them on a thread of its own."""

import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import structlog

from dyorc.config import HistoriesConfig
from dyorc.core.request import Terms
from dyorc.engine.model.request_tree import Request
from dyorc.errors import DyOrcError, without_errno
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.history_files import HistoryFiles
from dyorc.telemetry.histories.history_folder import check_folder
from dyorc.telemetry.histories.journal_reader import JournalReader
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_log = structlog.get_logger("dyorc.telemetry")

ALL_TENANTS = "*"
_MAX_WAITING_BYTES = 64 * 2**20
_BYTES_WITHOUT_VALUES = 2048
"""Roughly what a history takes besides its values."""
_MAX_BATCH = 256
"""Histories that are written together."""
_INTERVAL_S = 0.2
"""Of writes. A thread that woke for each history would take the interpreter from the event loop each time."""


class HistoryRecorder:
    """Records histories as long as it is entered. `draws`, `keeper` and `measure` are for the event loop's thread.

    What cannot be written in time, or at all, is dropped and counted: recording never holds up a request.

    Args:
        config: Its folder must be set.
        draw: Draws a number in [0, 1).
    """

    def __init__(self, config: HistoriesConfig, draw: Callable[[], float] = random.random) -> None:
        self._config = config
        self._draw = draw
        self._tenants = frozenset(config.tenants)
        self._redacted = frozenset(config.redact)
        self._files = HistoryFiles(Path(config.folder), config.max_bytes)
        self._waiting: deque[tuple[RequestHistory, int]] = deque()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="dyorc-histories", daemon=True)
        self._put_bytes = self._taken_bytes = 0
        self._num_dropped = self._num_written = self._num_unwritten = 0
        self._complaints: set[str] = set()
        self._encode = msgspec.json.Encoder().encode

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()
        self._files.close()

    def draws(self) -> bool:
        """Returns whether the next request belongs to the fraction that is recorded."""
        return self._config.ratio >= 1.0 or self._draw() < self._config.ratio

    def keeper(self, request_id: str, terms: Terms) -> "HistoryKeeper | None":
        """Returns what gets the journal of a request; None if it is not recorded.

        Args:
            request_id: As its client knows it.
        """
        is_allowed = not terms.tenant or terms.tenant in self._tenants or ALL_TENANTS in self._tenants
        return HistoryKeeper(self, request_id) if is_allowed and not terms.is_shadow else None

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show."""
        readings.add(catalogue.HISTORIES_WRITTEN, self._num_written)
        readings.add(catalogue.HISTORIES_DROPPED, self._num_dropped + self._num_unwritten)

    def take(self, request: Request, request_id: str, error: DyOrcError | None, ended_ns: int) -> None:
        """Makes the history of a request that has ended, unless too many are still to be written."""
        root = request.root
        if root is None or self._put_bytes - self._taken_bytes > _MAX_WAITING_BYTES:
            self._num_dropped += 1
            return
        try:
            reader = JournalReader(request, root, self._config.max_value_bytes, self._redacted)
            history = reader.read(request_id, error, ended_ns)
        except Exception:  # a request must not fail because it is recorded
            self._num_dropped += 1
            self._complain("history_dropped", has_trace=True, request_id=request_id)
            return
        num_bytes = reader.num_kept_bytes + _BYTES_WITHOUT_VALUES
        self._put_bytes += num_bytes
        self._waiting.append((history, num_bytes))

    def _complain(self, event: str, *, has_trace: bool = False, **facts: str) -> None:
        """Logs the first event of a kind: what follows is counted."""
        if event not in self._complaints:
            self._complaints.add(event)
            _log.error(event, exc_info=has_trace, **facts)

    def _write_all(self) -> None:
        """Writes what comes, until the end. Runs on its own thread."""
        is_last = False
        while not is_last:
            is_last = self._is_over.wait(_INTERVAL_S)
            while self._waiting:
                self._write([self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_BATCH))])

    def _write(self, batch: list[tuple[RequestHistory, int]]) -> None:
        try:
            self._files.write(b"".join([line for history, _ in batch for line in (self._encode(history), b"\n")]))
            self._num_written += len(batch)
        except (OSError, msgspec.EncodeError, UnicodeError) as error:
            self._num_unwritten += len(batch)
            self._complain("histories_not_written", folder=self._config.folder, error=without_errno(str(error)))
        self._taken_bytes += sum(num_bytes for _, num_bytes in batch)


class HistoryKeeper:
    """The `JournalKeeper` of one request."""

    __slots__ = ("_ended_ns", "_error", "_is_withdrawn", "_recorder", "_request_id")

    def __init__(self, recorder: HistoryRecorder, request_id: str) -> None:
        self._recorder = recorder
        self._request_id = request_id
        self._error: DyOrcError | None = None
        self._ended_ns = 0
        self._is_withdrawn = False

    def withdraw(self) -> None:
        """Keeps nothing: another run of the request counts, here or in another process."""
        self._is_withdrawn = True

    def anew(self) -> "HistoryKeeper":
        """Returns a keeper for another run of the request."""
        return HistoryKeeper(self._recorder, self._request_id)

    def ended(self, error: DyOrcError | None, now_ns: int) -> None:
        """Notes how and when the request ended."""
        self._error, self._ended_ns = error, now_ns

    def keep(self, request: Request) -> None:
        """Records the request."""
        if not self._is_withdrawn:
            self._recorder.take(request, self._request_id, self._error, self._ended_ns)


@contextlib.contextmanager
def recording_histories(config: HistoriesConfig) -> Generator[HistoryRecorder | None]:
    """Records histories while entered; yields None if they are off.

    Raises:
        ConfigurationError: If they cannot be written where the settings say.
    """
    check_folder(config)
    if not config.folder:
        yield None
        return
    with HistoryRecorder(config) as recorder:
        yield recorder
