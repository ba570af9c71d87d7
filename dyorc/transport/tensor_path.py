"""A process's end of the tensor path: its own arena, and the tiers by which it reads those of others."""

import threading
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Self

import numpy as np

from dyorc.config import TransportConfig
from dyorc.errors import TransportError
from dyorc.transport.arena import Arena
from dyorc.transport.arena_file import ArenaUsage, default_size, identity_of, usage_of
from dyorc.transport.calibration import measure_inline_limit
from dyorc.transport.cluster_network import NodeNetwork, serve_tensors, wire_tiers
from dyorc.transport.host_copies import FilledSource, HostCopier, HostCopyClient, HostCopyServer
from dyorc.transport.outbox import Outbox
from dyorc.transport.tier_routes import PROBE_BYTES, Routes
from dyorc.transport.tiers import ByteSpan, TensorHolder
from dyorc.transport.view_tiers import InPlaceTier, SharedMemoryTier

_PIECE_BYTES = 16 * 2**20
"""Returned at once, which blocks allocations for about a millisecond."""
_PAUSE_S = 0.005


class ArenaTrimmer:
    """Returns memory that an arena has not needed for some time. Runs on a separate thread while entered.

    It keeps the most that blocks took since the last check, which is likely to be needed again, and at least `keep_bytes`.

    Args:
        keep_bytes: Memory to keep even if no block needs it.
        every_s: Interval of the checks; memory has been free at least this long when it is returned.
    """

    def __init__(self, arena: Arena, keep_bytes: int, every_s: float) -> None:
        self._arena = arena
        self._keep_bytes = keep_bytes
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dyorc-arena", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            keep_bytes = max(self._keep_bytes, self._arena.take_peak())
            while self._arena.trim(keep_bytes, _PIECE_BYTES) and not self._is_over.wait(_PAUSE_S):
                pass


class TensorExchange:
    """Open while entered. Leaves nothing in shared memory behind.

    Args:
        holder_id: This process's name for others.
        node: Where it runs.
        network: How it reaches other nodes; None without any.
        is_alone: Whether it exchanges no tensors with other processes.

    Attributes:
        config: As given.
        holder: How others reach it.
        outbox: Puts tensors into its arena.
        arena: Its own arena.
    """

    def __init__(
        self, holder_id: str, node: str, config: TransportConfig, network: NodeNetwork | None = None, *, is_alone: bool = False
    ) -> None:
        self._is_alone = is_alone
        self._holder_id = holder_id
        self._node = node
        self.config = config
        self._stack = ExitStack()
        self._probe_block = 0
        self._network = network
        self._source: FilledSource | None = None

    def __enter__(self) -> Self:
        """Creates the arena, and removes those of processes that were killed.

        Raises:
            TransportError: If it cannot be created, or other nodes cannot be let in.
        """
        config = self.config
        with ExitStack() as stack:
            folder = "" if self._is_alone else config.arena_folder
            self.arena = stack.enter_context(Arena(folder, config.arena_bytes or default_size(folder)))
            stack.enter_context(ArenaTrimmer(self.arena, config.arena_keep_bytes, config.arena_release_after_s))
            self.outbox = Outbox(self.arena, self._inline_limit_bytes())
            addresses, probe = ("", ""), None
            if self._network is not None:
                probe = self._publish_probe()
                view = self.arena.view()
                stack.callback(view.close)
                self._source = FilledSource(view)
                addresses = serve_tensors(self._network, self._source, config, stack)
            self.holder = TensorHolder(self._holder_id, self._node, self.arena.name, *addresses, probe, self._memory)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def routes(self) -> Routes:
        """Returns tiers for one thread, which must close them before the exchange."""
        own = InPlaceTier(self._holder_id, self.arena.view())
        if self._is_alone:
            return Routes((own,))
        wires = () if self._network is None else tuple(wire_tiers(self._network, self.config))
        near = SharedMemoryTier(self._memory, self.config.arena_folder)
        return Routes((own, near), wires, HostCopyClient())

    def share_device(self, copier: HostCopier) -> HostCopyServer:
        """Lets others have blocks filled that are only on this process's device, while the result is entered."""
        if self._source is not None:
            self._source.copier = copier
        return HostCopyServer(self.arena.name, copier)

    @property
    def _memory(self) -> str:
        return identity_of(self.config.arena_folder) if self.config.share_by_folder else self._node

    @property
    def num_tensors(self) -> int:
        """How many of its blocks others may read."""
        return self.arena.num_blocks - bool(self._probe_block)

    def free_all(self) -> None:
        """Frees all tensors."""
        self.arena.free_all({self._probe_block})

    def usage_of(self, holders: Iterable[TensorHolder]) -> dict[str, ArenaUsage]:
        """Returns the usage of the arenas on this node, by holder; our own is called ``server``."""
        if self._is_alone:
            return {"server": self.arena.usage()}
        near = {holder.holder_id or "server": holder for holder in holders if holder.node == self._node}
        usages = {name: usage_of(self.config.arena_folder, holder.arena) for name, holder in near.items()}
        return {name: usage for name, usage in usages.items() if usage is not None}

    def _publish_probe(self) -> ByteSpan:
        """Returns a block that others fetch to measure the cost."""
        num_bytes = max(PROBE_BYTES)
        block = self.arena.allocate(num_bytes)
        if block is None:
            size = self.arena.size_bytes
            raise TransportError(f"the arena of {size} bytes has no room for the {num_bytes} that other nodes measure with")
        np.frombuffer(block.memory, np.uint8)[:] = 0
        self.arena.publish(block)
        self._probe_block = block.block_id
        return ByteSpan(block.block_id, block.offset, num_bytes)

    def _inline_limit_bytes(self) -> int:
        if self.config.inline_limit_bytes is not None:
            return self.config.inline_limit_bytes
        view = self.arena.view()
        try:
            return measure_inline_limit(self.arena, view)
        finally:
            view.close()
