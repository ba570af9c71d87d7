"""Runs copies of requests on another version, and compares the answers. Nobody waits for a copy.

A copy begins when the answer to its request has been handed over, so it cannot delay that. It is dropped when the server has
other things to do: if the event loop is behind, if enough copies run, if what is kept for them takes too much memory, and in the
engine, if a call of any program that it needs waits for a replica. For the event loop's thread.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from dyorc.answering.local_answers import own_arrays
from dyorc.authoring.signature import StaticValue
from dyorc.config import ShadowConfig
from dyorc.core.arrays import Array
from dyorc.core.request import SHADOW_TENANT, RequestClient, RequestFacts, Terms
from dyorc.errors import CapacityError, DyOrcError, RequestCancelledError, UnknownModelError
from dyorc.gateway.answer_comparison import difference_of_parts
from dyorc.gateway.backend import Backend
from dyorc.gateway.catalog import Model
from dyorc.models.submission import Submission
from dyorc.system.thread_offload import ThreadOffload
from dyorc.telemetry.record import Origin, RequestRecorder
from dyorc.telemetry.version_counts import DIFFERENT, DROPPED, FAILED, SAME, VersionCounts
from dyorc.transport.outbox import num_bytes_of

_log = structlog.get_logger("dyorc.gateway")

_WEIGHT = 0.001
"""Of copies, where they and other requests want the same replica."""
_INLINE_BYTES = 64 * 2**10
"""Longer answers are compared on a thread."""
_LOG_INTERVAL_S = 1.0


@dataclass(slots=True, eq=False)
class RequestCopy:
    """What is kept of a request until its copy has run.

    Attributes:
        version: Runs the copy.
        num_bytes: What is kept.
        counts: Where the copy is counted.
        parts: The outputs of the request itself: a list for each part of its answer, one if it does not stream. None if they are
            too large.
        num_output_bytes: What they take.
        origin: Where the request came from, if it is recorded.
        recorder: Gets the copy's record then.
        facts: What code knows of the request: the copy's code sees no other, so it decides alike.
    """

    version: Model
    inputs: Sequence[Array]
    statics: tuple[StaticValue, ...]
    num_bytes: int
    counts: VersionCounts
    facts: RequestFacts
    parts: list[list[Array]] | None = field(default_factory=list[list[Array]])
    num_output_bytes: int = 0
    origin: Origin | None = None
    recorder: RequestRecorder | None = None


class ShadowRequests:
    """The copies of one process.

    Args:
        backend: Runs them.
        off_loop: Compares large answers.
        is_busy: Returns whether the event loop has too much to do.

    Attributes:
        num_bytes: What is kept for copies now.
    """

    def __init__(self, backend: Backend, config: ShadowConfig, off_loop: ThreadOffload, is_busy: Callable[[], bool]) -> None:
        self.config = config
        self._backend = backend
        self._off_loop = off_loop
        self._is_busy = is_busy
        self.num_bytes = 0
        self._running: set[asyncio.Task[None]] = set()
        self._logged_s = -_LOG_INTERVAL_S

    def close(self) -> None:
        """Cancels the copies that run."""
        for task in self._running:
            task.cancel()

    async def wait(self) -> None:
        """Waits until the copies that run have ended."""
        while self._running:
            await asyncio.wait(self._running)

    def keep(self, version: Model, submission: Submission, counts: VersionCounts) -> RequestCopy | None:
        """Keeps the inputs of a request; None if there is no room for its copy. The caller starts or drops what is returned."""
        num_bytes = sum(map(num_bytes_of, submission.inputs))
        is_too_large = num_bytes > self.config.max_request_bytes or self.num_bytes + num_bytes > self.config.max_bytes
        if is_too_large or self._is_full:
            counts.count_copy(DROPPED)
            return None
        inputs = submission.inputs if submission.body is None else [array.copy() for array in submission.inputs]
        self.num_bytes += num_bytes
        facts = _facts_of(submission)
        return RequestCopy(
            version, inputs, submission.statics, num_bytes, counts, facts, origin=submission.origin, recorder=submission.recorder
        )  # fmt: skip

    @property
    def _is_full(self) -> bool:
        return len(self._running) >= self.config.max_in_flight or self._is_busy()

    def take_outputs(self, copy: RequestCopy, arrays: list[Array]) -> None:
        """Keeps the outputs of the request itself, or of its next part. May be called on a thread."""
        copy.num_output_bytes += sum(map(num_bytes_of, arrays))
        if copy.num_output_bytes > self.config.max_request_bytes:
            copy.parts = None
        elif copy.parts is not None:
            copy.parts.append(own_arrays(arrays))

    def drop(self, copy: RequestCopy) -> None:
        """Forgets what was kept."""
        self.num_bytes -= copy.num_bytes

    def start(self, copy: RequestCopy) -> None:
        """Runs a copy, now that its request has been answered, unless there is too much to do."""
        if copy.parts is None or self._is_full:
            copy.counts.count_copy(DROPPED)
            self.drop(copy)
            return
        task = asyncio.get_running_loop().create_task(self._run(copy))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, copy: RequestCopy) -> None:
        began_ns = time.monotonic_ns()
        try:
            parts = await self._parts_of(copy, began_ns)
        except (CapacityError, RequestCancelledError, UnknownModelError):  # it has had no chance
            copy.counts.count_copy(DROPPED)
        except Exception as error:
            copy.counts.count_copy(FAILED)
            self._note(copy, f"{error.code if isinstance(error, DyOrcError) else 'internal'}: {error}", "shadow_failed")
        else:
            took_ns = time.monotonic_ns() - began_ns
            difference = await self._compare(copy, parts)
            copy.counts.count_copy(DIFFERENT if difference else SAME, took_ns)
            if difference:
                self._note(copy, difference, "shadow_differs")
        finally:
            self.drop(copy)

    async def _parts_of(self, copy: RequestCopy, began_ns: int) -> list[list[Array]]:
        submission = self._submission_of(copy, began_ns)
        if not copy.version.is_streaming:
            return [await self._backend.infer(submission, take=own_arrays, started=None)]
        parts: list[list[Array]] = []
        num_bytes = 0
        async with aclosing(self._backend.stream(submission, take=own_arrays, started=None)) as stream:
            async for ready in stream:
                parts += ready
                num_bytes += sum(num_bytes_of(array) for part in ready for array in part)
                if num_bytes > 2 * self.config.max_request_bytes:
                    break  # it is different by now, and may never end
        return parts

    def _submission_of(self, copy: RequestCopy, now_ns: int) -> Submission:
        deadline_ns = now_ns + int(self.config.timeout_s * 1e9)
        terms = Terms(deadline_ns=deadline_ns, tenant=SHADOW_TENANT, weight=_WEIGHT, is_shadow=True)
        origin = None
        if copy.origin is not None:
            request_id = f"{copy.origin.request_id}-shadow"
            origin = Origin(
                request_id=request_id, transport="shadow", arrived_ns=now_ns, read_ns=now_ns, num_bytes=copy.num_bytes
            )
        return Submission(
            copy.version.key, copy.inputs, copy.statics, terms, origin, recorder=copy.recorder, facts=lambda: copy.facts
        )

    async def _compare(self, copy: RequestCopy, parts: list[list[Array]]) -> str:
        assert copy.parts is not None
        arguments = copy.version.signature.outputs.tensors, copy.parts, parts, self.config
        if sum(num_bytes_of(array) for part in parts for array in part) > _INLINE_BYTES:
            return await self._off_loop.run(difference_of_parts, *arguments)
        return difference_of_parts(*arguments)

    def _note(self, copy: RequestCopy, difference: str, event: str) -> None:
        copy.counts.difference = difference
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOG_INTERVAL_S:
            self._logged_s = now_s
            request_id = "" if copy.origin is None else copy.origin.request_id
            model = copy.version
            _log.warning(event, model=model.name, version=model.version, difference=difference, request_id=request_id)


def _facts_of(submission: Submission) -> RequestFacts:
    """Returns what code knows of a request. Made now: what its connection has read does not outlive its answer."""
    facts = RequestFacts() if submission.facts is None else submission.facts()
    return replace(facts, client=RequestClient(submission.terms.tenant, submission.terms.priority))
