"""Chains that have begun go on before others begin."""

import numpy as np
from jaxtyping import Float

import dyorc
from tests.unit.engine.resident_world import begin, extend, world_with

Number = Float[np.ndarray, ""]
_NUM_TURNS = 6
_MAX_BATCH_SIZE = extend.options.max_batch_size


@dyorc.workflow
async def decided_turn_by_turn(x: Number) -> Number:
    """Extends one list, and looks at each sum before it goes on."""
    numbers, total = begin(x), x
    for _ in range(_NUM_TURNS):
        total, numbers = extend(x, numbers)
        await total
    return total


def test_no_chain_stands_still_because_too_many_have_begun() -> None:
    world = world_with("P")
    requests = [world.submit(decided_turn_by_turn, float(at)) for at in range(3 * _MAX_BATCH_SIZE)]
    turns: dict[int, list[int]] = {request: [] for request in requests}
    num_batches = num_begun = most_begun = 0
    while world.in_flight:
        action = next(iter(world.in_flight.values())).action
        if action.program is begin:
            num_begun += len(action.operands)
        else:
            num_batches += 1
            for operands in action.operands:
                assert operands[0].data is not None
                turns[requests[int(operands[0].data)]].append(num_batches)
        num_ended = sum(len(made) == _NUM_TURNS for made in turns.values())
        most_begun = max(most_begun, num_begun - num_ended)
        world.finish()
    assert [world.result(request) for request in requests] == [float(_NUM_TURNS + 1) * at for at in range(len(requests))]
    assert all(max(np.diff(made)) <= 2 for made in turns.values()), f"a chain waited for many batches of others: {turns}"
    assert most_begun <= 2 * _MAX_BATCH_SIZE
    world.check_nothing_is_left()
