"""Streams that running calls read: their parts are sent to the call's replica as they come, a few ahead of what it has read.

    dispatched ── a part is in its place ──> fed ── InputPartsTaken ──> more may be fed
                        └── its tensors were lost: restored first
    the stream ends, or fails ──> the end is fed, with the error

A call that has to run again is fed from the first part again; parts that were released meanwhile are made again, as lost ones.
"""

from dyorc.engine.engine_context import EngineContext
from dyorc.engine.interfaces import Dispatcher
from dyorc.engine.model.futures import PENDING
from dyorc.engine.model.part_list import PartList
from dyorc.engine.model.program_call import Call, CallState, Feed
from dyorc.engine.tasks.tensor_needs import TensorNeeds
from dyorc.engine.turn import InputTaken
from dyorc.errors import DyOrcError


class StreamFeeder:
    """Feeds the running calls of all requests."""

    def __init__(self, context: EngineContext, dispatcher: Dispatcher, needs: TensorNeeds) -> None:
        self._turn = context.turn
        self._max_ahead = context.config.max_untaken_parts
        self._dispatcher = dispatcher
        self._needs = needs

    def start(self, call: Call) -> None:
        """Begins to feed a call that was sent to a replica."""
        if call.state is not CallState.RUNNING:
            return
        call.feeds = tuple([Feed(call, number, stream.parts) for number, stream in enumerate(call.streams)])
        for feed in call.feeds:
            self.go_on(feed)

    def taken(self, event: InputTaken) -> None:
        """Feeds more to a call that has read on."""
        call = event.call
        if call.state is not CallState.RUNNING or event.stream >= len(call.feeds):
            return
        feed = call.feeds[event.stream]
        num_before = feed.num_taken
        feed.num_taken = max(num_before, min(event.num_taken, feed.num_fed))
        self._read_on(feed.parts, feed.num_taken)
        request = call.segment.task.request
        if request.restoring and feed.parts.producer is not None:
            restoration = request.restoring.get(feed.parts.producer.future)
            if restoration is not None and restoration.call is not None and restoration.call.parts is not None:
                self._read_on(restoration.call.parts, feed.num_taken)
        if request.has_stored:
            for cell in feed.parts.cells[num_before : feed.num_taken]:
                self._turn.passed[cell] = request
        self.go_on(feed)

    def _read_on(self, parts: PartList, num_read: int) -> None:
        """Lets a stream go on if it was read further than before."""
        if num_read > parts.num_read:
            parts.num_read = num_read
            self._turn.resumed.append(parts)

    def go_on(self, feed: Feed) -> None:
        """Feeds what is there, up to a number of parts ahead of what was read."""
        while feed.is_live and not feed.num_awaited and feed.num_fed < feed.num_taken + self._max_ahead:
            cell = feed.parts.cells[feed.num_fed]
            if cell.state is PENDING:
                cell.add_waiter(feed)
                self._turn.want(cell)
                return
            if cell.is_end or cell.error is not None:
                self.end(feed, cell.error)
                return
            request = feed.call.segment.task.request
            if request.has_stored and self._needs.await_part_to_feed(feed, cell):
                return
            self._dispatcher.feed(feed.call, feed.number, feed.num_fed, cell.tensors)
            feed.num_fed += 1

    def end(self, feed: Feed, error: DyOrcError | None) -> None:
        """Tells a call that one of its streams has ended, or has failed."""
        if feed.is_live:
            feed.has_ended = True
            feed.error = error
            self._dispatcher.end_feed(feed.call, feed.number, feed.num_fed, error)
