"""A replica in a separate process, without Ray.

``python -m tests.integration.replica_process TARGET PROGRAM ADDRESS REPLICA_ID``

Where there are several nodes, the variable that `PLACE` names holds its place among them.
"""

import os
import sys
import threading

import msgspec

from dyorc.authoring.loading import load, program_in
from dyorc.config import LinkConfig, LogsConfig, TransportConfig
from dyorc.replica.assignment import Identity, Uplink
from dyorc.replica.worker import Worker
from dyorc.telemetry import logs
from dyorc.transport.cluster_network import ClusterSecrets
from dyorc.transport.zmq_security import ClusterKeys
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT, PLACE, Place


def main(target: str, name: str, address: str, replica_id: str) -> None:
    """Runs until the process is ended."""
    node, host, link, transport, secrets = "here", "", FAST_LINK, FAST_TRANSPORT, None
    if PLACE in os.environ:
        place = msgspec.json.decode(os.environ[PLACE], type=Place)
        node, host, link = place.node, place.host, LinkConfig(**place.link)
        transport = TransportConfig(**place.transport)
        keys = ClusterKeys(place.public_key.encode(), place.secret_key.encode())
        secrets = ClusterSecrets(keys=keys, token=place.token)
    identity = Identity(replica_id=replica_id, program=name, node=node, host=host)
    uplink = Uplink(address=address, link=link, transport=transport, secrets=secrets)
    logs.set_up(LogsConfig(), replica=replica_id)
    worker = Worker(lambda: program_in(load(target), target, name), identity, uplink)
    worker.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
