"""An orchestrator in a separate process, with its programs: waits until it leads, and serves gateways until another does.

python -m tests.chaos.parted_process FOLDER ARENAS LEASE_S [stubborn]

One that is stubborn goes on whatever its lease says.
"""

import asyncio
import sys
from dataclasses import replace

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.cells.local_fleet import CellSite, LocalFleet
from dyorc.cluster.gateway_server import GatewayServer
from dyorc.config import CellsConfig, LinkConfig, OrchestratorConfig
from dyorc.leader_election.leadership import Leadership
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.store.opening import leases_of
from dyorc.transport.tensor_path import TensorExchange
from tests.integration.stack import FAST_TRANSPORT
from tests.workflows import parted

NODE = "here"


async def main(folder: str, arenas: str, lease_s: float, is_stubborn: bool) -> None:
    """Stands by, leads, ends."""
    repertoire = ModelRegistry.of(parted.ALL)
    async with leases_of(f"sqlite:///{folder}/store.db") as leases, Leadership(leases, "default", lease_s) as leadership:
        await leadership.win()
        tensors = Tensors(TensorExchange(OWN, NODE, FAST_TRANSPORT.model_copy(update={"arena_folder": arenas})))
        status = StatusBoard(repertoire.programs)
        site = CellSite(config=CellsConfig(), node=NODE, num_cores=1, room_wait_s=1.0)
        fleet = LocalFleet(repertoire.programs, site, tensors, status)
        address = f"unix://{folder}/desk-{leadership.fence}"
        lead = replace(leadership.lead, is_sure=lambda: True) if is_stubborn else leadership.lead
        running = Orchestrator(repertoire, OrchestratorConfig(), tensors, status, fleet)
        async with running as orchestrator, GatewayServer(orchestrator, address, LinkConfig(), lead=lead) as gateway_server:
            leadership.announce(gateway_server.address, node=NODE)
            print(await leadership.wait_until_lost(), file=sys.stderr)
            if is_stubborn:
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:] == ["stubborn"]))
