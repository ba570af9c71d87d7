"""Programs that sample: with a seed as an input, a stream goes on after a loss; without one, the loss fails it and says why."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.config import EngineConfig
from dyorc.errors import StreamDivergedError
from tests.unit.engine.driver import World

Number = Int[np.ndarray, ""]
_runs = count()


@dyorc.program(batched=False)
def sample(x: Number, seed: int = -1) -> Iterator[Number]:
    """Samples from a seed, or, as an engine does without one, other numbers in each run."""
    generator = np.random.default_rng(next(_runs) if seed < 0 else seed)
    for _ in range(4):
        yield x + generator.integers(1 << 30)


@dyorc.workflow
async def samples(x: Number, seed: int) -> AsyncIterator[Number]:
    async for part in sample(x, seed=seed):
        yield part


def world_after_a_loss(seed: int) -> tuple[World, int]:
    world = World([sample], EngineConfig(max_untaken_parts=2))
    world.join(sample)
    request = world.submit(samples, np.array(0), seed=seed)
    world.finish()
    world.leave(world.oldest().action.replica_id)
    world.join(sample)
    world.finish_all()
    return world, request


def test_with_a_seed_as_an_input_a_stream_goes_on_after_a_loss() -> None:
    world, request = world_after_a_loss(7)
    generator = np.random.default_rng(7)
    assert [int(part) for part in world.part_values(request)] == [generator.integers(1 << 30) for _ in range(4)]


def test_without_one_the_error_says_what_to_do_and_that_it_is_no_effect() -> None:
    world, request = world_after_a_loss(-1)
    with pytest.raises(StreamDivergedError, match="takes a seed as an input") as caught:
        world.result(request)
    assert "pure=False" not in str(caught.value)
    assert sample.options.pure
