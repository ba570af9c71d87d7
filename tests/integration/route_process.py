"""Says, as JSON, which tiers lead to a holder, what each costs, and which is taken.

``python -m tests.integration.route_process``; standard input has one line, a `Question`.
"""

import sys
from typing import Any

import msgspec

from dyorc.config import TransportConfig
from dyorc.transport.cluster_network import ClusterSecrets, NodeNetwork, wire_tiers
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import TensorHolder
from dyorc.transport.zmq_security import ClusterKeys
from tests.integration.stack import Place

SIZES = (4096, 8 * 2**20)
"""Bytes for which it says what is taken."""


class Question(msgspec.Struct, frozen=True):
    """Which process asks, and about which holder."""

    place: Place
    holder: TensorHolder


class Answer(msgspec.Struct, frozen=True):
    """For each of `SIZES` the tier that is taken, and `Routes.report`."""

    taken: list[str]
    report: dict[str, Any]


def main() -> None:
    """Answers one question."""
    question = msgspec.json.decode(sys.stdin.readline(), type=Question)
    place = question.place
    keys = ClusterKeys(place.public_key.encode(), place.secret_key.encode())
    network = NodeNetwork(host=place.host, secrets=ClusterSecrets(keys=keys, token=place.token))
    routes = Routes((), tuple(wire_tiers(network, TransportConfig(**place.transport))))
    try:
        taken = [routes.wire(question.holder, num_bytes).name for num_bytes in SIZES]
        print(msgspec.json.encode(Answer(taken, routes.report())).decode())
    finally:
        routes.close()


if __name__ == "__main__":
    main()
