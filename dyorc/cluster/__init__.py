"""The protocol between gateways and orchestrators: `GatewayServer` is the orchestrator's end, `RemoteBackend` the gateway's."""
