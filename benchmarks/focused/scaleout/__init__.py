"""How far gateways and orchestrators go: `python -m benchmarks.focused.scaleout`."""
