"""Puts blocks into an arena and reads them through a view of it."""

from dyorc.transport.arena import Arena, ArenaBlock
from dyorc.transport.arena_views import ArenaView

SIZE_BYTES = 2**20
NUM_SLOTS = 16


def put(arena: Arena, content: bytes) -> ArenaBlock:
    """Allocates, fills and publishes a block."""
    block = arena.allocate(len(content))
    assert block is not None
    block.memory[:] = content
    arena.publish(block)
    return block


def read(view: ArenaView, block: ArenaBlock) -> bytes:
    return bytes(view.read_only(block.block_id, block.offset, block.num_bytes))
