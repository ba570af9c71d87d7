"""A gateway's end in a separate process, which asks for `gated` once for each number, and waits.

python -m tests.integration.cluster.gateway_process ADDRESS FOLDER NUMBER...
"""

import asyncio
import sys

import numpy as np

from dyorc.answering.local_answers import own_arrays
from dyorc.leader_election.leader import Leader
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.cluster.ends import Told, gateway
from tests.integration.stack import within
from tests.workflows.slow import gated


async def main(address: str, folder: str, numbers: list[int]) -> None:
    """Asks."""
    leaders = Told(leader=Leader(group="default", fence=1, address=address, node="here"))
    async with gateway(leaders, "gateway-that-is-killed") as backend:
        await wait_until_async(lambda: backend.offers.all, "models are on offer")
        asked = [submission(gated, [np.full(4, number, np.float32)], (folder,), within(600)) for number in numbers]
        await asyncio.gather(*(backend.infer(one, take=own_arrays) for one in asked))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], [int(one) for one in sys.argv[3:]]))
