"""DyOrc beside its peers: the workloads, the peers, the oracle, the table. Run from the repository; see docs/benchmarks.md."""
