"""The orchestrator's side of the tensor path: references to all tensors, and the bytes of a few.

Requests' inputs lie in its own arena; small ones travel inside messages. Results stay with the replicas that made them. It
reads bytes only for answers, and for values that workflows read.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from dyorc.answering.stored_parts import follows, stored_ref, stored_rows
from dyorc.core.arrays import Array, apply_views, dtype_of
from dyorc.core.tensor import ON_DEVICE, BlockId, DType, TensorRef, blocks_of
from dyorc.devices.device_tensors import DeviceTensors
from dyorc.errors import CapacityError, PayloadTooLargeError, TransportError
from dyorc.transport.arena import ArenaBody
from dyorc.transport.arena_file import PAGE_BYTES, ArenaUsage, round_up
from dyorc.transport.column_codec import (
    MAX_ROWS,
    Column,
    ColumnHeader,
    Frame,
    StoredColumn,
    StoredRows,
    check_stored,
    decode_column,
    each_row,
    encode_column,
    num_frames,
)
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.outbox import TENSOR_ALIGNMENT, NoRoomError, TooLargeError, num_bytes_of
from dyorc.transport.tensor_path import TensorExchange
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import InputMoves, TensorHolder, ViewTier

OWN = ""
"""The orchestrator's holder id, as the engine knows it."""


class Tensors:
    """References to tensors. Used on the event loop.

    Args:
        exchange: This process's end of the tensor path; the caller enters and leaves it.

    Attributes:
        exchange: The same.
        inline_limit_bytes: Tensors up to this size travel inside messages.
        devices: What programs of this process keep on devices; None: nothing.
    """

    def __init__(self, exchange: TensorExchange) -> None:
        self.exchange = exchange
        self._holders: dict[str, TensorHolder] = {}
        self._released: dict[str, Callable[[int], None]] = {}
        self._lent: list[Routes] = []
        self.devices: DeviceTensors | None = None

    def open(self) -> None:
        """Begins to use the exchange. Call it once the exchange is entered."""
        self._fetcher = ThreadPoolExecutor(1, "dyorc-fetcher")  # its thread starts on first use
        self._far_inbox: Inbox | None = None
        self._far_routes: Routes | None = None
        self._holders[OWN] = self.exchange.holder
        self._node = self.exchange.holder.node
        self.inline_limit_bytes = self.exchange.outbox.inline_limit_bytes
        self._routes = self.exchange.routes()
        self._inbox = Inbox(self._routes, is_writing=False)

    def close(self) -> None:
        """Ends the use of the exchange. Call it before the exchange is left."""
        self._fetcher.shutdown()
        if self._far_routes is not None:
            self._far_routes.close()
        self._routes.close()

    # Holders

    def join(self, holder: TensorHolder, released: Callable[[int], None] | None = None) -> None:
        """Adds a process that holds tensors: references to them become valid.

        Args:
            released: Called with each of its blocks that is no longer needed; None if it learns that elsewhere.
        """
        self._holders[holder.holder_id] = holder
        if released is not None:
            self._released[holder.holder_id] = released

    def leave(self, holder_id: str) -> None:
        """Removes a process that is gone, with its tensors."""
        self._released.pop(holder_id, None)
        if self._holders.pop(holder_id, None) is not None:
            for routes in (self._routes, *self._lent):
                routes.forget(holder_id)
            if self._far_routes is not None:
                self._fetcher.submit(self._far_routes.forget, holder_id)

    def lend_routes(self) -> Routes:
        """Returns tiers for a program in this process, until `take_back`."""
        self._lent.append(self.exchange.routes())
        return self._lent[-1]

    def take_back(self, routes: Routes) -> None:
        """Closes tiers that were lent."""
        self._lent.remove(routes)
        routes.close()

    # Inputs of requests

    def body(self, num_bytes: int, align_at: int) -> ArenaBody:
        """Returns memory for a request's body, placed so that its byte number `align_at` is aligned.

        Raises:
            CapacityError: If the arena is full.
            PayloadTooLargeError: If it would not fit into an empty arena.
        """
        lead = -align_at % TENSOR_ALIGNMENT
        block = self.exchange.arena.allocate(num_bytes + lead)
        if block is None:
            raise self._no_room(num_bytes + lead)
        return ArenaBody(block, lead)

    def drop(self, body: ArenaBody) -> None:
        """Frees a body that holds no tensor."""
        if not body.is_used:
            self.exchange.arena.free(body.block.block_id)

    def keep_all(self, arrays: Sequence[Array], body: ArenaBody | None = None) -> tuple[TensorRef, ...]:
        """Returns references to a request's inputs, all or none.

        Raises:
            CapacityError: If the arena is full.
            PayloadTooLargeError: If they would not fit into an empty arena.
        """
        kept: list[TensorRef] = []
        try:
            for array in arrays:
                kept.append(self.keep(array, body))
        except BaseException as error:
            own = None
            if body is not None:
                body.is_used = False
                own = body.block.block_id
            self.free([block for block in blocks_of(kept) if block[1] != own])
            if isinstance(error, NoRoomError | TooLargeError):
                raise self._no_room(self._bytes_to_store(arrays, body)) from error
            raise
        return tuple(kept)

    def _bytes_to_store(self, arrays: Sequence[Array], body: ArenaBody | None) -> int:
        """Returns the arena bytes that inputs take, each in whole pages, with the body that some may lie in."""
        num_bytes = 0 if body is None else len(body.memory)
        for array in arrays:
            if (length := num_bytes_of(array)) > self.inline_limit_bytes and (body is None or body.offset_of(array) is None):
                num_bytes += round_up(length, PAGE_BYTES)
        return num_bytes

    def _no_room(self, num_bytes: int) -> CapacityError | PayloadTooLargeError:
        """Returns why a request with inputs of this size is refused."""
        limit = self.exchange.arena.max_block_bytes
        if num_bytes > limit:
            remedy = self.exchange.arena.remedy_for(num_bytes)
            return PayloadTooLargeError(
                f"the request's inputs take {num_bytes} bytes of shared memory, the server has {limit} in all; {remedy}"
            )
        return CapacityError(f"there is no room now for the request's {num_bytes} bytes in shared memory")

    def keep(self, array: Array, body: ArenaBody | None = None) -> TensorRef:
        """Returns a reference to an input: to its place in `body`, or to a copy in the arena; small ones travel inline.

        Raises:
            NoRoomError: If the arena is full.
            TooLargeError: If it would not fit into an empty arena.
        """
        dtype, node = dtype_of(array), self._node
        num_bytes = num_bytes_of(array)
        if num_bytes <= self.inline_limit_bytes:
            data = array if body is None else array.copy()
            return TensorRef(dtype=dtype, shape=array.shape, num_bytes=num_bytes, node=node, data=data)
        if body is not None and (offset := body.offset_of(array)) is not None:  # never of texts, which are objects elsewhere
            if not body.is_used:
                body.is_used = True
                self.exchange.arena.publish(body.block)
            block = body.block.block_id
        else:
            part = self.exchange.outbox.store(array)
            block, offset, num_bytes = part.block, part.offset, part.num_bytes
        return TensorRef(dtype=dtype, shape=array.shape, num_bytes=num_bytes, node=node, holder=OWN, block=block, offset=offset)

    def free(self, blocks: Sequence[BlockId]) -> None:
        """Frees this process's blocks, and notifies the holders of others that asked for it."""
        for holder_id, block in blocks:
            if holder_id == OWN:
                self.exchange.arena.free(block)
            elif holder_id == ON_DEVICE:
                if self.devices is not None:
                    self.devices.release(block)
            elif holder_id in self._released:
                self._released[holder_id](block)

    def free_all(self) -> None:
        """Frees all of this process's blocks."""
        if self.devices is not None:
            self.devices.release_all()
        self.exchange.free_all()

    # On devices

    def on_host(self, tensors: Sequence[TensorRef]) -> Sequence[TensorRef]:
        """Returns references that every process can read: of what lies on a device of this one, to its copy on the host.
        Waits for copies that are missing; `fetch` waits elsewhere.

        Raises:
            InputsLostError: If one is no longer there.
        """
        for tensor in tensors:  # hardly any process has a device, so this must cost nothing
            if tensor.holder == ON_DEVICE and tensor.block:
                if self.devices is None:
                    raise InputsLostError([(ON_DEVICE, tensor.block)], "this process has nothing on a device")
                return self.devices.on_host(tensors)
        return tensors

    # To replicas

    def pack(self, operands: Sequence[tuple[TensorRef, ...]]) -> tuple[list[ColumnHeader], list[Frame], tuple[TensorHolder, ...]]:
        """Packs the columns of a batch: small tensors as frames, the places of the others.

        Raises:
            InputsLostError: If a holder is gone.
            TransportError: If a tensor cannot be sent.
        """
        headers: list[ColumnHeader] = []
        frames: list[Frame] = []
        places: dict[str, int] = {}
        for operand_column in zip(*operands, strict=True):
            column = self.on_host(operand_column) if has_stored(operand_column) else operand_column
            if has_stored(column):
                header, parts = self._pack_stored(column, places, self._holders)
            else:
                header, parts = encode_column([inline_array(tensor) for tensor in column])
            headers.append(header)
            frames.extend(parts)
        return headers, frames, tuple([self._holders[holder_id] for holder_id in places])

    def holder(self, holder_id: str) -> TensorHolder | None:
        """Returns how to reach a holder; None if it is gone."""
        return self._holders.get(holder_id)

    def _pack_stored(
        self, column: Sequence[TensorRef], places: dict[str, int], holders: Mapping[str, TensorHolder]
    ) -> tuple[StoredColumn, list[Frame]]:
        """Packs a column that is partly stored. Calls that lie one behind the other become one piece.

        Args:
            places: Gets the place of each holder in the message's list of them.
            holders: How to reach them.
        """
        parts: list[Column | StoredRows] = []
        frames: list[Frame] = []
        for tensor in column:
            if not tensor.block:
                header, raw = encode_column([inline_array(tensor)])
                parts.append(header)
                frames.extend(raw)
                continue
            if tensor.holder not in holders:
                raise InputsLostError([(tensor.holder, tensor.block)], f"holder {tensor.holder!r} is gone")
            holder = places.setdefault(tensor.holder, len(places))
            last = parts[-1] if parts else None
            if isinstance(last, StoredRows) and follows(last, holder, tensor):
                parts[-1] = msgspec.structs.replace(last, num_rows=last.num_rows + 1)
            else:
                parts.append(stored_rows(tensor, holder))
        return StoredColumn(column[0].dtype, tuple(parts)), frames

    # From replicas

    def refs(self, holder_id: str, headers: Sequence[ColumnHeader], frames: Sequence[Frame]) -> list[tuple[TensorRef, ...]]:
        """Returns references to the outputs of a batch, call by call.

        Raises:
            TransportError: If a header contradicts itself or its frames.
        """
        num_expected = sum(map(num_frames, headers))
        if num_expected != len(frames):
            raise TransportError(f"a reply announces {num_expected} frames and has {len(frames)}")
        if holder_id not in self._holders:
            raise TransportError(f"a reply of replica {holder_id!r}, which is not known")
        node = self._holders[holder_id].node
        columns: list[list[TensorRef]] = []
        at = 0
        for header in headers:
            if isinstance(header, Column):
                end = at + len(header.shapes)
                columns.append(self._inline_refs(header, frames[at:end], node))
                at = end
            else:
                columns.append(stored_refs(header, holder_id, node))
                at += num_frames(header)
        if len(columns) > 1 and len(set(map(len, columns))) > 1:
            raise TransportError(f"outputs of {[len(column) for column in columns]} calls in one batch")
        return list(zip(*columns, strict=True))

    def unpack(
        self, headers: Sequence[ColumnHeader], frames: Sequence[Frame], holders: Sequence[TensorHolder]
    ) -> tuple[TensorRef, ...]:
        """Returns references to the tensors of one call that another process has packed (`pack`). Their holders join.

        Raises:
            TransportError: If a header contradicts itself or its frames.
        """
        for holder in holders:
            if self._holders.get(holder.holder_id) != holder:
                self.leave(holder.holder_id)
                self.join(holder)
        refs: list[TensorRef] = []
        at = 0
        for header in headers:
            end = at + num_frames(header)
            if isinstance(header, Column):
                tensors = self._inline_refs(header, frames[at:end], self._node)
            else:
                tensors = [stored_ref(header, part, holders) for part in header.parts]
            if len(tensors) != 1:
                raise TransportError(f"a tensor came as {len(tensors)}")
            refs += tensors
            at = end
        if at != len(frames):
            raise TransportError(f"{len(headers)} tensors announce {at} frames and have {len(frames)}")
        return tuple(refs)

    def _inline_refs(self, header: Column, frames: Sequence[Frame], node: str) -> list[TensorRef]:
        arrays = decode_column(header, [memoryview(frame).toreadonly() for frame in frames])
        return [
            TensorRef(dtype=header.dtype, shape=array.shape, num_bytes=array.nbytes, node=node, data=array) for array in arrays
        ]

    # Reading

    def is_near(self, tensors: Sequence[TensorRef]) -> bool:
        """Returns whether all bytes are on this node or inline, and none of them only on a device."""
        for tensor in tensors:
            if tensor.block:
                if tensor.holder == ON_DEVICE:
                    if self.devices is None or not self.devices.is_on_host(tensor.block):
                        return False
                    continue
                holder = self._holders.get(tensor.holder)
                if holder is not None and not self._routes.is_near(holder, tensor.block, tensor.device):
                    return False
        return True

    def fetch(self, tensors: Sequence[TensorRef], moves: InputMoves | None = None) -> "asyncio.Future[list[Array]]":
        """Returns the arrays, fetched from their holders. Its errors are those of `read`.

        Args:
            moves: Gets how they came, by the time that they are here.
        """
        holders = dict(self._holders)
        return asyncio.get_running_loop().run_in_executor(self._fetcher, self._fetch, tensors, holders, moves)

    def _fetch(self, tensors: Sequence[TensorRef], holders: Mapping[str, TensorHolder], moves: InputMoves | None) -> list[Array]:
        """Runs on the fetching thread, which has separate tiers."""
        if self._far_inbox is None or self._far_routes is None:
            self._far_routes = self.exchange.routes()
            self._far_inbox = Inbox(self._far_routes, is_writing=False)
        self._far_inbox.moves.take()  # of what was read before, for others
        arrays = self.read(tensors, self._far_inbox, holders)
        if moves is not None:
            for move in self._far_inbox.moves.take():
                moves.add(move.tier, move.num_bytes, move.took_s)
        return arrays

    def read(
        self, tensors: Sequence[TensorRef], inbox: Inbox | None = None, holders: Mapping[str, TensorHolder] | None = None
    ) -> list[Array]:
        """Returns the arrays where they lie. Stored ones are valid until the engine releases them.

        Raises:
            InputsLostError: If a holder is gone.
        """
        inbox = inbox or self._inbox
        tensors = self.on_host(tensors)
        try:
            stored: dict[DType, list[TensorRef]] = {}
            for tensor in tensors:
                if tensor.block:
                    stored.setdefault(tensor.dtype, []).append(tensor)
            columns = {dtype: iter(self._read_stored(column, inbox, holders)) for dtype, column in stored.items()}
            return [next(columns[tensor.dtype]) if tensor.block else inline_array(tensor) for tensor in tensors]
        finally:
            inbox.done()

    def _read_stored(
        self, column: Sequence[TensorRef], inbox: Inbox, holders: Mapping[str, TensorHolder] | None
    ) -> Sequence[Array]:
        """Reads stored tensors of one type. From each process on another node they are fetched at once."""
        holders = self._holders if holders is None else holders
        places: dict[str, int] = {}
        header, _ = self._pack_stored(column, places, holders)
        (rows,) = inbox.read([header], [], [holders[holder_id] for holder_id in places])
        return each_row(rows)

    def lost_of(self, tensors: Sequence[TensorRef]) -> list[BlockId]:
        """Returns the blocks of tensors that were read in place and are gone: what was read may be something else.

        That happens if their holder was given up in the meantime and came back, which frees everything it has. A holder that has
        not come back has freed nothing.
        """
        return [block for block in blocks_of(tensors) if not self._is_intact(*block)]

    def _is_intact(self, holder_id: str, block: int) -> bool:
        """Returns whether either of our threads has seen a block and would see it still."""
        holder = self._holders.get(holder_id)
        near = None if holder is None else self._routes.viewer(holder)
        if holder is None or near is None:
            return True
        far = None if self._far_routes is None else self._far_routes.viewer(holder)
        return _has_block(near, holder, block) or _has_block(far, holder, block)

    def report(self) -> dict[str, Any]:
        """Returns what lies in the arena, and what each arena of this node takes: ours, and its replicas' by their ids."""
        arena = self.exchange.arena
        return {
            "arena_bytes": arena.size_bytes,
            "arena_bytes_used": arena.num_bytes_used,
            "arena_bytes_resident": arena.num_bytes_resident,
            "num_blocks": arena.num_blocks,
            "arenas": {name: usage._asdict() for name, usage in self.usage_of_arenas().items()},
        }

    def usage_of_arenas(self) -> dict[str, ArenaUsage]:
        """Returns what each arena of this node takes: ours under ``server``, and its replicas' by their ids."""
        return self.exchange.usage_of(self._holders.values())


def _has_block(tier: ViewTier | None, holder: TensorHolder, block: int) -> bool:
    try:
        return tier is not None and tier.is_intact(holder, block)
    except TransportError:
        return False


def has_stored(tensors: Sequence[TensorRef]) -> bool:
    """Returns whether any tensor is stored rather than inline."""
    for tensor in tensors:  # noqa: SIM110  a generator would cost more than all it looks at
        if tensor.block:
            return True
    return False


def inline_array(tensor: TensorRef) -> Array:
    """Returns the array of an inline tensor."""
    array: Array = tensor.data
    return apply_views(array, tensor.views) if tensor.views else array


def stored_refs(header: StoredColumn, holder_id: str, node: str) -> list[TensorRef]:
    """Returns references to the calls of a column that its holder has stored.

    Raises:
        TransportError: If the header contradicts itself.
    """
    refs: list[TensorRef] = []
    for part in header.parts:
        if not isinstance(part, StoredRows) or part.strides is not None or part.block <= 0:
            raise TransportError("a reply's stored column has a part that is not stored as a whole")
        check_stored(header.dtype, part)
        if len(refs) + part.num_rows > MAX_ROWS:
            raise TransportError(f"a reply's column has more than {MAX_ROWS} calls")
        for row in range(part.num_rows):
            refs.append(
                TensorRef(
                    dtype=header.dtype,
                    shape=part.shape,
                    num_bytes=part.num_bytes,
                    node=node,
                    holder=holder_id,
                    block=part.block,
                    offset=part.offset + row * part.num_bytes,
                    device=part.device,
                )
            )
    return refs
