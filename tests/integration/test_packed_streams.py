"""Parts that are there together cross the link together."""

import pytest

from dyorc.engine.actions import FeedPart
from dyorc.engine.events import BatchDone, InputPartsTaken
from tests.integration.bare_fleet import bare_fleet
from tests.workflows import relayed

_HEADERS_BYTES = 100
"""More than the headers of one message, and far less than those of 16."""


@pytest.mark.parametrize("scheme", ["unix", "ipc"])
async def test_the_parts_of_one_turn_cross_the_link_as_one_message(scheme: str) -> None:
    async with bare_fleet([relayed.doubled], scheme=scheme) as fleet:
        replica = await fleet.start(relayed.doubled)
        batch = fleet.run(replica, relayed.doubled)
        num_bytes = fleet.fleet.report()["num_bytes_sent"]
        feeds = [FeedPart(replica, batch, 0, index, fleet.keep(index)) for index in range(16)]
        fleet.control(*feeds, FeedPart(replica, batch, 0, 16, is_end=True))
        assert fleet.fleet.report()["num_bytes_sent"] - num_bytes < 16 * 8 + _HEADERS_BYTES
        assert isinstance(await fleet.until_over(batch), BatchDone)
        assert fleet.values(batch) == [2 * index for index in range(16)]
        assert fleet.answers(batch, InputPartsTaken)[-1].num_taken == 16
