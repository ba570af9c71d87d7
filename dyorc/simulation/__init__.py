"""The production engine under a virtual clock: simulated replicas, drawn workloads, and the clairvoyant oracle."""
