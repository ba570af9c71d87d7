"""``dyorc orchestrator``: the engine and its replicas, without clients. Gateways dial in."""
