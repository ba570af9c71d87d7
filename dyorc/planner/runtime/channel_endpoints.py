"""One rank's endpoints of a plan's lanes: its memory, its server with the messages that wait there, and the peers' memory.

Ranks open each other's arenas when a plan is loaded, and these have no names from then on, so nothing is left of ranks that are
killed; the parent removes what ranks leave that are killed before that.
"""

import secrets
import threading
import time
from contextlib import ExitStack
from typing import Protocol

import msgspec

from dyorc.config import TransportConfig
from dyorc.errors import PlanError, TensorLostError, TransportError
from dyorc.planner.plan import ChannelKind
from dyorc.planner.runtime.links import LinkLostError
from dyorc.planner.runtime.message_lanes import MEMORY_FOLDER, Lanes, MessageLane, slot_bytes_of
from dyorc.transport.arena import Arena, ArenaBlock
from dyorc.transport.arena_file import PAGE_BYTES, round_up
from dyorc.transport.arena_slots import HEADER_BYTES, ArenaSlot, ArenaWindow
from dyorc.transport.arena_views import ArenaView

LENGTH_BYTES = 8
"""Before what a dynamic message says of itself."""
_TENSOR_BYTES = 128
"""Room for what it says of each of its tensors."""
_MIN_ARENA_BYTES = 2**20


class Rendezvous(Protocol):
    """Where ranks exchange the addresses of their memory."""

    def announce(self, key: str, text: bytes) -> None:
        """Publishes a value for the other ranks."""
        ...

    def learn(self, key: str) -> bytes:
        """Waits for a value that another rank publishes."""
        ...

    def meet(self) -> None:
        """Waits for all others."""
        ...


class EndpointInfo(msgspec.Struct, frozen=True):
    """The addresses of a rank's endpoints, for the other ranks.

    Attributes:
        arena: The file's name; empty if it has none.
        slots: Where its static slots begin, and the bytes of each: by source and number.
        boxes: Where its slots for dynamic messages begin, and the bytes of each, by lane.
        grpc_address: Of its server; empty if it has none.
        token: That the server wants to see.
    """

    arena: str
    slots: dict[str, tuple[int, int]]
    boxes: dict[int, tuple[int, int]]
    grpc_address: str
    token: str


class ChannelEndpoints:
    """The ends. `open` comes first.

    Args:
        rank: Whose they are.
        lanes: Of the plan; see `lanes_of`.
        timeout_s: How long a rank waits for another.

    Attributes:
        slots: Both ends of static slots: by the rank that sends, the one that receives, and the number.
        boxes: Both ends of the slots that say where a dynamic message is, by lane.
        views: The arenas of ranks that send dynamic messages.
        infos: The endpoints of other ranks.
        outgoing: What this rank's server reads from.
    """

    def __init__(self, rank: int, lanes: Lanes, timeout_s: float) -> None:
        self._rank = rank
        every = [lane for by_pair in lanes.values() for lane in by_pair.values()]
        self._outgoing_lanes = [lane for lane in every if lane.edge.source == rank]
        self._incoming_lanes = [lane for lane in every if lane.edge.target == rank]
        self._slot_bytes = slot_bytes_of(lanes)
        self._stack = ExitStack()
        self._arena: Arena | None = None
        self.slots: dict[tuple[int, int, int], ArenaSlot] = {}
        self.boxes: dict[int, ArenaSlot] = {}
        self.views: dict[int, ArenaView] = {}
        self.infos: dict[int, EndpointInfo] = {}
        self.outgoing = Outgoing(timeout_s)

    def open(self, meeting: Rendezvous, name: str) -> None:
        """Makes this rank's memory, and opens that of the others. All ranks call it.

        Args:
            meeting: Where they meet.
            name: Unique among the plans that these ranks load.

        Raises:
            PlanError: There is no room in shared memory.
            LinkLostError: Another rank is gone.
        """
        self._arena = self._make_arena()
        info = self._make_ends()
        meeting.announce(f"{name}/{self._rank}", msgspec.msgpack.encode(info))
        try:
            for peer in sorted(
                {lane.edge.target for lane in self._outgoing_lanes} | {lane.edge.source for lane in self._incoming_lanes}
            ):
                self.infos[peer] = msgspec.msgpack.decode(meeting.learn(f"{name}/{peer}"), type=EndpointInfo)
                self._open_peer(peer)
        except TransportError as error:
            raise LinkLostError(str(error)) from error
        meeting.meet()
        if self._arena:
            self._arena.hide()

    def _make_arena(self) -> Arena | None:
        own = [num for (_, target, _), num in self._slot_bytes.items() if target == self._rank]
        boxes = [_box_bytes(lane) for lane in self._incoming_lanes if lane.edge.kind is ChannelKind.DYNAMIC]
        blocks = [lane.num_bytes for lane in self._outgoing_lanes if lane.edge.kind is ChannelKind.DYNAMIC]
        if not own and not boxes and not blocks:
            return None
        # a block begins a page; blocks come and go, so free room is in pieces
        each = [round_up(HEADER_BYTES + num, PAGE_BYTES) for num in (*own, *boxes)]
        size = sum(each) + 2 * sum(round_up(max(num, 1), PAGE_BYTES) for num in blocks)
        try:
            return self._stack.enter_context(Arena(MEMORY_FOLDER, size + _MIN_ARENA_BYTES, len(each) + len(blocks) + 1))
        except TransportError as error:
            raise PlanError(f"rank {self._rank} has no shared memory for its edges: {error}") from error

    def _make_ends(self) -> EndpointInfo:
        slots, boxes = dict[str, tuple[int, int]](), dict[int, tuple[int, int]]()
        for (source, target, number), num_bytes in self._slot_bytes.items():
            if target == self._rank:
                slot, slots[f"{source}/{number}"] = self._make_slot(num_bytes, f"slot {number} of rank {source}")
                self.slots[source, target, number] = slot
        for lane in self._incoming_lanes:
            if lane.edge.kind is ChannelKind.DYNAMIC:
                slot, boxes[lane.number] = self._make_slot(_box_bytes(lane), f"edge {lane.number} of rank {lane.edge.source}")
                self.boxes[lane.number] = slot
        token, address = secrets.token_hex(16), ""
        if any(lane.edge.kind is ChannelKind.GRPC for lane in self._outgoing_lanes):
            from dyorc.transport.grpc_tensors import Endpoint, GrpcTensorServer

            server = GrpcTensorServer(self.outgoing, Endpoint("127.0.0.1"), TransportConfig(), token)
            address = self._stack.enter_context(server).address
            self._stack.callback(self.outgoing.close)  # before the server ends: its threads wait there
        return EndpointInfo(self._arena.name if self._arena else "", slots, boxes, address, token)

    def _make_slot(self, num_bytes: int, name: str) -> tuple[ArenaSlot, tuple[int, int]]:
        block = self.allocate(HEADER_BYTES + num_bytes)
        block.memory[:HEADER_BYTES] = bytes(HEADER_BYTES)
        return ArenaSlot(block.memory, name), (block.offset, block.num_bytes)

    def _open_peer(self, peer: int) -> None:
        info = self.infos[peer]
        outgoing = [lane for lane in self._outgoing_lanes if lane.edge.target == peer]
        if info.arena and any(lane.edge.kind is not ChannelKind.GRPC for lane in outgoing):
            window = ArenaWindow(MEMORY_FOLDER, info.arena)
            for key, (offset, num_bytes) in info.slots.items():
                source, number = map(int, key.split("/"))
                if source == self._rank:
                    self.slots[source, peer, number] = window.slot(offset, num_bytes)
            for lane in outgoing:
                if lane.edge.kind is ChannelKind.DYNAMIC:
                    self.boxes[lane.number] = window.slot(*info.boxes[lane.number])
        if any(lane.edge.kind is ChannelKind.DYNAMIC and lane.edge.source == peer for lane in self._incoming_lanes):
            self.views[peer] = view = ArenaView(MEMORY_FOLDER, info.arena)
            self._stack.callback(view.close)

    def allocate(self, num_bytes: int) -> ArenaBlock:
        """Returns a block of this rank's arena.

        Raises:
            PlanError: There is no room in shared memory.
        """
        assert self._arena is not None, "ranks with lanes in shared memory have an arena"
        block = self._arena.allocate(num_bytes)
        if block is None:
            raise PlanError(f"{MEMORY_FOLDER} has no room for {num_bytes:,} bytes that rank {self._rank} shares")
        return block

    def publish(self, block: ArenaBlock) -> None:
        """Makes a block visible to other ranks."""
        assert self._arena is not None, "it has blocks"
        self._arena.publish(block)

    def free(self, block: ArenaBlock) -> None:
        """Gives a block back."""
        assert self._arena is not None, "it has blocks"
        self._arena.free(block.block_id)

    def close(self) -> None:
        """Releases everything."""
        self._stack.close()


def _box_bytes(lane: MessageLane) -> int:
    return LENGTH_BYTES + _TENSOR_BYTES * (1 + lane.num_tensors)


_LANE_BITS = 24


class Outgoing:
    """What a tensor server reads from: a message of a lane is let go when the next one of that lane is asked for.

    Args:
        timeout_s: How long a reader waits for a message.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._messages: dict[int, memoryview] = {}
        self._is_closed = False

    @staticmethod
    def block_of(lane: int, number: int) -> int:
        """Returns the number under which a message is asked for: the lane's, and which of its messages it is, from 1."""
        return number << _LANE_BITS | lane

    def put(self, lane: int, number: int, message: memoryview) -> None:
        """Offers a message."""
        with self._changed:
            self._messages[self.block_of(lane, number)] = message
            self._changed.notify_all()

    def read_only(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        """Returns bytes of a message; waits for it.

        Raises:
            TensorLostError: It did not come in time, or the sender has closed.
            TransportError: It has no such bytes.
        """
        end_s = time.monotonic() + self._timeout_s
        with self._changed:
            self._messages.pop(block_id - (1 << _LANE_BITS), None)
            while block_id not in self._messages:
                if self._is_closed or not self._changed.wait(max(end_s - time.monotonic(), 0.0)):
                    raise TensorLostError(f"message {block_id >> _LANE_BITS} of lane {block_id % (1 << _LANE_BITS)} never came")
            message = self._messages[block_id]
        if offset < 0 or num_bytes < 0 or offset + num_bytes > len(message):
            raise TransportError(f"{num_bytes} bytes from {offset} are not within a message of {len(message)}")
        return message[offset : offset + num_bytes]

    def is_intact(self, block_id: int) -> bool:
        """Returns whether the message is still there."""
        return block_id in self._messages

    def close(self) -> None:
        """Ends the waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
